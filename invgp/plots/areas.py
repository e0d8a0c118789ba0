"""Areas of a map: colours between sites or in the cells of a grid, and hatches over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.tri import Triangulation

from invgp.plots.look import HATCH
from invgp.plots.reading import Floats

_SHADES = 128


class Place(NamedTuple):
    """Where values (N,) stand on a map.

    Attributes
    ----------
    x, y : (N,), positions.
    shape : of the grid that they are the nodes of; None for sites in any place.
    flat : whether there may be colours between sites: not if they lie at several levels.
    """

    x: Floats
    y: Floats
    shape: tuple[int, ...] | None
    flat: bool


def draw_values(ax: Axes, place: Place, values: Floats, colours: str, ends: tuple[float, float]) -> ScalarMappable:
    """Colour a map by values (N,), from the lowest to the highest of `ends`."""
    x, y, seen = place.x, place.y, np.isfinite(values)
    scale = Normalize(*ends)
    if place.shape is not None and min(place.shape) > 1:
        cells = (grid.reshape(place.shape) for grid in (x, y, np.ma.masked_invalid(values)))
        return ax.pcolormesh(*cells, cmap=colours, norm=scale, shading="nearest", rasterized=True)
    triangles = _triangulate(x[seen], y[seen]) if place.flat and np.ptp(values[seen]) > 0 else None
    if triangles is None:
        style = {"s": 14.0, "linewidths": 0.3, "edgecolors": "0.2"}
        return ax.scatter(x[seen], y[seen], c=values[seen], cmap=colours, norm=scale, **style)
    ax.plot(x, y, "o", color="black", markersize=0.9, markeredgewidth=0.0)
    # Not a shading of triangles: that mixes the colours of their corners into some that the colour bar does not have.
    levels = np.linspace(*ends, _SHADES + 1)
    filled = ax.tricontourf(triangles, values[seen], levels, cmap=colours, norm=scale, extend="both")
    # A vector format would show hairlines between the shades.
    filled.set_rasterized(True)
    shown = ScalarMappable(scale, colours)
    shown.set_array(values[seen])
    return shown


def hatch(ax: Axes, place: Place, lacking: Floats) -> bool:
    """Hatch a map where values (N,) are positive; tell whether there is such an area. Lone dots are not hatched."""
    seen = np.isfinite(lacking)
    if not (lacking[seen] > 0.0).any():
        return False
    highest = max(float(lacking[seen].max()), 1.0)
    style = {"levels": [0.0, highest], "colors": "none", "hatches": [HATCH]}
    if place.shape is not None and min(place.shape) > 1:
        cells = (grid.reshape(place.shape) for grid in (place.x, place.y, np.ma.masked_invalid(lacking)))
        areas = ax.contourf(*cells, **style)
    else:
        triangles = _triangulate(place.x[seen], place.y[seen]) if place.flat else None
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
