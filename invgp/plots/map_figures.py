"""Maps: the latents over two coordinates of a survey or a grid."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from invgp.axes import is_latitude_unit
from invgp.maps.nodes import as_map
from invgp.plots.axis_labels import (
    MINUS,
    format_range,
    quantity_name,
    read_positions,
    read_survey_positions,
    set_log_ticks,
    set_position_ticks,
    set_value_ticks,
    unit_label,
    unit_with_power,
)
from invgp.plots.figure_options import (
    MIN_INFORMATION,
    PRIOR_STD_UNIT,
    FigureOptions,
    as_names,
    expand_quantities,
    hatch_label,
    is_latent_value,
    is_probability,
    missing_information,
    quantity_colour_map,
    quantity_label,
    quantity_title,
    read_quantity,
)
from invgp.plots.map_colours import (
    MANY,
    MapPoints,
    colour_scale,
    draw_sites,
    draw_values,
    hatch_area,
    outside_ends,
    scale_power,
)
from invgp.plots.plot_data import (
    Curve,
    Floats,
    check_fields,
    describe_crs,
    describe_modes,
    flatten_grid,
    increases_downwards,
    map_shape,
    predict_between_sites,
    read_cells,
    read_curves,
    read_grid,
    read_names,
    read_survey,
    read_two_coordinates,
    select_latents,
    slice_grid,
    survey_coordinates,
)
from invgp.plots.profile_figure import draw_profile_line
from invgp.plots.style import (
    CHARACTERS,
    PAGE,
    PAGE_HEIGHT,
    NotebookFigure,
    axes_size,
    check_single_panel,
    figure_style,
    letter_panels,
    root_figure,
    size_error,
)
from invgp.posterior.attributes import convergence_warning

_POLAR = 89.0  # degrees of latitude, beyond which no map in degrees keeps its shape
_FLATTEST, _STEEPEST = 0.35, 1.8  # height over width of a map; a flatter or steeper one gets a margin
_EXAGGERATED = 0.4  # height over width of a vertical section that would be flatter
_GOOD = 0.8  # of the largest possible width: good enough if more maps fit in a row
_SMALLEST = 0.6  # inches, side of a legible map


def plot_map(
    posterior: xr.Dataset,
    *,
    show: str | Sequence[str] = (),
    latents: str | Sequence[str] = (),
    labels: str | int | Sequence[object] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    hatch_below: float = MIN_INFORMATION,
    size: tuple[float, float] | None = None,
    colour_map: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw the latents over two coordinates of a survey or a grid.

    There is one row of maps per latent and label. On a grid or a mesh, every cell has its colour. For a survey, the
    posterior between the sites is predicted if that is fast; otherwise the colours are interpolated between
    neighbouring sites, except where their distance is much larger than usual. Sites with three coordinates, on a line,
    or fewer than four are coloured dots. Areas with little information are hatched. A note above the maps states what
    they do not show.

    Parameters
    ----------
    posterior : Dataset
        A posterior over sites with two or more coordinates, or a map on a grid; of a volume, the middle slice is
        drawn.
    show : str or sequence of str
        Quantities: ``"mean"``, ``"std"``, ``"difference"`` (posterior minus prior mean), ``"information"``,
        ``"prior"`` (its mean), ``"quantiles"``, ``"exceedance"`` or ``"few-runs"``; by default the mean and the
        standard deviation.
    latents : str or sequence of str
        Latents to draw; by default all.
    labels : str, int, or sequence of them
        Labels to draw, such as layers; by default all.
    limits : mapping of str to tuple of float
        Lowest and highest value of the colours, by variable, such as ``{"depth_std": (0.0, 200.0)}``.
    hatch_below : float
        Information below which areas are hatched; 0 for no hatching.
    size : tuple of float
        Width and height in inches.
    colour_map : str
        Matplotlib colour map for values of the latents; by default viridis, reversed for depths.
    ax : Axes
        Axes to draw into, for a single latent, label and quantity; by default a new figure.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset is not an invgp posterior, its sites have one coordinate only, or an argument is invalid.

    Examples
    --------
    >>> figure = invgp.plots.plot_map(posterior, show="information")  # doctest: +SKIP
    """
    options = FigureOptions(
        as_names(show), dict(limits or {}), hatch_below, as_names(latents), as_names(labels), size, colour_map
    )
    return map_figure(posterior, options, ax)


class MapWindow(NamedTuple):
    """The part of the plane that a map shows.

    Attributes
    ----------
    across, up : tuple of float
        Ends of the horizontal and the vertical axis.
    aspect : float
        Height over width of one unit on paper.
    notes : list of str
        Sentences about the shape.
    """

    across: tuple[float, float]
    up: tuple[float, float]
    aspect: float
    notes: list[str]

    @property
    def ratio(self) -> float:
        """Height over width of the map."""
        return self.aspect * abs(self.up[1] - self.up[0]) / (self.across[1] - self.across[0])


class MapLayout(NamedTuple):
    """Arrangement of maps on a page; lengths in inches."""

    rows: int
    columns: int
    size: tuple[float, float]
    ratio: float  # height over width of a map

    @property
    def cell(self) -> tuple[float, float]:
        """Approximate width and height per map without labels and titles, which have up to three lines if narrow."""
        few = self.columns <= 2
        width = (self.size[0] - 0.55) / self.columns - (0.75 if few else 0.8)
        height = (self.size[1] - 0.6) / self.rows - (0.3 if few and self.size[0] > 5.0 else 0.45 if few else 0.6)
        return width, height

    @property
    def map_width(self) -> float:
        """Width of one map."""
        return max(0.1, min(self.cell[0], self.cell[1] / self.ratio))

    @property
    def map_height(self) -> float:
        """Height of one map."""
        return self.ratio * self.map_width


def map_figure(ds: xr.Dataset, options: FigureOptions, ax: Axes | None = None) -> Figure:
    """Draw the latents over two coordinates; see `plot_map`."""
    crs = describe_crs(ds)
    check_fields(ds, options.latents, options.labels, "A map")
    (across, up), hidden = read_two_coordinates(as_map(ds))
    ds = select_latents(as_map(predict_between_sites(ds)), options.latents, options.labels)
    grid = read_grid(ds)
    slice_notes: list[str] = []
    if grid is not None and hidden:
        ds, slice_notes = _slice_through_middle(ds, hidden)
        grid, hidden = read_grid(ds), []
    sliced = [name for name in survey_coordinates(ds) if name not in (across, up)]
    survey, ds = read_survey(ds, [across, up]), flatten_grid(ds)
    if hidden:
        ds = ds.sortby(hidden[0], ascending=False)  # of sites at the same position, the lowest is drawn last, on top
    (x, x_label), (y, y_label) = read_positions(ds, [across, up])
    shape = None if grid is None else map_shape(grid, across, up)
    cells = None if hidden or shape is not None else read_cells(ds, across, up)
    points = MapPoints(x, y, shape, interpolate=not hidden, circled=survey is None, cells=cells)
    names, shown = expand_quantities(ds, read_names(ds, "fields"), options.show or ("mean", "std"))
    options = replace(options, show=shown)
    rows = [(name, curve) for name in names for curve in read_curves(ds, name)]
    window = _map_window(points, ds[up])
    with figure_style(ax):
        figure, axes, layout = _make_maps(window.ratio, len(rows), len(shown), options.size, ax)
        hatched = False
        for row, (name, curve) in zip(axes.reshape(-1, len(shown)), rows, strict=True):
            for panel, quantity in zip(row, shown, strict=True):
                hatched |= _draw_quantity(panel, ds, (name, quantity, curve), points, layout, options)
        sites = None if survey is None else read_survey_positions(ds, survey, [across, up])
        for panel in axes:
            if sites is not None and sites[0].size <= MANY:
                draw_sites(panel, *sites)
            _frame_map(panel, points, window, layout)
            if options.line is not None:
                draw_profile_line(panel, ds, [across, up], options.line, (layout.map_width, layout.map_height))
        notes = [
            *filter(None, [convergence_warning(ds), describe_modes(ds)]),
            *slice_notes,
            *_hidden_notes(ds, hidden, x, y),
            *window.notes,
        ]
        notes += [_sites_note(sites[0].size, sliced)] if sites is not None else []
        notes += ["Diamonds: known values."] if options.known else []
        notes += [f"Coordinates: {crs}."] if crs else []
        notes += [f"Hatched: {hatch_label(options)}."] if hatched else []
        titles = [_map_title(ds, *row, quantity, layout) for row in rows for quantity in shown]
        if ax is not None:
            ax.set(xlabel=x_label, ylabel=y_label)
            ax.set_title("\n".join([*titles, *textwrap.wrap(" ".join(notes), int(CHARACTERS * layout.size[0]))]))
            return figure
        for panel in axes[-layout.columns :]:
            panel.tick_params(labelbottom=True)
        letter_panels(axes, titles)
        figure.supxlabel(x_label, fontsize=8.0)
        figure.supylabel(y_label, fontsize=8.0)
        figure.suptitle("\n".join(textwrap.wrap(" ".join(notes), int(CHARACTERS * layout.size[0]))), fontsize=8.0)
    return figure


def _make_maps(
    ratio: float, rows: int, shown: int, size: tuple[float, float] | None, ax: Axes | None
) -> tuple[Figure, NDArray[Any], MapLayout]:
    """Return the figure, the panels and their layout: the given Axes, or a new figure."""
    if ax is not None:
        check_single_panel(shown * rows)
        return root_figure(ax), np.asarray([ax]), MapLayout(1, 1, axes_size(ax), ratio)
    layout = _arrange_maps(ratio, rows, shown, size)
    figure = NotebookFigure(layout.size, layout="compressed")
    axes, spare = np.split(figure.subplots(layout.rows, layout.columns, squeeze=False).ravel(), [shown * rows])
    for empty in spare:
        empty.remove()
    return figure, axes, layout


def _slice_through_middle(ds: xr.Dataset, names: Sequence[str]) -> tuple[xr.Dataset, list[str]]:
    """Return the slice of a grid through the middle of some coordinates, and a sentence about each."""
    notes = []
    for name in names:
        values = ds[name].values
        middle = float(np.sort(values)[len(values) // 2])
        value = f"{quantity_name(ds[name])} {middle:g} {ds[name].attrs.get('units', '')}".rstrip()
        notes.append(f"Slice at {value}.")
        ds = slice_grid(ds, {name: middle})
    return ds, notes


def _draw_quantity(
    ax: Axes,
    ds: xr.Dataset,
    drawn: tuple[str, str, Curve],
    points: MapPoints,
    layout: MapLayout,
    options: FigureOptions,
) -> bool:
    """Draw a quantity of a latent and label with its colour bar; return whether an area is hatched."""
    name, quantity, curve = drawn
    values, limits = read_quantity(ds, name, quantity, curve), options.limits_for(name, quantity)
    shared = [q for q in options.show if is_latent_value(q) and is_latent_value(quantity) and q != quantity]
    all_values = np.concatenate([values, *(read_quantity(ds, name, other, curve) for other in shared)])
    scale = colour_scale(ds, name, quantity, all_values, limits)
    for known in options.known_values(name, curve.label, quantity):
        places = {c: ("site", known.places[:, k], ds[c].attrs) for k, c in enumerate(read_names(ds, "coordinates"))}
        x, y = read_survey_positions(ds, xr.Dataset(places), read_two_coordinates(ds)[0])
        colours = quantity_colour_map(ds, name, quantity, options)
        ax.scatter(x, y, c=known.values, norm=scale, cmap=colours, marker="D", s=22.0, edgecolors="black", zorder=5)
    mappable = draw_values(ax, points, values, quantity_colour_map(ds, name, quantity, options), scale)
    label = _colour_bar_label(ds, name, quantity, layout, scale_power(scale))
    downwards = is_latent_value(quantity) and increases_downwards(ds[name])
    _add_colour_bar(ax, mappable, (scale, values), label, layout, downwards=downwards)
    missing = missing_information(ds, name, curve, options) if quantity not in ("std", "few-runs") else None
    return missing is not None and hatch_area(ax, points, missing)


def _colour_bar_label(ds: xr.Dataset, name: str, quantity: str, layout: MapLayout, power: int) -> str:
    """Return the label of a colour bar; only the unit for a short bar, because the title names the quantity."""
    if layout.columns > 2 or layout.map_height < 1.2:
        if is_probability(quantity):
            return ""
        return unit_with_power(PRIOR_STD_UNIT if quantity == "few-runs" else unit_label(ds[name]), power)
    return quantity_label(ds, name, quantity, int(CHARACTERS * layout.map_height), power)


def _map_title(ds: xr.Dataset, name: str, curve: Curve, quantity: str, layout: MapLayout) -> str:
    title = ", ".join(filter(None, (name.replace("_", " "), curve.label)))
    width = max(12, int(CHARACTERS * (layout.map_width + 0.5)))
    return "\n".join(textwrap.wrap(f"{title}: {quantity_title(ds, name, quantity)}", width))


def _hidden_notes(ds: xr.Dataset, names: list[str], x: Floats, y: Floats) -> list[str]:
    """Return sentences about the coordinates that the maps do not show."""
    notes = [f"Sites at every {quantity_name(ds[name])}, {format_range(ds[name])}, on one map." for name in names]
    if names and np.unique(np.column_stack([x, y]), axis=0).shape[0] < x.size:
        notes.append(f"Where sites coincide, the one with the lowest {quantity_name(ds[names[0]])} is on top.")
    return notes


def _sites_note(count: int, sliced: list[str]) -> str:
    """Return a sentence about the marks of the sites, some of which may not be in the slice."""
    if count > MANY:
        return f"The {count:,} sites are too many to be marked."
    return f"Circles: sites{' at every ' + ' and '.join(sliced) if sliced else ''}."


def _frame_map(ax: Axes, points: MapPoints, window: MapWindow, layout: MapLayout) -> None:
    """Set the limits, the aspect and the ticks of a map."""
    ax.set(xlim=window.across, ylim=window.up)
    ax.set_aspect(window.aspect)
    digits = max(len(f"{end:.0f}") for end in window.across)
    set_position_ticks(ax.xaxis, points.x, most=max(1, int(layout.map_width / (0.08 * digits + 0.35))))
    set_position_ticks(ax.yaxis, points.y, most=max(2, min(int(layout.map_height / 0.25), 5)))
    ax.label_outer()


def _add_colour_bar(
    ax: Axes,
    mappable: ScalarMappable,
    scaled: tuple[Normalize, Floats],
    label: str,
    layout: MapLayout,
    *,
    downwards: bool,
) -> None:
    """Add a colour bar at the right of a map; its ends are pointed if there are values outside the scale."""
    width, (scale, values) = 0.1 / layout.map_width, scaled
    inset = ax.inset_axes((1.0 + 0.6 * width, 0.0, width, 1.0))
    bar = ax.figure.colorbar(mappable, cax=inset, extend=outside_ends(scale, values))
    bar.set_label(label)
    bar.outline.set_linewidth(0.4)
    (low, high), most = mappable.get_clim(), max(2, min(int(layout.map_height / 0.25), 7))
    if isinstance(scale, LogNorm):
        set_log_ticks(bar.ax.yaxis, scale_power(scale), most)
    elif high - low > 1e-9 * max(abs(low), abs(high)):
        set_value_ticks(bar.ax.yaxis, scale_power(scale), most)
    else:
        bar.set_ticks([low], labels=[f"{low:.4g}".replace("-", MINUS)])
    bar.ax.yaxis.set_inverted(downwards)


def _map_window(points: MapPoints, up: xr.DataArray) -> MapWindow:
    """Return the window of sites, with a margin, or of the cells of a grid; a depth increases downwards."""
    vertical, polar = "positive" in up.attrs, _is_polar(up)
    aspect = 1.0
    if is_latitude_unit(str(up.attrs.get("units"))) and not polar:  # a degree of longitude is shorter than of latitude
        aspect = float(1.0 / np.cos(np.deg2rad(np.mean(up.values))))
    on_grid = points.shape is not None or points.cells is not None
    ends = [*points.extents]
    spans = [high - low for low, high in ends]
    notes = [f"Not to scale: the latitudes range {format_range(up)}."] if polar else []
    if spans[0] > 0.0 and spans[1] > 0.0 and vertical and spans[1] / spans[0] < _EXAGGERATED:
        aspect = _EXAGGERATED * spans[0] / spans[1]
        notes.append(f"Vertical exaggeration {aspect:.2g}.")
    if not on_grid:
        margin = 0.05 * max(spans[0], aspect * spans[1])
        ends = [_widen(ends[0], margin), _widen(ends[1], margin / aspect)]
    across, height = _limit_ratio(ends[0], ends[1], aspect)
    return MapWindow(across, height[::-1] if increases_downwards(up) else height, aspect, notes)


def _widen(ends: tuple[float, float], margin: float) -> tuple[float, float]:
    return ends[0] - margin, ends[1] + margin


def _limit_ratio(
    across: tuple[float, float], up: tuple[float, float], aspect: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Widen a very flat or very steep window until the map is legible."""
    width, height = across[1] - across[0], aspect * (up[1] - up[0])
    if width == height == 0.0:
        width = 1.0
        across = _widen(across, 0.5)
    least_height, least_width = _FLATTEST * width, height / _STEEPEST
    up = _widen(up, max(0.0, least_height - height) / 2.0 / aspect)
    return _widen(across, max(0.0, least_width - width) / 2.0), up


def _is_polar(up: xr.DataArray) -> bool:
    """Return whether latitudes are at a pole, or outside the valid range."""
    return is_latitude_unit(str(up.attrs.get("units"))) and bool(np.max(np.abs(up.values)) > _POLAR)


def _arrange_maps(ratio: float, rows: int, shown: int, size: tuple[float, float] | None) -> MapLayout:
    """Arrange rows of maps, as large as possible, on a page or on a figure of a given size.

    Raises
    ------
    PlotError
        The maps would be too small to be legible on a figure of that size.
    """
    count = rows * shown
    columns = [n for n in range(1, count + 1) if n % shown == 0 or (size is not None and shown % n == 0)]
    layouts = [MapLayout(math.ceil(count / n), n, size or (PAGE, PAGE_HEIGHT), ratio) for n in columns]
    widest = max(layout.map_width for layout in layouts)
    best = [layout for layout in layouts if layout.map_width >= _GOOD * widest][-1]
    if size is not None:
        if min(best.map_width, best.map_height) < _SMALLEST * min(ratio, 1.0 / ratio):
            raise size_error(size, f"{count} maps" if count > 1 else "a map")
        return best
    # The figure is as high as its maps, and a map is at most half as wide as the page.
    best = best if best.columns > 1 or count == 1 else MapLayout(math.ceil(count / 2), 2, best.size, ratio)
    around = best.size[1] - best.rows * best.cell[1]
    least = best.rows * _SMALLEST * min(ratio, 1.0)
    return best._replace(size=(PAGE, max(least, min(best.rows * best.cell[0] * ratio, PAGE_HEIGHT - around)) + around))
