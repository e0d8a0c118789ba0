"""CSV: one row per point, coordinates first, and one column per field and label, with its unit in the header.

Scalars are in a file of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from invgp.exporters.exported_fields import (
    label_texts,
    point_positions,
    read_quantities,
    select_variables,
    split_fields,
)
from invgp.posterior.contents import scalar_names

SCALAR_COLUMNS = {
    "": "mean",
    "_std": "std",
    "_quantile": "quantile",
    "_prior": "prior_mean",
    "_prior_std": "prior_std",
    "_information": "information",
    "_r_hat": "r_hat",
}

DIGITS = 7  # significant digits of results: far below their uncertainty
COORDINATE_DIGITS = 12  # a millimetre in a northing of 10,000 km


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file; a missing value is an empty cell. Scalars are written to a second file, ``<stem>_scalars.csv``.

    If the dataset has only scalars, `path` is their file.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.
    path : Path
        File to write.
    variables : sequence of str
        Variables to write; by default all fields except draws, and all scalars.

    Returns
    -------
    list of Path
        The files.
    """
    fields, scalars = read_quantities(dataset), [] if variables else scalar_names(dataset)
    file = path.with_name(f"{path.stem}_scalars{path.suffix}") if fields else path
    if scalars:
        pd.DataFrame(_scalar_rows(dataset, scalars)).to_csv(file, index=False)
    if not fields and scalars:
        return [file]
    columns = {
        _header(name, str(dataset[name].attrs.get("units", "1"))): _round(values, COORDINATE_DIGITS)
        for name, values in point_positions(dataset).items()
    }
    for field in split_fields(dataset, select_variables(dataset, variables)):
        columns[_header(field.name, field.unit)] = _round(field.values.values.ravel(), DIGITS)
    pd.DataFrame(columns).to_csv(path, index=False)
    return [path, *([file] if scalars else [])]


def _header(name: str, unit: str) -> str:
    return name if unit in {"", "1"} else f"{name} ({unit})"


def _round(values: NDArray[Any], digits: int) -> NDArray[Any]:
    """Round numbers to significant digits, without changing integers and texts."""
    if not np.issubdtype(values.dtype, np.floating):
        return values
    return np.array([float(f"{value:.{digits}g}") for value in values])


def _scalar_rows(dataset: xr.Dataset, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per scalar and label."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name in names:
        columns = {suffix: header for suffix, header in SCALAR_COLUMNS.items() if f"{name}{suffix}" in dataset}
        for suffix, header in columns.items():
            labels = [str(d) for d in dataset[name].dims]
            for field in split_fields(dataset, [f"{name}{suffix}"], kept=tuple(labels)):
                texts = label_texts(dataset, labels[0]) if labels else [""]
                quantile = field.name.removeprefix(f"{name}{suffix}")
                for text, value in zip(texts, np.atleast_1d(field.values.values), strict=True):
                    row = rows.setdefault(
                        (name, text), {"scalar": name, "label": text, "unit": dataset[name].attrs["units"]}
                    )
                    row[f"{header}{quantile}"] = float(f"{value:.{DIGITS}g}")
    return list(rows.values())
