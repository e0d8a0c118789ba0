"""`invgp plot`: figures from a posterior file."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import netcdf
from invgp.cli.outputs import check_writable
from invgp.cli.voice import give, json_option, say


@click.command(epilog="Examples: invgp plot posterior.nc; invgp plot posterior.nc -o figures/line.pdf")
@click.argument("posterior", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="PNG, SVG or PDF.  [default: beside POSTERIOR]")
@json_option
def command(posterior: Path, output: Path | None) -> None:
    """Draw POSTERIOR, a file that `invgp run` wrote: sections or maps, and the data fit."""
    from invgp.plots import plot as draw  # noqa: PLC0415 - help is given without waiting for matplotlib

    dataset = netcdf.read(posterior)
    output = output or posterior.with_suffix(".png")
    check_writable(output, "--output")
    figures = list(draw(dataset, output))
    for path in figures:
        say(path)
    give({"figures": figures})
