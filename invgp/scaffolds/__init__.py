"""Projects to start from: each folder here is one, and runs as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from invgp.atomic_files import staging_directory
from invgp.errors import ConfigError

KINDS = {
    "python": "a Python function",
    "executable": "a program with files in and out",
    "pest": "a PEST case",
    "umbridge": "an UM-Bridge server",
}
EXECUTABLE = 0o755
CONFIG = "survey.toml"


def files_of(kind: str) -> dict[str, bytes]:
    """The files of a project, by name."""
    folder = files("invgp.scaffolds") / f"{kind}-project"  # with a hyphen, so that nobody takes it for a package
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}


def write(contents: Mapping[str, bytes], directory: Path) -> list[Path]:
    """Write files into a directory, made if it is not there; all of them, or none if one of them is there already."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"DIRECTORY: must be a directory, was {str(directory)!r}, which is a file")
    there = [name for name in contents if (directory / name).exists()]
    if there:
        names = ", ".join(repr(name) for name in sorted(there))
        raise ConfigError(
            f"DIRECTORY: must not hold files that would be overwritten, was {str(directory)!r}, which has {names}; "
            "name another directory"
        )
    with staging_directory("the project", directory / CONFIG, overwrite=False) as stage:
        for name, content in contents.items():
            (stage / name).write_bytes(content)
            if content.startswith(b"#!"):
                (stage / name).chmod(EXECUTABLE)
    return [directory / name for name in sorted(contents)]
