"""Survey tables in memory: a DataFrame, a Dataset or a mapping of columns."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from invgp.config.survey_tables import NetcdfTable, Table, read_table
from invgp.errors import ConfigError
from invgp.formatting import suggest
from invgp.problem import Floats


@dataclass(frozen=True)
class ColumnsTable:
    """Columns of numbers, (N,) each, of a mapping or a pandas DataFrame."""

    data: Any

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [str(name) for name in self.data]

    def unit_of(self, name: str) -> str:  # noqa: ARG002 - a column names no unit
        """Return an empty text."""
        return ""

    def columns(self, names: Sequence[str], unit: str, key: str, *, spread: bool = False) -> Floats:  # noqa: ARG002
        """Return columns by name, (N, k)."""
        found = [self._column(name, key) for name in names]
        sites = self._sites()
        for name, values in zip(names, found, strict=True):
            if values.shape != (sites,):
                raise ConfigError(f"{key}: column {name!r} of the data must have shape ({sites},), had {values.shape}")
        return np.stack(found, axis=-1)

    def texts(self, name: str, key: str) -> list[str]:
        """Return the values of a column as text."""
        self._check_known(name, key)
        return [str(value) for value in self.data[name]]

    def _sites(self) -> int:
        return len(self.data[next(iter(self.data))])

    def _check_known(self, name: str, key: str) -> None:
        if self.names.count(name) != 1:
            wrong = f"have {self.names.count(name)} columns" if name in self.names else "have no column"
            valid = suggest(name, self.names) if name not in self.names else ""
            raise ConfigError(f"{key}: must be a column of the data, which {wrong} {name!r}{valid}")

    def _column(self, name: str, key: str) -> Floats:
        self._check_known(name, key)
        values = self.data[name]
        array = np.asarray(values)
        if isinstance(values, np.ma.MaskedArray):
            array = array.astype(object)
            array[np.ma.getmaskarray(values)] = None
        if array.dtype.kind in "fiu":
            return array.astype(np.float64)
        for value in array.ravel():
            if not _is_number(value):
                raise ConfigError(
                    f"{key}: column {name!r} of the data must hold numbers, or NaN where there is none, had "
                    f"{str(value)!r}"
                )
        return np.array([np.nan if _is_missing(v) else v for v in array.ravel()], dtype=float).reshape(array.shape)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType"  # pandas's own


def _is_number(value: Any) -> bool:
    return _is_missing(value) or isinstance(value, int | float | np.integer | np.floating)


def as_table(data: Any, position: str) -> Table:
    """Return a table for the data of `invgp.define`.

    Parameters
    ----------
    data : DataFrame, Dataset, mapping or path
    position : str
        Column of the first coordinate.
    """
    if isinstance(data, str | Path):
        return read_table(Path(data), position, "data")
    if isinstance(data, xr.Dataset):
        return NetcdfTable(Path("the dataset"), data, position)
    if not (isinstance(data, Mapping) or hasattr(data, "columns")):
        raise ConfigError(
            f"data: must be a DataFrame, an xarray.Dataset, a mapping of columns or a path, was {reprlib.repr(data)}"
        )
    if not len(data) or not len(data[next(iter(data))]):
        raise ConfigError("data: must have a row for each site, had none")
    return ColumnsTable(data)
