"""The private directory of a run: made, or taken over empty from the run before it."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from .protocol import SPARE, RunContext

_log = logging.getLogger(__name__)


def check_labels(context: RunContext) -> None:
    """Raise `ValueError` unless each label can be the name of a directory."""
    for label in context.labels:
        if label in ("", ".", "..") or label.startswith(SPARE) or "/" in label or "\0" in label:
            raise ValueError(f"context.labels: {label!r} cannot be the name of a directory")


def make(directory: Path) -> None:
    """Give a run an empty directory; what was there is removed."""
    try:
        _spare_beside(directory).rename(directory)
    except OSError:  # there is none, or there is something in its place
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)


def give_back(directory: Path, context: RunContext) -> None:
    """Remove the directory of a run that is over, or leave it, empty, to the next one."""
    try:
        if context.more and _was_emptied(directory):
            directory.rename(_spare_beside(directory))
        else:
            shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("the directory of a run could not be removed: %s", error)


def _was_emptied(directory: Path) -> bool:
    """Remove what is in a directory; False if it is not as a new one would be."""
    with os.scandir(directory) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)  # noqa: PTH108 - to make a `Path` takes longer
    return directory.stat().st_mode == directory.parent.stat().st_mode


def _spare_beside(directory: Path) -> Path:
    # Should two processes have the same number, on two machines, one of them finds none.
    return directory.with_name(f"{SPARE}{os.getpid()}")
