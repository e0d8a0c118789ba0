"""Maps: the mean and the standard deviation of the latents over the first two coordinates of a survey."""

from __future__ import annotations

import math
import textwrap
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation
from numpy.typing import NDArray

from invgp.plots.labels import MINUS, axis_label, quantity_name, range_of, unit_label
from invgp.plots.positions import read_positions, set_ticks
from invgp.plots.reading import (
    Curve,
    Floats,
    points_down,
    read_curves,
    read_names,
    read_two_coordinates,
    read_values,
)
from invgp.plots.style import PAGE, PAGE_HEIGHT, STYLE, letter_panels

_SHADES = 128
_CHARACTERS = 16.0  # in an inch of 8 point text
_NORTH = ("degrees_north", "degree_north", "degrees_N", "degree_N")
_POLAR = 89.0  # degrees, from where no map in degrees keeps its shape


def maps(ds: xr.Dataset) -> Figure:
    """Draw the posterior mean and standard deviation of every latent over the first two coordinates of the survey.

    One row a latent and label. The colours are interpolated between neighbouring sites, which are dotted;
    nothing is drawn between sites much further apart than the others. Sites with more coordinates, on a line, or
    too few for that are coloured dots. What the maps do not show of the coordinates stands above them.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with two coordinates or more.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, or its sites have only one coordinate.
    """
    (across, up), left_out = read_two_coordinates(ds)
    if left_out:
        ds = ds.sortby(left_out[0], ascending=False)  # of sites at one place, the least is drawn last, on top
    (x, x_label), (y, y_label) = read_positions(ds, [across, up])
    aspect = _aspect(ds[up])
    rows = [(name, curve) for name in read_names(ds, "latents") for curve in read_curves(ds, name)]
    sheet = _lay_out(x, y * aspect, len(rows))
    with rc_context(STYLE):
        figure = Figure((PAGE, sheet.row_height * sheet.rows + 0.5), layout="constrained")
        grid = figure.subplots(sheet.rows, sheet.columns, squeeze=False)
        axes, spare = np.split(grid.ravel(), [2 * len(rows)])
        for pair, (name, curve) in zip(axes.reshape(-1, 2), rows, strict=True):
            _draw_pair(pair, ds, name, curve, (x, y), sheet, flat=not left_out)
        for ax in axes:
            _frame(ax, x, y, aspect, sheet)
        for ax in axes[-sheet.columns :]:
            ax.tick_params(labelbottom=True)
        for ax in spare:
            ax.remove()
        letter_panels(axes, [title for row in rows for title in _titles(*row, sheet)])
        figure.supxlabel(x_label, fontsize=8.0)
        figure.supylabel(y_label, fontsize=8.0)
        if notes := [*_notes_left_out(ds, left_out, x, y), *_notes_on_shape(ds[up])]:
            figure.suptitle("\n".join(textwrap.wrap(" ".join(notes), 110)), fontsize=8.0)
    return figure


class _Sheet(NamedTuple):
    """How the maps lie on the page; lengths in inches."""

    rows: int
    columns: int
    row_height: float

    @property
    def map_width(self) -> float:
        """About what the labels leave of a column."""
        return PAGE / self.columns - (1.0 if self.columns == 2 else 0.75)

    @property
    def map_height(self) -> float:
        """About what the title, of two lines over a narrow map, leaves of a row."""
        return self.row_height - (0.35 if self.columns == 2 else 0.5)


def _lay_out(x: Floats, y: Floats, pairs: int) -> _Sheet:
    """Lay out pairs of maps of these sites: on one page if they can be read, two pairs a row if they are many."""
    lone = np.ptp(x) == np.ptp(y) == 0.0
    ratio = 0.6 if lone else float(np.ptp(y) / max(np.ptp(x), 1e-9 * np.ptp(y)))
    columns = 4 if pairs > 4 and ratio > 0.7 else 2
    rows = math.ceil(2 * pairs / columns)
    page = _Sheet(rows, columns, max(1.1, PAGE_HEIGHT / rows))
    natural = page.map_width * min(max(ratio, 0.5), 1.6) + page.row_height - page.map_height
    return page._replace(row_height=min(natural, page.row_height))


def _draw_pair(
    pair: NDArray[Any],
    ds: xr.Dataset,
    name: str,
    curve: Curve,
    at: tuple[Floats, Floats],
    sheet: _Sheet,
    flat: bool,
) -> None:
    """Draw the mean and the standard deviation of a curve, with their colour bars, on an array (2,) of Axes."""
    down = points_down(ds[name])
    mean = _draw_map(pair[0], *at, read_values(ds, name, curve), "viridis_r" if down else "viridis", flat)
    _add_bar(pair[0], mean, _bar_label(ds[name], sheet), sheet, inverted=down)
    std = _draw_map(pair[1], *at, read_values(ds, f"{name}_std", curve), "cividis", flat)
    _add_bar(pair[1], std, _bar_label(ds[name], sheet, "standard deviation"), sheet, inverted=False)


def _bar_label(array: xr.DataArray, sheet: _Sheet, text: str = "") -> str:
    """Label of a colour bar: only the unit where the bar is short, for the title says what is drawn."""
    if sheet.columns > 2 or sheet.map_height < 1.2:
        return unit_label(array)
    return axis_label(array, text, width=int(_CHARACTERS * sheet.map_height))


def _titles(name: str, curve: Curve, sheet: _Sheet) -> list[str]:
    title = ", ".join(filter(None, (name.replace("_", " "), curve.label)))
    width = int(_CHARACTERS * (PAGE / sheet.columns - 0.4))
    return ["\n".join(textwrap.wrap(f"{title}: {what}", width)) for what in ("mean", "standard deviation")]


def _notes_left_out(ds: xr.Dataset, names: list[str], x: Floats, y: Floats) -> list[str]:
    """Sentences on the coordinates that the maps leave out."""
    notes = [f"Sites at every {quantity_name(ds[name])}, {range_of(ds[name])}, on one map." for name in names]
    if names and np.unique(np.column_stack([x, y]), axis=0).shape[0] < x.size:
        notes.append(f"Where sites coincide, that of the least {quantity_name(ds[names[0]])} is on top.")
    return notes


def _notes_on_shape(up: xr.DataArray) -> list[str]:
    return [f"Not to scale: the latitudes run {range_of(up)}."] if _is_polar(up) else []


def _is_polar(up: xr.DataArray) -> bool:
    """Tell whether latitudes lie at a pole, or beyond it, where there are none."""
    return up.attrs.get("units") in _NORTH and bool(np.max(np.abs(up.values)) > _POLAR)


def _aspect(up: xr.DataArray) -> float:
    """Height over width of a unit of the map; a degree of longitude is shorter than one of latitude."""
    if up.attrs.get("units") in _NORTH and not _is_polar(up):
        return float(1.0 / np.cos(np.deg2rad(np.mean(up.values))))
    return 1.0


def _frame(ax: Axes, x: Floats, y: Floats, aspect: float, sheet: _Sheet) -> None:
    """Frame the sites with a margin; the window widens until it fills its panel at this aspect."""
    margin = 0.05 * max(np.ptp(x), np.ptp(y) * aspect) or 0.5
    rise = margin / aspect
    ax.update_datalim([(x.min() - margin, y.min() - rise), (x.max() + margin, y.max() + rise)])
    ax.margins(0.0)
    ax.set_aspect(aspect, adjustable="datalim")
    set_ticks(ax.xaxis, x, most=int(sheet.map_width / 0.5))
    set_ticks(ax.yaxis, y, most=min(int(sheet.map_height / 0.25), 5))
    ax.label_outer()


def _draw_map(ax: Axes, x: Floats, y: Floats, values: Floats, colours: str, flat: bool) -> ScalarMappable:
    seen = np.isfinite(values)
    triangles = _triangulate(x[seen], y[seen]) if flat and np.ptp(values[seen]) > 0 else None
    if triangles is None:
        return ax.scatter(x[seen], y[seen], c=values[seen], cmap=colours, s=14.0, linewidths=0.3, edgecolors="0.2")
    ax.plot(x, y, "o", color="black", markersize=0.9, markeredgewidth=0.0)
    # Not a shading of triangles: that mixes the colours of their corners into some that the colour bar does not have.
    lowest, highest = float(values[seen].min()), float(values[seen].max())
    scale, levels = Normalize(lowest, highest), np.linspace(lowest, highest, _SHADES + 1)
    filled = ax.tricontourf(triangles, values[seen], levels, cmap=colours, norm=scale)
    # A vector format would show hairlines between the shades.
    filled.set_rasterized(True)
    shown = ScalarMappable(scale, colours)
    shown.set_array(values[seen])
    return shown


def _triangulate(x: Floats, y: Floats) -> Triangulation | None:
    """Triangles between neighbouring sites, or None if the sites span no area."""
    if x.size < 4 or np.linalg.matrix_rank(np.column_stack([x - x.mean(), y - y.mean()]), tol=1e-9) < 2:
        return None
    triangulation = Triangulation(x, y)
    corners = np.stack([x, y], axis=-1)[triangulation.triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    triangulation.set_mask(longest > 5.0 * np.median(longest))
    return triangulation


def _add_bar(ax: Axes, artist: ScalarMappable, label: str, sheet: _Sheet, inverted: bool) -> None:
    """Stand a colour bar at the right of a map."""
    width = 0.1 / sheet.map_width
    bar = ax.figure.colorbar(artist, cax=ax.inset_axes((1.0 + 0.6 * width, 0.0, width, 1.0)))
    bar.set_label(label)
    bar.ax.yaxis.set_inverted(inverted)
    bar.outline.set_linewidth(0.4)
    values = np.asarray(artist.get_array())
    if np.ptp(values) > 1e-9 * np.max(np.abs(values)):
        bar.ax.yaxis.set_major_locator(MaxNLocator(min(int(sheet.map_height / 0.25), 7), steps=[1, 2, 5, 10]))
    else:
        bar.set_ticks([float(values[0])], labels=[f"{values[0]:.4g}".replace("-", MINUS)])
