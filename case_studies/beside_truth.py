"""Figures of a field next to the truth of a synthetic survey: mean, standard deviation and information."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from invgp.plots.axis_labels import set_log_ticks, set_position_ticks
from invgp.plots.map_colours import outside_ends
from invgp.plots.style import PAGE, STYLE, letter_panels

Floats = np.ndarray


class Panel(NamedTuple):
    """The content of one panel."""

    title: str
    values: Floats
    colours: str
    label: str
    scale: Normalize


class Marks(NamedTuple):
    """Points that the panels show: stations, wells, shots."""

    x: Floats
    y: Floats
    marker: str


def truth_of(path: Path) -> Floats:
    """Read the last column of a table of the truth, in the order of the nodes of the grid."""
    return np.loadtxt(path, delimiter=",", skiprows=1)[:, -1]


def inside(ds: xr.Dataset, name: str, truth: Floats) -> float:
    """Compute the share of the nodes at which the 95% interval contains the truth."""
    low, high = (ds[f"{name}_quantile"].sel(quantile=level).values for level in (0.025, 0.975))
    return float(np.mean((low <= truth) & (truth <= high)))


def panels_of(
    ds: xr.Dataset, name: str, truth: Floats, unit: str, shown: Callable[[Floats], Floats], label: str = ""
) -> list[Panel]:
    """Return panels of truth, mean (same colours), standard deviation and information; `shown` converts values.

    Colour bars have the unit alone, or else the label of the field with it.
    """
    fields = shown(truth), shown(ds[name].values)
    ends = min(map(np.min, fields)), max(map(np.max, fields))
    spread = ds[f"{name}_std"].values if shown is as_it_is else _relative(ds, name)
    field_label, spread_label = (f"{text} ({unit})" if label else unit for text in (label, "standard deviation"))
    if shown is not as_it_is:
        spread_label = "std / mean"
    return [
        Panel("truth", fields[0], "viridis", field_label, Normalize(*ends)),
        Panel("mean", fields[1], "viridis", field_label, Normalize(*ends)),
        Panel("standard deviation", spread, "cividis", spread_label, Normalize(0.0, float(spread.max()))),
        Panel(
            "information",
            ds[f"{name}_information"].values,
            "magma",
            "share of the prior's variance",
            Normalize(0.0, 1.0),
        ),
    ]


def as_it_is(values: Floats) -> Floats:
    """Return the values unchanged."""
    return values


def _relative(ds: xr.Dataset, name: str) -> Floats:
    return np.asarray(ds[f"{name}_std"] / ds[name])


def draw(
    ds: xr.Dataset,
    panels: list[Panel],
    marks: Mapping[str, Marks],
    axes: tuple[str, str],
    *,
    rows: int,
    downwards: bool = False,
) -> Figure:
    """Draw the panels: maps of the nodes, with the same marks on each.

    Parameters
    ----------
    ds : a posterior on a regular grid over two coordinates.
    marks : by what the legend calls them.
    axes : names of the coordinates across and up.
    downwards : whether the second coordinate grows down the page.
    """
    x, y = (ds[name].values for name in axes)
    labels = [_axis_label(ds[name]) for name in axes]
    x, y = (value / scale for value, (scale, _) in zip((x, y), labels, strict=True))
    shape = [len(np.unique(values)) for values in (y, x)]
    order = np.lexsort((x, y))
    columns = -(-len(panels) // rows)
    height = PAGE / columns * 0.72 * np.ptp(y) / np.ptp(x) + 0.65
    upright = rows > 1 or shape[0] <= shape[1]  # the colour bars
    with rc_context(STYLE):
        figure = Figure((PAGE, rows * height + 0.3), layout="compressed" if upright else "constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        handles: list[Any] = []
        for ax, panel in zip(grid.ravel(), panels, strict=True):
            cells = (values[order].reshape(shape) for values in (x, y, panel.values))
            drawn = ax.pcolormesh(*cells, cmap=panel.colours, norm=panel.scale, shading="nearest", rasterized=True)
            _add_bar(ax, drawn, panel, upright=upright)
            handles = _mark(ax, marks, [scale for scale, _ in labels])
            ax.set_aspect("equal")
            set_position_ticks(ax.xaxis, x, most=4)
            set_position_ticks(ax.yaxis, y, most=5)
        if downwards:
            grid[0, 0].invert_yaxis()
        letter_panels(grid.ravel(), [panel.title for panel in panels])
        for ax in grid[-1]:
            ax.set_xlabel(labels[0][1])
        for ax in grid[:, 0]:
            ax.set_ylabel(labels[1][1])
        if marks:
            figure.legend(handles, list(marks), loc="outside upper center", ncols=len(marks), frameon=False)
    return figure


def _add_bar(ax: Axes, drawn: ScalarMappable, panel: Panel, *, upright: bool) -> None:
    """Add a colour bar next to the map or below it; its ends point outwards if values are outside its scale."""
    below = {"ax": ax, "location": "bottom", "pad": 0.02, "shrink": 0.8}
    where = {"cax": ax.inset_axes((1.03, 0.0, 0.05, 1.0))} if upright else below
    bar = ax.figure.colorbar(drawn, extend=outside_ends(panel.scale, panel.values), **where)
    bar.set_label(panel.label)
    if isinstance(panel.scale, LogNorm):
        set_log_ticks(bar.ax.yaxis if upright else bar.ax.xaxis, 0, most=5)


def _axis_label(coordinate: xr.DataArray) -> tuple[float, str]:
    """Return the number by which metres are divided, and the label of the axis."""
    name = str(coordinate.attrs.get("long_name", coordinate.name)).capitalize()
    far = float(np.max(coordinate.values)) > 5000.0
    return (1000.0, f"{name} (km)") if far else (1.0, f"{name} (m)")


def _mark(ax: Axes, marks: Mapping[str, Marks], scales: list[float]) -> list[Any]:
    style: dict[str, Any] = {"linestyle": "none", "color": "white", "markeredgecolor": "black", "clip_on": False}
    return [
        ax.plot(
            places.x / scales[0], places.y / scales[1], places.marker, markersize=3.5, markeredgewidth=0.5, **style
        )[0]
        for places in marks.values()
    ]
