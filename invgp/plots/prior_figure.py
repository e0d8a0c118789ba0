"""Figure of draws from the prior, and of simulated against observed data."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from invgp.plots.axis_labels import axis_label, read_positions, set_position_ticks
from invgp.plots.plot_data import Floats
from invgp.plots.style import GREY, PAGE, STYLE, NotebookFigure, add_legend, choose_colours, letter_panels

LINES = 10  # draws that are drawn


def plot_prior(prior: xr.Dataset) -> Figure:
    """Draw fields from the prior, and the data that the simulator computes for them below the observed ones.

    With one coordinate, the horizontal axis is the position, otherwise the number of the site or node.

    Parameters
    ----------
    prior : Dataset
        From `invgp.prior`.

    Returns
    -------
    Figure
    """
    fields = [
        name
        for name in str(prior.attrs["invgp_latents"]).split()
        if {"site", "node"} & {str(d) for d in prior[f"{name}_prior_sample"].dims}
    ]
    observations = str(prior.attrs["invgp_observations"]).split() if prior.sizes["run"] else []
    panels = len(fields) + len(observations)
    with rc_context(STYLE):
        columns = min(panels, 2)
        rows = -(-panels // columns)
        figure = NotebookFigure((PAGE, 2.4 * rows + 0.4), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for spare in axes[panels:]:
            spare.remove()
        for ax, name in zip(axes, fields, strict=False):
            _draw_fields(ax, prior, name)
        for ax, name in zip(axes[len(fields) :], observations, strict=False):
            _draw_data(ax, prior, name)
        letter_panels(axes[:panels])
        if observations:
            style: dict[str, Any] = {"linestyle": "none", "markersize": 4}
            add_legend(
                figure,
                [
                    Line2D([], [], color="0.7", marker="_", label="simulated from the prior", **style),
                    Line2D([], [], color=GREY, marker="o", label="observed", **style),
                ],
            )
    return figure


def _axis_of(prior: xr.Dataset, array: xr.DataArray) -> tuple[Floats, str]:
    """Return positions and their label: a coordinate, or numbers."""
    where = "node" if "node" in array.dims else "site"
    key = "invgp_coordinates" if where == "node" else "invgp_site_coordinates"
    names = str(prior.attrs[key]).split()
    if len(names) == 1:
        ((x, label),) = read_positions(prior.rename({where: "site"}) if where == "node" else prior, names)
        return x, label
    return np.arange(1.0, array.sizes[where] + 1.0), f"Number of the {where}"


def _split_labels(array: xr.DataArray) -> list[Floats]:
    """Return the values (draws, places), or (places,), of each label."""
    dimension = [str(d) for d in array.dims if d not in ("site", "node", "realization", "run")]
    if not dimension:
        return [array.values]
    return [array.isel({dimension[0]: k}).values for k in range(array.sizes[dimension[0]])]


def _draw_fields(ax: Axes, prior: xr.Dataset, name: str) -> None:
    array = prior[f"{name}_prior_sample"]
    x, label = _axis_of(prior, array)
    order = np.argsort(x, kind="stable")
    parts = _split_labels(array)
    for values, colour in zip(parts, choose_colours(len(parts)), strict=False):
        ax.plot(x[order], values[:LINES, order].T, color=colour, linewidth=0.5, alpha=0.7)
    ax.set_xlabel(label)
    ax.set_ylabel(axis_label(array, f"{name.replace('_', ' ')}, prior", width=30))
    set_position_ticks(ax.xaxis, x, 6)


def _draw_data(ax: Axes, prior: xr.Dataset, name: str) -> None:
    array = prior[f"{name}_observed"]
    x, label = _axis_of(prior, array)
    observed, simulated = _split_labels(array), _split_labels(prior[f"{name}_simulated"])
    for y, g, colour in zip(observed, simulated, choose_colours(len(observed)), strict=False):
        shown = np.isfinite(g).any(axis=0)
        for one in g:
            ax.plot(x[shown], one[shown], "_", color=colour, markersize=4, alpha=0.45, markeredgewidth=0.7)
        ax.plot(x, y, "o", color=colour, markersize=2.0)
    ax.set_xlabel(label)
    ax.set_ylabel(axis_label(array, width=30))
    set_position_ticks(ax.xaxis, x, 6)
