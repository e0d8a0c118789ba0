"""Maps: the latents over the first two coordinates of a survey or a grid."""

from __future__ import annotations

import math
import textwrap
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from invgp.maps.nodes import as_map
from invgp.plots.areas import Place, draw_values, hatch
from invgp.plots.grids import as_sites, cut_in_the_middle, read_grid
from invgp.plots.labels import MINUS, quantity_name, range_of, unit_label
from invgp.plots.look import (
    Look,
    colours_of,
    hatch_words,
    is_field,
    poorly_informed,
    quantity_label,
    quantity_of,
    read_quantity,
    value_range,
)
from invgp.plots.positions import read_positions, set_ticks
from invgp.plots.reading import Curve, Floats, points_down, read_curves, read_names, read_two_coordinates
from invgp.plots.style import PAGE, PAGE_HEIGHT, STYLE, letter_panels

_CHARACTERS = 16.0  # in an inch of 8 point text
_NORTH = ("degrees_north", "degree_north", "degrees_N", "degree_N")
_POLAR = 89.0  # degrees, from where no map in degrees keeps its shape


def maps(ds: xr.Dataset, look: Look | None = None) -> Figure:
    """Draw every latent over the first two coordinates of the survey.

    One row a latent and label. On a grid every cell has its colour. Between neighbouring sites, which are dotted, the
    colours are interpolated; nothing is drawn between sites much further apart than the others. Sites with more
    coordinates, on a line, or too few for that are coloured dots. Where the data say little, the mean is hatched. What
    the maps do not show of the coordinates stands above them.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with two coordinates or more, or on a grid; a volume is cut in its middle.
    look : Look
        Quantities to show, mean and standard deviation by default; limits of their colours; from where to hatch.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, or its sites have only one coordinate.
    """
    look, ds = look or Look(), as_map(ds)
    shown = look.show or ("mean", "std")
    (across, up), left_out = read_two_coordinates(ds)
    grid = read_grid(ds)
    cuts: list[str] = []
    if grid is not None and left_out:
        ds, cuts = cut_in_the_middle(ds, left_out)
        grid, left_out = read_grid(ds), []
    ds = as_sites(ds)
    if left_out:
        ds = ds.sortby(left_out[0], ascending=False)  # of sites at one place, the least is drawn last, on top
    (x, x_label), (y, y_label) = read_positions(ds, [across, up])
    place = Place(x, y, None if grid is None else grid.shape, flat=not left_out)
    aspect = _aspect(ds[up])
    rows = [(name, curve) for name in read_names(ds, "latents") for curve in read_curves(ds, name)]
    sheet = _lay_out(x, y * aspect, len(rows), len(shown))
    with rc_context(STYLE):
        figure = Figure((PAGE, sheet.row_height * sheet.rows + 0.5), layout="constrained")
        axes, spare = np.split(
            figure.subplots(sheet.rows, sheet.columns, squeeze=False).ravel(), [len(shown) * len(rows)]
        )
        hatched = False
        for row, (name, curve) in zip(axes.reshape(-1, len(shown)), rows, strict=True):
            for ax, quantity in zip(row, shown, strict=True):
                hatched |= _draw_quantity(ax, ds, (name, quantity, curve), place, sheet, look)
        for ax in axes:
            _frame(ax, place, aspect, sheet)
        for ax in axes[-sheet.columns :]:
            ax.tick_params(labelbottom=True)
        for ax in spare:
            ax.remove()
        letter_panels(axes, [_title(*row, quantity, sheet) for row in rows for quantity in shown])
        figure.supxlabel(x_label, fontsize=8.0)
        figure.supylabel(y_label, fontsize=8.0)
        notes = [*cuts, *_notes_left_out(ds, left_out, x, y), *_notes_on_shape(ds[up])]
        notes += [f"Hatched: {hatch_words(look)}."] if hatched else []
        if notes:
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
        return PAGE / self.columns - (1.0 if self.columns <= 2 else 0.75)

    @property
    def map_height(self) -> float:
        """About what the title, of two lines over a narrow map, leaves of a row."""
        return self.row_height - (0.35 if self.columns <= 2 else 0.5)


def _lay_out(x: Floats, y: Floats, rows: int, shown: int) -> _Sheet:
    """Lay out rows of so many maps of these sites: on one page if they can be read, and two rows in one if many."""
    lone = np.ptp(x) == np.ptp(y) == 0.0
    ratio = 0.6 if lone else float(np.ptp(y) / max(np.ptp(x), 1e-9 * np.ptp(y)))
    wide = 4 if rows * shown > 8 and ratio > 0.7 else 2
    columns = min(shown * max(1, wide // shown), rows * shown)
    lines = math.ceil(rows * shown / columns)
    page = _Sheet(lines, columns, max(1.1, PAGE_HEIGHT / lines))
    natural = page.map_width * min(max(ratio, 0.5), 1.6) + page.row_height - page.map_height
    return page._replace(row_height=min(natural, page.row_height))


def _draw_quantity(
    ax: Axes, ds: xr.Dataset, of: tuple[str, str, Curve], place: Place, sheet: _Sheet, look: Look
) -> bool:
    """Draw a quantity of a latent and label with its colour bar; tell whether any of it is hatched."""
    name, quantity, curve = of
    values, limits = read_quantity(ds, name, quantity, curve), look.limits_of(name, quantity)
    alike = [other for other in look.show if is_field(other) and is_field(quantity) and other != quantity]
    around = np.concatenate([values, *(read_quantity(ds, name, other, curve) for other in alike)])
    shown = draw_values(ax, place, values, colours_of(ds, name, quantity), value_range(around, quantity, limits))
    _add_bar(ax, shown, values, _bar_label(ds, name, quantity, sheet), sheet, limits)
    ax.child_axes[0].yaxis.set_inverted(is_field(quantity) and points_down(ds[name]))
    lacking = poorly_informed(ds, name, curve, look) if quantity != "std" else None
    return lacking is not None and hatch(ax, place, lacking)


def _bar_label(ds: xr.Dataset, name: str, quantity: str, sheet: _Sheet) -> str:
    """Label of a colour bar: only the unit where the bar is short, for the title says what is drawn."""
    if sheet.columns > 2 or sheet.map_height < 1.2:
        return "" if quantity == "information" else unit_label(ds[name])
    return quantity_label(ds, name, quantity, width=int(_CHARACTERS * sheet.map_height))


def _title(name: str, curve: Curve, quantity: str, sheet: _Sheet) -> str:
    title = ", ".join(filter(None, (name.replace("_", " "), curve.label)))
    width = int(_CHARACTERS * (PAGE / sheet.columns - 0.4))
    return "\n".join(textwrap.wrap(f"{title}: {quantity_of(quantity).words}", width))


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


def _frame(ax: Axes, place: Place, aspect: float, sheet: _Sheet) -> None:
    """Frame the sites with a margin; the window widens until it fills its panel at this aspect."""
    x, y = place.x, place.y
    share = 0.05 if place.shape is None else 0.0  # the cells of a grid have room of their own
    margin = share * max(np.ptp(x), np.ptp(y) * aspect) or (0.5 if np.ptp(x) == np.ptp(y) == 0.0 else 0.0)
    rise = margin / aspect
    ax.update_datalim([(x.min() - margin, y.min() - rise), (x.max() + margin, y.max() + rise)])
    ax.margins(0.0)
    ax.set_aspect(aspect, adjustable="datalim")
    set_ticks(ax.xaxis, x, most=int(sheet.map_width / 0.5))
    set_ticks(ax.yaxis, y, most=min(int(sheet.map_height / 0.25), 5))
    ax.label_outer()


def _add_bar(
    ax: Axes, artist: ScalarMappable, values: Floats, label: str, sheet: _Sheet, limits: tuple[float, float] | None
) -> None:
    """Stand a colour bar at the right of a map; its ends point where values lie beyond the limits that were set."""
    width = 0.1 / sheet.map_width
    seen = values[np.isfinite(values)]
    below, above = (seen.min() < limits[0], seen.max() > limits[1]) if limits and seen.size else (False, False)
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(
        (bool(below), bool(above)), "neither"
    )
    place = ax.inset_axes((1.0 + 0.6 * width, 0.0, width, 1.0))
    bar = ax.figure.colorbar(artist, cax=place, extend=extend)
    bar.set_label(label)
    bar.outline.set_linewidth(0.4)
    low, high = artist.get_clim()
    if high - low > 1e-9 * max(abs(low), abs(high)):
        bar.ax.yaxis.set_major_locator(MaxNLocator(min(int(sheet.map_height / 0.25), 7), steps=[1, 2, 5, 10]))
    else:
        bar.set_ticks([low], labels=[f"{low:.4g}".replace("-", MINUS)])
