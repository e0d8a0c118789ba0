"""Removal of directories that a program filled, however deep they are."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_tree(path: str | Path, *, dir_fd: int | None = None) -> None:
    """Remove a directory with all that is in it; links in it are removed, and not what they lead to.

    Before Python 3.13, `shutil.rmtree` raises `RecursionError` for some thousand directories inside each other.

    Parameters
    ----------
    path : str or Path
        The directory; a link to one is refused.
    dir_fd : int, optional
        Descriptor of the directory that a relative `path` starts from.

    Raises
    ------
    OSError
        If something cannot be removed.
    """
    descriptor = os.open(path, _DIRECTORY, dir_fd=dir_fd)
    try:
        empty_directory(descriptor)
    finally:
        os.close(descriptor)
    os.rmdir(path, dir_fd=dir_fd)


def empty_directory(descriptor: int) -> None:
    """Remove all that is in a directory.

    Parameters
    ----------
    descriptor : int
        Of the directory, open for reading.

    Raises
    ------
    OSError
        If something cannot be removed.
    """
    waiting = _remove_files(descriptor, descriptor)
    while waiting:
        name = waiting.pop()
        inner = os.open(name, _DIRECTORY, dir_fd=descriptor)
        try:
            waiting += _remove_files(inner, descriptor)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=descriptor)


def _remove_files(descriptor: int, top: int) -> list[str]:
    """Remove the files of a directory and move its directories to `top`; their names there.

    Moved, they need neither a stack frame nor a descriptor per level, nor a path that is too long.
    """
    moved = []
    with os.scandir(descriptor) as entries:
        for entry in list(entries):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=descriptor)
            elif descriptor == top:
                moved.append(entry.name)
            else:
                moved.append(f".removed-{secrets.token_hex(8)}")
                os.rename(entry.name, moved[-1], src_dir_fd=descriptor, dst_dir_fd=top)
    return moved
