"""The directory of a failed run, as its message names it: it may have been removed since."""

from __future__ import annotations

from pathlib import Path

_NAMED = "; directory: "


def without_removed_directory(message: str, *, temporary: bool = False) -> str:
    """The message of a run; where it names a directory that is not there, or not for long, it says so instead."""
    said, named, directory = message.rpartition(_NAMED)
    return f"{said}; its directory was removed" if named and (temporary or not is_there(directory)) else message


def is_there(directory: str) -> bool:
    """Whether there is such a directory."""
    try:
        return Path(directory).is_dir()
    except (OSError, ValueError):  # a path that no system has
        return False
