"""Sections: the latents along a line; and the parts of panels that all figures along a line share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from invgp.maps.nodes import as_map
from invgp.plots.axis_labels import (
    axis_label,
    read_positions,
    read_survey_positions,
    set_log_ticks,
    set_position_ticks,
    set_value_ticks,
    tick_power,
)
from invgp.plots.figure_options import (
    MIN_INFORMATION,
    FigureOptions,
    as_names,
    expand_quantities,
    hatch_label,
    is_latent_value,
    is_probability,
    missing_information,
    quantity_label,
    quantity_title,
    read_quantity,
    value_range,
)
from invgp.plots.known_values import KnownValues
from invgp.plots.plot_data import (
    LOG_RATIO,
    Curve,
    Floats,
    check_fields,
    flatten_grid,
    increases_downwards,
    predict_between_sites,
    read_curves,
    read_interval,
    read_link,
    read_names,
    read_one_coordinate,
    read_prior_interval,
    read_survey,
    read_values,
    select_latents,
    split_modes,
)
from invgp.plots.style import (
    COLOURS,
    GREY,
    HATCH,
    PanelLayout,
    add_legend,
    figure_style,
    letter_panels,
    make_panels,
    mode_line_style,
    note_convergence,
)
from invgp.posterior.contents import mode_probabilities

# Line widths in points. The outline of a band is wider than its mean, so that both show where the band is thin.
_MEAN, _OUTLINE = 0.7, 1.3
_PRIOR_MEAN: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, (5, 3))}
_PRIOR_ENDS: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, (1, 2)), "alpha": 0.8}
_PRIOR_REACH = 0.35  # of the range of the posterior, by which the prior interval may extend an axis


def plot_section(
    posterior: xr.Dataset,
    *,
    show: str | Sequence[str] = (),
    latents: str | Sequence[str] = (),
    labels: str | int | Sequence[object] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    hatch_below: float = MIN_INFORMATION,
    size: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the latents along the only coordinate of a survey.

    There is one panel per latent. For each label it shows the posterior mean, its central 95% interval, hatched where
    the data contain little information, the prior mean (dashed) and the central 95% interval of the prior (dotted). If
    the posterior has several modes, the means of the most probable ones are shown instead of the mean of all.
    Between the sites the posterior is predicted if that is fast; otherwise lines connect the sites. A latent with the
    attribute ``positive = "down"`` is drawn downwards. The axis of a latent with a log link is logarithmic if its
    values extend over a factor of three.

    Parameters
    ----------
    posterior : Dataset
        A posterior over sites with one coordinate, or a map on a line.
    show : str or sequence of str
        Quantities: ``"mean"`` (with intervals), ``"std"``, ``"difference"`` (posterior minus prior mean),
        ``"information"`` or ``"few-runs"``; by default the mean.
    latents : str or sequence of str
        Latents to draw; by default all.
    labels : str, int, or sequence of them
        Labels to draw, such as layers; by default all.
    limits : mapping of str to tuple of float
        Lowest and highest value of an axis, by variable, such as ``{"depth": (0.0, 2500.0)}``.
    hatch_below : float
        Information below which intervals are hatched; 0 for no hatching.
    size : tuple of float
        Width and height in inches.
    ax : Axes
        Axes to draw into, for a single latent and quantity; by default a new figure.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset is not an invgp posterior, its sites have more than one coordinate, or an argument is invalid.

    Examples
    --------
    >>> figure = invgp.plots.plot_section(posterior, latents="depth")
    >>> figure.savefig("depth.pdf")
    """
    options = FigureOptions(as_names(show), dict(limits or {}), hatch_below, as_names(latents), as_names(labels), size)
    return section_figure(posterior, options, ax)


@dataclass(frozen=True)
class LinePanels:
    """The positions along a line, and how panels are finished.

    Attributes
    ----------
    x : array, shape (N,)
        Positions of the points, in any order.
    x_label : str
        Label of the horizontal axis.
    sites : array or None
        Positions of the sites to mark; None for no marks.
    label_width : int
        Number of characters per line of the label of a vertical axis.
    """

    x: Floats
    x_label: str
    sites: Floats | None
    label_width: int = 44


def section_figure(ds: xr.Dataset, options: FigureOptions, ax: Axes | None = None) -> Figure:
    """Draw the latents along a line; see `plot_section`."""
    modes = {mode: read_line(part, options)[0] for mode, part in split_modes(ds).items()}
    ds, line = read_line(ds, options)
    names, quantities = expand_quantities(ds, read_names(ds, "fields"), options.show or ("mean",))
    panels = [(name, quantity) for name in names for quantity in quantities]
    with figure_style(ax):
        figure, axes, layout = make_panels(len(panels), options.size, ax)
        line = with_label_width(line, layout)
        hatched = False
        for panel, (name, quantity) in zip(axes, panels, strict=True):
            if quantity == "mean":
                hatched |= _draw_latent(panel, ds, name, line, options, modes)
            else:
                _draw_quantity(panel, ds, name, quantity, line, options)
        titles = [f"{name.replace('_', ' ')}: {quantity_title(ds, name, quantity)}" for name, quantity in panels]
        finish_figure(axes, line, layout, titles if options.show else (), single=ax is not None)
        shown = [quantity for _, quantity in panels]
        handles = _section_handles(ds, shown, options, modes, hatched=hatched, marked=line.sites is not None)
        if handles:
            add_legend(ax or figure, handles)
        if ax is None:
            note_convergence(figure, ds)
    return figure


def read_line(ds: xr.Dataset, options: FigureOptions, draws: int = 0) -> tuple[xr.Dataset, LinePanels]:
    """Return the latents to draw with one dimension ``site``, and their positions along the line."""
    coordinate = read_one_coordinate(as_map(ds))
    check_fields(ds, options.latents, options.labels, "A section")
    ds = select_latents(as_map(predict_between_sites(ds, draws)), options.latents, options.labels)
    survey, ds = read_survey(ds, coordinate), flatten_grid(ds)
    ((x, x_label),) = read_positions(ds, coordinate)
    if survey is not None:
        return ds, LinePanels(x, x_label, read_survey_positions(ds, survey, coordinate)[0])
    return ds, LinePanels(x, x_label, None if "invgp_map" in ds.attrs else x)


def with_label_width(line: LinePanels, layout: PanelLayout) -> LinePanels:
    """Return a copy with labels of vertical axes as long as the panels are high."""
    return LinePanels(line.x, line.x_label, line.sites, layout.characters)


def finish_figure(
    axes: NDArray[Any], line: LinePanels, layout: PanelLayout, titles: Sequence[str], *, single: bool
) -> None:
    """Label the horizontal axes and the panels; the title of a single given Axes belongs to the user."""
    for panel in axes[-layout.columns :]:
        panel.set_xlabel(line.x_label)
        panel.tick_params(labelbottom=True)
    if not single:
        letter_panels(axes, titles)


def _draw_latent(
    ax: Axes, ds: xr.Dataset, name: str, line: LinePanels, options: FigureOptions, modes: Mapping[int, xr.Dataset]
) -> bool:
    """Draw means and intervals of posterior and prior; return whether any of them is hatched.

    With several `modes`, the mean of each is drawn, because the mean of all may lie between them.
    """
    x, order = line.x, np.argsort(line.x, kind="stable")
    curves = read_curves(ds, name)
    intervals = [read_interval(ds, name, curve) for curve in curves]
    means = [read_values(ds, name, curve) for curve in curves]
    logarithmic = use_log_axis(ds, name, intervals)
    hatched, shown, extended = False, [*means, *(end for ends in intervals for end in ends)], []
    for curve, mean, ends in zip(curves, means, intervals, strict=True):
        draw_band(ax, x, np.full_like(x, np.nan) if modes else mean, ends, curve.colour)
        for mode, part in modes.items():
            style = {"linewidth": _MEAN, "linestyle": mode_line_style(mode), "marker": "o" if x.size == 1 else ""}
            ax.plot(x[order], read_values(part, name, curve)[order], color=curve.colour, markersize=3.0, **style)
        missing = missing_information(ds, name, curve, options)
        hatched |= missing is not None and hatch_band(ax, x, ends, missing > 0.0, curve.colour)
        if f"{name}_prior" in ds:
            prior = read_values(ds, f"{name}_prior", curve)
            shown.append(prior)
            marker = "_" if x.size == 1 else ""
            ax.plot(x[order], prior[order], color=curve.colour, marker=marker, **_PRIOR_MEAN)
            if x.size > 1 and len(curves) <= len(COLOURS):
                for end in read_prior_interval(ds, name, curve) or ():
                    extended.append(end)
                    ax.plot(x[order], end[order], color=curve.colour, zorder=1.5, **_PRIOR_ENDS)
    for curve in curves:
        for known in options.known_values(name, curve.label, "mean"):
            shown.append(known.values)
            at = read_survey_positions(ds, _as_sites(ds, known), read_names(ds, "coordinates"))[0]
            ax.plot(at, known.values, "D", color=curve.colour, markersize=3.5, markeredgecolor="black", zorder=4)
    limits = options.limits_for(name, "mean") or _axis_limits(shown, extended, ds[name], logarithmic=logarithmic)
    values_at_end = [float(mean[order[-1]]) for mean in means]
    finish_panel(ax, line, ds[name], curves, values_at_end, limits=limits, logarithmic=logarithmic)
    return hatched


def _as_sites(ds: xr.Dataset, known: KnownValues) -> xr.Dataset:
    """Return the places of known values as the sites of a survey."""
    names = read_names(ds, "coordinates")
    return xr.Dataset({name: ("site", known.places[:, k], ds[name].attrs) for k, name in enumerate(names)})


def use_log_axis(ds: xr.Dataset, latent: str, intervals: Sequence[tuple[Floats, Floats]]) -> bool:
    """Return whether the axis of a latent is logarithmic: log link, not a depth, and values over a factor of three."""
    if read_link(ds, latent) != "log" or increases_downwards(ds[latent]):
        return False
    low = min(float(np.nanmin(lower)) for lower, _ in intervals)
    high = max(float(np.nanmax(upper)) for _, upper in intervals)
    return low > 0.0 and high > LOG_RATIO * low


def _axis_limits(
    shown: Sequence[Floats], extended: Sequence[Floats], array: xr.DataArray, *, logarithmic: bool
) -> tuple[float, float]:
    """Return the ends of an axis for all `shown` values and those `extended` values that are not far from them."""
    low, high = min(float(np.nanmin(v)) for v in shown), max(float(np.nanmax(v)) for v in shown)
    outer = [float(end) for values in extended for end in (np.nanmin(values), np.nanmax(values))]
    if logarithmic:
        ends = _linear_limits(np.log(low), np.log(high), [float(np.log(end)) for end in outer if end > 0.0])
        return float(np.exp(ends[0])), float(np.exp(ends[1]))
    ends = _linear_limits(low, high, outer)
    surface = increases_downwards(array) and 0.0 <= low < high - low  # it is drawn if it is not far away
    return (0.0 if surface else ends[0]), ends[1]


def _linear_limits(low: float, high: float, outer: list[float]) -> tuple[float, float]:
    """Return the ends of an axis from `low` to `high`, extended towards the outer values by a limited distance."""
    span = (high - low) or abs(high) or 1.0
    ends = (
        max(min([low, *outer]), low - _PRIOR_REACH * span),
        min(max([high, *outer]), high + _PRIOR_REACH * span),
    )
    margin = 0.05 * ((ends[1] - ends[0]) or span)
    return ends[0] - margin, ends[1] + margin


def _draw_quantity(
    ax: Axes, ds: xr.Dataset, name: str, quantity: str, line: LinePanels, options: FigureOptions
) -> None:
    """Draw one line per label of the latent."""
    x, order = line.x, np.argsort(line.x, kind="stable")
    curves = read_curves(ds, name)
    values = [read_quantity(ds, name, quantity, curve) for curve in curves]
    for curve, of_curve in zip(curves, values, strict=True):
        ax.plot(x[order], of_curve[order], color=curve.colour, marker="o" if x.size == 1 else "", markersize=3.0)
    limits = options.limits_for(name, quantity)
    if quantity == "difference":
        ax.axhline(0.0, color=GREY, linewidth=0.6, zorder=0.5)
    elif limits is None and not is_latent_value(quantity):
        highest = 1.05 * max(value_range(of_curve, quantity)[1] for of_curve in values)
        limits = (0.0, 1.0 if is_probability(quantity) else highest)
    # A standard deviation is not drawn downwards.
    plain = ds[name] if is_latent_value(quantity) else ds[name].drop_attrs()
    finish_panel(ax, line, plain, curves, [float(of_curve[order[-1]]) for of_curve in values], limits=limits)
    ax.set_ylabel(quantity_label(ds, name, quantity, line.label_width, tick_power(ax.get_ylim())))


def _section_handles(
    ds: xr.Dataset,
    shown: list[str],
    options: FigureOptions,
    modes: Mapping[int, xr.Dataset],
    *,
    hatched: bool,
    marked: bool,
) -> list[Any]:
    handles: list[Any] = []
    style: dict[str, Any]
    if "mean" in shown:
        means = {mode: f"mean of mode {mode} ({mode_probabilities(ds)[mode - 1]:.0%})" for mode in modes}
        if "invgp_mode" in ds.attrs and "invgp_mode_probability" in ds.attrs:
            means = {1: f"mean of mode {int(ds.attrs['invgp_mode'])} ({float(ds.attrs['invgp_mode_probability']):.0%})"}
        *others, interval = band_handles("" if means else "posterior mean")
        for mode, label in means.items():
            others.append(Line2D([], [], color=GREY, linewidth=_MEAN, linestyle=mode_line_style(mode), label=label))
        handles += [*others, interval]
        if any(f"{name}_prior" in ds for name in read_names(ds, "fields")):
            handles.append(Line2D([], [], color=GREY, label="prior mean", **_PRIOR_MEAN))
        if any(f"{name}_prior_std" in ds for name in read_names(ds, "fields")) and ds.sizes["site"] > 1:
            handles.append(Line2D([], [], color=GREY, label="prior 95% interval", **_PRIOR_ENDS))
    if options.known and "mean" in shown:
        style = {"marker": "D", "markersize": 3.5, "markeredgecolor": "black", "linestyle": ""}
        handles.append(Line2D([], [], color=GREY, label="known value", **style))
    if hatched:
        label = hatch_label(options)
        handles.append(Patch(facecolor="none", edgecolor=GREY, hatch=HATCH, linewidth=0.0, label=label))
    if marked:
        style = {"marker": 2, "markersize": 4, "markeredgewidth": 0.5, "linestyle": ""}
        handles.append(Line2D([], [], color="black", label="site", **style))
    return handles


def draw_band(ax: Axes, x: Floats, mean: Floats, ends: tuple[Floats, Floats], colour: Any) -> None:
    """Draw a mean (N,) over the interval between two ends (N,), for points in any order."""
    order = np.argsort(x, kind="stable")
    x, mean, lower, upper = (values[order] for values in (x, mean, *ends))
    if x.size == 1:
        ax.vlines(x, lower, upper, color=colour, alpha=0.4, linewidth=3.0)
    else:
        fill, outline = to_rgba(colour, 0.22), to_rgba(colour, 0.3)
        ax.fill_between(x, lower, upper, facecolor=fill, edgecolor=outline, linewidth=_OUTLINE)
    ax.plot(x, mean, color=colour, linewidth=_MEAN, marker="o" if x.size == 1 else "", markersize=3.0)


def hatch_band(ax: Axes, x: Floats, ends: tuple[Floats, Floats], where: NDArray[np.bool_], colour: Any) -> bool:
    """Hatch an interval at some of the points (N,), and halfway to their neighbours; return whether there are any."""
    order = np.argsort(x, kind="stable")
    x, lower, upper, where = x[order], ends[0][order], ends[1][order], where[order]
    if not where.any() or x.size == 1:
        return False
    # With twice as many points, hatched parts end between two points and not at the last one inside.
    half_steps = np.arange(2 * x.size - 1) / 2.0
    steps = np.arange(x.size, dtype=np.float64)
    x, lower, upper = (np.interp(half_steps, steps, values) for values in (x, lower, upper))
    inside = where[np.floor(half_steps).astype(int)] | where[np.ceil(half_steps).astype(int)]
    style: dict[str, Any] = {"facecolor": "none", "edgecolor": to_rgba(colour, 0.55), "hatch": HATCH, "linewidth": 0.0}
    ax.fill_between(x, lower, upper, where=inside.tolist(), **style)
    return True


def band_handles(mean: str) -> list[Artist]:
    """Return legend handles of `draw_band`, with this label of the mean; empty for the interval only."""
    fill, outline = to_rgba(GREY, 0.22), to_rgba(GREY, 0.3)
    interval = Patch(facecolor=fill, edgecolor=outline, linewidth=_OUTLINE, label="95% credible interval")
    return [Line2D([], [], color=GREY, linewidth=_MEAN, label=mean), interval] if mean else [interval]


def finish_panel(
    ax: Axes,
    line: LinePanels,
    array: xr.DataArray,
    curves: list[Curve],
    values_at_end: list[float],
    *,
    limits: tuple[float, float] | None = None,
    margin: float = 0.0,
    downwards: bool | None = None,
    logarithmic: bool = False,
) -> None:
    """Set limits, ticks and labels of a panel after everything is drawn, mark the sites and label the curves.

    Parameters
    ----------
    ax : Axes
        The panel.
    line : LinePanels
        Positions of the points and of the sites.
    array : DataArray
        Array that gives the name and the unit of the vertical axis.
    curves : list of Curve
        The curves to label.
    values_at_end : list of float
        Value of each curve at the right end.
    limits : tuple of float
        Lowest and highest value of the vertical axis.
    margin : float
        Free space at both ends of the line, as a fraction of its length.
    downwards : bool
        Whether the axis increases downwards; by default if the array does.
    logarithmic : bool
        Whether the axis is logarithmic.
    """
    x = line.x
    free = margin * np.ptp(x) or (0.5 if np.ptp(x) == 0.0 else 0.0)  # a single site is in the middle
    ax.set_xlim(float(x.min()) - free, float(x.max()) + free)
    set_position_ticks(ax.xaxis, x, most=5)
    if line.sites is not None:
        _mark_sites(ax, line.sites)
    ax.spines["right"].set_visible(False)
    downwards = increases_downwards(array) if downwards is None else downwards
    if logarithmic:
        ax.set_yscale("log")
    if limits is not None:
        ax.set_ylim(*limits)
    if downwards and (limits is not None or logarithmic):
        ax.invert_yaxis()
    elif downwards:
        _invert_axis(ax)
    ends = ax.get_ylim()
    power = tick_power((float(np.sqrt(ends[0] * ends[1])),) if logarithmic else ends)
    ax.set_ylabel(axis_label(array, width=line.label_width, power=power))
    (set_log_ticks if logarithmic else set_value_ticks)(ax.yaxis, power, most=6)
    if len(curves) > len(COLOURS):
        _add_label_bar(ax, curves)
    elif curves[0].label:
        _label_curves(ax, curves, values_at_end)


def _mark_sites(ax: Axes, x: Floats) -> None:
    """Mark sites by short ticks above the panel."""
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


def _invert_axis(ax: Axes) -> None:
    """Let values increase downwards, from the surface if it is not remote."""
    low, high = ax.get_ylim()
    ax.set_ylim(high, 0.0 if 0.0 <= ax.dataLim.y0 < ax.dataLim.height else low)


def _add_label_bar(ax: Axes, curves: list[Curve]) -> None:
    """Add a colour bar of the labels, for curves that are too many to be labelled one by one."""
    palette = ListedColormap([curve.colour for curve in curves])
    scale = ScalarMappable(Normalize(-0.5, len(curves) - 0.5), palette)
    bar = ax.figure.colorbar(scale, ax=ax, pad=0.02, aspect=30)
    bar.ax.yaxis.set_inverted(ax.yaxis_inverted())
    ticks = np.unique(np.linspace(0, len(curves) - 1, 6).round().astype(int))
    bar.set_ticks(ticks.tolist(), labels=[curves[i].label for i in ticks])


def _label_curves(ax: Axes, curves: list[Curve], values: list[float]) -> None:
    """Write the label of each curve at its right end."""
    points = ax.transData.transform([(0.0, value) for value in values])
    heights = _separate(ax.transAxes.inverted().transform(points)[:, 1].tolist(), gap=0.055)
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


def _separate(heights: list[float], gap: float) -> list[float]:
    """Move heights in [0, 1] apart until neighbours have a distance of at least `gap`."""
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
