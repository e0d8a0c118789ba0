"""Check whether a netCDF file of unknown origin can be opened safely.

A damaged file can crash the netCDF library or let it loop forever. A malicious one can link to other files or declare
terabytes. A posterior or a survey is therefore first read in a child process.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from invgp.errors import ConfigError

if TYPE_CHECKING:
    import h5py
    import netCDF4


SIGNATURE = b"\x89HDF\r\n\x1a\n"  # of HDF5, and so of netCDF-4
MOST_TRIED = 2**28  # bytes that the child reads; of a larger file, it reads the first value of each variable
PATIENCE = 60.0  # s, time limit of the check, which usually takes less than 1 s
FINE, DAMAGED = "fine", "it is damaged"
CRASHES = f"{DAMAGED}, and the netCDF library crashes on it"
# The new interpreter searches for modules in the same places as this one.
NEW_INTERPRETER = """
import sys
kind, path, sys.path[:] = sys.argv[1], sys.argv[2], sys.argv[3:]
from invgp.files.netcdf_container import print_inspection
print_inspection(kind, path)
"""
# Exceptions that the netCDF library and xarray raise for damaged files.
UNREADABLE = (
    *(AttributeError, IndexError, KeyError, MemoryError, NotImplementedError, OSError, OverflowError),
    *(RuntimeError, TypeError, ValueError),
)


def unreadable_error(path: str | Path, reason: str) -> ConfigError:
    """Return the error for a file that cannot be read."""
    return ConfigError(f"the posterior {str(path)!r} cannot be read: {reason}")


def check_container(path: Path) -> None:
    """Check that a file is netCDF-4 with plain variables, is not damaged, and contains as much data as it declares.

    Parameters
    ----------
    path : Path
        A file of unknown origin.

    Raises
    ------
    ConfigError
        It is not; the message states the reason.
    """
    # Imported here, because the help does not need them, and before the fork, so that the child need not import them.
    import h5py  # noqa: F401, PLC0415
    import netCDF4  # noqa: F401, PLC0415

    from invgp.adapters.readers.netcdf import CLASSIC  # noqa: PLC0415

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
    reason = _inspect_elsewhere("posterior", path)
    if reason != FINE:
        raise unreadable_error(path, reason)


def find_table_defect(path: Path) -> str:
    """Return why a netCDF file with a table, such as a survey, cannot be read; empty if it can be read.

    Parameters
    ----------
    path : Path
        A file of unknown origin.

    Raises
    ------
    OSError
        It cannot be opened.
    """
    import h5py  # noqa: F401, PLC0415 - as above
    import netCDF4  # noqa: F401, PLC0415

    from invgp.adapters.readers.netcdf import CLASSIC  # noqa: PLC0415

    with path.open("rb") as file:
        start = file.read(len(SIGNATURE))
    reason = _inspect_elsewhere("table", path)
    if reason == DAMAGED and start != SIGNATURE and not start.startswith(CLASSIC):
        return "it is not a netCDF file"
    return "" if reason == FINE else reason


def _inspect_elsewhere(kind: str, path: Path) -> str:
    """Return the defect of a file, or `FINE`, from another process, which may crash or hang."""
    with utf8_path(path) as name:
        # A forked child inherits locks of other threads, which no thread would release.
        if threading.active_count() == 1:
            return _inspect_in_child(lambda: INSPECTIONS[kind](name))
        return _inspect_in_new_interpreter(kind, name)


def _inspect_in_new_interpreter(kind: str, path: Path) -> str:
    """Return the defect of a file, or `FINE`, with a new interpreter, which takes half a second to start."""
    places = [entry for entry in sys.path if isinstance(entry, str)]
    command = [sys.executable, "-c", NEW_INTERPRETER, kind, str(path), *places]
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
        return _time_limit_message()
    return ended.stdout.decode() or CRASHES


def print_inspection(kind: str, path: str) -> None:
    """Print the defect of a file, or `FINE`; called in a new interpreter."""
    os.write(sys.stdout.fileno(), _describe_defect(lambda: INSPECTIONS[kind](Path(path))).encode())


def _inspect_in_child(inspect: Callable[[], str]) -> str:
    """Return the result of a function in a forked process, which may crash or hang; only without other threads."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about threads of OpenBLAS, which supports fork
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if child == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            faulthandler.disable()  # a crash is reported by the parent
            os.write(writing, _describe_defect(inspect).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        answer = select.poll()  # unlike select.select, it supports descriptors above 1023
        answer.register(reading, select.POLLIN)
        if not answer.poll(1000 * PATIENCE):
            return _time_limit_message()
        return os.read(reading, select.PIPE_BUF).decode() or CRASHES
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # a child that has ended stays until it is waited for
        os.waitpid(child, 0)


def _time_limit_message() -> str:
    return f"reading it takes too long, more than {PATIENCE:g} s"


def _describe_defect(inspect: Callable[[], str]) -> str:
    try:
        return inspect()[: select.PIPE_BUF // 4]
    except UNREADABLE:
        return DAMAGED


def _inspect_posterior(path: Path) -> str:
    """Return the defect of a file that must be a posterior, or `FINE`."""
    import h5py  # noqa: PLC0415
    import netCDF4  # noqa: PLC0415

    from invgp.adapters.readers.netcdf import find_outside_data  # noqa: PLC0415

    with h5py.File(path) as file:
        found = find_outside_data(file) or _find_group(file)
    if found:
        return found
    with netCDF4.Dataset(path) as opened:
        opened.set_auto_maskandscale(False)
        if opened.cmptypes or opened.vltypes or opened.enumtypes:
            return "it has types of its own, and a posterior has none"
        return _find_oversize(opened, path.stat().st_size) or _try_values(opened)


def _inspect_table(path: Path) -> str:
    """Return the defect of a file that must be a table, or `FINE`."""
    import h5py  # noqa: PLC0415
    import netCDF4  # noqa: PLC0415

    from invgp.adapters.readers.netcdf import CLASSIC, find_outside_data  # noqa: PLC0415

    with path.open("rb") as start:
        classic = start.read(len(CLASSIC)) == CLASSIC
    if not classic:
        with h5py.File(path) as file:
            found = find_outside_data(file)
        if found:
            return found
    with netCDF4.Dataset(path) as opened:
        opened.set_auto_maskandscale(False)
        return _find_oversize(opened, path.stat().st_size) or _try_values(opened)


INSPECTIONS: dict[str, Callable[[Path], str]] = {"posterior": _inspect_posterior, "table": _inspect_table}


def _find_group(file: h5py.File) -> str:
    """Return the name of a group as the end of a sentence; empty if there is none."""
    import h5py  # noqa: PLC0415

    names = [name for name in file if isinstance(file[name], h5py.Group)]
    return f"{names[0]!r} is a group, and a posterior has none" if names else ""


def _find_oversize(file: netCDF4.Dataset, file_size: int) -> str:
    """Return a size that a variable in a file of this size cannot have; empty if there is none."""
    from invgp.adapters.readers.netcdf import MOST_COMPRESSED  # noqa: PLC0415

    total = 0
    for name, variable in file.variables.items():
        chunks = variable.chunking()
        size = _item_size(variable)
        total += size * math.prod(variable.shape)
        chunk = size * math.prod(chunks) if isinstance(chunks, list) else 0
        if max(total, chunk) > MOST_COMPRESSED * file_size:
            return f"it declares more numbers, in {name!r}, than a file of its size can hold"
    return ""


def _try_values(file: netCDF4.Dataset) -> str:
    """Read all attributes and values; a damaged file raises an error."""
    owners: list[Any] = [file, *file.variables.values()]
    for owner in owners:
        for name in owner.ncattrs():
            owner.getncattr(name)
    size = sum(math.prod(v.shape) * _item_size(v) for v in file.variables.values())
    for variable in file.variables.values():
        if 0 not in variable.shape:
            variable[... if size <= MOST_TRIED else (0,) * variable.ndim]
    return FINE


def _item_size(variable: Any) -> int:
    """Return the size of a value in bytes; 1 for text and lists, whose length is not declared."""
    return int(getattr(variable.dtype, "itemsize", 1))


@contextmanager
def utf8_path(path: Path) -> Iterator[Path]:
    """Provide a path to the same file whose name is UTF-8: the path itself, or a link in a temporary directory.

    Parameters
    ----------
    path : Path
        A file to read or to create; a library that creates a file follows the link.

    Yields
    ------
    Path
    """
    if is_utf8(str(path.absolute())):  # libraries may resolve a relative path themselves
        yield path
        return
    with TemporaryDirectory(prefix="invgp-link-") as directory:
        link = Path(directory) / "file.nc"
        link.symlink_to(path.absolute())
        yield link


def is_utf8(name: str) -> bool:
    """Return whether a file name, as Python represents it, is valid UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(name: str) -> str:
    r"""Return a file name as valid text; bytes that are not UTF-8 become escapes such as ``\udce9``."""
    return name.encode(errors="backslashreplace").decode()
