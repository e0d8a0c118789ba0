"""First arrivals in a section: travel times along rays that bend."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

STILL = 1e-6  # of a time: sweeps that change none by more are the last of first order
SECOND_ORDER_ROUNDS = 2  # of four sweeps: where rays run smoothly, more change nothing
RIM = 2  # nodes around the section, which no ray reaches
DIRECTIONS = tuple(product((1, -1), (1, -1)))  # of the sweeps, along x and z


def first_arrivals(
    velocity: ArrayLike, spacing: tuple[float, float], sources: ArrayLike, receivers: ArrayLike
) -> Floats:
    """Times of the first arrivals in a section, by the eikonal equation.

    The time is the distance from the source times a smooth factor, and only the factor is found on the grid (Fomel, Luo
    and Zhao 2009), by sweeps in four directions: with upwind differences of first order, until no sweep finds an
    earlier time, and then with those of second order along the rays found. Both are exact in a homogeneous medium.

    Parameters
    ----------
    velocity : array, shape (..., I, J), in m s-1
        Velocity at nodes (i, j) with x = i spacing[0] and z = j spacing[1].
    spacing : (float, float), in m
        Distance of the nodes along x and z.
    sources, receivers : array, shapes (S, 2) and (R, 2), in m
        Positions x, z inside the grid.

    Returns
    -------
    array, shape (..., S, R), in s
        Travel times.
    """
    slowness = 1.0 / np.asarray(velocity, dtype=np.float64)
    start, end = (np.asarray(ends, dtype=np.float64) for ends in (sources, receivers))
    leading, nodes = slowness.shape[:-2], slowness.shape[-2:]
    factor = Section(slowness.reshape(-1, *nodes), spacing, start).solve()
    apart = np.hypot(*np.moveaxis(end - start[:, None], -1, 0))
    times = apart * interpolate(factor, spacing, end)
    return np.asarray(times.reshape(*leading, len(start), len(end)))


class Section:
    """A section with its sources. Arrays are (nodes and rim, sources, runs), so that a sweep takes whole rows."""

    def __init__(self, slowness: Floats, spacing: tuple[float, float], sources: Floats) -> None:
        self.shape, self.spacing = slowness.shape[1:], spacing
        x, z = (h * np.arange(-RIM, n + RIM) for h, n in zip(spacing, self.shape, strict=True))
        offsets = np.broadcast_arrays(x[:, None, None] - sources[:, 0], z[:, None] - sources[:, 1])
        along = [part.reshape(-1, len(sources), 1) for part in offsets]
        self.distance = np.hypot(*along)
        rim = [(0, 0), (RIM, RIM), (RIM, RIM)]
        self.slowness = np.pad(slowness, rim, mode="edge").reshape(len(slowness), -1).T[:, None]
        numbers = np.arange(self.distance.shape[0]).reshape(x.size, z.size)[RIM:-RIM, RIM:-RIM]
        self.nodes = numbers.ravel()
        self.diagonals = [_diagonals(numbers[::i, ::j]) for i, j in DIRECTIONS]
        self.strides = z.size, 1
        # To the nodes around a source the ray is straight.
        around = (np.abs(along[0]) < spacing[0]) & (np.abs(along[1]) < spacing[1])
        straight = 0.5 * (self.slowness + interpolate(slowness, spacing, sources).T)
        self.factor = np.full(straight.shape, np.inf)
        self.factor[self.nodes] = np.where(around, straight, np.inf)[self.nodes]
        self.wanted = np.where(around, np.nan, self.distance)
        self.rates = [self.wanted / h for h in spacing]
        self.units = [part / self.wanted for part in along]

    def solve(self) -> Floats:
        """Times over distances, (runs, sources, I, J)."""
        with np.errstate(invalid="ignore"):  # where nothing has arrived yet
            self.sweep_second_order(self.sweep_first_order())
        inner = self.factor[self.nodes].reshape(*self.shape, *self.factor.shape[1:])
        return np.asarray(inner.transpose(3, 2, 0, 1))

    def sweep_first_order(self) -> NDArray[np.int8]:
        """Sweep until no earlier time is found; return the number of the direction from which each node was reached."""
        came_from = np.full(self.factor.shape, -1, dtype=np.int8)
        while True:
            before = self.factor.copy()
            for number, diagonals in enumerate(self.diagonals):
                for nodes in diagonals:
                    found = self._arrival_ratios(nodes, DIRECTIONS[number])
                    earlier = found < self.factor[nodes]
                    self.factor[nodes] = np.where(earlier, found, self.factor[nodes])
                    came_from[nodes] = np.where(earlier, number, came_from[nodes])
            if np.all(self.factor >= (1.0 - STILL) * before):
                return came_from

    def sweep_second_order(self, came_from: NDArray[np.int8]) -> None:
        """Sweep with differences of second order along the directions found."""
        for number, diagonals in SECOND_ORDER_ROUNDS * list(enumerate(self.diagonals)):
            for nodes in diagonals:
                found = self._arrival_ratios(nodes, DIRECTIONS[number], second=True)
                self.factor[nodes] = np.where(came_from[nodes] == number, found, self.factor[nodes])

    def _arrival_ratios(self, nodes: NDArray[np.intp], direction: tuple[int, int], *, second: bool = False) -> Floats:
        """Times over distances at nodes of what arrives along a direction from the nodes before them."""
        slowness = self.slowness[nodes]
        slopes, straight = [], []
        for axis, h in enumerate(self.spacing):
            step = direction[axis] * self.strides[axis]
            factor, rate = self.factor[nodes - step], self.rates[axis][nodes]
            time = factor * self.distance[nodes - step]
            straight.append(time + 0.5 * h * (slowness + self.slowness[nodes - step]))
            # Along the axis the time changes by slope times the factor here, less the offset.
            slope, offset = rate + direction[axis] * self.units[axis][nodes], rate * factor
            if second:
                further = self.factor[nodes - 2 * step]
                usable = further * self.distance[nodes - 2 * step] <= time
                slope = slope + np.where(usable, 0.5 * rate, 0.0)
                offset = offset + np.where(usable, rate * (factor - 0.5 * further), 0.0)
            slopes.append((slope, offset))
        (a, b), (c, d) = slopes
        squares = a**2 + c**2
        bent = (a * b + c * d + np.sqrt(slowness**2 * squares - (a * d - b * c) ** 2)) / squares
        causal = (a * bent >= b) & (c * bent >= d)
        return np.asarray(np.where(causal, bent, np.minimum(*straight) / self.wanted[nodes]))


def _diagonals(numbers: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """The numbers (I, J) by diagonals, from the first corner to the last."""
    flipped = numbers[:, ::-1]
    return [flipped.diagonal(offset) for offset in range(numbers.shape[1] - 1, -numbers.shape[0], -1)]


def interpolate(values: Floats, spacing: tuple[float, float], places: Floats) -> Floats:
    """Bilinear interpolation (..., R) of values (..., I, J) at places (R, 2)."""
    cells, shares = [], []
    for axis, h in enumerate(spacing):
        at = places[:, axis] / h
        cell = np.clip(at.astype(int), 0, values.shape[axis - 2] - 2)
        cells.append(cell)
        shares.append(at - cell)
    (i, j), (p, q) = cells, shares
    near, far = (values[..., i + k, j] * (1.0 - q) + values[..., i + k, j + 1] * q for k in (0, 1))
    return np.asarray(near * (1.0 - p) + far * p)
