"""Removal of directories with the files of a program, of any depth."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

OWNER = ".invgp-run"
"""A file in each run directory, which a directory that replaces it does not have."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_log = logging.getLogger(__name__)


def remove_tree(path: str | Path, *, dir_fd: int | None = None) -> None:
    """Remove a directory with its content. Links in it are removed without their targets.

    Before Python 3.13, `shutil.rmtree` raises `RecursionError` for thousands of nested directories.

    Parameters
    ----------
    path : str or Path
        The directory; a link to one raises an error.
    dir_fd : int, optional
        Descriptor of the directory that a relative `path` starts from.

    Raises
    ------
    OSError
        Something cannot be removed.
    """
    _grant_access(path, dir_fd)
    descriptor = os.open(path, _DIRECTORY, dir_fd=dir_fd)
    try:
        empty_directory(descriptor)
    finally:
        os.close(descriptor)
    os.rmdir(path, dir_fd=dir_fd)


def empty_directory(descriptor: int) -> None:
    """Remove the content of a directory, also if the program or its copied files have made it read-only.

    Parameters
    ----------
    descriptor : int
        Descriptor of the directory, open for reading.

    Raises
    ------
    OSError
        Something cannot be removed.
    """
    if not _is_accessible(os.fstat(descriptor)):
        with suppress(PermissionError):  # it belongs to another user
            os.fchmod(descriptor, stat.S_IRWXU)
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
    """Write the inode of a new directory to a file in it, by which other processes recognise it.

    The device is left out, because its number differs between machines.

    Parameters
    ----------
    name : str
    home : int
        Descriptor of the parent directory.

    Returns
    -------
    os.stat_result
        Of the directory.
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
    """Remove a directory that `mark_directory` has marked, in any process; another directory is not removed.

    Parameters
    ----------
    name : str
        Name of the directory. A link is removed without its target.
    home : int
        Descriptor of the parent directory.

    Raises
    ------
    OSError
        It cannot be removed.
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
    """Whether a directory contains the mark with its own inode; a copy of a run directory does not."""
    try:
        file = os.open(OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return False
    try:
        return os.read(file, 64) == b"%d\n" % os.fstat(directory).st_ino
    except OSError:  # a program replaced the mark
        return False
    finally:
        os.close(file)


def _remove_files(descriptor: int, top: int) -> list[str]:
    """Remove the files of a directory and move its subdirectories to `top`; return their new names.

    Thus no stack frame, no descriptor and no path component is needed per level.
    """
    moved = []
    with os.scandir(descriptor) as entries:
        for entry in list(entries):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=descriptor)
                continue
            if not _is_accessible(entry.stat(follow_symlinks=False)):
                _grant_access(entry.name, descriptor)
            if descriptor == top:
                moved.append(entry.name)
            else:
                moved.append(f".removed-{secrets.token_hex(8)}")
                os.rename(entry.name, moved[-1], src_dir_fd=descriptor, dst_dir_fd=top)
    return moved


def _is_accessible(about: os.stat_result) -> bool:
    """Whether the owner of a directory may list and change it."""
    return about.st_mode & stat.S_IRWXU == stat.S_IRWXU


def _grant_access(path: str | Path, dir_fd: int | None) -> None:
    """Let the owner of a directory list and change it, if possible; a link is not followed."""
    with suppress(OSError):  # the removal reports the error
        if not hasattr(os, "O_PATH"):
            os.chmod(path, stat.S_IRWXU, dir_fd=dir_fd, follow_symlinks=False)
            return
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)
        try:
            os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU)  # noqa: PTH101 - the path of a descriptor
        finally:
            os.close(descriptor)
