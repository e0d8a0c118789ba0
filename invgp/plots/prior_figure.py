"""Figure of draws from the prior, and of simulated against observed data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from invgp.plots.axis_labels import axis_label, read_positions, set_position_ticks
from invgp.plots.plot_data import Floats, read_curves
from invgp.plots.style import GREY, PAGE, STYLE, NotebookFigure, add_legend, choose_colours, letter_panels

LINES, MAPS = 10, 3  # draws that are drawn as lines and as maps


def plot_prior(prior: xr.Dataset) -> Figure:
    """Draw fields from the prior, and the data that the simulator computes for them below the observed ones.

    With one coordinate, fields are curves; otherwise three draws of each are maps, and the data are drawn by the number
    of their site. Draws of scalars are marks on a line.

    Parameters
    ----------
    prior : Dataset
        From `invgp.prior`.

    Returns
    -------
    Figure
    """
    one = len(str(prior.attrs["invgp_coordinates"]).split()) == 1
    panels: list[Callable[[Axes], None]] = []
    for name in str(prior.attrs["invgp_latents"]).split():
        array = prior[f"{name}_prior_sample"]
        if not {"site", "node"} & {str(d) for d in array.dims}:
            panels.append(partial(_draw_scalar, prior=prior, name=name))
        elif one:
            panels.append(partial(_draw_fields, prior=prior, name=name))
        else:
            panels += [
                partial(_draw_map, prior=prior, name=name, column=column, draw=draw)
                for column in range(len(_split_labels(array)))
                for draw in range(MAPS)
            ]
    observations = str(prior.attrs["invgp_observations"]).split() if prior.sizes["run"] else []
    panels += [partial(_draw_data, prior=prior, name=name) for name in observations]
    with rc_context(STYLE):
        columns = min(len(panels), 2 if one else MAPS)
        rows = -(-len(panels) // columns)
        figure = NotebookFigure((PAGE, 2.4 * rows + 0.4), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for spare in axes[len(panels) :]:
            spare.remove()
        for ax, draw in zip(axes, panels, strict=False):
            draw(ax)
        letter_panels(axes[: len(panels)])
        handles = _label_handles(prior, ("_prior_sample", "_observed") if one else ("_observed",))
        if observations:
            style: dict[str, Any] = {"linestyle": "none", "markersize": 4}
            handles += [
                Line2D([], [], color="0.7", marker="_", label="simulated from the prior", **style),
                Line2D([], [], color=GREY, marker="o", label="observed", **style),
            ]
        if handles:
            add_legend(figure, handles)
    return figure


def _label_handles(prior: xr.Dataset, suffixes: tuple[str, ...]) -> list[Line2D]:
    """Return the colours of the labels of variables with some suffixes."""
    found: dict[str, Line2D] = {}
    for name in prior.data_vars:
        if str(name).endswith(suffixes):
            for curve in read_curves(prior.isel(realization=0), str(name)):
                found.setdefault(curve.label, Line2D([], [], color=curve.colour, label=curve.label))
    return [handle for text, handle in found.items() if text]


def _draw_scalar(ax: Axes, prior: xr.Dataset, name: str) -> None:
    array = prior[f"{name}_prior_sample"]
    parts = _split_labels(array)
    for k, (values, colour) in enumerate(zip(parts, choose_colours(len(parts)), strict=False)):
        ax.plot(values, np.full(len(values), float(k)), "|", color=colour, markersize=9)
    ax.set_ylim(-1.0, float(len(parts)))
    ax.set_yticks([])
    ax.set_xlabel(axis_label(array, f"{name.replace('_', ' ')}, prior", width=30))


def _draw_map(ax: Axes, prior: xr.Dataset, name: str, column: int, draw: int) -> None:
    array = prior[f"{name}_prior_sample"]
    values = _split_labels(array)[column]
    places = prior.drop_dims("site").rename(node="site") if "node" in array.dims else prior
    (x, x_label), (y, y_label) = read_positions(places, str(prior.attrs["invgp_coordinates"]).split()[:2])
    low, high = float(values[:MAPS].min()), float(values[:MAPS].max())
    dots = ax.scatter(x, y, c=values[draw], s=14.0, vmin=low, vmax=high, edgecolors="none")
    ax.set_aspect("equal", adjustable="box")
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    set_position_ticks(ax.xaxis, x, 4)
    set_position_ticks(ax.yaxis, y, 4)
    label = read_curves(prior.isel(realization=0), f"{name}_prior_sample")[column].label
    text = " ".join(filter(None, (name.replace("_", " "), label)))
    if ax.figure is not None:
        ax.figure.colorbar(dots, ax=ax, location="bottom", shrink=0.9, aspect=30).set_label(
            axis_label(array, f"{text}, prior", width=30)
        )


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
