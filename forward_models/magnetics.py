"""Total-field magnetic anomaly of layers that the ambient field magnetises."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .columns import ColumnResponse, tabulate_columns

Floats = NDArray[np.float64]
HEIGHT = 1e-3  # m, of stations above the surface: the anomaly is infinite at the edges of columns


def field_components(intensity: float, inclination: float, declination: float) -> Floats:
    """Convert intensity, inclination and declination of a magnetic field to components.

    Parameters
    ----------
    intensity : float, in nT
        Strength of the field.
    inclination : float, in degrees
        Angle below the horizontal; negative where the field points upwards, as in the southern hemisphere.
    declination : float, in degrees
        Angle from north towards east.

    Returns
    -------
    array, shape (3,), in nT
        Components east, north and up.

    Examples
    --------
    >>> field_components(50000.0, 60.0, 0.0).round()
    array([     0.,  25000., -43301.])
    """
    dip, azimuth = np.radians([inclination, declination])
    return np.asarray(
        intensity * np.array([np.cos(dip) * np.sin(azimuth), np.cos(dip) * np.cos(azimuth), -np.sin(dip)])
    )


def columns_magnetics(
    stations: ArrayLike, field: ArrayLike, east_edges: ArrayLike, north_edges: ArrayLike, depths: ArrayLike
) -> ColumnResponse:
    """Tabulate the total-field magnetic anomaly of the columns of a map, for layers with tops at any depth.

    The rock is magnetised by the ambient field only (no remanence), and weakly (susceptibilities far below 1, no
    demagnetisation). The total-field anomaly is the component of the anomalous field along the ambient field.

    Parameters
    ----------
    stations : array, shape (M, 3), in m
        Easting, northing and depth (positive downwards) of each station, at least 1 mm above the first of the depths.
    field : array, shape (3,), in nT
        Components east, north and up of the ambient field: see `field_components`.
    east_edges, north_edges : array, shapes (I + 1,) and (J + 1,), in m
        Edges of the columns, increasing. There is no rock outside of them: move the outermost edges outwards to
        continue the layers beyond the map.
    depths : array, shape (K,), in m
        Depths of the table, positive downwards, increasing: from the surface to the base of the lowest layer.

    Returns
    -------
    ColumnResponse
        Its method ``of_layers(tops, susceptibility)`` computes the anomaly (..., M) in nT from the tops (..., L, I J)
        in m, with the northing varying fastest, and the volume susceptibilities (..., L) in SI units.

    Raises
    ------
    ValueError
        Arrays have wrong shapes, are not finite or do not increase, the field is zero, or a station is too low.

    Notes
    -----
    Tops at the depths of the table are exact (second derivatives of the potential of a prism). Between two depths, z
    and z + h below the station, the error per column is at most ``field contrast (h / z)**4 / 400``, where the contrast
    is that of the susceptibilities above and below the top. The table takes ``16 I J K M`` bytes.

    Examples
    --------
    A body of 2 km by 2 km between depths of 500 m and 1,500 m, at the magnetic north pole, seen from above its centre:

    >>> response = columns_magnetics([[0, 0, -1]], [0, 0, -50000], [-1000, 1000], [-1000, 1000], [0, 500, 1500])
    >>> response.of_layers([[0.0], [500.0], [1500.0]], [0.0, 0.01, 0.0]).round(2)
    array([97.68])
    """
    ambient = np.asarray(field, dtype=np.float64)
    strength = float(np.linalg.norm(ambient))
    if ambient.shape != (3,) or not np.isfinite(strength) or strength == 0.0:
        raise ValueError(f"field: must be the components east, north and up in nT, not all 0, was {ambient}")
    e, n, d = ambient / strength * [1.0, 1.0, -1.0]
    scale = strength / (4.0 * np.pi)

    def corner(x: Floats, y: Floats, z: Floats) -> tuple[Floats, Floats]:
        r = np.sqrt(x**2 + y**2 + z**2)
        value = -(e**2) * _angle(y * z, x, r) - n**2 * _angle(x * z, y, r) - d**2 * _angle(x * y, z, r)
        value += 2.0 * (e * n * np.log(z + r) + e * d * _log(y, x, z, r) + n * d * _log(x, y, z, r))
        across_x, across_y = 1.0 / (r * (x**2 + z**2)), 1.0 / (r * (y**2 + z**2))
        slope = x * y * ((d**2 - e**2) * across_x + (d**2 - n**2) * across_y)
        # Terms that do not depend on the coordinate that is integrated over are left out: they cancel.
        slope += 2.0 * (e * n / r - e * d * z * y * across_x - n * d * z * x * across_y)
        return scale * value, scale * slope

    return tabulate_columns(stations, east_edges, north_edges, depths, corner, lowest=HEIGHT)


def _angle(product: Floats, side: Floats, r: Floats) -> Floats:
    """arctan(product / (side r)), 0 where the side is 0: there the station is in the plane of a face."""
    return np.asarray(np.arctan2(product * np.sign(side), np.abs(side) * r))


def _log(along: Floats, across: Floats, down: Floats, r: Floats) -> Floats:
    """ln(along + r), without cancellation where `along` is negative."""
    square = across**2 + down**2  # (r + along) (r - along)
    return np.asarray(np.where(along > 0.0, np.log(np.abs(along) + r), np.log(square) - np.log(np.abs(along) + r)))
