"""netCDF files from anywhere: whether one can be opened without harm.

A damaged file may let the netCDF library loop for ever or crash, and a prepared one may lead to other files or declare
terabytes. So a file is first read in a child process, which may fail.
"""

from __future__ import annotations

import faulthandler
import math
import os
import select
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invgp.errors import ConfigError
from invgp.library_paths import utf8_path

if TYPE_CHECKING:
    import netCDF4

SIGNATURE = b"\x89HDF\r\n\x1a\n"  # of HDF5, and so of netCDF-4
CLASSIC = b"CDF"
MOST_COMPRESSED = 1100  # times smaller is the most that zlib makes of zeros
MOST_TRIED = 2**28  # bytes that the child reads; of a larger file, only the first value of each variable
PATIENCE = 60.0  # s for what takes a second
FINE, DAMAGED = "fine", "it is damaged"
CRASHES = f"{DAMAGED}, and the netCDF library crashes on it"
# The modules of a new interpreter are searched where those of this one are.
NEW_INTERPRETER = """
import sys
path, sys.path[:] = sys.argv[1], sys.argv[2:]
from invgp.netcdf_container import print_inspection
print_inspection(path)
"""
# What the netCDF library and xarray raise where a file is damaged.
UNREADABLE = (
    *(AttributeError, IndexError, KeyError, MemoryError, NotImplementedError, OSError, OverflowError),
    *(RuntimeError, TypeError, ValueError),
)


def unreadable_error(path: str | Path, reason: str) -> ConfigError:
    """The error for a file that cannot be read."""
    return ConfigError(f"the posterior {str(path)!r} cannot be read: {reason}")


def check_container(path: Path) -> None:
    """Check that a file is netCDF-4 of plain variables, in one piece, and holds as much as it declares.

    Parameters
    ----------
    path : Path
        A file that may come from anywhere.

    Raises
    ------
    ConfigError
        It is not; the sentence says why.
    """
    # Here, so that help is given without waiting for them, and once, not in every child.
    import h5py  # noqa: F401, PLC0415
    import netCDF4  # noqa: F401, PLC0415

    if not path.is_file():
        raise unreadable_error(path, "it is not a file" if path.exists() else "no such file")
    try:
        with path.open("rb") as file:
            start = file.read(len(SIGNATURE))
    except OSError as error:
        raise unreadable_error(path, error.strerror or str(error)) from error
    if start != SIGNATURE:
        classic = start.startswith(CLASSIC)
        raise unreadable_error(path, "it is netCDF-3, and must be netCDF-4" if classic else "it is not a netCDF file")
    with utf8_path(path) as name:
        # A forked child has the locks that other threads held, in libraries too, and nobody who releases them.
        alone = threading.active_count() == 1
        reason = _in_a_child(lambda: _inspect(name)) if alone else _in_a_new_interpreter(name)
    if reason != FINE:
        raise unreadable_error(path, reason)


def _in_a_new_interpreter(path: Path) -> str:
    """What is wrong with a file, or `FINE`, found by a process that takes half a second to start."""
    places = [entry for entry in sys.path if isinstance(entry, str)]
    command = [sys.executable, "-c", NEW_INTERPRETER, str(path), *places]
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _too_long()
    return ended.stdout.decode() or CRASHES


def print_inspection(path: str) -> None:
    """Print what is wrong with a file, or `FINE`: what a new interpreter does."""
    os.write(sys.stdout.fileno(), _sentence(lambda: _inspect(Path(path))).encode())


def _in_a_child(inspect: Callable[[], str]) -> str:
    """What a function says in a forked process, which may crash or hang; only where no other thread is active."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads of OpenBLAS, which is prepared for a fork
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if child == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            faulthandler.disable()  # a crash is reported by the parent
            os.write(writing, _sentence(inspect).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        answer = select.poll()  # other than select.select, with descriptors above 1023 too
        answer.register(reading, select.POLLIN)
        if not answer.poll(1000 * PATIENCE):
            return _too_long()
        return os.read(reading, select.PIPE_BUF).decode() or CRASHES
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # a child that has ended stays until it is waited for
        os.waitpid(child, 0)


def _too_long() -> str:
    return f"reading it takes too long, more than {PATIENCE:g} s"


def _sentence(inspect: Callable[[], str]) -> str:
    try:
        return inspect()[: select.PIPE_BUF // 4]
    except UNREADABLE:
        return DAMAGED


def _inspect(path: Path) -> str:
    """What is wrong with a file, or `FINE`."""
    import netCDF4  # noqa: PLC0415

    found = _find_link(path)
    if found:
        return found
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return _find_declaration(file, path.stat().st_size) or _try_values(file)


def _find_link(path: Path) -> str:
    """What leads to other files, which the netCDF library would follow."""
    import h5py  # noqa: PLC0415

    with h5py.File(path) as file:
        for name in file:
            if not isinstance(file.get(name, getlink=True), h5py.HardLink):
                return f"{name!r} is a link to data elsewhere"
            found = file[name]
            if isinstance(found, h5py.Group):
                return f"{name!r} is a group, and a posterior has none"
            if isinstance(found, h5py.Dataset) and (found.is_virtual or found.external):
                return f"the variable {name!r} is kept in another file"
    return ""


def _find_declaration(file: netCDF4.Dataset, file_size: int) -> str:
    """Types that a posterior has not, and sizes that a file of this size cannot hold."""
    if file.groups or file.cmptypes or file.vltypes or file.enumtypes:
        return "it has groups or types of its own, and a posterior has neither"
    total = 0
    for name, variable in file.variables.items():
        chunks = variable.chunking()
        size = 1 if variable.dtype is str else variable.dtype.itemsize
        total += size * math.prod(variable.shape)
        chunk = size * math.prod(chunks) if isinstance(chunks, list) else 0
        if max(total, chunk) > MOST_COMPRESSED * file_size:
            return f"it declares more numbers, in {name!r}, than a file of its size can hold"
    return ""


def _try_values(file: netCDF4.Dataset) -> str:
    """Read all attributes and values; an error is what is looked for."""
    owners: list[Any] = [file, *file.variables.values()]
    for owner in owners:
        for name in owner.ncattrs():
            owner.getncattr(name)
    size = sum(math.prod(v.shape) * (1 if v.dtype is str else v.dtype.itemsize) for v in file.variables.values())
    for variable in file.variables.values():
        if 0 not in variable.shape:
            variable[... if size <= MOST_TRIED else (0,) * variable.ndim]
    return FINE
