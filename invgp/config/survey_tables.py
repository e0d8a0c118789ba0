"""Tables from CSV, netCDF and mesh files: named columns of numbers, one row per site, node or cell."""

from __future__ import annotations

import codecs
import csv
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import ConfigError
from invgp.files.meshes import MESH_SUFFIXES, Mesh, MeshError, find_topology, read_mesh, tabulate_topology
from invgp.files.netcdf_container import UNREADABLE, find_table_defect, utf8_path
from invgp.formatting import did_you_mean, format_value, join_names, suggest
from invgp.operating_system import delay_interrupts
from invgp.problem import Floats
from invgp.units import conversion, is_unit

NETCDF_SUFFIXES = (".nc", ".nc4", ".cdf")
LIKENESS_OF_FILES = 0.8  # many names have the same ending
LONGEST_PATH = 300
SEPARATORS = {";": "semicolons", "\t": "tabs"}


class Table(Protocol):
    """A table with named columns."""

    @property
    def names(self) -> list[str]:
        """Names of all columns, in the order of the file."""

    def unit_of(self, name: str) -> str:
        """Return the unit of a column; empty if the file has none."""

    def columns(self, names: Sequence[str], unit: str, key: str, *, spread: bool = False) -> Floats:
        """Return columns by name, (N, k), in `unit`.

        Parameters
        ----------
        names : sequence of str
        unit : str
        key : str
            Key of the configuration, or argument, for messages.
        spread : bool
            Whether they are standard deviations, for which the offset of a unit such as degC is not applied.
        """

    def texts(self, name: str, key: str) -> list[str]:
        """Return a column as text, one per site; `key` is named in an error."""


@dataclass(frozen=True)
class CsvTable:
    """A CSV file with a header line.

    Parameters
    ----------
    file : Path
    header : list of str
    rows : list of list of str
        Cells below the header; each row has the length of the header.
    lines : list of int
        Line of each row in the file.
    """

    file: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    @property
    def names(self) -> list[str]:
        """Names in the header."""
        return self.header

    def unit_of(self, name: str) -> str:  # noqa: ARG002 - a CSV names no unit
        """Return an empty text."""
        return ""

    def columns(self, names: Sequence[str], unit: str, key: str, *, spread: bool = False) -> Floats:  # noqa: ARG002 - a CSV names no unit
        """Return columns by name, (N, k)."""
        return np.stack([self._column(name, key) for name in names], axis=-1)

    def texts(self, name: str, key: str) -> list[str]:
        """Return the cells of a column as text."""
        place = self._place(name, key)
        return [row[place].strip() for row in self.rows]

    def select(self, rows: NDArray[np.bool_]) -> CsvTable:
        """Return the table of some rows."""
        chosen = np.flatnonzero(rows)
        return replace(self, rows=[self.rows[i] for i in chosen], lines=[self.lines[i] for i in chosen])

    def _place(self, name: str, key: str) -> int:
        if self.header.count(name) != 1:
            wrong = f"has {self.header.count(name)} columns" if name in self.header else "has no column"
            valid = suggest(name, self.header) if name not in self.header else ""
            raise ConfigError(f"{key}: must be a column of {self.file.name}, which {wrong} {name!r}{valid}")
        return self.header.index(name)

    def _column(self, name: str, key: str) -> Floats:
        place = self._place(name, key)
        values = np.empty(len(self.rows))
        for i, row in enumerate(self.rows):
            number = _number(row[place])
            if number is None:
                text = row[place].strip()
                hint = "; decimals are written with a point" if _number(text.replace(",", ".")) is not None else ""
                raise ConfigError(
                    f"{key}: column {name!r} of {self.file.name} must hold numbers, or nothing where there is none, "
                    f"was {text!r} in line {self.lines[i]}{hint}"
                )
            values[i] = number
        return values


def _number(cell: str) -> float | None:
    """Return the number of a cell, NaN if the cell is empty, None if it is not a number."""
    text = cell.strip()
    try:
        return float(text or "nan") if "_" not in text else None  # Python reads 1_0 as 10
    except ValueError:
        return None


@dataclass(frozen=True)
class NetcdfTable:
    """Variables of a netCDF file along one dimension of sites; a second dimension gives several columns.

    Parameters
    ----------
    file : Path
    dataset : xarray.Dataset
    position : str
        Variable whose dimension is that of the sites.
    mesh : Mesh or None
        The mesh whose cells are the rows.
    """

    file: Path
    dataset: xr.Dataset
    position: str
    mesh: Mesh | None = None

    @property
    def names(self) -> list[str]:
        """Names of the variables."""
        return [str(name) for name in self.dataset.variables]

    def unit_of(self, name: str) -> str:
        """Return the attribute `units` of a variable if it is a unit."""
        unit = str(self.dataset[name].attrs.get("units", ""))
        return unit if is_unit(unit) else ""

    def columns(self, names: Sequence[str], unit: str, key: str, *, spread: bool = False) -> Floats:
        """Return variables by name, (N, k), converted to `unit` if they have another one."""
        return np.concatenate([self._variable(name, unit, key, spread=spread) for name in names], axis=-1)

    def texts(self, name: str, key: str) -> list[str]:
        """Return the values of a variable as text."""
        self._check_known(name, key)
        return [str(value) for value in self.dataset[name].to_numpy().ravel()]

    def select(self, rows: NDArray[np.bool_]) -> NetcdfTable:
        """Return the table of some rows."""
        along = self.dataset[self.position].dims[0]
        mesh = None if self.mesh is None else self.mesh.select(rows)
        return replace(self, dataset=self.dataset.isel({along: np.flatnonzero(rows)}), mesh=mesh)

    def _check_known(self, name: str, key: str) -> None:
        names = sorted(str(n) for n in self.dataset.variables)
        if name not in names:
            raise ConfigError(
                f"{key}: must be a variable of {self.file.name}, which has no variable {name!r}{suggest(name, names)}"
            )

    def _variable(self, name: str, unit: str, key: str, *, spread: bool) -> Floats:
        self._check_known(name, key)
        values = self._by_site(name, key)
        own = str(self.dataset[name].attrs.get("units", unit))
        change = conversion(own, unit) if is_unit(own) else None
        if change is None:
            raise ConfigError(
                f"{key}: variable {name!r} of {self.file.name} must be in a unit that can be converted to {unit!r}, "
                f"was in {own!r}"
            )
        return values * change.factor + (0.0 if spread else change.offset)

    def _by_site(self, name: str, key: str) -> Floats:
        """Return a variable as (N, k)."""
        variable = self.dataset[name]
        # A missing position is reported under its own key.
        sites = (self.dataset[self.position] if self.position in self.dataset.variables else variable).dims[:1]
        numeric = np.issubdtype(variable.dtype, np.number)
        if variable.ndim not in (1, 2) or not numeric or sites[0] not in variable.dims:
            along = join_names(variable.dims) if variable.dims else "no dimension"
            where = sites[0] if sites else self.position
            raise ConfigError(
                f"{key}: variable {name!r} of {self.file.name} must hold numbers along {where!r} (the sites) and "
                f"one more dimension at the most, was {'numbers' if numeric else 'something else'} along {along}"
            )
        values = variable.transpose(*sites, ...).to_numpy().astype(np.float64)
        return values.reshape(values.shape[0], -1)


def read_table(file: Path, position: str | None, key: str) -> CsvTable | NetcdfTable:
    """Open a survey file.

    Parameters
    ----------
    file : Path
    position : str or None
        Column of the first coordinate; None for the first variable of numbers with one dimension.
    key : str
        Key of the configuration, or argument, for messages.
    """
    check_regular(file, key)
    suffix = file.suffix.lower()
    try:
        if suffix in MESH_SUFFIXES:
            table: CsvTable | NetcdfTable = _mesh(file, position)
        else:
            table = _netcdf(file, position) if suffix in NETCDF_SUFFIXES else _csv(file)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{key}: must be a CSV file in UTF-8 (or netCDF, with a name that ends in .nc), was {str(file)!r}, "
            f"{_encoding(error)}"
        ) from error
    except (OSError, _LayoutError, MeshError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        what = "netCDF" if suffix in NETCDF_SUFFIXES else "mesh" if suffix in MESH_SUFFIXES else "CSV"
        rows = "nodes" if key == "grid.file" else "sites"
        raise ConfigError(f"{key}: must be a {what} file of {rows}, was {str(file)!r}: {reason}") from error
    return table


def _encoding(error: UnicodeDecodeError) -> str:
    if error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "which is UTF-16; save it as UTF-8"
    return f"whose byte {error.start + 1} is not UTF-8"


class _LayoutError(Exception):
    """The file is not a table of sites; the message states why."""


def _mesh(file: Path, position: str | None) -> NetcdfTable:
    mesh, dataset = read_mesh(file)
    return NetcdfTable(file, dataset, position or "x", mesh)


def _netcdf(file: Path, position: str | None) -> NetcdfTable:
    defect = find_table_defect(file)
    if defect:
        raise _LayoutError(defect)
    try:
        # Times stay numbers: a coordinate is a number with a unit here.
        with (
            utf8_path(file) as name,
            delay_interrupts(),
            xr.open_dataset(name, engine="netcdf4", decode_times=False, decode_timedelta=False) as dataset,
        ):
            if dataset.nbytes > psutil.virtual_memory().available:
                raise _LayoutError(f"it takes {dataset.nbytes / 2**30:,.1f} GiB of memory, which are not free")
            if find_topology(dataset) is not None:
                mesh, cells = tabulate_topology(dataset.load())
                return NetcdfTable(file, cells, position or "x", mesh)
            position = _first_position(dataset) if position is None else position
            table = NetcdfTable(file, dataset.load(), position)
    except UNREADABLE as error:
        if isinstance(error, OSError):  # its message states the reason
            raise
        raise _LayoutError("it is damaged") from error
    variable = table.dataset.get(position)
    if variable is None:
        return table  # reported by the caller that needs the column
    if variable.ndim == 0 or variable.size == 0:
        raise _LayoutError(f"variable {position!r} holds no sites")
    return table


def _first_position(dataset: xr.Dataset) -> str:
    for name, variable in dataset.variables.items():
        if variable.ndim == 1 and np.issubdtype(variable.dtype, np.number):
            return str(name)
    raise _LayoutError("it has no variable of numbers along one dimension")


def _csv(file: Path) -> CsvTable:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, strict=True, skipinitialspace=True)
        rows, lines, first = [], [], 1
        try:
            for row in reader:
                if row:  # an empty line is no site
                    rows.append(row)
                    lines.append(reader.line_num)
                first = reader.line_num + 1
        except csv.Error as error:
            raise _LayoutError(_why_not_cut(str(error), first, reader.line_num)) from error
    if not rows:
        raise _LayoutError("it is empty; the first line must name the columns")
    header = [name.strip() for name in rows[0]]
    _check_layout(header, rows[1:], lines[1:])
    return CsvTable(file, header, rows[1:], lines[1:])


def _why_not_cut(error: str, first: int, last: int) -> str:
    """Describe the error of a row that starts in line `first` and was read up to line `last`."""
    if last > first:
        return f"line {first} has a quote that is not closed"
    return f"line {last} cannot be cut into cells: {error}"


def _check_layout(header: list[str], rows: list[list[str]], lines: list[int]) -> None:
    for separator, name in SEPARATORS.items():
        if len(header) == 1 and separator in header[0]:
            points = ", with points in numbers" if any(len(row) > 1 for row in rows) else ""
            raise _LayoutError(f"its columns are separated by {name}, they must be by commas{points}")
    if not rows:
        raise _LayoutError("it has a header, and no row below it")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            hint = "; the first line must name the columns" if len(header) == 1 else ""
            raise _LayoutError(f"line {line} has {len(row)} cells, the header has {len(header)}{hint}")


def check_regular(file: Path, key: str) -> None:
    """Raise `ConfigError` unless there is a regular file; a pipe might never end."""
    try:
        regular = stat.S_ISREG(file.stat().st_mode)
        why = "which is not a regular file"
    except (FileNotFoundError, NotADirectoryError):
        regular, why = False, f"which does not exist{_neighbour(file)}"
    except OSError as error:
        regular, why = False, f"which cannot be opened ({error.strerror})"
    if not regular:
        raise ConfigError(f"{key}: must be a file that can be read, was {format_value(str(file), LONGEST_PATH)}, {why}")


def _neighbour(file: Path) -> str:
    try:
        names = [entry.name for entry in file.parent.iterdir()]
    except PermissionError:
        return ""
    except OSError:
        return f" (nor does the directory {str(file.parent)!r})"
    return did_you_mean(file.name, names, LIKENESS_OF_FILES)
