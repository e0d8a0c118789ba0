"""Vertical gravity of prisms: rectangles of infinite strike length below a profile, boxes and layers below a map."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .columns import ColumnResponse, tabulate_columns

GRAVITATIONAL_CONSTANT = 6.6743e-11  # m3 kg-1 s-2, CODATA 2018
Floats = NDArray[np.float64]


def rectangles_gravity(
    stations: ArrayLike, edges: ArrayLike, top: ArrayLike, bottom: ArrayLike, density: ArrayLike
) -> Floats:
    """Compute the vertical gravity of rectangles that are infinite across a profile, at stations on it.

    Parameters
    ----------
    stations : array, shape (M,), in m
        Positions along the profile, at depth 0.
    edges : array, shape (C + 1,), in m
        Edges between neighbouring rectangles.
    top, bottom : array, shape (..., C), in m
        Depths below the stations, positive downwards; not above the stations.
    density : array, broadcast to shape (..., C), in kg m-3
        Density contrasts.

    Returns
    -------
    array, shape (..., M), in m s-2
        Gravity, positive downwards.
    """
    at, sides = np.asarray(stations, dtype=np.float64)[:, None], np.asarray(edges, dtype=np.float64)
    left, right = sides[:-1] - at, sides[1:] - at
    upper, lower = (np.asarray(depths, dtype=np.float64)[..., None, :] for depths in (top, bottom))
    strips = _corner(right, lower) - _corner(left, lower) - _corner(right, upper) + _corner(left, upper)
    contrast = np.broadcast_to(np.asarray(density, dtype=np.float64), np.shape(bottom))
    return np.asarray(2.0 * GRAVITATIONAL_CONSTANT * np.einsum("...mc,...c->...m", strips, contrast))


def _corner(x: Floats, z: Floats) -> Floats:
    """The double integral of z / (x^2 + z^2) up to a corner."""
    squared = x**2 + z**2
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.where(squared > 0.0, 0.5 * x * np.log(squared), 0.0)
    return np.asarray(logarithm + z * np.arctan2(x, z))


def boxes_gravity(
    easting: ArrayLike,
    northing: ArrayLike,
    upward: ArrayLike,
    boxes: ArrayLike,
    density: ArrayLike,
) -> Floats:
    """Compute the vertical gravity of rectangular boxes at stations.

    Parameters
    ----------
    easting, northing, upward : array, shape (M,), in m
        Positions of the stations, outside the boxes.
    boxes : array, shape (..., C, 6), in m
        West, east, south, north, bottom and top of each box, positive upwards.
    density : array, shape (..., C), in kg m-3
        Density contrasts.

    Returns
    -------
    array, shape (..., M), in m s-2
        Gravity, positive downwards.
    """
    limits = np.asarray(boxes, dtype=np.float64)[..., None, :, :]
    station = [np.asarray(part, dtype=np.float64)[:, None] for part in (easting, northing, upward)]
    total = np.zeros(np.broadcast_shapes(limits.shape[:-1], (len(station[0]), 1)))
    for i in (0, 1):
        for j in (0, 1):
            for k in (0, 1):
                x, y, z = (limits[..., 2 * axis + end] - station[axis] for axis, end in enumerate((i, j, k)))
                total -= (-1.0) ** (i + j + k) * _box_corner(x, y, z)
    contrast = np.broadcast_to(np.asarray(density, dtype=np.float64), limits.shape[:-3] + limits.shape[-2:-1])
    return np.asarray(GRAVITATIONAL_CONSTANT * np.einsum("...mc,...c->...m", total, contrast))


def _box_corner(x: Floats, y: Floats, z: Floats) -> Floats:
    """Nagy's kernel: x ln(y + r) + y ln(x + r) - z arctan(x y / (z r))."""
    r = np.sqrt(x**2 + y**2 + z**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        angle = np.where(z != 0.0, z * np.arctan(x * y / (z * r)), 0.0)
    return np.asarray(y * _safe_log(x, r) + x * _safe_log(y, r) - angle)


def _safe_log(x: Floats, r: Floats) -> Floats:
    """ln(x + r), without cancellation where x is negative: (x + r) (r - x) = r^2 - x^2."""
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.log(np.maximum(r**2 - x**2, np.finfo(np.float64).tiny)) - np.log(r - x)
        return np.asarray(np.where(x > 0.0, np.log(x + r), np.where(r > 0.0, below, 0.0)))


def columns_gravity(
    stations: ArrayLike, east_edges: ArrayLike, north_edges: ArrayLike, depths: ArrayLike
) -> ColumnResponse:
    """Tabulate the vertical gravity of the columns of a map, for layers with tops at any depth.

    Parameters
    ----------
    stations : array, shape (M, 3), in m
        Easting, northing and depth (positive downwards) of each station, not below the first of the depths.
    east_edges, north_edges : array, shapes (I + 1,) and (J + 1,), in m
        Edges of the columns, increasing. There is no rock outside of them: move the outermost edges outwards to
        continue the layers beyond the map.
    depths : array, shape (K,), in m
        Depths of the table, positive downwards, increasing: from the surface to the base of the lowest layer.

    Returns
    -------
    ColumnResponse
        Its method ``of_layers(tops, density)`` computes gravity (..., M) in m s-2, positive downwards, from the tops
        (..., L, I J) in m, with the northing varying fastest, and the densities (..., L) in kg m-3.

    Raises
    ------
    ValueError
        Arrays have wrong shapes, are not finite or do not increase, or a station is below the first depth.

    Notes
    -----
    Tops at the depths of the table are exact (Nagy, 1966). Between two depths, z and z + h below the station, the error
    per column is at most ``2 pi G contrast h**4 / (500 z**3)``, where the contrast is that of the densities above and
    below the top. Depths that increase by 10% thus give 2e-7 of the gravity of a slab of the contrast that is as thick
    as the top is deep. The table takes ``16 I J K M`` bytes.

    Examples
    --------
    A slab of 1 km of 2,670 kg m-3, far wider than deep, has 2 pi G density thickness = 112 mGal:

    >>> response = columns_gravity([[0, 0, 0]], [-1e6, 1e6], [-1e6, 1e6], [0, 500, 1000, 2000])
    >>> (1e5 * response.of_layers([[0.0], [1000.0]], [2670.0, 0.0])).round(1)
    array([111.9])
    """

    def corner(x: Floats, y: Floats, z: Floats) -> tuple[Floats, Floats]:
        angle = np.arctan2(x * y, z * np.sqrt(x**2 + y**2 + z**2))
        return -GRAVITATIONAL_CONSTANT * _box_corner(x, y, z), GRAVITATIONAL_CONSTANT * angle

    return tabulate_columns(stations, east_edges, north_edges, depths, corner, lowest=0.0)
