"""Options that several commands share."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invgp.cli.outputs import name_fault
from invgp.errors import ConfigError
from invgp.formatting import shorten

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Problem


class FilePath(click.Path):
    """The path of a file, whose name must be one that the file system takes; what is there is looked at later.

    Parameters
    ----------
    directory : bool
        Whether it may be a directory such as ``.``, of which the command says more.
    """

    def __init__(self, *, directory: bool = False) -> None:
        super().__init__(path_type=Path)
        self.directory = directory

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, checked."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        fault = name_fault(path) if path.name or self.directory else "it names no file"
        if fault:
            self.fail(f"{shorten(repr(str(path)))}: {fault}.", param, ctx)
        return path


LARGEST_SEED = 2**63 - 1  # it is an attribute of the posterior file

config_argument = click.argument("config", type=FilePath())
data_option = click.option(
    "--data", type=FilePath(), help="Survey file with the same columns, to use instead of that of the configuration."
)
scheduler_option = click.option(
    "--scheduler", help="Address or file of a Dask scheduler whose workers execute the runs.  [default: config]"
)
workers_option = click.option(
    "--workers", type=click.IntRange(min=1), help="Number of parallel simulator runs.  [default: config]"
)


class FiniteRange(click.FloatRange):
    """A number in a range, which 'nan' is not, though it compares as if it were."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, checked."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


def refuse_calibration(dataset: xr.Dataset, path: Path) -> None:
    """Raise `ConfigError` for a file of `invgp calibrate`, which names latents but holds no posterior."""
    if "invgp_calibration" in dataset.attrs:
        raise ConfigError(
            f"POSTERIOR: must be a file that `invgp run` wrote, was {str(path)!r}, a calibration: `invgp calibrate` "
            "makes its table and figure"
        )


def refuse_field(problem: Problem, command: str) -> None:
    """Raise `ConfigError` for a field model, which a command cannot do yet."""
    if problem.grid is not None:
        raise ConfigError(f"forward.kind: must be 'site' for `invgp {command}`, was 'field'; see docs/field.md")
