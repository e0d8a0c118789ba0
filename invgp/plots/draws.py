"""The figure of draws: fields that the data allow, each as likely as the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from invgp.errors import PlotError
from invgp.maps.nodes import as_map
from invgp.plots.between import between_sites
from invgp.plots.grids import as_sites
from invgp.plots.lines import draw_band, finish_panel
from invgp.plots.look import Look
from invgp.plots.maps import maps
from invgp.plots.positions import read_positions, read_survey_positions
from invgp.plots.reading import Floats, choose, read_curves, read_interval, read_names, read_survey, read_values
from invgp.plots.style import GREY, STYLE, add_legend, arrange, letter_panels

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
    look, latents = look or Look(), read_names(ds, "latents")
    missing = [name for name in latents if f"{name}_sample" not in ds]
    if missing or not ds.sizes["realization"]:
        raise PlotError("The dataset has no draws: output.realizations of its config must be 1 or more.")
    if len(read_names(as_map(ds), "coordinates")) > 1:
        return _on_maps(ds, look)
    return _along_line(ds, look)


def _along_line(ds: xr.Dataset, look: Look) -> Figure:
    coordinate = read_names(as_map(ds), "coordinates")
    ds = choose(as_map(between_sites(ds, min(_LINES, ds.sizes["realization"]))), look.latents, look.labels)
    survey, ds = read_survey(ds, coordinate), as_sites(ds)
    ((x, x_label),) = read_positions(ds, coordinate)
    sites = read_survey_positions(ds, survey, coordinate)[0] if survey is not None else None
    latents = read_names(ds, "latents")
    sheet = arrange(len(latents), look.size)
    with rc_context(STYLE):
        figure = Figure(sheet.size, layout="constrained")
        axes = figure.subplots(sheet.rows, sheet.columns, squeeze=False, sharex=True).ravel()
        for ax, name in zip(axes, latents, strict=False):
            _draw_lines(ax, ds, name, x, look, {"sites": sites, "width": sheet.characters})
        for ax in axes[len(latents) :]:
            ax.remove()
        for ax in axes[: len(latents)][-sheet.columns :]:
            ax.set_xlabel(x_label)
            ax.tick_params(labelbottom=True)
        letter_panels(axes[: len(latents)])
        add_legend(
            figure, [Line2D([], [], color=GREY, linewidth=0.5, label="draw from the posterior, over its 95% interval")]
        )
    return figure


def _draw_lines(ax: Axes, ds: xr.Dataset, name: str, x: Floats, look: Look, how: dict[str, Any]) -> None:
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
    finish_panel(ax, x, ds[name], curves, ends=ends, limits=look.limits_of(name, "mean"), **how)


def _on_maps(ds: xr.Dataset, look: Look) -> Figure:
    """Maps of the mean and of the first draws, as if each were a quantity."""
    count = min(_MAPS, ds.sizes["realization"])
    shown = ("mean", *(f"draw {i + 1}" for i in range(count)))
    return maps(between_sites(ds, count), replace(look, show=shown, hatch_below=0.0))
