"""Full disks."""

from __future__ import annotations

import errno
from pathlib import Path
from tempfile import TemporaryFile

PROBE_BYTES = 2**20
"""Size of a trial file. A disk with less space than this counts as full."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that mean: the disk is full, the quota is used up, the file is larger than allowed."""


def find_write_error(directory: Path) -> OSError | None:
    """Write a temporary file in a directory, or in its nearest existing parent.

    Parameters
    ----------
    directory : Path

    Returns
    -------
    OSError or None
        Why nothing can be written; None if the file was written. Its `filename` is the directory.
    """
    nearest = next(place for place in (directory, *directory.absolute().parents) if place.is_dir())
    try:
        with TemporaryFile(dir=nearest) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        error.filename = str(nearest)
        return error
    return None
