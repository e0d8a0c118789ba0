"""Sections: the latents along the one coordinate of a survey."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from invgp.plots.lines import band_handles, draw_band, finish_panel
from invgp.plots.positions import read_positions
from invgp.plots.reading import (
    Floats,
    read_curves,
    read_interval,
    read_names,
    read_one_coordinate,
    read_values,
)
from invgp.plots.style import COLUMN, GREY, PAGE, STYLE, add_legend, letter_panels

_PRIOR: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, (5, 3))}


def section(ds: xr.Dataset) -> Figure:
    """Draw every latent along the one coordinate of the survey.

    One panel a latent: the posterior mean and its central 95% interval for each label along the latent's
    dimension, and the prior mean dashed. A latent with the attribute ``positive = "down"`` is drawn
    downwards. The interval lies between the 0.025 and 0.975 quantiles, or within 1.96 standard deviations of
    the mean if the Dataset lacks them.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with one coordinate.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, or its sites have more than one coordinate.
    """
    ((x, x_label),) = read_positions(ds, read_one_coordinate(ds))
    latents = read_names(ds, "latents")
    columns = min(len(latents), 2)
    rows = math.ceil(len(latents) / columns)
    with rc_context(STYLE):
        figure = Figure((COLUMN if columns == 1 else PAGE, 2.9 * rows + 0.3), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        panels, spare = axes[: len(latents)], axes[len(latents) :]
        for ax, name in zip(panels, latents, strict=True):
            _draw_latent(ax, ds, name, x)
            ax.set_xlabel(x_label)
        for ax in spare:
            ax.remove()
        letter_panels(panels)
        prior = Line2D([], [], color=GREY, label="prior mean", **_PRIOR)
        mark = "node" if "node" in ds[latents[0]].dims else "site"
        site = Line2D([], [], color="black", marker=2, markersize=4, markeredgewidth=0.5, linestyle="", label=mark)
        add_legend(figure, [*band_handles("posterior mean"), prior, site])
    return figure


def _draw_latent(ax: Axes, ds: xr.Dataset, name: str, x: Floats) -> None:
    order = np.argsort(x, kind="stable")
    curves = read_curves(ds, name)
    means = [read_values(ds, name, curve) for curve in curves]
    for curve, mean in zip(curves, means, strict=True):
        draw_band(ax, x, mean, read_interval(ds, name, curve), curve.colour)
        prior = read_values(ds, f"{name}_prior", curve)
        ax.plot(x[order], prior[order], color=curve.colour, marker="_" if x.size == 1 else "", **_PRIOR)
    finish_panel(ax, x, ds[name], curves, ends=[float(mean[order[-1]]) for mean in means])
