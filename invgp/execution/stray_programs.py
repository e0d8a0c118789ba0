"""Programs whose worker has died, or whose runs are no longer needed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from invgp.adapters.protocol import RUN_DIRECTORY_VARIABLE, STOPPED
from invgp.adapters.supervisor_process import PATIENCE, kill_programs

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
    """
    _stopped.add(directory.absolute())
    STOPPED.add(str(directory))  # for a run that is about to start its program
    end_programs(directory)


def allow_runs(directory: Path) -> None:
    """Allow runs in a directory again, after `stop_runs`."""
    _stopped.discard(directory.absolute())
    STOPPED.discard(str(directory))


def abandon_runs(directory: Path) -> None:
    """Stop the runs in a directory in all workers, when the process that submitted the runs has ended."""
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
    """Whether the runs in a directory were stopped, by this process or by the process that submitted them."""
    return directory.absolute() in _stopped or (directory / MARK).exists()
