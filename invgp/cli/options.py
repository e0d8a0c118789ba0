"""Options of several commands."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import click

from invgp.api.output_paths import name_fault
from invgp.formatting import shorten

MODE_HELP = "Number of a mode of a sampled posterior, 1 for the most probable.  [default: all modes together]"


class FilePath(click.Path):
    """The path of a file, with a name that the file system accepts; the file itself is checked later.

    Parameters
    ----------
    directory : bool
        Whether it may be a directory such as ``.``, for which the command has its own message.
    """

    def __init__(self, *, directory: bool = False) -> None:
        super().__init__(path_type=Path)
        self.directory = directory

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the checked path."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        fault = name_fault(path) if path.name or self.directory else "it names no file"
        if fault:
            self.fail(f"{shorten(repr(str(path)))}: {fault}.", param, ctx)
        return path


LARGEST_SEED = 2**63 - 1  # it is an attribute of the posterior file


def default_of(function: Callable[..., Any], argument: str) -> dict[str, Any]:
    """Return the default of an argument of a function, for an option with the same meaning."""
    return {"default": signature(function).parameters[argument].default, "show_default": True}


config_argument = click.argument("config", type=FilePath())
data_option = click.option(
    "--data", type=FilePath(), help="Survey file with the same columns, to use instead of that of the configuration."
)
without_option = click.option(
    "--without",
    multiple=True,
    metavar="NAME",
    help="Leave out a source of a joint inversion: a table [sources.NAME] or [direct.NAME], or 'survey'. Repeatable.",
)
source_option = click.option(
    "--source", metavar="NAME", help="Source of a joint inversion whose simulator is meant.  [default: the first]"
)
new_runs_option = click.option(
    "--new-runs",
    is_flag=True,
    help="With --without: make new runs where those in the ledger are too few.  [default: use the ledger only]",
)
scheduler_option = click.option(
    "--scheduler", help="Address or file of a Dask scheduler whose workers execute the runs.  [default: config]"
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Number of parallel simulator runs.  [default: config]",
)


class FiniteRange(click.FloatRange):
    """A number in a range; 'nan' and 'inf' are rejected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the checked number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number
