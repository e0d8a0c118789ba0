"""The private directory of a run: created, or taken over empty from the previous run.

A program can replace its own directory, or a parent directory, by a link. Therefore a run directory is identified by
its device and inode, and its parent by its resolved path at the first use. Nothing is removed in another directory.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .directory_trees import empty_directory, mark_directory, remove_tree
from .protocol import HOMES, SPARE, RunContext

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_log = logging.getLogger(__name__)
_foreign: set[Path] = set()  # run directories that a program has replaced


class RunDirectory:
    """The directory of a run.

    Parameters
    ----------
    path : Path
        Absolute path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None  # device and inode, after its creation

    @classmethod
    def temporary(cls, prefix: str) -> RunDirectory:
        """Create a temporary directory."""
        directory = cls(Path(tempfile.mkdtemp(prefix=prefix)).absolute())
        directory._identity = _identity(directory.path.lstat())
        return directory

    def make(self) -> None:
        """Create the directory, empty. An earlier file or directory at its path is removed; a link is not followed.

        Raises
        ------
        OSError
            It cannot be created, or its parent was replaced by a link.
        """
        name = self.path.name
        if not self.path.parent.is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with _open_home(self.path.parent) as home:
            if self.path in _foreign and (mode := _mode(name, home)) and not stat.S_ISLNK(mode):
                raise OSError(errno.EEXIST, "a program put something else there", str(self.path))
            if not _take_spare(name, home):
                _remove(name, home)
                os.mkdir(name, dir_fd=home)
            self._identity = _identity(mark_directory(name, home))

    def is_intact(self) -> bool:
        """Whether the program has not replaced or removed it."""
        try:
            with _open_home(self.path.parent) as home:
                found = _identity(os.stat(self.path.name, dir_fd=home, follow_symlinks=False))
        except OSError:
            return False
        if found != self._identity:
            _foreign.add(self.path)
        return found == self._identity

    def remove(self, *, keep_spare: bool = False) -> None:
        """Remove the directory; log a warning if that is not possible.

        Parameters
        ----------
        keep_spare : bool
            Whether to keep it, empty, for the next run.
        """
        if self._identity is None:
            return
        name = self.path.name
        try:
            with _open_home(self.path.parent) as home:
                about = os.stat(name, dir_fd=home, follow_symlinks=False)
                if stat.S_ISLNK(about.st_mode):
                    os.unlink(name, dir_fd=home)
                elif _identity(about) != self._identity:
                    _log.warning(
                        "the directory of a run was replaced by another, which is left as it is: %s", self.path
                    )
                elif keep_spare and _empty_directory(name, home, self._identity):
                    os.rename(name, _spare(), src_dir_fd=home, dst_dir_fd=home)
                else:
                    _remove(name, home)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("the directory of a run could not be removed: %s", error)


def check_labels(context: RunContext) -> None:
    """Raise `ValueError` unless each label is a valid name of a directory."""
    for label in context.labels:
        if label in ("", ".", "..") or label.startswith(SPARE) or "/" in label or "\0" in label:
            raise ValueError(f"context.labels: {label!r} cannot be the name of a directory")


def _take_spare(name: str, home: int) -> bool:
    """Use the empty directory of the previous run; return whether there was one."""
    try:
        os.rename(_spare(), name, src_dir_fd=home, dst_dir_fd=home)
    except OSError:  # there is none, or its new place is occupied
        return False
    return _is_directory(name, home)


def _is_directory(name: str, home: int) -> bool:
    """Whether there is a directory; False for a link to one."""
    return stat.S_ISDIR(_mode(name, home))


def _mode(name: str, home: int) -> int:
    """Return the mode of a file, without following a link; 0 if it does not exist."""
    try:
        return os.stat(name, dir_fd=home, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _remove(name: str, home: int) -> None:
    """Remove a directory with its content, a file, or a link without its target."""
    if _is_directory(name, home):
        remove_tree(name, dir_fd=home)
    else:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=home)


def _empty_directory(name: str, home: int, identity: tuple[int, int]) -> bool:
    """Remove the content of a directory; return whether it is then like a new one."""
    descriptor = os.open(name, _DIRECTORY, dir_fd=home)
    try:
        about = os.fstat(descriptor)
        if _identity(about) != identity:
            return False
        empty_directory(descriptor)
        return about.st_mode == os.fstat(home).st_mode
    finally:
        os.close(descriptor)


@contextmanager
def _open_home(path: Path) -> Iterator[int]:
    """Open the parent of the run directories; yield its descriptor.

    Raises
    ------
    OSError
        It, or a directory above it, was replaced by a link since its first use.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Resolving the path, or making a `Path`, would take longer than everything else.
        link = f"/proc/self/fd/{descriptor}"
        real = os.readlink(link) if sys.platform == "linux" else os.path.realpath(path)  # noqa: PTH115
        if HOMES.setdefault(str(path), real) != real:
            raise OSError(errno.ENOTDIR, "the directory of the runs was replaced by a link", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _spare() -> str:
    # If two processes on two machines have the same number, one of them does not find a spare directory.
    return f"{SPARE}{os.getpid()}"
