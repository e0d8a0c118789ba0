"""Checks of the paths of results, before the simulator runs."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from invgp import netcdf
from invgp.errors import ArgumentError, ConfigError
from invgp.formatting import shorten

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Problem


KEPT_BESIDE = (".interrupted.nc", ".ledger.sqlite-journal")


def check_posterior_path(path: Path, key: str, problem: Problem, config: Path | None = None) -> None:
    """Raise `ArgumentError` unless a posterior can be written there.

    Parameters
    ----------
    path : Path
    key : str
        Argument or key of the configuration that contains the path.
    problem : Problem
    config : Path or None
        The configuration file, which must not be overwritten.
    """
    if path.suffix != ".nc":
        raise ArgumentError(f"{key}: must end in .nc, was {str(path)!r}")
    for longest in (".nc", *KEPT_BESIDE):
        check_name(path.with_suffix(longest), key)
    for what, other in (("the survey's file", problem.survey.file), ("the config", config)):
        if other and path.exists() and Path(other).exists() and path.samefile(other):
            raise ArgumentError(f"{key}: must be a file of its own, was {str(path)!r}, which is {what}")
    check_writable(path, key)


def check_map_path(path: Path, posterior: Path) -> None:
    """Raise `ArgumentError` unless a map can be written there."""
    if path.suffix != ".nc":
        raise ArgumentError(f"output: must end in .nc, was {str(path)!r}")
    check_not_source(path, posterior)
    check_not_posterior(path)
    check_writable(path, "output")


def check_not_source(path: Path, source: Path) -> None:
    """Raise `ArgumentError` if a result would overwrite its source."""
    if path.exists() and source.exists() and path.samefile(source):
        raise ArgumentError(f"output: must be a file of its own, was {str(path)!r}, which is what is read")


def check_not_survey(path: Path, dataset: xr.Dataset) -> None:
    """Raise `ArgumentError` if a result would overwrite the survey file of the dataset."""
    digest = str(dataset.attrs.get("invgp_survey_digest", ""))
    if digest and path.is_file() and sha256(path.read_bytes()).hexdigest() == digest:
        raise ArgumentError(f"output: must be a file of its own, was {str(path)!r}, which is the survey")


def check_not_posterior(path: Path) -> None:
    """Raise `ArgumentError` if a map would overwrite a posterior."""
    if not path.is_file():
        return
    try:
        with netcdf.open_dataset(path) as other:
            costly = "invgp_map" not in other.attrs
    except ConfigError:  # not a file of invgp
        return
    if costly:
        raise ArgumentError(f"output: must be a map or a new file, was {str(path)!r}, which is a posterior")


def check_name(path: Path, key: str) -> None:
    """Raise `ArgumentError` for a name that the file system does not accept."""
    fault = name_fault(path)
    if fault:
        raise ArgumentError(
            f"{key}: must be a name that the file system takes, {shorten(repr(path.name))} is not: {fault}"
        )


def name_fault(path: Path) -> str:
    """Return why the file system does not accept a name, such as one that is too long; empty if it does."""
    try:
        if not path.is_absolute() and not Path(os.curdir).stat().st_nlink:  # its name is gone, though it is still open
            return "the current directory no longer exists"
        path.lstat()
    except ValueError as error:  # of the character NUL
        return str(error)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except OSError as error:
        return str(error.strerror)
    return ""


def check_writable(path: Path, key: str) -> None:
    """Raise `ArgumentError` unless a file can be written there, in a directory that exists or can be created."""
    check_name(path, key)
    if path.is_dir():
        raise ArgumentError(f"{key}: must be a file, was {str(path)!r}, which is a directory")
    if path.exists() and not os.access(path, os.W_OK):
        raise ArgumentError(
            f"{key}: must be a file that may be overwritten, was {str(path)!r}, which is write-protected"
        )
    nearest = path.parent
    try:
        while not nearest.exists():
            nearest = nearest.parent
        # Asking for permissions is not enough: a disk may be mounted read-only, or full.
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ArgumentError(
            f"{key}: must be in a directory that can be written, was {str(path)!r}, "
            f"and nothing can be written in {str(nearest)!r} ({error.strerror})"
        ) from error
