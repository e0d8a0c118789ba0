"""CSV: a row a point, its coordinates first, a column a layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import xarray as xr

from invgp.exporters.layers import chosen, layers, positions


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file; a missing value is an empty cell."""
    columns = {layer.name: layer.values.values.ravel() for layer in layers(dataset, chosen(dataset, variables))}
    pd.DataFrame({**positions(dataset), **columns}).to_csv(path, index=False)
    return [path]
