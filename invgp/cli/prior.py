"""`invgp prior`: draws from the prior, and their data against the observed ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import LARGEST_SEED, FilePath, default_of
from invgp.cli.text_tables import print_summary

if TYPE_CHECKING:
    import xarray as xr


def print_extent(found: xr.Dataset) -> None:
    """Print how many of the data were compared, if the runs did not suffice for all."""
    from invgp.answers.prior_check import prior_rows  # noqa: PLC0415 - help does not wait for xarray

    compared = sum(row.compared for row in prior_rows(found))
    names = str(found.attrs["invgp_observations"]).split()
    data = sum(int(np.isfinite(found[f"{name}_observed"].values).sum()) for name in names)
    if 0 < compared < data:
        needed = math.ceil(int(found.attrs["invgp_runs"]) * data / compared)
        print_line(
            f"{compared:,} of {data:,} data were compared, at evenly spaced sites; --runs {needed} compares about all."
        )


@click.command(
    epilog="Examples: invgp prior survey.toml; invgp prior survey.toml --runs 0; invgp prior survey.toml --runs 400"
)
@click.argument("config", type=FilePath())
@click.option(
    "--runs",
    type=click.IntRange(min=0),
    help="Number of simulator runs; 0 for draws of the fields only.  [default: 100, 20 for a field model]",
)
@click.option("--data", type=FilePath(), help="Survey file, to use instead of that of CONFIG.")
@click.option("--workers", type=click.IntRange(min=1), help="Number of parallel workers.  [default: that of CONFIG]")
@click.option(
    "--seed", type=click.IntRange(min=0, max=LARGEST_SEED), **default_of(api.prior, "seed"), help="Random seed."
)
@click.option("-o", "--output", type=FilePath(), help="netCDF file.  [default: CONFIG.prior.nc]")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: CONFIG_prior.png]")
@json_option
def command(
    config: Path,
    runs: int | None,
    data: Path | None,
    workers: int | None,
    seed: int,
    output: Path | None,
    plot: Path | None,
) -> None:
    """Draw from the prior of CONFIG, simulate data for a few draws, and compare them with the observed data.

    The runs are recorded in the ledger of the inversion, if it has one, and the inversion uses them.
    """
    output = output or config.with_suffix(".prior.nc")
    plot = plot or config.with_name(f"{config.stem}_prior.png")
    found = api.prior(config, runs=runs, data=data, workers=workers, seed=seed, output=output, plot=plot)
    from invgp.answers.prior_check import prior_rows  # noqa: PLC0415 - help does not wait for xarray

    conflicts = list(filter(None, str(found.attrs["invgp_conflicts"]).splitlines()))
    made, reused = int(found.attrs["invgp_runs"]), int(found.attrs["invgp_runs_from_ledger"])
    print_summary(found)
    print_extent(found)
    for path in (output, plot):
        print_line(path)
    print_json(
        {
            "prior": output,
            "figure": plot,
            "observations": [row._asdict() for row in prior_rows(found)],
            "conflicts": conflicts,
            "runs": made,
            "runs_from_ledger": reused,
        }
    )
