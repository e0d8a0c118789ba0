"""The reader of netCDF files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..protocol import AdapterError, Floats, Quantity
from ..quantities import did_you_mean, size_of
from .file_access import read_bytes
from .isolation import read_isolated
from .reader import OneFile, Rows, check_rows, pick_rows
from .text import count_error

if TYPE_CHECKING:
    import h5py

CLASSIC = b"CDF"  # start of a file of netCDF-3, which has no links
MOST_COMPRESSED = 1100  # highest compression ratio of zlib


@dataclass(frozen=True)
class NetcdfFile(OneFile):
    """A variable of a netCDF file.

    The file is read in a helper process, because a damaged file can crash the netCDF library or let it loop for ever.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    variable : str
        Name of the variable; ``group/name`` for one in a group.
    row : int, tuple of int or None
        Which entries along the first dimension, from 1; -1 for the last; None for all.
    timeout : float
        Time limit for reading in s. The timeout of the program also applies.
    """

    variable: str = ""
    row: Rows = None
    timeout: float = field(default=60.0, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_rows(self.row)
        if self.path is None:
            raise AdapterError("path", "must name a file: standard output cannot be netCDF")
        if not self.variable:
            raise AdapterError("variable", "must name a variable, but is empty")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the variable, with the last dimension fastest; missing values are NaN."""
        data = read_bytes(directory, self.path)
        return read_isolated(read_variable, data, self.variable, self.row, size_of(quantities), seconds=self.timeout)


def read_variable(data: bytes, name: str, row: Rows, count: int) -> Floats:
    """Read a variable of a netCDF file in memory.

    Parameters
    ----------
    data : bytes
        The content of the file. A damaged file can crash the library or let it loop for ever.
    name, row
        As in `NetcdfFile`.
    count : int
        Required number of numbers.

    Returns
    -------
    array, shape (count,)

    Raises
    ------
    OSError, ValueError
        The variable cannot be read.
    """
    from netCDF4 import Dataset  # noqa: PLC0415 - slow to import, and rarely needed

    if not data.startswith(CLASSIC):
        _check_self_contained(data)
    try:
        # From memory, because the library does not accept a descriptor and would follow a link.
        with Dataset("output", memory=data) as file:
            variable = _find_variable(file, name)
            return _read_values(variable, name, row, count, MOST_COMPRESSED * len(data))
    except RuntimeError as error:  # the error of the library for a damaged file
        raise ValueError(f"variable {name!r} cannot be read: {error}") from error


def _read_values(variable: Any, name: str, row: Rows, expected: int, most_bytes: int) -> Floats:
    if getattr(variable.dtype, "kind", "O") not in "iuf":
        raise ValueError(f"variable {name!r} holds no numbers")
    shape, chunks = variable.shape, variable.chunking()
    wanted = slice(None) if row is None else pick_rows(range(shape[0] if shape else 0), row, "entry")
    # Counted before reading: a small file can contain a huge variable.
    count = math.prod(shape if isinstance(wanted, slice) else (len(wanted), *shape[1:]))
    if count != expected:
        raise count_error(expected, count)
    if isinstance(chunks, list) and math.prod(chunks) * variable.dtype.itemsize > most_bytes:
        raise ValueError(f"variable {name!r} has chunks that are larger than a file of its size can hold")
    values = variable[wanted] if shape else variable[...]
    return np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan).reshape(-1)


def _find_variable(file: Any, path: str) -> Any:
    *groups, name = path.strip("/").split("/")
    for group in groups:
        if group not in file.groups:
            raise ValueError(f"has no group {group!r}; {did_you_mean(group, file.groups)}")
        file = file.groups[group]
    if name not in file.variables:
        raise ValueError(f"has no variable {name!r}; {did_you_mean(name, file.variables)}")
    return file.variables[name]


def _check_self_contained(data: bytes) -> None:
    """Raise `ValueError` if the content of a file refers to other files."""
    import h5py  # noqa: PLC0415 - slow to import, and rarely needed

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fapl_core(backing_store=False)
    access.set_file_image(data)
    try:
        opened = h5py.h5f.open(b"output", h5py.h5f.ACC_RDONLY, fapl=access)
    except OSError:  # it is no HDF5 file: the netCDF library gives the reason
        return
    try:
        with h5py.File(opened) as file:
            found = find_outside_data(file)
    except (KeyError, OSError, RuntimeError) as error:
        raise ValueError(f"is damaged: {error.args[0]}") from error
    if found:
        raise ValueError(found)


def find_outside_data(file: h5py.File) -> str:
    """Return which part of a file is kept elsewhere, as a part of a sentence; empty if there is none.

    The netCDF library would read another file, wherever it is, and would not return from a group that contains itself.
    """
    import h5py  # noqa: PLC0415

    seen, waiting = set(), [file["/"]]
    while waiting:
        group = waiting.pop()
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            return f"the group {group.name!r} is a link to another group"
        seen.add(address)
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                return f"{name!r} is a link to data elsewhere"
            found = group[name]
            if isinstance(found, h5py.Group):
                waiting.append(found)
            elif isinstance(found, h5py.Dataset) and (found.is_virtual or found.external):
                return f"the variable {name!r} is kept in another file"
    return ""
