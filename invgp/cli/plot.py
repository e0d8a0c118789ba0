"""`invgp plot`: figures of a posterior or a map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from invgp import api
from invgp.api.posterior_files import read_mode
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import MODE_HELP, FilePath, FiniteRange
from invgp.cli.text_tables import print_table
from invgp.errors import ArgumentError

# The names of invgp.plots, which is not imported here: help does not wait for matplotlib.
KINDS = ("section", "map", "profile", "fit", "correlation", "scalars", "draws", "hyperparameters", "convergence")
QUANTITIES = ("mean", "std", "difference", "information", "few-runs", "prior", "quantiles", "exceedance")
FORMATS = ("png", "svg", "pdf")


@click.command(
    epilog="Examples: invgp plot posterior.nc; invgp plot posterior.nc --kind all; invgp plot posterior.nc --kind map "
    "--show information --latent depth --layer 3 -o depth.pdf; invgp plot posterior.nc --kind correlation --site 12; "
    "invgp plot posterior.nc --limits depth 0 2500 --size 18 9 --dpi 600"
)
@click.argument("posterior", type=FilePath())
@click.option("-o", "--output", type=FilePath(), help="Figure file: PNG, SVG or PDF.  [default: next to POSTERIOR]")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([*KINDS, "all"]),
    multiple=True,
    help="Type of figure; can be repeated.  [default: section or map, and fit]",
)
@click.option(
    "--latent", "latents", multiple=True, metavar="NAME", help="Latent to plot; can be repeated.  [default: all]"
)
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="LABEL",
    help="Layer (or other label) to plot; can be repeated.  [default: all]",
)
@click.option(
    "--show",
    type=click.Choice([*QUANTITIES, "all"]),
    multiple=True,
    help="Quantities of sections and maps; difference: posterior minus prior mean; few-runs: the part of the "
    "standard deviation of a field model that more runs would remove; exceedance: probabilities of a map of `invgp "
    "predict --exceed`; all: mean, std, difference, information.  [default: mean; on maps, also std]",
)
@click.option(
    "--site",
    type=click.IntRange(min=1),
    help="Site whose correlations are plotted.  [default: the middle of the table]",
)
@click.option("--mode", type=click.IntRange(min=1), help=MODE_HELP)
@click.option(
    "--at",
    type=(str, float),
    multiple=True,
    metavar="COORDINATE VALUE",
    help="Cut a grid at this coordinate; can be repeated.",
)
@click.option(
    "--limits",
    type=(str, float, float),
    multiple=True,
    metavar="VARIABLE LOW HIGH",
    help="Range of the colours or the axis of a variable: depth, depth_std, depth_difference, "
    "depth_information or depth_few_runs_std.",
)
@click.option(
    "--hatch-below",
    type=FiniteRange(0.0, 1.0),
    help="Hatch regions with less information; 0 disables hatching.  [default: 0.2]",
)
@click.option(
    "--size", type=(FiniteRange(3.0, 200.0),) * 2, metavar="WIDTH HEIGHT", help="Size of a figure in centimetres."
)
@click.option(
    "--line",
    type=(float, float, float, float),
    metavar="EAST NORTH EAST NORTH",
    help="Ends A and A' of a profile through a map: the map shows the line, the figure `profile` the latents along it.",
)
@click.option(
    "--values",
    type=FilePath(),
    help="CSV table of known values, as of boreholes or a synthetic truth: coordinates, and columns such as depth or, "
    "for a label, depth_2. They are drawn over means, and a table of the misfit is printed.",
)
@click.option(
    "--colour-map", default="", metavar="NAME", help="Matplotlib colour map of latents on maps.  [default: viridis]"
)
@click.option("--dpi", type=FiniteRange(30.0, 2400.0), help="Resolution in dots per inch.  [default: 300]")
@click.option("--format", type=click.Choice(FORMATS), help="File format.  [default: that of --output, or png]")
@json_option
def command(
    posterior: Path,
    output: Path | None,
    at: tuple[tuple[str, float], ...],
    limits: tuple[tuple[str, float, float], ...],
    **options: Any,
) -> None:
    """Plot POSTERIOR, a file of `invgp run` or `invgp predict`: sections or maps, and the data fit.

    The section or map is written to OUTPUT, other figures to OUTPUT_KIND. A single figure is written to OUTPUT.
    """
    ranges = {variable: (low, high) for variable, low, high in limits}
    if len(ranges) < len(limits):
        raise ArgumentError("limits: must be given once for a variable")
    figures = list(api.plot(posterior, output, at=dict(at), limits=ranges, **options))
    for path in figures:
        print_line(path)
    misfits = print_misfits(posterior, options["values"], options["mode"])
    print_json({"figures": figures} | ({"misfits": misfits} if misfits else {}))


def print_misfits(posterior: Path, values: Path | None, mode: int | None) -> list[dict[str, Any]]:
    """Print a table of the misfit between a posterior and known values, if there are any; return its rows."""
    if values is None:
        return []
    from invgp import plots  # noqa: PLC0415 - help does not wait for matplotlib

    dataset = read_mode(posterior, mode)
    rows = plots.compare_with_values(dataset, plots.read_known_values(values, dataset))
    heading = ("", "values", "mean error", "rms error", "rms error / std", "inside 95%")
    body = [
        (
            " ".join(filter(None, (row.latent, row.label, f"({row.unit})" if row.unit else ""))),
            f"{row.size:,}",
            f"{row.mean_error:.3g}",
            f"{row.rms_error:.3g}",
            f"{row.standardised:.2f}",
            f"{row.inside:.0%}",
        )
        for row in rows
    ]
    print_table(heading, body)
    return [row._asdict() for row in rows]
