"""File names for libraries that accept only UTF-8, such as netCDF."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def utf8_path(path: Path) -> Iterator[Path]:
    """Provide a path to the same file whose name is UTF-8: the path itself, or a link in a temporary directory.

    Parameters
    ----------
    path : Path
        A file to read or to create; a library that creates a file follows the link.

    Yields
    ------
    Path
    """
    if is_utf8(str(path.absolute())):  # libraries may resolve a relative path themselves
        yield path
        return
    with TemporaryDirectory(prefix="invgp-link-") as directory:
        link = Path(directory) / "file.nc"
        link.symlink_to(path.absolute())
        yield link


def is_utf8(name: str) -> bool:
    """Return whether a file name, as Python represents it, is valid UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(name: str) -> str:
    r"""Return a file name as valid text; bytes that are not UTF-8 become escapes such as ``\udce9``."""
    return name.encode(errors="backslashreplace").decode()
