"""Maps: the latents over two coordinates of a survey or a grid."""

from __future__ import annotations

import textwrap

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from invgp.maps.nodes import as_map
from invgp.plots.areas import MANY, Place, draw_sites, draw_values, hatch
from invgp.plots.between import between_sites
from invgp.plots.grids import as_sites, cut_in_the_middle, read_grid, read_shape
from invgp.plots.labels import MINUS, quantity_name, range_of, scaled_unit, unit_label
from invgp.plots.look import (
    OF_PRIOR,
    Look,
    colours_of,
    hatch_words,
    is_field,
    poorly_informed,
    quantity_label,
    quantity_of,
    read_quantity,
)
from invgp.plots.positions import read_positions, read_survey_positions, set_ticks
from invgp.plots.reading import (
    Curve,
    Floats,
    choose,
    points_down,
    read_curves,
    read_names,
    read_survey,
    read_two_coordinates,
    survey_coordinates,
)
from invgp.plots.scales import beyond, colour_scale, scale_power
from invgp.plots.style import CHARACTERS, STYLE, letter_panels
from invgp.plots.ticks import set_log_ticks, set_value_ticks
from invgp.plots.windows import MapSheet, Window, lay_out, window_of


def maps(ds: xr.Dataset, look: Look | None = None) -> Figure:
    """Draw every latent over two coordinates of the survey.

    One row a latent and label. On a grid every cell has its colour, and so it is between sites where the file can tell
    of them in a moment. Else the colours are interpolated between neighbouring sites, and nothing is drawn between
    sites much further apart than the others. Sites with more coordinates, on a line, or too few for that are coloured
    dots. Where the data say little, the mean is hatched. What the maps do not show of the coordinates stands above
    them.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with two coordinates or more, or on a grid; a volume is cut in its middle.
    look : Look
        Quantities to show, mean and standard deviation by default; limits of their colours; from where to hatch; size.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, its sites have only one coordinate, or the size is too small.
    """
    look = look or Look()
    shown = look.show or ("mean", "std")
    (across, up), left_out = read_two_coordinates(as_map(ds))
    ds = choose(as_map(between_sites(ds)), look.latents, look.labels)
    grid = read_grid(ds)
    cuts: list[str] = []
    if grid is not None and left_out:
        ds, cuts = cut_in_the_middle(ds, left_out)
        grid, left_out = read_grid(ds), []
    sliced = [name for name in survey_coordinates(ds) if name not in (across, up)]
    survey, ds = read_survey(ds, [across, up]), as_sites(ds)
    if left_out:
        ds = ds.sortby(left_out[0], ascending=False)  # of sites at one place, the least is drawn last, on top
    (x, x_label), (y, y_label) = read_positions(ds, [across, up])
    shape = None if grid is None else read_shape(grid, across, up)
    place = Place(x, y, shape, flat=not left_out, circled=survey is None)
    rows = [(name, curve) for name in read_names(ds, "latents") for curve in read_curves(ds, name)]
    window = window_of(place, ds[up])
    sheet = lay_out(window.ratio, len(rows), len(shown), look.size)
    with rc_context(STYLE):
        figure = Figure(sheet.size, layout="compressed")
        axes, spare = np.split(
            figure.subplots(sheet.rows, sheet.columns, squeeze=False).ravel(), [len(shown) * len(rows)]
        )
        hatched = False
        for row, (name, curve) in zip(axes.reshape(-1, len(shown)), rows, strict=True):
            for ax, quantity in zip(row, shown, strict=True):
                hatched |= _draw_quantity(ax, ds, (name, quantity, curve), place, sheet, look)
        sites = None if survey is None else read_survey_positions(ds, survey, [across, up])
        for ax in axes:
            if sites is not None and sites[0].size <= MANY:
                draw_sites(ax, *sites)
            _frame(ax, place, window, sheet)
        for ax in axes[-sheet.columns :]:
            ax.tick_params(labelbottom=True)
        for ax in spare:
            ax.remove()
        letter_panels(axes, [_title(*row, quantity, sheet) for row in rows for quantity in shown])
        figure.supxlabel(x_label, fontsize=8.0)
        figure.supylabel(y_label, fontsize=8.0)
        notes = [*cuts, *_notes_left_out(ds, left_out, x, y), *window.notes]
        notes += [_note_on_sites(sites[0].size, sliced)] if sites is not None else []
        notes += [f"Hatched: {hatch_words(look)}."] if hatched else []
        if notes:
            wrapped = textwrap.wrap(" ".join(notes), int(CHARACTERS * sheet.size[0]))
            figure.suptitle("\n".join(wrapped), fontsize=8.0)
    return figure


def _draw_quantity(
    ax: Axes, ds: xr.Dataset, of: tuple[str, str, Curve], place: Place, sheet: MapSheet, look: Look
) -> bool:
    """Draw a quantity of a latent and label with its colour bar; tell whether any of it is hatched."""
    name, quantity, curve = of
    values, limits = read_quantity(ds, name, quantity, curve), look.limits_of(name, quantity)
    alike = [other for other in look.show if is_field(other) and is_field(quantity) and other != quantity]
    around = np.concatenate([values, *(read_quantity(ds, name, other, curve) for other in alike)])
    scale = colour_scale(ds, name, quantity, around, limits)
    shown = draw_values(ax, place, values, colours_of(ds, name, quantity), scale)
    _add_bar(ax, shown, (scale, values), _bar_label(ds, name, quantity, sheet, scale_power(scale)), sheet)
    ax.child_axes[0].yaxis.set_inverted(is_field(quantity) and points_down(ds[name]))
    lacking = poorly_informed(ds, name, curve, look) if quantity not in ("std", "few-runs") else None
    return lacking is not None and hatch(ax, place, lacking)


def _bar_label(ds: xr.Dataset, name: str, quantity: str, sheet: MapSheet, power: int) -> str:
    """Label of a colour bar: only the unit where the bar is short, for the title says what is drawn."""
    if sheet.columns > 2 or sheet.map_height < 1.2:
        if quantity == "information":
            return ""
        return scaled_unit(OF_PRIOR if quantity == "few-runs" else unit_label(ds[name]), power)
    return quantity_label(ds, name, quantity, int(CHARACTERS * sheet.map_height), power)


def _title(name: str, curve: Curve, quantity: str, sheet: MapSheet) -> str:
    title = ", ".join(filter(None, (name.replace("_", " "), curve.label)))
    width = max(12, int(CHARACTERS * (sheet.map_width + 0.5)))
    return "\n".join(textwrap.wrap(f"{title}: {quantity_of(quantity).words}", width))


def _notes_left_out(ds: xr.Dataset, names: list[str], x: Floats, y: Floats) -> list[str]:
    """Sentences on the coordinates that the maps leave out."""
    notes = [f"Sites at every {quantity_name(ds[name])}, {range_of(ds[name])}, on one map." for name in names]
    if names and np.unique(np.column_stack([x, y]), axis=0).shape[0] < x.size:
        notes.append(f"Where sites coincide, that of the least {quantity_name(ds[names[0]])} is on top.")
    return notes


def _note_on_sites(count: int, sliced: list[str]) -> str:
    """What the circles are, where a slice has none of its own; many would cover what is below them."""
    if count > MANY:
        return f"The {count:,} sites are too many to be marked."
    return f"Circles: sites{' at every ' + ' and '.join(sliced) if sliced else ''}."


def _frame(ax: Axes, place: Place, window: Window, sheet: MapSheet) -> None:
    """Frame the map, and put ticks along it."""
    ax.set(xlim=window.across, ylim=window.up)
    ax.set_aspect(window.aspect)
    digits = max(len(f"{end:.0f}") for end in window.across)
    set_ticks(ax.xaxis, place.x, most=max(1, int(sheet.map_width / (0.08 * digits + 0.35))))
    set_ticks(ax.yaxis, place.y, most=max(2, min(int(sheet.map_height / 0.25), 5)))
    ax.label_outer()


def _add_bar(ax: Axes, artist: ScalarMappable, of: tuple[Normalize, Floats], label: str, sheet: MapSheet) -> None:
    """Stand the colour bar of a scale and values at the right of a map; its ends point where values lie beyond."""
    width, (scale, values) = 0.1 / sheet.map_width, of
    place = ax.inset_axes((1.0 + 0.6 * width, 0.0, width, 1.0))
    bar = ax.figure.colorbar(artist, cax=place, extend=beyond(scale, values))
    bar.set_label(label)
    bar.outline.set_linewidth(0.4)
    (low, high), most = artist.get_clim(), max(2, min(int(sheet.map_height / 0.25), 7))
    if isinstance(scale, LogNorm):
        set_log_ticks(bar.ax.yaxis, scale_power(scale), most)
    elif high - low > 1e-9 * max(abs(low), abs(high)):
        set_value_ticks(bar.ax.yaxis, scale_power(scale), most)
    else:
        bar.set_ticks([low], labels=[f"{low:.4g}".replace("-", MINUS)])
