"""Derivatives of first arrivals by the velocity at the nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .eikonal import DIRECTIONS, RIM, SECOND_ORDER_ROUNDS, Section, interpolate

Floats = NDArray[np.float64]

STILL = 1e-6  # of the largest derivative: sweeps that change none by more are the last of first order


def first_arrivals_with_jacobian(
    velocity: ArrayLike, spacing: tuple[float, float], sources: ArrayLike, receivers: ArrayLike
) -> tuple[Floats, Floats]:
    """Times of the first arrivals in a section as in `first_arrivals`, and their derivatives by the velocity.

    The sweeps that find the times are differentiated one by one, with the ray of each time held fixed.

    Parameters
    ----------
    velocity : array, shape (I, J), in m s-1
        Velocity at nodes (i, j) with x = i spacing[0] and z = j spacing[1].
    spacing : (float, float), in m
        Distance of the nodes along x and z.
    sources, receivers : array, shapes (S, 2) and (R, 2), in m
        Positions x, z inside the grid.

    Returns
    -------
    times : array, shape (S, R), in s
    jacobian : array, shape (S, R, I, J), in s2 m-1
    """
    slowness = 1.0 / np.asarray(velocity, dtype=np.float64)
    start, end = (np.asarray(ends, dtype=np.float64) for ends in (sources, receivers))
    sweeps = _Sweeps(slowness, spacing, start)
    factor, slopes = sweeps.solve()
    apart = np.hypot(*np.moveaxis(end - start[:, None], -1, 0))
    times = apart * interpolate(factor, spacing, end)
    by_slowness = apart[..., None] * np.moveaxis(interpolate(slopes, spacing, end), 1, 2)  # (S, R, nodes)
    return times, np.asarray((by_slowness * -(slowness.ravel() ** 2)).reshape(*times.shape, *slowness.shape))


class _Sweeps:
    """The sweeps of a section with the derivatives of all numbers by the slownesses at the nodes."""

    def __init__(self, slowness: Floats, spacing: tuple[float, float], sources: Floats) -> None:
        self.section = Section(slowness[None], spacing, sources)
        self.shape, count = slowness.shape, slowness.size
        padded = np.pad(np.arange(count).reshape(slowness.shape), RIM, mode="edge").ravel()
        self.by_slowness = np.eye(count)[padded][:, None]  # (nodes and rim, 1, nodes)
        at_sources = interpolate(np.eye(count).reshape(count, *slowness.shape), spacing, sources).T
        self.slopes = np.zeros((len(padded), len(sources), count))
        nodes = self.section.nodes
        straight = 0.5 * (self.by_slowness[nodes] + at_sources)
        known = np.isfinite(self.section.factor[nodes, :, 0])
        self.slopes[nodes] = np.where(known[..., None], straight, 0.0)

    def solve(self) -> tuple[Floats, Floats]:
        """Times over distances (S, I, J), and their derivatives (S, nodes, I, J) by the slownesses."""
        section = self.section
        with np.errstate(invalid="ignore"):
            came_from = section.sweep_first_order()
            before = np.full_like(self.slopes, np.inf)
            while np.abs(self.slopes - before).max() > STILL * np.abs(self.slopes).max():
                before = self.slopes.copy()
                self._sweep(came_from, second=False)
            for _ in range(SECOND_ORDER_ROUNDS):
                self._sweep(came_from, second=True)
        factor, slopes = section.factor[section.nodes, :, 0], self.slopes[section.nodes]
        return (
            np.asarray(factor.T.reshape(-1, *self.shape)),
            np.asarray(slopes.transpose(1, 2, 0).reshape(*slopes.shape[1:], *self.shape)),
        )

    def _sweep(self, came_from: NDArray[np.int8], *, second: bool) -> None:
        """Sweep in four directions; the factors change in sweeps of second order only."""
        section = self.section
        for number, diagonals in enumerate(section.diagonals):
            for nodes in diagonals:
                found, slopes = self._arrival_slopes(nodes, DIRECTIONS[number], second=second)
                reached = came_from[nodes] == number
                self.slopes[nodes] = np.where(reached, slopes, self.slopes[nodes])
                if second:
                    section.factor[nodes] = np.where(reached, found, section.factor[nodes])

    def _arrival_slopes(
        self, nodes: NDArray[np.intp], direction: tuple[int, int], *, second: bool
    ) -> tuple[Floats, Floats]:
        """Times over distances at nodes, as those of `Section`, and their derivatives (n, S, nodes)."""
        section = self.section
        slowness, by_slowness = section.slowness[nodes], self.by_slowness[nodes]
        parts, straight, by_straight = [], [], []
        for axis, h in enumerate(section.spacing):
            step = direction[axis] * section.strides[axis]
            factor, rate = section.factor[nodes - step], section.rates[axis][nodes]
            by_factor, distance = self.slopes[nodes - step], section.distance[nodes - step]
            time = factor * distance
            straight.append(time + 0.5 * h * (slowness + section.slowness[nodes - step]))
            by_straight.append(by_factor * distance + 0.5 * h * (by_slowness + self.by_slowness[nodes - step]))
            slope, offset = rate + direction[axis] * section.units[axis][nodes], rate * factor
            by_offset = rate * by_factor
            if second:
                further = section.factor[nodes - 2 * step]
                usable = further * section.distance[nodes - 2 * step] <= time
                slope = slope + np.where(usable, 0.5 * rate, 0.0)
                offset = offset + np.where(usable, rate * (factor - 0.5 * further), 0.0)
                by_offset = by_offset + np.where(usable, rate * (by_factor - 0.5 * self.slopes[nodes - 2 * step]), 0.0)
            parts.append((slope, offset, by_offset))
        (a, b, by_b), (c, d, by_d) = parts
        squares, across = a**2 + c**2, a * d - b * c
        root = np.sqrt(slowness**2 * squares - across**2)
        bent = (a * b + c * d + root) / squares
        by_root = (slowness * squares * by_slowness - across * (a * by_d - c * by_b)) / root
        by_bent = (a * by_b + c * by_d + by_root) / squares
        causal = (a * bent >= b) & (c * bent >= d)
        first = straight[0] <= straight[1]
        wanted = section.wanted[nodes]
        found = np.where(causal, bent, np.where(first, *straight) / wanted)
        return found, np.where(causal, by_bent, np.where(first, *by_straight) / wanted)
