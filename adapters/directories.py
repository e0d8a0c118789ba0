"""The private directory of a run: made, or taken over empty from the run before it.

A program can put a link to elsewhere in the place of its own directory, or of one above it. So a run's directory is
known by its device and inode, and its home by where it was when it was first used: nothing is removed in any other.
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
_foreign: set[Path] = set()  # where a program has put something else in the place of its directory


class RunDirectory:
    """The directory of a run.

    Parameters
    ----------
    path : absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None  # device and inode, once it is made

    @classmethod
    def temporary(cls, prefix: str) -> RunDirectory:
        """Make one among the temporary directories."""
        directory = cls(Path(tempfile.mkdtemp(prefix=prefix)).absolute())
        directory._identity = _identity(directory.path.lstat())
        return directory

    def make(self) -> None:
        """Make it, empty; what was there is removed, and a link is not followed.

        Raises
        ------
        OSError
            If it cannot be made, or a link has taken the place of its parent.
        """
        name = self.path.name
        if not self.path.parent.is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with _open_home(self.path.parent) as home:
            if self.path in _foreign and (mode := _mode(name, home)) and not stat.S_ISLNK(mode):
                raise OSError(errno.EEXIST, "a program put something else there", str(self.path))
            if not _is_taken_over(name, home):
                _remove(name, home)
                os.mkdir(name, dir_fd=home)
            self._identity = _identity(mark_directory(name, home))

    def is_intact(self) -> bool:
        """Whether it is still where it was made, with nothing else in its place."""
        try:
            with _open_home(self.path.parent) as home:
                found = _identity(os.stat(self.path.name, dir_fd=home, follow_symlinks=False))
        except OSError:
            return False
        if found != self._identity:
            _foreign.add(self.path)
        return found == self._identity

    def give_back(self, context: RunContext) -> None:
        """Remove it after its run or, if there will be more, leave it, empty, to the next one."""
        self.remove(keep_spare=context.more)

    def remove(self, *, keep_spare: bool = False) -> None:
        """Remove it, or leave it, empty, to the next run; a warning if that cannot be done."""
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
                elif keep_spare and _was_emptied(name, home, self._identity):
                    os.rename(name, _spare(), src_dir_fd=home, dst_dir_fd=home)
                else:
                    _remove(name, home)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("the directory of a run could not be removed: %s", error)


def check_labels(context: RunContext) -> None:
    """Raise `ValueError` unless each label can be the name of a directory."""
    for label in context.labels:
        if label in ("", ".", "..") or label.startswith(SPARE) or "/" in label or "\0" in label:
            raise ValueError(f"context.labels: {label!r} cannot be the name of a directory")


def _is_taken_over(name: str, home: int) -> bool:
    """Whether there was an empty directory, left by the run before, that could be put there."""
    try:
        os.rename(_spare(), name, src_dir_fd=home, dst_dir_fd=home)
    except OSError:  # there is none, or there is something in its place
        return False
    return _is_directory(name, home)


def _is_directory(name: str, home: int) -> bool:
    """Whether there is a directory, and not a link to one."""
    return stat.S_ISDIR(_mode(name, home))


def _mode(name: str, home: int) -> int:
    """Which kind of file there is; a link is not followed, and 0 stands for none."""
    try:
        return os.stat(name, dir_fd=home, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _remove(name: str, home: int) -> None:
    """Remove a directory with all that is in it, or a file, or a link and not what it leads to."""
    if _is_directory(name, home):
        remove_tree(name, dir_fd=home)
    else:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=home)


def _was_emptied(name: str, home: int, identity: tuple[int, int]) -> bool:
    """Remove what is in a directory; False if it is not as a new one would be."""
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
    """A descriptor of the directory that holds those of runs; it must be where it was when it was first used.

    Raises
    ------
    OSError
        If a link has taken its place, or that of a directory above it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # To resolve the path, or to make a `Path`, takes longer than all that is done with the directory.
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
    # Should two processes have the same number, on two machines, one of them finds none.
    return f"{SPARE}{os.getpid()}"
