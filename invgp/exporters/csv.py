"""CSV: one row per point, coordinates first, and one column per field and label, with its unit in the header."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from invgp.exporters.exported_fields import point_positions, select_variables, split_fields

DIGITS = 7  # significant digits of results: far below their uncertainty
COORDINATE_DIGITS = 12  # a millimetre in a northing of 10,000 km


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
        _header(name, str(dataset[name].attrs.get("units", "1"))): _round(values, COORDINATE_DIGITS)
        for name, values in point_positions(dataset).items()
    }
    for field in split_fields(dataset, select_variables(dataset, variables)):
        columns[_header(field.name, field.unit)] = _round(field.values.values.ravel(), DIGITS)
    pd.DataFrame(columns).to_csv(path, index=False)
    return [path]


def _header(name: str, unit: str) -> str:
    return name if unit in {"", "1"} else f"{name} ({unit})"


def _round(values: NDArray[Any], digits: int) -> NDArray[Any]:
    """Round numbers to significant digits, without changing integers and texts."""
    if not np.issubdtype(values.dtype, np.floating):
        return values
    return np.array([float(f"{value:.{digits}g}") for value in values])
