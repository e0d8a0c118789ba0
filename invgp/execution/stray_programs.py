"""Programs whose worker is gone, or whose runs are wanted no more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from invgp.adapters.protocol import RUN_DIRECTORY_VARIABLE, STOPPED
from invgp.adapters.supervisor_process import PATIENCE, kill_programs

MARK = ".stopped"

_log = logging.getLogger(__name__)
_stopped: set[Path] = set()


def end_programs(directory: Path, patience: float = PATIENCE) -> None:
    """Kill the programs of runs in `directory`: a worker that was killed can no longer end its own.

    Parameters
    ----------
    directory : of the runs.
    patience : seconds that programs may take to end; a warning names those that have not.
    """
    left = kill_programs(RUN_DIRECTORY_VARIABLE, str(directory.absolute()), patience)
    if left:
        _log.warning("processes of the runs in %s have been killed, but have not ended: %s", directory, sorted(left))


def stop_runs(directory: Path) -> None:
    """Kill the programs of runs in `directory`, in a worker that lives on: what becomes of those runs is no outcome."""
    _stopped.add(directory.absolute())
    STOPPED.add(str(directory))  # a run that is about to start would be seen by nobody
    end_programs(directory)


def allow_runs(directory: Path) -> None:
    """Undo `stop_runs`: runs in `directory` are wanted again."""
    _stopped.discard(directory.absolute())
    STOPPED.discard(str(directory))


def abandon_runs(directory: Path) -> None:
    """The same, where nobody is left to want them: other workers are told first, by a mark that stays."""
    with suppress(OSError):
        (directory / MARK).touch()
    stop_runs(directory)


@contextmanager
def stopped(directory: Path) -> Iterator[None]:
    """While runs in `directory` are being stopped: no worker is to take what becomes of them for an outcome."""
    mark = directory / MARK
    with suppress(OSError):
        mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def were_stopped(directory: Path) -> bool:
    """Whether runs in `directory` were stopped, in this process or by the one that wants them."""
    return directory.absolute() in _stopped or (directory / MARK).exists()
