"""The figure of draws: fields that the data allow, each as likely as the others."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from invgp.errors import PlotError
from invgp.maps.nodes import as_map
from invgp.plots.grids import as_sites
from invgp.plots.lines import draw_band, finish_panel
from invgp.plots.look import Look
from invgp.plots.maps import maps
from invgp.plots.positions import read_positions
from invgp.plots.reading import Floats, read_curves, read_interval, read_names, read_values
from invgp.plots.style import COLUMN, GREY, PAGE, STYLE, add_legend, letter_panels

_LINES = 20  # that can be told apart
_MAPS = 3  # beside the mean


def draws(ds: xr.Dataset, look: Look | None = None) -> Figure:
    """Draw joint draws from the posterior.

    Along a line, thin lines over the 95% interval, twenty at most. For sites with more coordinates, maps of the mean
    and of three draws in the same colours.

    Parameters
    ----------
    ds : Dataset
        A posterior with draws.
    look : Look
        Limits of the axes or the colours.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, or has no draws.
    """
    look, ds = look or Look(), as_map(ds)
    latents = read_names(ds, "latents")
    missing = [name for name in latents if f"{name}_sample" not in ds]
    if missing or not ds.sizes["realization"]:
        raise PlotError("The dataset has no draws: output.realizations of its config must be 1 or more.")
    if len(read_names(ds, "coordinates")) > 1:
        return _on_maps(ds, look)
    return _along_line(as_sites(ds), latents, look)


def _along_line(ds: xr.Dataset, latents: list[str], look: Look) -> Figure:
    ((x, x_label),) = read_positions(ds, read_names(ds, "coordinates"))
    columns = min(len(latents), 2)
    rows = math.ceil(len(latents) / columns)
    with rc_context(STYLE):
        figure = Figure((COLUMN if columns == 1 else PAGE, 2.9 * rows + 0.3), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for ax, name in zip(axes, latents, strict=False):
            _draw_lines(ax, ds, name, x, look)
            ax.set_xlabel(x_label)
        for ax in axes[len(latents) :]:
            ax.remove()
        for ax in axes[: len(latents)][-columns:]:
            ax.tick_params(labelbottom=True)
        letter_panels(axes[: len(latents)])
        add_legend(
            figure, [Line2D([], [], color=GREY, linewidth=0.5, label="draw from the posterior, over its 95% interval")]
        )
    return figure


def _draw_lines(ax: Axes, ds: xr.Dataset, name: str, x: Floats, look: Look) -> None:
    order = np.argsort(x, kind="stable")
    curves = read_curves(ds, name)
    for curve in curves:
        lower, upper = read_interval(ds, name, curve)
        draw_band(ax, x, np.full_like(x, np.nan), (lower, upper), curve.colour)
        for i in range(min(_LINES, ds.sizes["realization"])):
            line = read_values(ds.isel(realization=i), f"{name}_sample", curve)
            marker = "." if x.size == 1 else ""
            ax.plot(x[order], line[order], color=curve.colour, linewidth=0.5, alpha=0.6, marker=marker, markersize=2.5)
    ends = [float(read_values(ds, name, curve)[order[-1]]) for curve in curves]
    finish_panel(ax, x, ds[name], curves, ends=ends, limits=look.limits_of(name, "mean"))


def _on_maps(ds: xr.Dataset, look: Look) -> Figure:
    """Maps of the mean and of the first draws, as if each were a quantity."""
    count = min(_MAPS, ds.sizes["realization"])
    return maps(ds, Look(("mean", *(f"draw {i + 1}" for i in range(count))), look.limits, hatch_below=0.0))
