"""CSV: one row per point, with its coordinates first, and one column per field and label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import xarray as xr

from invgp.exporters.exported_fields import point_positions, select_variables, split_fields


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file; a missing value is an empty cell.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.
    path : Path
        File to write.
    variables : sequence of str
        Variables to write; by default all fields except draws.

    Returns
    -------
    list of Path
        The files.
    """
    columns = {
        field.name: field.values.values.ravel() for field in split_fields(dataset, select_variables(dataset, variables))
    }
    pd.DataFrame({**point_positions(dataset), **columns}).to_csv(path, index=False)
    return [path]
