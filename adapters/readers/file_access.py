"""Access to the files in a run directory, which may be pipes, devices or links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..processes import STDOUT

SIZE_LIMIT = 64 * 2**20
"""Largest size of an output file, in bytes."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Without O_NONBLOCK, opening a pipe would wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def read_bytes(directory: Path, path: str | None) -> bytes:
    """Read a file of a run.

    A link is followed only if its target is in the run directory.

    Parameters
    ----------
    directory : Path
        The run directory.
    path : str, optional
        File, relative to the run directory; None for standard output.

    Returns
    -------
    bytes

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is not a regular file, its target is outside the run directory, or it is larger than `SIZE_LIMIT`.
    """
    with (
        _open_inside(directory, STDOUT if path is None else path) as descriptor,
        open(descriptor, "rb", closefd=False) as file,
    ):
        return file.read(SIZE_LIMIT)


def locate_file(directory: Path, path: str | None) -> Path:
    """Return the path of a file of a run after the checks of `read_bytes`."""
    name = STDOUT if path is None else path
    with _open_inside(directory, name):
        return directory / name


@contextmanager
def _open_inside(directory: Path, name: str) -> Iterator[int]:
    """Open a file without following links below `directory`; yield its descriptor."""
    home, about = str(directory), os.lstat(f"{directory}/{name}")
    if "/" in name or stat.S_ISLNK(about.st_mode):
        home, target = (os.path.realpath(path, strict=True) for path in (home, f"{home}/{name}"))
        if not target.startswith(f"{home}/"):
            raise ValueError("is a link that leads out of the run's directory")
        name, about = target.removeprefix(f"{home}/"), os.lstat(target)
    if not stat.S_ISREG(about.st_mode):  # opening a device may have an effect
        raise ValueError("is not a regular file")
    file = _open_below(home, name)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("is not a regular file")
        if about.st_size > SIZE_LIMIT:
            raise ValueError(f"holds {about.st_size} bytes, over the limit of {SIZE_LIMIT} bytes")
        yield file
    finally:
        os.close(file)


def _open_below(home: str, name: str) -> int:
    """Open a file, directory by directory, without following a link."""
    *parents, last = name.split("/")
    if not parents:
        return os.open(f"{home}/{last}", _FILE)
    below = os.open(home, _DIRECTORY)
    try:
        for parent in parents:
            above, below = below, os.open(parent, _DIRECTORY, dir_fd=below)
            os.close(above)
        return os.open(last, _FILE, dir_fd=below)
    finally:
        os.close(below)
