"""Figure of the expected reductions of uncertainty by candidate measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from invgp.formatting import shorten
from invgp.plots.axis_labels import read_positions, set_position_ticks
from invgp.plots.plot_data import Floats
from invgp.plots.style import COLOURS, PAGE, STYLE, NotebookFigure, add_legend, letter_panels

MARKERS = "osD^v"  # of what is measured, on maps
DOT = 20.0  # points squared
MOST_BARS, NAME_LENGTH = 20, 24


def plot_design(design: xr.Dataset) -> Figure:
    """Draw the expected reduction of the standard deviation of each target by each candidate.

    On a line the reductions are curves, one for each quantity that is measured; on a map they are colours. Numbers mark
    the candidates that were chosen, in their order. If all latents are scalars, the largest reductions are bars.

    Parameters
    ----------
    design : Dataset
        From `invgp.design`.

    Returns
    -------
    Figure
    """
    if design.attrs.get("invgp_scalars"):
        return _plot_bars(design)
    coordinates = str(design.attrs["invgp_coordinates"]).split()[:2]
    targets = design["target_label"].values.tolist()
    labels = [f"{kind}: {what}" for kind, what in zip(design["kind"].values, design["measured"].values, strict=True)]
    kinds = list(dict.fromkeys(labels))
    with rc_context(STYLE):
        columns = min(len(targets), 2)
        rows = -(-len(targets) // columns)
        height = (2.3 if len(coordinates) == 1 else PAGE / columns * 0.95) * rows + 0.5
        figure = NotebookFigure((PAGE, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for spare in axes[len(targets) :]:
            spare.remove()
        positions = read_positions(design.rename(candidate="site"), coordinates)
        for t, ax in enumerate(axes[: len(targets)]):
            percent = 100.0 * design["reduction"].values[:, t]
            draw = _draw_line if len(coordinates) == 1 else _draw_map
            draw(figure, ax, [own for own, _ in positions], percent, np.asarray(labels), kinds)
            heights = percent if len(coordinates) == 1 else positions[1][0]
            _number_choices(ax, positions[0][0], heights, design["rank"].values)
            ax.set_xlabel(positions[0][1])
            if len(coordinates) > 1:
                ax.set_ylabel(positions[1][1])
            set_position_ticks(ax.xaxis, positions[0][0], 6)
        letter_panels(axes[: len(targets)], targets)
        if len(kinds) > 1:
            add_legend(figure, [_handle(k, kind, on_map=len(coordinates) > 1) for k, kind in enumerate(kinds)])
    return figure


def _plot_bars(design: xr.Dataset) -> Figure:
    """Draw the largest reductions of each target as bars with the names of the candidates."""
    targets = design["target_label"].values.tolist()
    names, rank = design["candidate_label"].values, design["rank"].values
    count = min(len(names), MOST_BARS)
    with rc_context(STYLE):
        columns = min(len(targets), 2)
        rows = -(-len(targets) // columns)
        figure = NotebookFigure((PAGE, (0.9 + 0.2 * count) * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for spare in axes[len(targets) :]:
            spare.remove()
        longest = max(105.0 * float((design["reduction"] + design["reduction_error"]).max()), 1.0)
        for t, ax in enumerate(axes[: len(targets)]):
            percent = 100.0 * design["reduction"].values[:, t]
            error = 100.0 * design["reduction_error"].values[:, t]
            best = np.argsort(-percent, kind="stable")[:count]
            colours = [COLOURS[0] if rank[i] else "0.7" for i in best]
            ax.barh(np.arange(count), percent[best], xerr=error[best], color=colours, ecolor="0.3", height=0.7)
            labels = [f"{names[i]} ({rank[i]})" if rank[i] else str(names[i]) for i in best]
            ax.set_yticks(np.arange(count), [shorten(label, NAME_LENGTH) for label in labels])
            ax.invert_yaxis()
            ax.set_xlim(0.0, longest)
            ax.set_xlabel("Expected reduction of std (%)")
        letter_panels(axes[: len(targets)], targets)
    return figure


def _handle(number: int, label: str, *, on_map: bool) -> Line2D:
    if on_map:
        marker: dict[str, Any] = {"marker": MARKERS[number % len(MARKERS)], "color": "0.4", "linestyle": "none"}
        return Line2D([], [], markersize=4, label=label, **marker)
    return Line2D([], [], color=COLOURS[number % len(COLOURS)], linewidth=0.9, marker=".", label=label)


def _draw_line(
    figure: Figure,  # noqa: ARG001 - as `_draw_map`
    ax: Axes,
    positions: list[Floats],
    percent: Floats,
    labels: np.ndarray[Any, np.dtype[np.str_]],
    kinds: list[str],
) -> None:
    for k, kind in enumerate(kinds):
        own = np.flatnonzero(labels == kind)
        own = own[np.argsort(positions[0][own], kind="stable")]
        ax.plot(
            positions[0][own], percent[own], color=COLOURS[k % len(COLOURS)], linewidth=0.9, marker=".", markersize=2
        )
    ax.set_ylabel("Expected reduction of std (%)")
    ax.set_ylim(0.0, max(float(percent.max()) * 1.18, 1.0))


def _draw_map(
    figure: Figure,
    ax: Axes,
    positions: list[Floats],
    percent: Floats,
    labels: np.ndarray[Any, np.dtype[np.str_]],
    kinds: list[str],
) -> None:
    dots = None
    for k, kind in enumerate(kinds):
        own = labels == kind
        dots = ax.scatter(
            positions[0][own],
            positions[1][own],
            c=percent[own],
            s=DOT,
            marker=MARKERS[k % len(MARKERS)],
            vmin=0.0,
            vmax=max(float(percent.max()), 0.1),
            edgecolors="0.4",
            linewidths=0.2,
        )
    ax.set_aspect("equal", adjustable="box")
    set_position_ticks(ax.yaxis, positions[1], 6)
    if dots is not None:
        figure.colorbar(dots, ax=ax, location="bottom", shrink=0.9, aspect=30).set_label(
            "Expected reduction of std (%)"
        )


def _number_choices(ax: Axes, x: Floats, y: Floats, rank: np.ndarray[Any, np.dtype[np.int32]]) -> None:
    for i in np.flatnonzero(rank > 0):
        ax.plot(x[i], y[i], "o", markersize=6, markerfacecolor="none", markeredgecolor="black")
        ax.annotate(
            str(rank[i]), (x[i], y[i]), xytext=(4, 4), textcoords="offset points", fontsize=7, fontweight="bold"
        )
