"""Files of a PEST case, also if it was written on another system."""

from __future__ import annotations

from pathlib import Path

from ..protocol import AdapterError


def read_bytes(setting: str, path: Path) -> bytes:
    """Read a file; `setting` is named in an error."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise AdapterError(setting, f"there is no file {path}") from error
    except OSError as error:
        raise AdapterError(setting, f"{path} cannot be read: {error.strerror}") from error


def read_setting(setting: str, path: Path) -> str:
    """Read a text file, in UTF-8 or else in Latin 1; `setting` is named in an error."""
    data = read_bytes(setting, path)
    if b"\0" in data:
        raise AdapterError(setting, f"{path} is not a text file: it contains a null character")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def convert_path(path: str) -> str:
    r"""Return a path with slashes instead of backslashes: ``.\model\k.txt`` is ``model/k.txt``."""
    if "\\" not in path:
        return path
    path = path.replace("\\", "/")
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return path


def find_file(folder: Path, name: str) -> Path:
    r"""Return the path of a file that a control file names.

    It may be written with backslashes, and with other upper and lower case letters if there is only one such file, as
    on Windows.

    Parameters
    ----------
    folder : Path
        Directory of the control file.
    name : str
        Path, relative to `folder`.

    Returns
    -------
    Path
        It need not exist.
    """
    path = folder / name
    if not path.exists() and "\\" in name:
        path = folder / convert_path(name)
    if path.exists() or not path.parent.is_dir():
        return path
    same = [entry for entry in path.parent.iterdir() if entry.name.lower() == path.name.lower()]
    return same[0] if len(same) == 1 else path
