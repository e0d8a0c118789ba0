"""Figures of values at places: curves along a line, or coloured dots on a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from invgp.plots.axis_labels import axis_label, read_positions, set_position_ticks, set_value_ticks, tick_power
from invgp.plots.plot_data import Floats, increases_downwards, read_curves, read_values
from invgp.plots.style import GREY, PAGE, STYLE, NotebookFigure, add_legend, letter_panels

_DOT = 14.0  # points squared
_UNLABELLED = "black"  # curves without a label beside others with labels, whose colours are in the legend
_DIVERGING, _SEQUENTIAL = "RdBu_r", "viridis"
UNUSUAL = 2.0  # standardised residual beyond which data are marked


class PlacePanel(NamedTuple):
    """One panel: a variable over the places, and how it is drawn.

    Attributes
    ----------
    variable : str
    title : str
    centre : float or None
        Value that is neither high nor low, such as 0 for a change; a line on a section, the middle of the colours.
    band : float or None
        Distance from the centre within which values are usual.
    marked : str or None
        Variable that is positive at places to mark.
    points : bool
        Whether values on a line are circles, as of data, instead of a curve.
    places : Dataset or None
        Dataset with the variable, if it has other places.
    """

    variable: str
    title: str
    centre: float | None = None
    band: float | None = None
    marked: str | None = None
    points: bool = False
    places: xr.Dataset | None = None


def draw_places(ds: xr.Dataset, panels: Sequence[PlacePanel], columns: int, marked: str = "") -> Figure:
    """Draw variables over their places.

    Parameters
    ----------
    ds : Dataset
        With the dimension ``site`` and the attribute ``invgp_coordinates``.
    panels : sequence of PlacePanel
    columns : int
        Panels per row, on a line. On maps each label has a panel of its own.
    marked : str
        What the marks mean, for the legend.
    """
    coordinates = str(ds.attrs["invgp_coordinates"]).split()
    with rc_context(STYLE):
        if len(coordinates) == 1:
            return _draw_lines(ds, panels, columns, coordinates, marked)
        return _draw_maps(ds, panels, coordinates[:2], marked)


def _draw_lines(
    ds: xr.Dataset, panels: Sequence[PlacePanel], columns: int, coordinates: list[str], marked: str
) -> Figure:
    rows = -(-len(panels) // columns)
    figure = NotebookFigure((PAGE, 2.2 * rows + 0.5), layout="constrained")
    same = all(_dataset_of(panel, ds, coordinates)[1] == coordinates for panel in panels)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=same).ravel()
    for spare in axes[len(panels) :]:
        spare.remove()
    handles: dict[str, Any] = {}
    any_mark = False
    curves = [read_curves(_dataset_of(panel, ds, coordinates)[0], panel.variable) for panel in panels]
    labelled = any(curve.label for several in curves for curve in several)
    for i, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
        own, names = _dataset_of(panel, ds, coordinates)
        ((x, label),) = read_positions(own, names)
        order = np.argsort(x, kind="stable")
        if panel.centre is not None:
            if panel.band is not None:
                ax.axhspan(panel.centre - panel.band, panel.centre + panel.band, color="0.92", zorder=0)
            ax.axhline(panel.centre, color=GREY, linewidth=0.6, linestyle=(0, (5, 3)))
        for curve in curves[i]:
            values = read_values(own, panel.variable, curve)
            colour = curve.colour if curve.label or not labelled else _UNLABELLED
            style: dict[str, Any] = {"linewidth": 0.9}
            if panel.points:
                style = {"marker": "o", "linestyle": "none", "markersize": 2.4, "markerfacecolor": "none"}
                style["markeredgewidth"] = 0.5
            ax.plot(x[order], values[order], color=colour, **style)
            handles.setdefault(curve.label, Line2D([], [], color=colour, label=curve.label, **style))
            if panel.marked is not None:
                chosen = read_values(own, panel.marked, curve) > 0
                ax.plot(x[chosen], values[chosen], "o", color=colour, markersize=2.4)
                any_mark |= bool(chosen.any())
        set_value_ticks(ax.yaxis, tick_power(ax.get_ylim()), 5)
        ax.set_ylabel(axis_label(own[panel.variable], panel.title, width=30, power=tick_power(ax.get_ylim())))
        set_position_ticks(ax.xaxis, x, 6)
        if panel.centre is None and increases_downwards(own[panel.variable]):
            ax.invert_yaxis()
        if not same or i + columns >= len(panels):
            ax.set_xlabel(label)
            ax.tick_params(labelbottom=True)
    letter_panels(axes[: len(panels)])
    listed: list[Any] = [handle for text, handle in handles.items() if text]
    if any_mark and marked:
        listed.append(Line2D([], [], color=GREY, marker="o", linestyle="none", markersize=2.4, label=marked))
    if listed:
        add_legend(figure, listed)
    return figure


def _draw_maps(ds: xr.Dataset, panels: Sequence[PlacePanel], coordinates: list[str], marked: str) -> Figure:
    drawn = [
        (panel, curve)
        for panel in panels
        for curve in read_curves(_dataset_of(panel, ds, coordinates)[0], panel.variable)
    ]
    columns = min(len(drawn), 3)
    rows = -(-len(drawn) // columns)
    figure = NotebookFigure((PAGE, PAGE / columns * rows * 0.95 + 0.4), layout="constrained")
    same = all(_dataset_of(panel, ds, coordinates)[1] == coordinates for panel in panels)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=same, sharey=same).ravel()
    for spare in axes[len(drawn) :]:
        spare.remove()
    titles, any_mark = [], False
    for i, (ax, (panel, curve)) in enumerate(zip(axes, drawn, strict=False)):
        own, names = _dataset_of(panel, ds, coordinates)
        (x, x_label), (y, y_label) = read_positions(own, names)
        values = read_values(own, panel.variable, curve)
        _colour_places(figure, ax, (x, y), values, panel, axis_label(own[panel.variable], panel.title, width=34))
        if panel.marked is not None:
            chosen = read_values(own, panel.marked, curve) > 0
            ax.plot(x[chosen], y[chosen], "o", markersize=5.5, markerfacecolor="none", markeredgecolor="black")
            any_mark |= bool(chosen.any())
        titles.append(curve.label)
        ax.set_aspect("equal", adjustable="box")
        set_position_ticks(ax.xaxis, x, 4)
        set_position_ticks(ax.yaxis, y, 4)
        if not same or i + columns >= len(drawn):
            ax.set_xlabel(x_label)
            ax.tick_params(labelbottom=True)
        if not same or i % columns == 0:
            ax.set_ylabel(y_label)
    letter_panels(axes[: len(drawn)], titles)
    if any_mark and marked:
        ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": "black"}
        add_legend(figure, [Line2D([], [], marker="o", linestyle="none", markersize=5.5, label=marked, **ring)])
    return figure


def _dataset_of(panel: PlacePanel, ds: xr.Dataset, coordinates: list[str]) -> tuple[xr.Dataset, list[str]]:
    """Return the dataset with the variable of a panel, and the names of its coordinates."""
    if panel.places is None:
        return ds, coordinates
    return panel.places, str(panel.places.attrs["invgp_coordinates"]).split()[: len(coordinates)]


def _colour_places(
    figure: Figure, ax: Axes, at: tuple[Floats, Floats], values: Floats, panel: PlacePanel, label: str
) -> None:
    """Draw dots with the colours of values (N,), and a colour bar."""
    finite = values[np.isfinite(values)]
    if panel.centre is None or not finite.size:
        scale, colours = Normalize(*(finite.min(), finite.max()) if finite.size else (0.0, 1.0)), _SEQUENTIAL
    else:
        reach = max(float(np.abs(finite - panel.centre).max()), panel.band or 0.0, 1e-300)
        scale, colours = Normalize(panel.centre - reach, panel.centre + reach), _DIVERGING
    dots = ax.scatter(*at, c=values, s=_DOT, cmap=colours, norm=scale, edgecolors="0.4", linewidths=0.2)
    bar = figure.colorbar(dots, ax=ax, location="bottom", shrink=0.9, aspect=30)
    bar.set_label(label)
    bar.outline.set_linewidth(0.4)
    set_value_ticks(bar.ax.xaxis, tick_power((float(scale.vmin or 0.0), float(scale.vmax or 0.0))), 5)


def plot_difference(difference: xr.Dataset) -> Figure:
    """Draw the change of mean and standard deviation from one posterior to another.

    For each field, panels show the change of the mean, this change in joint standard deviations, and the ratio of the
    standard deviations. Places where the change exceeds the joint uncertainty are marked.

    Parameters
    ----------
    difference : Dataset
        From `invgp.difference`.

    Returns
    -------
    Figure
    """
    level = float(difference.attrs["invgp_level"])
    panels = []
    for name in str(difference.attrs["invgp_latents"]).split():
        if "site" not in difference[f"{name}_change"].dims:
            continue  # a scalar has no place
        text = name.replace("_", " ")
        marks = f"{name}_changed"
        panels += [
            PlacePanel(f"{name}_change", f"change of {text}", 0.0, None, marks),
            PlacePanel(f"{name}_standardised_change", f"{text}: change / joint std", 0.0, level, marks),
            PlacePanel(f"{name}_std_ratio", f"{text}: ratio of std", 1.0),
        ]
    return draw_places(difference, panels, 3, f"change exceeds {level:g} joint standard deviations")


def plot_cross_validation(result: xr.Dataset) -> Figure:
    """Draw the standardised residuals of data that were left out.

    Values beyond 2 are marked; about 5% of the data of a calibrated posterior are.

    Parameters
    ----------
    result : Dataset
        From `invgp.crossvalidate`.

    Returns
    -------
    Figure
    """
    panels, drawn = [], result
    for name in str(result.attrs["invgp_observations"]).split():
        variable = f"{name}_held_out_residual"
        drawn = drawn.assign({f"{name}_unusual": (np.abs(result[variable]) > UNUSUAL).astype(np.int8)})
        title = f"{name.replace('_', ' ')}: held-out residual / std"
        panels.append(PlacePanel(variable, title, 0.0, UNUSUAL, f"{name}_unusual", points=True))
    return draw_places(drawn, panels, min(len(panels), 2), f"beyond {UNUSUAL:g} standard deviations")


def plot_influence(result: xr.Dataset) -> Figure:
    """Draw the leverage of the data, how hard they pull, the information of the sites, and the effect of each source.

    With several sources or observations, a panel for each field shows by how much each of them reduces its standard
    deviation. For a field model on a map whose sites are on a line, or the reverse, these panels are left out.

    Parameters
    ----------
    result : Dataset
        From `invgp.influence`.

    Returns
    -------
    Figure
    """
    panels = []
    for name in str(result.attrs["invgp_observations"]).split():
        text = name.replace("_", " ")
        panels += [
            PlacePanel(f"{name}_leverage", f"{text}: own share of prediction", points=True),
            PlacePanel(f"{name}_pull", f"{text}: largest shift / std", points=True),
        ]
    panels.append(PlacePanel("site_information", "information of the site (nats)", points=True))
    panels += _reduction_panels(result)
    return draw_places(result, panels, 3 if len(panels) == 3 else 2)


def _reduction_panels(result: xr.Dataset) -> list[PlacePanel]:
    """Return a panel for each field and label, with the reductions by each source or observation as its labels."""
    nodes = str(result.attrs.get("invgp_node_coordinates", "")).split()
    if nodes and (len(nodes) == 1) != (len(str(result.attrs["invgp_coordinates"]).split()) == 1):
        return []
    panels = []
    for name in str(result.attrs["invgp_latents"]).split():
        variable, places = f"{name}_reduction", result
        if variable not in result or not {"site", "node"} & set(result[variable].dims):
            continue  # a scalar has no place
        if nodes:
            places = result[[variable]].drop_vars("site", errors="ignore").rename(node="site")
            places.attrs["invgp_coordinates"] = " ".join(nodes)
        for curve in read_curves(places.isel(data=0), variable):
            own = places[variable].transpose("data", "site", ...)
            one = places.assign({variable: own if own.ndim == 2 else own[..., curve.column]})
            title = f"reduction of std of {' '.join(filter(None, (name.replace('_', ' '), curve.label)))}"
            panels.append(PlacePanel(variable, title, places=one))
    return panels
