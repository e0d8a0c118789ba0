"""Directories of runs, and the programs that run in them, as seen by the process that submitted the runs."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from invgp.adapters.directory_trees import remove_marked, remove_tree
from invgp.adapters.protocol import BATCH, RUN_DIRECTORY_VARIABLE, SPARE, STOPPED
from invgp.adapters.supervisor_process import PATIENCE, kill_programs


@contextmanager
def make_run_directory(parent: str | Path) -> Iterator[Path]:
    """Name a new directory for the runs of one inversion; it is removed at the end if it is empty.

    Two inversions with the same output file must not share the directories of their runs.

    Parameters
    ----------
    parent : str or Path
        Directory in which it is created, with the first run.

    Yields
    ------
    Path
        Absolute path without links.
    """
    directory = Path(parent).resolve() / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{secrets.token_hex(2)}"
    try:
        yield directory
    finally:
        for spare in directory.glob(f"{SPARE}*"):
            with suppress(OSError):
                spare.rmdir()
        with suppress(OSError):  # it is not empty if a run failed
            directory.rmdir()


def remove_run_directory(home: Path, label: str) -> None:
    """Remove the directory of a run, and the directory of a batch whose first run it is.

    A program can replace its own directory, or `home`, by another directory or by a link. Then nothing is removed.

    Parameters
    ----------
    home : Path
        Parent of the run directories, resolved before the first run.
    label : str
        Label of the run.
    """
    with suppress(OSError):
        descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.path.realpath(home) != str(home):
                return
            for name in (label, f"{label}{BATCH}"):
                with suppress(OSError):
                    remove_marked(name, descriptor)
        finally:
            os.close(descriptor)


def remove_run_directories(home: Path) -> None:
    """Remove the parent of the run directories with everything in it, as far as possible.

    Parameters
    ----------
    home : Path
        The directory. A link is not followed.
    """
    with suppress(OSError):
        remove_tree(home)


MARK = ".stopped"
"""A file in a directory whose runs are stopped. It informs the workers in other processes."""

_log = logging.getLogger(__name__)
_stopped: set[Path] = set()


def end_programs(directory: Path, patience: float = PATIENCE) -> None:
    """Kill the programs of the runs in a directory; a worker that was killed cannot end its own programs.

    Parameters
    ----------
    directory : Path
        Parent of the run directories.
    patience : float
        Time limit in seconds. A warning names the processes that have not ended.
    """
    left = kill_programs(RUN_DIRECTORY_VARIABLE, str(directory.absolute()), patience)
    if left:
        _log.warning("processes of the runs in %s have been killed, but have not ended: %s", directory, sorted(left))


def stop_runs(directory: Path) -> None:
    """Kill the programs of the runs in a directory, and start no further ones in this process.

    The worker continues. It does not record the runs that it was making, see `were_stopped`.

    Parameters
    ----------
    directory : Path
        Parent of the run directories.
    """
    _stopped.add(directory.absolute())
    STOPPED.add(str(directory))  # for a run that is about to start its program
    end_programs(directory)


def allow_runs(directory: Path) -> None:
    """Allow runs in a directory again, after `stop_runs`.

    Parameters
    ----------
    directory : Path
        Parent of the run directories.
    """
    _stopped.discard(directory.absolute())
    STOPPED.discard(str(directory))


def abandon_runs(directory: Path) -> None:
    """Stop the runs in a directory in all workers, when the process that submitted the runs has ended.

    Parameters
    ----------
    directory : Path
        Parent of the run directories.
    """
    with suppress(OSError):
        (directory / MARK).touch()
    stop_runs(directory)


@contextmanager
def mark_stopped(directory: Path) -> Iterator[None]:
    """Mark the runs in a directory as stopped during the block, so that no worker records them."""
    mark = directory / MARK
    with suppress(OSError):
        mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def were_stopped(directory: Path) -> bool:
    """Whether the runs in a directory were stopped, by this process or by the process that submitted them.

    Parameters
    ----------
    directory : Path
        Parent of the run directories.

    Returns
    -------
    bool
    """
    return directory.absolute() in _stopped or (directory / MARK).exists()
