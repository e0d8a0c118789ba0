"""Creation and removal of the directories of runs, by the process that submitted the runs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from invgp.adapters.directory_trees import remove_marked, remove_tree
from invgp.adapters.protocol import BATCH, SPARE


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


def remove_if_empty(directory: Path) -> None:
    """Remove a directory of runs, unless it contains the directory of a failed run."""
    with suppress(OSError):
        directory.rmdir()
