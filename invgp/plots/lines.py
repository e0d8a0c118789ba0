"""Panels along a line: bands, site marks, depth downwards, and names at the right end of the curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from invgp.plots.labels import axis_label
from invgp.plots.look import HATCH
from invgp.plots.positions import set_ticks
from invgp.plots.reading import Curve, Floats, points_down
from invgp.plots.style import COLOURS, GREY
from invgp.plots.ticks import power_of, set_value_ticks

# Points: the edge of a band as thin as its mean still shows on both sides of it.
_MEAN, _EDGE = 0.7, 1.3


def draw_band(ax: Axes, x: Floats, mean: Floats, edges: tuple[Floats, Floats], colour: Any) -> None:
    """Draw a mean (N,) over the interval between two edges (N,), for sites in any order."""
    order = np.argsort(x, kind="stable")
    x, mean, lower, upper = (values[order] for values in (x, mean, *edges))
    if x.size == 1:
        ax.vlines(x, lower, upper, color=colour, alpha=0.4, linewidth=3.0)
    else:
        fill, edge = to_rgba(colour, 0.22), to_rgba(colour, 0.3)
        ax.fill_between(x, lower, upper, facecolor=fill, edgecolor=edge, linewidth=_EDGE)
    ax.plot(x, mean, color=colour, linewidth=_MEAN, marker="o" if x.size == 1 else "", markersize=3.0)


def hatch_band(ax: Axes, x: Floats, edges: tuple[Floats, Floats], where: NDArray[np.bool_], colour: Any) -> bool:
    """Hatch an interval at the sites (N,) where it says so, and halfway to their neighbours; tell whether any is."""
    order = np.argsort(x, kind="stable")
    x, lower, upper, where = x[order], edges[0][order], edges[1][order], where[order]
    if not where.any() or x.size == 1:
        return False
    # Twice as many points, so that the hatched parts end between two sites rather than at the last one inside.
    middle = np.arange(2 * x.size - 1) / 2.0
    at = np.arange(x.size, dtype=np.float64)
    x, lower, upper = (np.interp(middle, at, values) for values in (x, lower, upper))
    inside = where[np.floor(middle).astype(int)] | where[np.ceil(middle).astype(int)]
    edge = to_rgba(colour, 0.55)
    ax.fill_between(
        x, lower, upper, where=inside.tolist(), facecolor="none", edgecolor=edge, hatch=HATCH, linewidth=0.0
    )
    return True


def band_handles(mean: str) -> list[Artist]:
    """Samples of `draw_band` for a legend that calls the mean so."""
    return [
        Line2D([], [], color=GREY, linewidth=_MEAN, label=mean),
        Patch(
            facecolor=to_rgba(GREY, 0.22),
            edgecolor=to_rgba(GREY, 0.3),
            linewidth=_EDGE,
            label="95% credible interval",
        ),
    ]


def finish_panel(
    ax: Axes,
    x: Floats,
    array: xr.DataArray,
    curves: list[Curve],
    ends: list[float],
    *,
    margin: float = 0.0,
    limits: tuple[float, float] | None = None,
    mark: bool = True,
    sites: Floats | None = None,
    width: int = 44,
) -> None:
    """Label a panel of an array, once all is drawn, trim it to the line, mark the sites and name the curves.

    `ends` are the heights of the curves at the right end, `margin` the share of the line to leave free at each end,
    `limits` the lowest and the highest value, `mark` whether to mark the sites, which are at x unless they are given,
    `width` the characters of a line of the label.
    """
    around = margin * np.ptp(x) or (0.5 if np.ptp(x) == 0.0 else 0.0)  # a lone site stands in the middle
    ax.set_xlim(float(x.min()) - around, float(x.max()) + around)
    set_ticks(ax.xaxis, x, most=5)
    if mark:
        _mark_sites(ax, x if sites is None else sites)
    ax.spines["right"].set_visible(False)
    if points_down(array):
        _turn_down(ax)
    if limits is not None:
        ax.set_ylim(*(limits if not points_down(array) else limits[::-1]))
    power = power_of(ax.get_ylim())
    ax.set_ylabel(axis_label(array, width=width, power=power))
    set_value_ticks(ax.yaxis, power, most=6)
    if len(curves) > len(COLOURS):
        _add_colour_bar(ax, curves)
    elif curves[0].label:
        _name_curves(ax, curves, ends)


def _mark_sites(ax: Axes, x: Floats) -> None:
    ax.plot(
        x,
        np.ones_like(x),
        linestyle="",
        marker=2,  # a tick upwards
        markersize=3.0,
        markeredgewidth=0.4,
        color="black",
        transform=ax.get_xaxis_transform(),
        clip_on=False,
    )


def _turn_down(ax: Axes) -> None:
    low, high = ax.get_ylim()
    # The surface belongs in the picture, unless all that matters lies far below it.
    ax.set_ylim(high, 0.0 if 0.0 <= ax.dataLim.y0 < ax.dataLim.height else low)


def _add_colour_bar(ax: Axes, curves: list[Curve]) -> None:
    """Name curves too many to be named one by one."""
    palette = ListedColormap([curve.colour for curve in curves])
    scale = ScalarMappable(Normalize(-0.5, len(curves) - 0.5), palette)
    bar = ax.figure.colorbar(scale, ax=ax, pad=0.02, aspect=30)
    bar.ax.yaxis.set_inverted(ax.yaxis_inverted())
    ticks = np.unique(np.linspace(0, len(curves) - 1, 6).round().astype(int))
    bar.set_ticks(ticks.tolist(), labels=[curves[i].label for i in ticks])


def _name_curves(ax: Axes, curves: list[Curve], ends: list[float]) -> None:
    """Write the label of each curve at its right end."""
    low, high = ax.get_ylim()
    heights = _spread([(end - low) / (high - low) for end in ends], gap=0.055)
    for curve, height in zip(curves, heights, strict=True):
        ax.annotate(
            curve.label,
            (1.0, height),
            xycoords="axes fraction",
            xytext=(3.0, 0.0),
            textcoords="offset points",
            color=curve.colour,
            fontsize=7.5,
            va="center",
            annotation_clip=False,
        )


def _spread(heights: list[float], gap: float) -> list[float]:
    """Move heights in [0, 1] apart until neighbours stand at least `gap` from each other."""
    order = np.argsort(heights)
    placed = np.clip(np.asarray(heights)[order], 0.0, 1.0)
    for i in range(1, placed.size):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    ceiling = 1.0
    for i in reversed(range(placed.size)):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    result = np.empty_like(placed)
    result[order] = placed
    return [float(height) for height in result]
