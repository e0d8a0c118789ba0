"""`invgp plot`: figures from a posterior file."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import netcdf
from invgp.cli.outputs import check_writable
from invgp.plots import plot as draw


@click.command(epilog="Examples: invgp plot posterior.nc; invgp plot posterior.nc -o figures/line.pdf")
@click.argument("posterior", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="PNG, SVG or PDF.  [default: beside POSTERIOR]")
def command(posterior: Path, output: Path | None) -> None:
    """Draw POSTERIOR, a file that `invgp run` wrote: sections or maps, and the data fit."""
    dataset = netcdf.read(posterior)
    output = output or posterior.with_suffix(".png")
    check_writable(output, "--output")
    for path in draw(dataset, output):
        click.echo(path)
