"""Names of files for libraries that take UTF-8 only, such as netCDF's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def utf8_path(path: Path) -> Iterator[Path]:
    """Give a path to the same file whose name is UTF-8: the path itself, or else a link in a temporary directory.

    Parameters
    ----------
    path : Path
        A file to read, or to create: a library that creates a file follows the link.
    """
    if is_utf8(str(path.absolute())):  # libraries may resolve a relative path themselves
        yield path
        return
    with TemporaryDirectory(prefix="invgp-link-") as directory:
        link = Path(directory) / "file.nc"
        link.symlink_to(path.absolute())
        yield link


def is_utf8(name: str) -> bool:
    """Whether the name of a file, as Python gives it, stands for UTF-8 text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(name: str) -> str:
    r"""The name of a file as text that any library takes; bytes that are not UTF-8 are shown as ``\udce9``."""
    return name.encode(errors="backslashreplace").decode()
