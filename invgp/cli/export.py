"""`invgp export`: a posterior or a map in the formats of other programs."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import MODE_HELP, FilePath
from invgp.exporters import FORMATS


@click.command(
    epilog="Examples: invgp export posterior.nc --format csv; invgp export map.nc --format geotiff -o depth.tif "
    "--variable depth --variable depth_std; invgp export posterior.nc --format pest -o ensemble.csv"
)
@click.argument("posterior", type=FilePath())
@click.option("--format", type=click.Choice([*FORMATS]), required=True, help="Output format.")
@click.option("-o", "--output", type=FilePath(), help="Output file.  [default: next to POSTERIOR]")
@click.option(
    "--variable",
    "variables",
    multiple=True,
    help="Variable of POSTERIOR to write (for arviz and pest, a latent); can be repeated.  [default: by format]",
)
@click.option("--mode", type=click.IntRange(min=1), help=MODE_HELP)
@json_option
def command(
    posterior: Path,
    format: str,  # noqa: A002
    output: Path | None,
    variables: tuple[str, ...],
    mode: int | None,
) -> None:
    """Write POSTERIOR, a posterior of `invgp run` or a map of `invgp predict`, in another format."""
    files = api.export(posterior, format, output, variables=variables, mode=mode)
    for path in files:
        print_line(path)
    print_json({"files": files})
