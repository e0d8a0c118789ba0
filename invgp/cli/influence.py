"""`invgp influence`: which data constrain which field where."""

from __future__ import annotations

import json
from pathlib import Path

import click

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import FilePath, default_of
from invgp.cli.text_tables import print_summary


@click.command(epilog="Examples: invgp influence posterior.nc; invgp influence joint.nc --hardest 10")
@click.argument("posterior", type=FilePath())
@click.option(
    "--hardest", type=click.IntRange(min=1), **default_of(api.influence, "hardest"), help="Number of data to list."
)
@click.option("--config", type=FilePath(), help="Configuration of POSTERIOR.  [default: found by its text]")
@click.option("-o", "--output", type=FilePath(), help="netCDF file.  [default: POSTERIOR.influence.nc]")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: POSTERIOR_influence.png]")
@json_option
def command(posterior: Path, hardest: int, config: Path | None, output: Path | None, plot: Path | None) -> None:
    """Compute which data constrain which field of POSTERIOR, and which pull hardest.

    POSTERIOR is a file of `invgp run`, or its configuration. The simulator is not run.
    """
    posterior, config = api.find_posterior(posterior, config)
    output = output or posterior.with_suffix(".influence.nc")
    plot = plot or posterior.with_name(f"{posterior.stem}_influence.png")
    found = api.influence(posterior, hardest=hardest, config=config, output=output, plot=plot)
    from invgp.answers.influence import group_rows  # noqa: PLC0415 - help does not wait for xarray

    print_summary(found)
    for path in (output, plot):
        print_line(path)
    print_json(
        {
            "influence": output,
            "figure": plot,
            "groups": group_rows(found),
            "hardest": json.loads(found.attrs["invgp_hardest"]),
            "runs": 0,
        }
    )
