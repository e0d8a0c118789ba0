"""Removal of directories that a program filled, however deep they are, and of no others."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from pathlib import Path

OWNER = ".invgp-run"
"""A file in the directory of each run, by which it is known from one that a program put in its place."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_log = logging.getLogger(__name__)


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


def mark_directory(name: str, home: int) -> os.stat_result:
    """Write the inode of a new directory to a file in it; what `os.stat` says of it.

    Other processes, even on other machines, know it by this. The device is left out: machines number it differently.
    """
    directory = os.open(name, _DIRECTORY, dir_fd=home)
    try:
        about = os.fstat(directory)
        file = os.open(OWNER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=directory)
        try:
            os.write(file, b"%d\n" % about.st_ino)
        finally:
            os.close(file)
    finally:
        os.close(directory)
    return about


def remove_marked(name: str, home: int) -> None:
    """Remove a directory that `mark_directory` marked, in whatever process; one that a program put there is left.

    Parameters
    ----------
    name : of the directory; a link to one is removed, and not what it leads to.
    home : descriptor of the directory that holds it.

    Raises
    ------
    OSError
        If it cannot be removed.
    """
    if stat.S_ISLNK(os.stat(name, dir_fd=home, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=home)
        return
    descriptor = os.open(name, _DIRECTORY, dir_fd=home)
    try:
        if not _is_marked(descriptor):
            _log.warning("the directory of a run was replaced by another, which is left as it is: %s", name)
            return
        empty_directory(descriptor)
    finally:
        os.close(descriptor)
    os.rmdir(name, dir_fd=home)


def _is_marked(directory: int) -> bool:
    """Whether a directory holds the mark of its own inode: one that was moved there has none, a copy another."""
    try:
        file = os.open(OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return False
    try:
        return os.read(file, 64) == b"%d\n" % os.fstat(directory).st_ino
    except OSError:  # a program put something else in its place
        return False
    finally:
        os.close(file)


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
