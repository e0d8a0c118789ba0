"""Where results go: looked at before the simulator is paid for, not after."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from invgp import netcdf
from invgp.errors import ConfigError
from invgp.formatting import shorten

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Problem


KEPT_BESIDE = (".interrupted.nc", ".ledger.sqlite-journal", ".emulated_chains.npz")


def check_posterior_path(path: Path, key: str, problem: Problem, config: Path) -> None:
    """Raise `ConfigError` unless a posterior can be written there; `key` is the config key or option that names it."""
    if path.suffix != ".nc":
        raise ConfigError(f"{key}: must end in .nc, was {str(path)!r}")
    for longest in (".nc", *KEPT_BESIDE):
        check_name(path.with_suffix(longest), key)
    for what, other in (("the survey's file", Path(problem.survey.file)), ("the config", config)):
        if path.exists() and other.exists() and path.samefile(other):
            raise ConfigError(f"{key}: must be a file of its own, was {str(path)!r}, which is {what}")
    check_writable(path, key)


def check_map_path(path: Path, posterior: Path) -> None:
    """Raise `ConfigError` unless a map can be written there."""
    if path.suffix != ".nc":
        raise ConfigError(f"--output: must end in .nc, was {str(path)!r}")
    check_other(path, posterior)
    check_not_posterior(path)
    check_writable(path, "--output")


def check_other(path: Path, source: Path) -> None:
    """Raise `ConfigError` if a result would overwrite what it is made from."""
    if path.exists() and source.exists() and path.samefile(source):
        raise ConfigError(f"--output: must be a file of its own, was {str(path)!r}, which is what is read")


def check_not_survey(path: Path, dataset: xr.Dataset) -> None:
    """Raise `ConfigError` if a result would overwrite the survey that the dataset was made from."""
    digest = str(dataset.attrs.get("invgp_survey_digest", ""))
    if digest and path.is_file() and sha256(path.read_bytes()).hexdigest() == digest:
        raise ConfigError(f"--output: must be a file of its own, was {str(path)!r}, which is the survey")


def check_not_posterior(path: Path) -> None:
    """Raise `ConfigError` if a map would overwrite a posterior."""
    if not path.is_file():
        return
    try:
        with netcdf.open_posterior(path) as other:
            costly = "invgp_map" not in other.attrs
    except ConfigError:  # no file of ours
        return
    if costly:
        raise ConfigError(f"--output: must be a map or a new file, was {str(path)!r}, which is a posterior")


def check_name(path: Path, key: str) -> None:
    """Raise `ConfigError` for a name that the file system does not take."""
    fault = name_fault(path)
    if fault:
        raise ConfigError(
            f"{key}: must be a name that the file system takes, {shorten(repr(path.name))} is not: {fault}"
        )


def name_fault(path: Path) -> str:
    """What the file system says of a name that it does not take, such as one that is too long; else nothing."""
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
    """Raise `ConfigError` unless a file can be written there, in a directory that is there or can be made."""
    check_name(path, key)
    if path.is_dir():
        raise ConfigError(f"{key}: must be a file, was {str(path)!r}, which is a directory")
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError(f"{key}: must be a file that may be overwritten, was {str(path)!r}, which is write-protected")
    nearest = path.parent
    try:
        while not nearest.exists():
            nearest = nearest.parent
        # Asking for permissions is not enough: a disk may be mounted read-only, or full.
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ConfigError(
            f"{key}: must be in a directory that can be written, was {str(path)!r}, "
            f"and nothing can be written in {str(nearest)!r} ({error.strerror})"
        ) from error


def remove_if_empty(directory: Path) -> None:
    """Remove the directory of the runs, unless it holds the directory of a failed run."""
    with suppress(OSError):
        directory.rmdir()
