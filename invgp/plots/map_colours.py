"""Colours of a map: points and areas coloured by values, hatched areas, and colour scales."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.contour import ContourSet
from matplotlib.tri import LinearTriInterpolator, Triangulation
from numpy.typing import NDArray

from invgp.plots.axis_labels import tick_power
from invgp.plots.figure_options import is_latent_value, value_range
from invgp.plots.plot_data import LOG_RATIO, Floats, increases_downwards, read_link
from invgp.plots.style import HATCH

HATCH_COLOUR = (0.0, 0.0, 0.0, 0.55)
_SHADES = 128
_FEW, MANY = 200, 1500  # sites
_CELLS = 300  # per side, for many sites
_CLIPPED = 1.0  # per cent of the values, at either end, that may be outside the scale
_FAR = 0.1  # of the span of the other values: nearer extremes stay inside the scale
_ROUNDING = 1e-6  # of the span


@dataclass(frozen=True)
class MapPoints:
    """The points of a map.

    Attributes
    ----------
    x, y : array, shape (N,)
        Positions.
    shape : tuple of int, or None
        Shape of the grid that they form; None for sites at any positions.
    interpolate : bool
        Whether the colours are interpolated between the sites; not if they are at several levels.
    circled : bool
        Whether the sites are marked where colours are interpolated.
    cells : list of array, shape (K, 2), or None
        Corners of the cells of a mesh, one per point.
    """

    x: Floats
    y: Floats
    shape: tuple[int, ...] | None
    interpolate: bool
    circled: bool = True
    cells: list[Floats] | None = None

    @property
    def extents(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Lowest and highest x and y, of the cells if there are any, otherwise of the points or cells of the grid."""
        if self.cells is None:
            on_grid = self.shape is not None
            return _axis_ends(self.x, cells=on_grid), _axis_ends(self.y, cells=on_grid)
        corners = np.concatenate(self.cells)
        (left, low), (right, high) = corners.min(axis=0), corners.max(axis=0)
        return (float(left), float(right)), (float(low), float(high))

    def triangles(self, finite: NDArray[np.bool_]) -> Triangulation | None:
        """Return triangles between neighbouring sites with finite values (N,); None if they span no area."""
        if not self.interpolate:
            return None
        return self._all_triangles if finite.all() else _triangulate(self.x[finite], self.y[finite])

    @cached_property
    def _all_triangles(self) -> Triangulation | None:
        return _triangulate(self.x, self.y)


def draw_values(ax: Axes, points: MapPoints, values: Floats, colour_map: str, scale: Normalize) -> ScalarMappable:
    """Colour a map by values.

    Parameters
    ----------
    ax : Axes
    points : MapPoints
    values : array, shape (N,)
        Values at the points; NaN is not drawn.
    colour_map : str
        Name of a matplotlib colour map.
    scale : Normalize

    Returns
    -------
    ScalarMappable
        Artist for a colour bar.
    """
    x, y, finite = points.x, points.y, np.isfinite(values)
    if points.shape is not None and min(points.shape) > 1:
        cells = (grid.reshape(points.shape) for grid in (x, y, np.ma.masked_invalid(values)))
        return ax.pcolormesh(*cells, cmap=colour_map, norm=scale, shading="nearest", rasterized=True)
    if points.cells is not None:
        corners = [points.cells[i] for i in np.flatnonzero(finite)]
        collection = PolyCollection(corners, array=values[finite], cmap=colour_map, norm=scale, rasterized=True)
        collection.set(edgecolor="face", linewidth=0.2)  # without it, thin lines remain between the cells
        return ax.add_collection(collection)
    varied = finite.any() and np.ptp(values[finite]) > 0
    triangles = points.triangles(finite) if varied else None
    if triangles is None:
        style: dict[str, Any] = {"s": 14.0, "linewidths": 0.3, "edgecolors": "0.2"}
        return ax.scatter(x[finite], y[finite], c=values[finite], cmap=colour_map, norm=scale, **style)
    if points.circled:
        draw_sites(ax, x, y)
    if x.size > MANY:
        return _draw_cells(ax, triangles, values[finite], colour_map, scale)
    # Contours, because shaded triangles mix the colours of their corners into some that the colour bar does not have.
    levels = np.asarray(scale.inverse(np.linspace(0.0, 1.0, _SHADES + 1)))
    filled = ax.tricontourf(triangles, values[finite], levels, cmap=colour_map, norm=scale, extend="both")
    filled.set_rasterized(True)  # a vector format would show thin lines between the shades
    mappable = ScalarMappable(scale, colour_map)
    mappable.set_array(values[finite])
    return mappable


def draw_sites(ax: Axes, x: Floats, y: Floats) -> None:
    """Mark sites by circles, or by dots if there are many."""
    size = min(2.6, 2.6 * math.sqrt(_FEW / x.size))
    style: dict[str, Any] = {"markersize": size, "markeredgewidth": 0.15 * size, "markeredgecolor": "black"}
    face = "white" if x.size <= _FEW else "black"
    ax.plot(x, y, "o", markerfacecolor=face, rasterized=x.size > MANY, clip_on=x.size > _FEW, **style)


def _draw_cells(
    ax: Axes, triangles: Triangulation, values: Floats, colour_map: str, scale: Normalize
) -> ScalarMappable:
    """Colour small cells by linear interpolation: for many sites this is much faster than contours."""
    across, up = (np.linspace(at.min(), at.max(), _CELLS) for at in (triangles.x, triangles.y))
    interpolated = LinearTriInterpolator(triangles, values)(*np.meshgrid(across, up))
    return ax.pcolormesh(across, up, interpolated, cmap=colour_map, norm=scale, shading="nearest", rasterized=True)


def hatch_area(ax: Axes, points: MapPoints, values: Floats) -> bool:
    """Hatch a map where values (N,) are positive; return whether there is such an area. Dots are not hatched."""
    finite = np.isfinite(values)
    if not (values[finite] > 0.0).any():
        return False
    if points.cells is not None:
        hatched = [points.cells[i] for i in np.flatnonzero(finite & (values > 0.0))]
        ax.add_collection(PolyCollection(hatched, facecolor="none", edgecolor=HATCH_COLOUR, linewidth=0.0, hatch=HATCH))
        return True
    highest = max(float(values[finite].max()), 1.0)
    style: dict[str, Any] = {"levels": [0.0, highest], "colors": "none", "hatches": [HATCH]}
    if points.shape is not None and min(points.shape) > 1:
        cells = (grid.reshape(points.shape) for grid in (points.x, points.y, np.ma.masked_invalid(values)))
        area: ContourSet = ax.contourf(*cells, **style)
    else:
        triangles = points.triangles(finite)
        if triangles is None:
            return False
        area = ax.tricontourf(triangles, values[finite], **style)
    area.set_edgecolor(HATCH_COLOUR)
    area.set_linewidth(0.0)
    return True


def _axis_ends(values: Floats, *, cells: bool) -> tuple[float, float]:
    """Return the lowest and the highest value, with half of the outer cells of a grid."""
    distinct = np.unique(values)
    low, high = float(distinct[0]), float(distinct[-1])
    if cells and distinct.size > 1:
        return low - 0.5 * float(distinct[1] - distinct[0]), high + 0.5 * float(distinct[-1] - distinct[-2])
    return low, high


def _triangulate(x: Floats, y: Floats) -> Triangulation | None:
    """Return triangles between neighbouring sites, without very long ones; None if the sites span no area."""
    if x.size < 4 or np.linalg.matrix_rank(np.column_stack([x - x.mean(), y - y.mean()]), tol=1e-9) < 2:
        return None
    triangulation = Triangulation(x, y)
    corners = np.stack([x, y], axis=-1)[triangulation.triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    triangulation.set_mask(longest > 5.0 * np.median(longest))
    return triangulation


def colour_scale(
    ds: xr.Dataset, latent: str, quantity: str, values: Floats, limits: tuple[float, float] | None
) -> Normalize:
    """Return the colour scale of a quantity of a latent.

    A few extreme values do not extend the scale. It is logarithmic if the latent has a log link and is not a depth,
    and the values extend over a factor of three.

    Parameters
    ----------
    ds : Dataset
    latent : str
    quantity : str
        Key of `QUANTITIES`, or a draw.
    values : array, shape (N,)
    limits : tuple of float, or None
        Ends of the scale; None to derive them from the values.

    Returns
    -------
    Normalize
    """
    low, high = limits or value_range(_clip_extremes(values), quantity)
    finite = values[np.isfinite(values)]
    positive = min(low, finite.min(initial=low)) > 0.0
    if not (_may_be_logarithmic(ds, latent, quantity) and positive and high > LOG_RATIO * low):
        return Normalize(low, high)
    if limits is None:
        low, high = (math.exp(end) for end in value_range(_clip_extremes(np.log(values)), quantity))
    return LogNorm(low, high)


def scale_power(scale: Normalize) -> int:
    """Return the power of ten for the label of a colour bar."""
    low, high = _scale_ends(scale)
    return tick_power((math.sqrt(low * high),) if isinstance(scale, LogNorm) else (low, high))


def outside_ends(scale: Normalize, values: Floats) -> Literal["neither", "both", "min", "max"]:
    """Return at which ends of a scale there are values (N,) outside it, as the argument `extend` of a colour bar."""
    low, high = _scale_ends(scale)
    finite, rounding = values[np.isfinite(values)], _ROUNDING * (high - low)
    below, above = bool((finite < low - rounding).any()), bool((finite > high + rounding).any())
    if below and above:
        return "both"
    return "min" if below else "max" if above else "neither"


def _scale_ends(scale: Normalize) -> tuple[float, float]:
    return float(scale.vmin or 0.0), float(scale.vmax or 0.0)


def _clip_extremes(values: Floats) -> Floats:
    """Return values (N,) with the highest and the lowest few clipped if they are far from the others."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return values
    low = float(np.percentile(finite, _CLIPPED, method="lower"))
    high = float(np.percentile(finite, 100.0 - _CLIPPED, method="higher"))
    far = _FAR * (high - low)
    if far == 0.0:
        return values
    return np.clip(values, low if finite.min() < low - far else None, high if finite.max() > high + far else None)


def _may_be_logarithmic(ds: xr.Dataset, latent: str, quantity: str) -> bool:
    """Return whether the scale of a quantity can be logarithmic: values and std of a latent with a log link."""
    positive = is_latent_value(quantity) or quantity == "std"
    return positive and read_link(ds, latent) == "log" and not increases_downwards(ds[latent])
