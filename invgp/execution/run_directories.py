"""Directories of runs that are over, removed by whoever asked for the runs."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from invgp.adapters.protocol import BATCH


def remove_run(home: Path, label: str) -> None:
    """Remove the directory of a run, and that of a batch that is named by it.

    A program can put a link to elsewhere in the place of its directory, or of `home`: nothing is removed there.

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
                if (home / name).is_symlink():
                    os.unlink(name, dir_fd=descriptor)
                else:
                    shutil.rmtree(name, ignore_errors=True, dir_fd=descriptor)
        finally:
            os.close(descriptor)
