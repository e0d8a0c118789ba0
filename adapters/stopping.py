"""Runs that are wanted no more: no program is started for them.

A thread that waits for a program cannot be stopped. If its program is killed it would go on: with the next row, the
next attempt, a fresh program.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_stopped: set[str] = set()


def refuse_programs(home: Path) -> None:
    """From now on this process starts no program for runs with directories in `home`, an absolute path."""
    _stopped.add(str(home))


def allow_programs(home: Path) -> None:
    """Take back `refuse_programs`."""
    _stopped.discard(str(home))


def check_wanted(place: str) -> None:
    """Raise `OSError` if the run with the directory `place` is wanted no more."""
    if _stopped and os.path.dirname(place) in _stopped:  # noqa: PTH120 - to make a `Path` takes longer
        raise OSError(errno.ECANCELED, "its batch was stopped")
