"""Directories of failed runs that messages name. They may have been removed since."""

from __future__ import annotations

from pathlib import Path

_DIRECTORY = "; directory: "


def without_removed_directory(message: str, *, temporary: bool = False) -> str:
    """Return the message of a run without the name of a directory that no longer exists.

    Parameters
    ----------
    message : str
        Message as it was recorded.
    temporary : bool
        Whether the directory exists, but will be removed soon.
    """
    cause, found, directory = message.rpartition(_DIRECTORY)
    if found and (temporary or not directory_exists(directory)):
        return f"{cause}; its directory was removed"
    return message


def directory_exists(directory: str) -> bool:
    """Whether there is such a directory; False for text that is not a valid path."""
    try:
        return Path(directory).is_dir()
    except (OSError, ValueError):
        return False
