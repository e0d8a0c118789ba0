"""What part of the world a map shows, in which shape, and how maps lie on a page."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.axes import is_north
from invgp.plots.areas import Place
from invgp.plots.labels import range_of
from invgp.plots.reading import Floats, points_down
from invgp.plots.style import PAGE, PAGE_HEIGHT, too_small

POLAR = 89.0  # degrees, from where no map in degrees keeps its shape
FLATTEST, STEEPEST = 0.35, 1.8  # height over width of a window; what is flatter or steeper gets a margin
EXAGGERATED = 0.4  # height over width of a vertical section that would be flatter
GOOD = 0.8  # of the widest maps that can be had: good enough, if more stand in a row
SMALLEST = 0.6  # inches, of a side of a map that can be read


class Window(NamedTuple):
    """What a map shows.

    Attributes
    ----------
    across, up : ends of the axes.
    aspect : height over width of a unit on paper.
    notes : what there is to say of the shape.
    """

    across: tuple[float, float]
    up: tuple[float, float]
    aspect: float
    notes: list[str]

    @property
    def ratio(self) -> float:
        """Height over width."""
        return self.aspect * abs(self.up[1] - self.up[0]) / (self.across[1] - self.across[0])


def window_of(place: Place, up: xr.DataArray) -> Window:
    """The window of sites, with a margin, or of the cells of a grid; a depth runs downwards."""
    vertical, polar = "positive" in up.attrs, _is_polar(up)
    aspect = 1.0
    if is_north(str(up.attrs.get("units"))) and not polar:  # a degree of longitude is shorter than one of latitude
        aspect = float(1.0 / np.cos(np.deg2rad(np.mean(up.values))))
    ends = [_ends(place.x, place.shape is not None), _ends(place.y, place.shape is not None)]
    spans = [high - low for low, high in ends]
    notes = [f"Not to scale: the latitudes run {range_of(up)}."] if polar else []
    if spans[0] > 0.0 and spans[1] > 0.0 and vertical and spans[1] / spans[0] < EXAGGERATED:
        aspect = EXAGGERATED * spans[0] / spans[1]
        notes.append(f"Vertical exaggeration {aspect:.2g}.")
    if place.shape is None:
        margin = 0.05 * max(spans[0], aspect * spans[1])
        ends = [_widened(ends[0], margin), _widened(ends[1], margin / aspect)]
    across, height = _shaped(ends[0], ends[1], aspect)
    return Window(across, height[::-1] if points_down(up) else height, aspect, notes)


def _ends(values: Floats, cells: bool) -> tuple[float, float]:
    """Lowest and highest, with the halves of the outer cells of a grid."""
    distinct = np.unique(values)
    low, high = float(distinct[0]), float(distinct[-1])
    if cells and distinct.size > 1:
        return low - 0.5 * float(distinct[1] - distinct[0]), high + 0.5 * float(distinct[-1] - distinct[-2])
    return low, high


def _widened(ends: tuple[float, float], margin: float) -> tuple[float, float]:
    return ends[0] - margin, ends[1] + margin


def _shaped(
    across: tuple[float, float], up: tuple[float, float], aspect: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Wide and high enough for a map that can be read."""
    width, height = across[1] - across[0], aspect * (up[1] - up[0])
    if width == height == 0.0:
        width = 1.0
        across = _widened(across, 0.5)
    least_height, least_width = FLATTEST * width, height / STEEPEST
    up = _widened(up, max(0.0, least_height - height) / 2.0 / aspect)
    return _widened(across, max(0.0, least_width - width) / 2.0), up


def _is_polar(up: xr.DataArray) -> bool:
    """Tell whether latitudes lie at a pole, or beyond it, where there are none."""
    return is_north(str(up.attrs.get("units"))) and bool(np.max(np.abs(up.values)) > POLAR)


class MapSheet(NamedTuple):
    """How maps lie on a page; lengths in inches."""

    rows: int
    columns: int
    size: tuple[float, float]
    ratio: float  # height over width of a map

    @property
    def cell(self) -> tuple[float, float]:
        """About what labels and titles, of two lines over a narrow map, leave of a cell."""
        few = self.columns <= 2
        width = (self.size[0] - 0.55) / self.columns - (0.75 if few else 0.8)
        height = (self.size[1] - 0.6) / self.rows - (0.3 if few and self.size[0] > 5.0 else 0.45)
        return width, height

    @property
    def map_width(self) -> float:
        """Of one map."""
        return max(0.1, min(self.cell[0], self.cell[1] / self.ratio))

    @property
    def map_height(self) -> float:
        """Of one map."""
        return self.ratio * self.map_width


def lay_out(ratio: float, rows: int, shown: int, size: tuple[float, float] | None) -> MapSheet:
    """Lay out rows of so many maps each, as large as can be: on a page, or on a given size.

    Raises
    ------
    PlotError
        If they would be too small to be read on that size.
    """
    count = rows * shown
    columns = [n for n in range(1, count + 1) if n % shown == 0 or (size is not None and shown % n == 0)]
    sheets = [MapSheet(math.ceil(count / n), n, size or (PAGE, PAGE_HEIGHT), ratio) for n in columns]
    widest = max(sheet.map_width for sheet in sheets)
    best = [sheet for sheet in sheets if sheet.map_width >= GOOD * widest][-1]
    if size is not None:
        if min(best.map_width, best.map_height) < SMALLEST * min(ratio, 1.0 / ratio):
            raise too_small(size, f"{count} maps" if count > 1 else "a map")
        return best
    # A page is as high as its maps are, and they are not wider than half of it.
    best = best if best.columns > 1 or count == 1 else MapSheet(math.ceil(count / 2), 2, best.size, ratio)
    around = best.size[1] - best.rows * best.cell[1]
    least = best.rows * SMALLEST * min(ratio, 1.0)
    return best._replace(size=(PAGE, max(least, min(best.rows * best.cell[0] * ratio, PAGE_HEIGHT - around)) + around))
