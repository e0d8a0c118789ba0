"""The files that a run left in its directory, opened so that none of them can block us or lead elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..processes import STDOUT

SIZE_LIMIT = 64 * 2**20
"""Bytes; an output file above it is refused."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# A pipe would wait for whoever writes to it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def read_bytes(directory: Path, path: str | None, limit: int = SIZE_LIMIT) -> bytes:
    """Read a file of a run.

    A link is followed if it leads to a file in the run's directory, and to no other.

    Parameters
    ----------
    directory : of the run.
    path : relative to it; None for standard output.
    limit : bytes that it may have.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is not a regular file, a link leads out of `directory`, or it is larger than `limit`.
    """
    with _open_inside(directory, STDOUT if path is None else path, limit) as descriptor:
        return _read(descriptor, limit)


def locate(directory: Path, path: str | None, limit: int = SIZE_LIMIT) -> Path:
    """The path of a file of a run, for whoever cannot take its bytes; it is checked as by `read_bytes`."""
    name = STDOUT if path is None else path
    with _open_inside(directory, name, limit):
        return directory / name


def _read(descriptor: int, limit: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(limit)


@contextmanager
def _open_inside(directory: Path, name: str, limit: int) -> Iterator[int]:
    """A descriptor of a file; no part of its path below `directory` is a link when it is opened."""
    home, about = str(directory), os.lstat(f"{directory}/{name}")
    if "/" in name or stat.S_ISLNK(about.st_mode):
        home, target = (os.path.realpath(path, strict=True) for path in (home, f"{home}/{name}"))
        if not target.startswith(f"{home}/"):
            raise ValueError("is a link that leads out of the run's directory")
        name, about = target.removeprefix(f"{home}/"), os.lstat(target)
    if not stat.S_ISREG(about.st_mode):  # to open a device may have effects
        raise ValueError("is not a regular file")
    file = _open_below(home, name)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("is not a regular file")
        if about.st_size > limit:
            raise ValueError(f"holds {about.st_size} bytes, over the limit of {limit} bytes")
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
