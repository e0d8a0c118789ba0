"""The survey file: named columns of numbers, a row a site, from CSV or netCDF."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
import xarray as xr

from invgp.config.sentences import suggestion
from invgp.errors import ConfigError
from invgp.problem import Floats
from invgp.units import conversion, is_unit


class Table(Protocol):
    """Columns by name."""

    def columns(self, names: list[str], unit: str, key: str) -> Floats:
        """The named columns side by side, (N, k), in `unit`. `key` is the config key to blame."""


@dataclass(frozen=True)
class CsvTable:
    """A CSV file with a header line."""

    file: Path
    frame: pd.DataFrame

    def columns(self, names: list[str], unit: str, key: str) -> Floats:  # noqa: ARG002 - a CSV names no unit
        """The named columns side by side, (N, k)."""
        return np.stack([self._column(name, key) for name in names], axis=-1)

    def _column(self, name: str, key: str) -> Floats:
        if name not in self.frame.columns:
            raise ConfigError(
                f"{key}: {self.file.name} has no column {name!r}{suggestion(name, list(self.frame.columns))}"
            )
        text = self.frame[name]
        numbers = pd.to_numeric(text, errors="coerce")
        bad = numbers.isna() & ~text.str.strip().str.lower().isin(["", "nan"])
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ConfigError(
                f"{key}: column {name!r} of {self.file.name} must hold numbers (or nothing, where there is none), "
                f"was {text.iloc[row]!r} at site {row + 1}"
            )
        return numbers.to_numpy(dtype=np.float64)


@dataclass(frozen=True)
class NetcdfTable:
    """Variables of a netCDF file, all along one dimension of sites; a second dimension gives several columns."""

    file: Path
    dataset: xr.Dataset

    def columns(self, names: list[str], unit: str, key: str) -> Floats:
        """The named variables side by side, (N, k), converted to `unit` if they carry another."""
        return np.concatenate([self._variable(name, unit, key) for name in names], axis=-1)

    def _variable(self, name: str, unit: str, key: str) -> Floats:
        variables = {str(n) for n in self.dataset.variables}
        if name not in variables:
            raise ConfigError(f"{key}: {self.file.name} has no variable {name!r}{suggestion(name, sorted(variables))}")
        variable = self.dataset[name]
        if variable.ndim not in (1, 2) or not np.issubdtype(variable.dtype, np.number):
            raise ConfigError(
                f"{key}: variable {name!r} of {self.file.name} must be numbers along the sites (and one more "
                f"dimension at the most), was {variable.dtype} along {variable.dims}"
            )
        own = str(variable.attrs.get("units", unit))
        change = conversion(own, unit) if is_unit(own) else None
        if change is None:
            raise ConfigError(
                f"{key}: variable {name!r} of {self.file.name} is in {own!r}, which cannot be converted to {unit!r}"
            )
        values = variable.to_numpy().astype(np.float64) * change.factor + change.offset
        return values.reshape(values.shape[0], -1)


def read_table(file: Path, key: str) -> Table:
    """Open a survey file; `key` is the config key that names it."""
    if not file.is_file():
        raise ConfigError(f"{key}: must be a file that can be read, was {str(file)!r}, which does not exist")
    try:
        if file.suffix.lower() in (".nc", ".nc4", ".cdf"):
            # Times stay numbers: a coordinate is a number with a unit here.
            with xr.open_dataset(file, decode_times=False) as dataset:
                return NetcdfTable(file, dataset.load())
        frame = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig", skipinitialspace=True)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{key}: {str(file)!r} cannot be read as a table of sites: {reason}") from error
    if frame.empty:
        raise ConfigError(f"{key}: must have a row for each site, was {str(file)!r}, which has none")
    return CsvTable(file, frame)
