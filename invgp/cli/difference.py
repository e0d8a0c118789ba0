"""`invgp difference`: the change from one posterior to another."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import FilePath, FiniteRange, default_of
from invgp.cli.text_tables import print_summary


@click.command(
    epilog="Examples: invgp difference before.nc after.nc; "
    "invgp difference posterior.nc posterior_without_well.nc --plot well.pdf"
)
@click.argument("before", type=FilePath())
@click.argument("after", type=FilePath())
@click.option(
    "--level",
    type=FiniteRange(0.01, 99.0),
    **default_of(api.difference, "level"),
    help="Number of joint standard deviations from which a change is marked.",
)
@click.option("-o", "--output", type=FilePath(), help="netCDF file.  [default: AFTER.difference.nc]")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: AFTER_difference.png]")
@json_option
def command(before: Path, after: Path, level: float, output: Path | None, plot: Path | None) -> None:
    """Compute the change of mean and standard deviation from BEFORE to AFTER, two posteriors of the same area."""
    (before, _), (after, _) = api.find_posterior(before), api.find_posterior(after)
    output = output or after.with_suffix(".difference.nc")
    plot = plot or after.with_name(f"{after.stem}_difference.png")
    found = api.difference(before, after, level=level, output=output, plot=plot)
    from invgp.answers.difference import difference_rows  # noqa: PLC0415 - help does not wait for xarray

    print_summary(found)
    figure = plot if "site" in found.dims else None  # scalars have no places
    for path in filter(None, (output, figure)):
        print_line(path)
    print_json(
        {
            "difference": output,
            "figure": figure,
            "latents": [row._asdict() for row in difference_rows(found)],
            "level": level,
        }
    )
