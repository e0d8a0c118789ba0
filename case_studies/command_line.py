"""Arguments of the scripts of the case studies and files that they name: a mistake gives a sentence and exit code 2."""

from __future__ import annotations

import math
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

import invgp
from invgp.errors import ConfigError, InvgpError
from invgp.problem import Problem

MISTAKE = 2  # exit code


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number with a lower limit."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise ArgumentTypeError(f"must be a whole number of at least {least}, was {text!r}")
        return value

    return number


def positive(text: str) -> float:
    """Convert an argument that must be a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        raise ArgumentTypeError(f"must be a number above 0, was {text!r}")
    return value


def run(main: Callable[[], None]) -> None:
    """Run a script; a mistake of the user ends it with a sentence instead of a traceback."""
    try:
        main()
    except InvgpError as error:
        sentences = error.sentences if isinstance(error, ConfigError) else [str(error)]
        # The argument `data` of `invgp.load` is the option of the scripts.
        end([f"--{sentence}" if sentence.startswith("data: ") else sentence for sentence in sentences])
    except OSError as error:
        named = error.filename is not None
        end([f"the file {str(error.filename)!r} cannot be used: {error.strerror}" if named else str(error)])


def end(sentences: Sequence[str]) -> NoReturn:
    """Print what is wrong and the name of the script, and exit."""
    for sentence in sentences:
        print(f"{Path(sys.argv[0]).name}: {sentence.rstrip('.')}.", file=sys.stderr)
    sys.exit(MISTAKE)


def field_problem(config: Path) -> Problem:
    """Load a configuration, which must be that of a field model."""
    problem = invgp.load(config)
    if problem.grid is None:
        raise ConfigError(f"the config {str(config)!r} must be of a field model, with a grid, but it has none")
    return problem


def read_columns(path: Path, names: Sequence[str], sites: int) -> NDArray[np.float64]:
    """Read the columns with these names, (N, C), from a CSV file with one row per site."""
    try:
        table = pd.read_csv(path)
    except ValueError as error:  # not text, empty, or not a table
        raise ConfigError(f"{str(path)!r} must be a CSV file, but cannot be read as one: {error}") from error
    lacking = [name for name in names if name not in table]
    if lacking:
        raise ConfigError(f"{str(path)!r} must have a column {lacking[0]!r}, but has {', '.join(map(repr, table))}")
    if len(table) != sites:
        raise ConfigError(f"{str(path)!r} must have a row for each of the {sites:,} sites, but has {len(table):,}")
    try:
        return np.asarray(table[list(names)], dtype=np.float64)
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} must have numbers in its columns: {error}") from error


def check_fields(posterior: xr.Dataset, names: Sequence[str], path: Path) -> None:
    """Raise an error if a posterior lacks these fields, because it belongs to another problem."""
    lacking = [name for name in names if name not in posterior]
    if lacking:
        raise ConfigError(
            f"the posterior {str(path)!r} must have {lacking[0]!r}, but is one of {posterior.attrs['invgp_latents']}"
        )
