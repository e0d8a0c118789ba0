"""TOML or Python objects to a `Problem`; every key, unit and shape is checked here, and only here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from invgp.config.define_problem import define
from invgp.config.toml_document import change_key, check_values, read_document
from invgp.errors import ConfigError

if TYPE_CHECKING:
    from invgp.problem import Problem

__all__ = ["define", "load"]


def load(path: str | Path, *, data: str | Path | None = None, changes: Mapping[str, object] | None = None) -> Problem:
    """Read a configuration file and its survey.

    Parameters
    ----------
    path : str or Path
        TOML file. Relative paths in it refer to its directory.
    data : str or Path, optional
        Survey file with the same columns, instead of that of the configuration.
    changes : mapping of str to object, optional
        Values of keys that replace those of the file, such as ``{"latents.depth.std": 50.0}``.

    Returns
    -------
    Problem
        For `invgp.invert`.

    Raises
    ------
    ConfigError
        The configuration or the survey is not valid; there is one sentence per mistake.
    """
    # The command line prints help without waiting for pydantic, xarray and PROJ.
    from pydantic import ValidationError  # noqa: PLC0415

    from invgp.config.build_problem import build_problem  # noqa: PLC0415
    from invgp.settings.configuration import VERSION, Config  # noqa: PLC0415
    from invgp.settings.section import sentences  # noqa: PLC0415

    path = Path(path)
    text, keys = read_document(path)
    for key, value in (changes or {}).items():
        change_key(keys, key, value)
    check_values(keys)
    version = keys.get("version", VERSION)
    if isinstance(version, int) and version > VERSION:  # its keys may mean other things: look no further
        raise ConfigError(
            f"version: must be {VERSION} for this release of invgp, was {version}; a newer release may read it"
        )
    try:
        config = Config.model_validate(keys)
    except ValidationError as error:
        raise ConfigError(sentences(error)) from None
    return build_problem(config, path.resolve().parent, text, None if data is None else Path(data))
