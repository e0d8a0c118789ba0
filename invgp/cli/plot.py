"""`invgp plot`: figures from a posterior file."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import FilePath, FiniteRange, refuse_calibration
from invgp.cli.outputs import check_writable
from invgp.errors import ConfigError

if TYPE_CHECKING:
    import xarray as xr

# As in invgp.plots, which is not imported here: help is given without waiting for matplotlib.
KINDS = ("section", "map", "fit", "correlation", "draws", "convergence")
QUANTITIES = ("mean", "std", "difference", "information")
OF_FIELDS = "few-runs"
FORMATS = ("png", "svg", "pdf")
INCH = 2.54  # cm


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
    type=click.Choice([*QUANTITIES, OF_FIELDS, "all"]),
    multiple=True,
    help="Quantities of sections and maps; difference: posterior minus prior mean; few-runs: the part of the "
    "standard deviation of a field model that more runs would remove.  [default: mean; on maps, also std]",
)
@click.option(
    "--site",
    type=click.IntRange(min=1),
    help="Site whose correlations are plotted.  [default: the middle of the table]",
)
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
@click.option("--dpi", type=FiniteRange(30.0, 2400.0), help="Resolution in dots per inch.  [default: 300]")
@click.option(
    "--format", "suffix", type=click.Choice(FORMATS), help="File format.  [default: that of --output, or png]"
)
@json_option
def command(
    posterior: Path,
    output: Path | None,
    kinds: tuple[str, ...],
    size: tuple[float, float] | None,
    dpi: float | None,
    suffix: str | None,
    **chosen: Any,
) -> None:
    """Plot POSTERIOR, a file of `invgp run` or `invgp predict`: sections or maps, and the data fit.

    The section or map is written to OUTPUT, other figures to OUTPUT_KIND. A single figure is written to OUTPUT.
    """
    target = target_of(posterior, output, suffix)
    check_writable(target, "--output")
    # Here, not above: a mistake is told, and help given, without waiting for xarray and matplotlib.
    from invgp import netcdf, plots  # noqa: PLC0415

    plots.check_format(target, "--output")
    read = netcdf.read(posterior)
    refuse_calibration(read, posterior)
    dataset = plots.slice_grid(read, dict(chosen["at"]))
    drawn = plots.select_latents(dataset, chosen["latents"], chosen["layers"])
    options = replace(
        figure_options(drawn, **{key: chosen[key] for key in ("show", "limits", "hatch_below")}),
        latents=chosen["latents"],
        labels=chosen["layers"],
        size=None if size is None else (size[0] / INCH, size[1] / INCH),
    )
    wanted = plots.suitable_kinds(drawn) if "all" in kinds else kinds
    if chosen["site"] is not None and "correlation" not in wanted:
        raise ConfigError(f"--site: must go with --kind correlation, was {chosen['site']}")
    figures = list(plots.plot(dataset, target, wanted, options, alone=output is not None, site=chosen["site"], dpi=dpi))
    for path in figures:
        print_line(path)
    print_json({"figures": figures})


def target_of(posterior: Path, output: Path | None, suffix: str | None) -> Path:
    """The file to write."""
    if output is None:
        return posterior.with_suffix(f".{suffix or 'png'}")
    if suffix is not None and output.suffix.lower() != f".{suffix}":
        raise ConfigError(f"--format: must be that of --output, which is {str(output)!r}, was {suffix!r}")
    return output


def figure_options(
    dataset: xr.Dataset, show: tuple[str, ...], limits: tuple[tuple[str, float, float], ...], hatch_below: float | None
) -> Any:
    """Return the options of the figures."""
    from invgp import plots  # noqa: PLC0415

    names = str(dataset.attrs["invgp_latents"]).split()
    suffixes = {name: quantity.suffix for name, quantity in plots.QUANTITIES.items()}
    if not any(f"{name}{suffixes[OF_FIELDS]}" in dataset for name in names):
        if OF_FIELDS in show:
            raise ConfigError(
                f"--show: must not be {OF_FIELDS!r} here: it is known of the posterior of a field model, "
                "on its own grid"
            )
        del suffixes[OF_FIELDS]
    known = [name + suffix for name in names for suffix in suffixes.values()]
    for variable, low, high in limits:
        if variable not in known:
            raise ConfigError(f"--limits: must be of one of {', '.join(known)}, was {variable!r}")
        if not (low < high and math.isfinite(high - low)):
            raise ConfigError(f"--limits: the lower must be below the upper, was {low:g} and {high:g} for {variable!r}")
    shown = QUANTITIES if "all" in show else tuple(dict.fromkeys(show))
    settings: dict[str, Any] = {} if hatch_below is None else {"hatch_below": hatch_below}
    return plots.FigureOptions(shown, {variable: (low, high) for variable, low, high in limits}, **settings)
