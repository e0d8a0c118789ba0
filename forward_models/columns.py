"""What the columns of a map contribute at stations, as a function of depth: computed once, used for any layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Corner = Callable[[Floats, Floats, Floats], tuple[Floats, Floats]]


def order_tops(tops: ArrayLike) -> Floats:
    """Move each layer top down to the one above it where they cross, so that no layer has a negative thickness.

    Parameters
    ----------
    tops : array, shape (..., L, C), in m
        Depth of the top of each layer in each column, positive downwards, from the uppermost layer down.

    Returns
    -------
    array, shape (..., L, C), in m
        Depths that do not decrease from layer to layer. Layers that end above their own top have no thickness.

    Examples
    --------
    >>> order_tops([[0.0, 0.0], [900.0, 400.0], [700.0, 1200.0]])
    array([[   0.,    0.],
           [ 900.,  400.],
           [ 900., 1200.]])
    """
    return np.asarray(np.maximum.accumulate(np.asarray(tops, dtype=np.float64), axis=-2))


@dataclass(frozen=True, eq=False)
class ColumnResponse:
    """Response of M stations to C vertical columns, each with a property of 1 from the surface down to any depth.

    `columns_gravity` and `columns_magnetics` make it. Between the depths of the table it is interpolated by cubic
    polynomials with the exact slopes (Hermite interpolation). The response to layers that do not cross is therefore a
    smooth function of their tops: it is continuous, and so are its first derivatives.

    Parameters
    ----------
    depths : array, shape (K,), in m
        Depths at which the response is known, increasing. The first is the surface and the last the base of the lowest
        layer.
    table : array, shape (2 C K, M)
        Response of the column from the first depth to each depth, column by column; below, in the same order, its
        slopes with respect to depth (per m).
    """

    depths: Floats
    table: Floats

    def of_layers(self, tops: ArrayLike, properties: ArrayLike) -> Floats:
        """Compute the response to layers, from the top of each down to the top of the next.

        Parameters
        ----------
        tops : array, shape (..., L, C), in m
            Depth of the top of each layer in each column, positive downwards, from the uppermost layer down. Tops that
            cross are ordered by `order_tops`. Tops above the first depth or below the last are moved there: the lowest
            layer ends at the last depth.
        properties : array, shape (..., L)
            Property of each layer; its leading axes broadcast with those of the tops.

        Returns
        -------
        array, shape (..., M)
            Response at the stations.

        Raises
        ------
        ValueError
            The number of columns or of layers is wrong, or a top is not a number.
        """
        from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import, and not needed for other models

        upper, contrast = self._layers(tops, properties)
        batch, (layers, columns), nodes = upper.shape[:-2], upper.shape[-2:], self.depths.size
        depth = np.clip(order_tops(upper), self.depths[0], self.depths[-1]).reshape(-1, layers, columns)
        node, weights = self._interpolate(depth)
        jumps = contrast.reshape(-1, layers, 1, 1) * weights  # (B, L, C, 4)
        first = node + nodes * np.arange(columns)
        slopes = first + nodes * columns
        places = np.stack([first, first + 1, slopes, slopes + 1], axis=-1)
        # The lowest layer reaches the last depth: one more boundary, from its property to nothing.
        base = nodes * np.arange(1, columns + 1) - 1
        rows = len(depth)
        lowest = np.sum(contrast.reshape(-1, layers), axis=1)
        data = np.concatenate([-jumps.reshape(rows, -1), np.repeat(lowest[:, None], columns, axis=1)], axis=1)
        where = np.concatenate([places.reshape(rows, -1), np.broadcast_to(base, (rows, columns))], axis=1)
        starts = data.shape[1] * np.arange(rows + 1)
        product = csr_array((data.ravel(), where.ravel(), starts), shape=(rows, len(self.table))) @ self.table
        return np.asarray(product).reshape(*batch, -1)

    def _layers(self, tops: ArrayLike, properties: ArrayLike) -> tuple[Floats, Floats]:
        """Tops (..., L, C), and the jump of the property (..., L) at each, with all leading axes."""
        upper, value = np.asarray(tops, dtype=np.float64), np.asarray(properties, dtype=np.float64)
        columns = len(self.table) // (2 * self.depths.size)
        if upper.ndim < 2 or upper.shape[-1] != columns:
            raise ValueError(f"tops: must have the shape (..., layers, {columns}), was {upper.shape}")
        if value.ndim < 1 or value.shape[-1] != upper.shape[-2]:
            raise ValueError(
                f"properties: must have one value for each of {upper.shape[-2]} layers, has the shape {value.shape}"
            )
        if not np.all(np.isfinite(upper)):
            raise ValueError("tops: must be finite depths in m, but some are not")
        batch = np.broadcast_shapes(upper.shape[:-2], value.shape[:-1])
        jumps = np.diff(value, axis=-1, prepend=0.0)
        return np.broadcast_to(upper, batch + upper.shape[-2:]), np.broadcast_to(jumps, batch + value.shape[-1:])

    def _interpolate(self, depth: Floats) -> tuple[NDArray[np.intp], Floats]:
        """Node above each depth, and the weights (..., 4) of value, next value, slope and next slope there."""
        node = np.clip(np.searchsorted(self.depths, depth, side="right") - 1, 0, self.depths.size - 2)
        step = np.diff(self.depths)[node]
        t = (depth - self.depths[node]) / step
        rest = 1.0 - t
        weights = [rest**2 * (1.0 + 2.0 * t), t**2 * (3.0 - 2.0 * t), step * t * rest**2, -step * t**2 * rest]
        return node, np.stack(weights, axis=-1)


def tabulate_columns(
    stations: ArrayLike, east_edges: ArrayLike, north_edges: ArrayLike, depths: ArrayLike, corner: Corner, lowest: float
) -> ColumnResponse:
    """Tabulate the response of each column from the surface to each depth.

    Parameters
    ----------
    stations : array, shape (M, 3), in m
        Easting, northing and depth (positive downwards) of each station.
    east_edges, north_edges : array, shapes (I + 1,) and (J + 1,), in m
        Edges of the columns, increasing.
    depths : array, shape (K,), in m
        Depths of the table, increasing.
    corner : callable
        From the offsets in m of the corners from the stations, east (I + 1, 1, M), north (1, J + 1, M), down (M,), to
        the indefinite integrals of the response over all three coordinates and over the first two, (I + 1, J + 1, M).
    lowest : float, in m
        Smallest permitted distance of the first depth below the stations.

    Raises
    ------
    ValueError
        Arrays have wrong shapes, are not finite or do not increase, or a station is too low.
    """
    place = np.asarray(stations, dtype=np.float64)
    if place.ndim != 2 or place.shape[1] != 3 or not np.all(np.isfinite(place)):
        raise ValueError(f"stations: must be finite, with easting, northing and depth in each row, was {place.shape}")
    east, north, level = (
        check_increasing(name, values)
        for name, values in (("east_edges", east_edges), ("north_edges", north_edges), ("depths", depths))
    )
    height = float(np.min(level[0] - place[:, 2], initial=np.inf))
    if height < lowest:
        raise ValueError(
            f"stations: must be at least {lowest:g} m above the first depth, {level[0]:g} m, one is at {height:g} m"
        )
    x, y = (east[:, None] - place[:, 0])[:, None], (north[:, None] - place[:, 1])[None]
    columns = (east.size - 1) * (north.size - 1)
    table = np.empty((2, columns, level.size, len(place)))
    for k, depth in enumerate(level):
        for part, integral in zip(table, corner(x, y, depth - place[:, 2]), strict=True):
            part[:, k] = np.diff(np.diff(integral, axis=0), axis=1).reshape(columns, -1)
    table[0] -= table[0, :, :1].copy()
    return ColumnResponse(level, table.reshape(-1, len(place)))


def check_increasing(name: str, values: ArrayLike) -> Floats:
    """Check that edges or depths increase, and return them as an array.

    Raises
    ------
    ValueError
        They are not at least two finite numbers, or do not increase.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size < 2 or not np.all(np.isfinite(array)) or not np.all(np.diff(array) > 0.0):
        raise ValueError(
            f"{name}: must be at least two increasing numbers in m, was {np.array2string(array, threshold=6)}"
        )
    return array
