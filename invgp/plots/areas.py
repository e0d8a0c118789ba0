"""Areas of a map: colours between sites or in the cells of a grid, and hatches over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.contour import ContourSet
from matplotlib.tri import LinearTriInterpolator, Triangulation
from numpy.typing import NDArray

from invgp.plots.look import HATCH
from invgp.plots.reading import Floats

_SHADES = 128
_FEW, MANY = 200, 1500  # sites
_CELLS = 300  # a side, where sites are many


@dataclass(frozen=True)
class Place:
    """Where values (N,) stand on a map.

    Attributes
    ----------
    x, y : (N,), positions.
    shape : of the grid that they are the nodes of; None for sites in any place.
    flat : whether there may be colours between sites: not if they lie at several levels.
    circled : whether the positions are circled where there are colours between them.
    """

    x: Floats
    y: Floats
    shape: tuple[int, ...] | None
    flat: bool
    circled: bool = True

    def triangles(self, seen: NDArray[np.bool_]) -> Triangulation | None:
        """Triangles between neighbouring sites of those (N,) that are seen; None if they span no area."""
        if not self.flat:
            return None
        return self._all_triangles if seen.all() else _triangulate(self.x[seen], self.y[seen])

    @cached_property
    def _all_triangles(self) -> Triangulation | None:
        return _triangulate(self.x, self.y)


def draw_values(ax: Axes, place: Place, values: Floats, colours: str, scale: Normalize) -> ScalarMappable:
    """Colour a map by values (N,)."""
    x, y, seen = place.x, place.y, np.isfinite(values)
    if place.shape is not None and min(place.shape) > 1:
        cells = (grid.reshape(place.shape) for grid in (x, y, np.ma.masked_invalid(values)))
        return ax.pcolormesh(*cells, cmap=colours, norm=scale, shading="nearest", rasterized=True)
    varied = seen.any() and np.ptp(values[seen]) > 0
    triangles = place.triangles(seen) if varied else None
    if triangles is None:
        style: dict[str, Any] = {"s": 14.0, "linewidths": 0.3, "edgecolors": "0.2"}
        return ax.scatter(x[seen], y[seen], c=values[seen], cmap=colours, norm=scale, **style)
    if place.circled:
        draw_sites(ax, x, y)
    if x.size > MANY:
        return _draw_cells(ax, triangles, values[seen], colours, scale)
    # Not a shading of triangles: that mixes the colours of their corners into some that the colour bar does not have.
    levels = np.asarray(scale.inverse(np.linspace(0.0, 1.0, _SHADES + 1)))
    filled = ax.tricontourf(triangles, values[seen], levels, cmap=colours, norm=scale, extend="both")
    # A vector format would show hairlines between the shades.
    filled.set_rasterized(True)
    shown = ScalarMappable(scale, colours)
    shown.set_array(values[seen])
    return shown


def draw_sites(ax: Axes, x: Floats, y: Floats) -> None:
    """Circle the sites; where they are many, by dots, which do not cover the map."""
    size = min(2.6, 2.6 * math.sqrt(_FEW / x.size))
    style: dict[str, Any] = {"markersize": size, "markeredgewidth": 0.15 * size, "markeredgecolor": "black"}
    face = "white" if x.size <= _FEW else "black"
    ax.plot(x, y, "o", markerfacecolor=face, rasterized=x.size > MANY, clip_on=x.size > _FEW, **style)


def _draw_cells(ax: Axes, triangles: Triangulation, values: Floats, colours: str, scale: Normalize) -> ScalarMappable:
    """Colour small cells by linear interpolation: for many sites, far quicker than contours."""
    across, up = (np.linspace(at.min(), at.max(), _CELLS) for at in (triangles.x, triangles.y))
    between = LinearTriInterpolator(triangles, values)(*np.meshgrid(across, up))
    return ax.pcolormesh(across, up, between, cmap=colours, norm=scale, shading="nearest", rasterized=True)


def hatch(ax: Axes, place: Place, lacking: Floats) -> bool:
    """Hatch a map where values (N,) are positive; tell whether there is such an area. Lone dots are not hatched."""
    seen = np.isfinite(lacking)
    if not (lacking[seen] > 0.0).any():
        return False
    highest = max(float(lacking[seen].max()), 1.0)
    style: dict[str, Any] = {"levels": [0.0, highest], "colors": "none", "hatches": [HATCH]}
    if place.shape is not None and min(place.shape) > 1:
        cells = (grid.reshape(place.shape) for grid in (place.x, place.y, np.ma.masked_invalid(lacking)))
        areas: ContourSet = ax.contourf(*cells, **style)
    else:
        triangles = place.triangles(seen)
        if triangles is None:
            return False
        areas = ax.tricontourf(triangles, lacking[seen], **style)
    areas.set_edgecolor((0.0, 0.0, 0.0, 0.55))
    areas.set_linewidth(0.0)
    return True


def _triangulate(x: Floats, y: Floats) -> Triangulation | None:
    """Triangles between neighbouring sites, or None if the sites span no area."""
    if x.size < 4 or np.linalg.matrix_rank(np.column_stack([x - x.mean(), y - y.mean()]), tol=1e-9) < 2:
        return None
    triangulation = Triangulation(x, y)
    corners = np.stack([x, y], axis=-1)[triangulation.triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    triangulation.set_mask(longest > 5.0 * np.median(longest))
    return triangulation
