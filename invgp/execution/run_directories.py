"""Directories of runs that are over, removed by whoever asked for the runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from invgp.adapters.directory_trees import remove_marked, remove_tree
from invgp.adapters.protocol import BATCH


def remove_run(home: Path, label: str) -> None:
    """Remove the directory of a run, and that of a batch that is named by it.

    A program can put another directory, or a link to one, in the place of its own or of `home`: nothing is removed
    there.

    Parameters
    ----------
    home : where the directories of runs are; a path that was resolved before the first run.
    label : of the run.
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


def remove_all_runs(home: Path) -> None:
    """Remove the directory that holds those of runs, with all of them, as far as that can be done.

    Parameters
    ----------
    home : the directory; a link in its place is left alone.
    """
    with suppress(OSError):
        remove_tree(home)
