"""Programs whose worker is gone, or whose runs are wanted no more."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from invgp.adapters.protocol import RUN_DIRECTORY_VARIABLE, STOPPED

SECONDS_TO_DIE = 0.05
PATIENCE = 10.0
"""Seconds for programs that were killed to end: one that waits for a disk may never do so."""
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
    home = directory.absolute()
    end = time.monotonic() + patience
    # One that started while the others were looked through is seen the next time.
    while left := [process.pid for process in psutil.process_iter() if _killed(process, home)]:
        if time.monotonic() > end:
            _log.warning("processes of the runs in %s have been killed, but have not ended: %s", home, sorted(left))
            return
        time.sleep(SECONDS_TO_DIE)


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


def _killed(process: psutil.Process, home: Path) -> bool:
    try:
        ours = Path(process.environ().get(RUN_DIRECTORY_VARIABLE, "")).is_relative_to(home)
        if not ours or process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.kill()
        return True
    except psutil.Error:  # it has ended, or it is another person's
        return False
