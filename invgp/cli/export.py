"""`invgp export`: a posterior or a map in the formats of other programs."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import netcdf
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import FilePath, refuse_calibration
from invgp.cli.outputs import check_not_survey, check_other, check_writable
from invgp.exporters import FORMATS, export


@click.command(
    epilog="Examples: invgp export posterior.nc --format csv; invgp export map.nc --format geotiff -o depth.tif "
    "--variable depth --variable depth_std; invgp export posterior.nc --format pest -o ensemble.csv"
)
@click.argument("source", metavar="FILE", type=FilePath())
@click.option("--format", "kind", type=click.Choice([*FORMATS]), required=True, help="Output format.")
@click.option("-o", "--output", type=FilePath(), help="Output file.  [default: next to FILE]")
@click.option(
    "--variable",
    "variables",
    multiple=True,
    help="Variable of FILE to write (for arviz and pest, a latent); can be repeated.  [default: by format]",
)
@json_option
def command(source: Path, kind: str, output: Path | None, variables: tuple[str, ...]) -> None:
    """Write FILE, a posterior of `invgp run` or a map of `invgp predict`, in another format."""
    output = output or source.with_suffix(FORMATS[kind].suffix)
    check_other(output, source)
    check_writable(output, "--output")
    with netcdf.open_posterior(source) as dataset:
        refuse_calibration(dataset, source)
        check_not_survey(output, dataset)
        written = export(dataset, kind, output, variables)
    for path in written:
        print_line(path)
    print_json({"files": written})
