"""Project templates: each folder is a complete project that runs without changes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from invgp.errors import ConfigError
from invgp.files.atomic_files import staging_directory

KINDS = {
    "python": "a Python function",
    "executable": "a program with input and output files",
    "field": "a Python function of a whole grid",
    "field-program": "a program that computes the data of a whole grid",
    "scalars": "a Python function of a few unknown numbers",
    "pest": "a PEST case",
    "umbridge": "an UM-Bridge server",
}
EXECUTABLE = 0o755
CONFIG = "survey.toml"


def read_template(kind: str) -> dict[str, bytes]:
    """Return the files of a project template by name.

    Parameters
    ----------
    kind : str
        Key of `KINDS`.

    Returns
    -------
    dict of str to bytes
    """
    folder = files("invgp.scaffolds") / f"{kind}-project"  # the hyphen shows that it is not a package
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}


def write_project(contents: Mapping[str, bytes], directory: Path) -> list[Path]:
    """Write the files of a project into a directory, all or none.

    Parameters
    ----------
    contents : mapping of str to bytes
        The files by name.
    directory : Path
        Created if it does not exist.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ConfigError
        The path is a file, or a file would be overwritten.
    WriteError
        A file could not be written.
    """
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"DIRECTORY: must be a directory, was {str(directory)!r}, which is a file")
    existing = [name for name in contents if (directory / name).exists()]
    if existing:
        names = ", ".join(repr(name) for name in sorted(existing))
        raise ConfigError(
            f"DIRECTORY: must not contain files that would be overwritten, was {str(directory)!r}, which "
            f"contains {names}; name another directory"
        )
    with staging_directory("the project", directory / CONFIG, overwrite=False) as stage:
        for name, content in contents.items():
            (stage / name).write_bytes(content)
            if content.startswith(b"#!"):
                (stage / name).chmod(EXECUTABLE)
    return [directory / name for name in sorted(contents)]
