"""Averages of a process over intervals, as inputs of a kernel.

A row of inputs is a point, or the centre and the half-widths of an interval (in several dimensions of a box). The
covariance with an average is the average of the covariance, which Gauss-Legendre quadrature computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as combinations
from typing import ClassVar, NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of, product, to_numpy
from invgp.core.kernels.base import KernelGradient, Linearised
from invgp.core.kernels.composition import Wrapped

NODES = (1, 16, 8, 6)  # quadrature nodes along each dimension, by the number of dimensions over which is averaged


class Averages(NamedTuple):
    """Points that replace N rows of inputs: their centres, then the quadrature nodes of all intervals.

    Attributes
    ----------
    points : Array, shape (N + E, D)
    is_point : Array, shape (N,)
        1 for a row that is a point, 0 for an interval.
    weights : Array, shape (N, E)
        Weights of the quadrature nodes in each interval; rows of zeros for points.
    """

    points: Array
    is_point: Array
    weights: Array

    @property
    def rows(self) -> int:
        """Number of rows of inputs, N."""
        return int(self.is_point.shape[0])

    def reduce(self, values: Array) -> Array:
        """Average values (N + E, ...) at the points over the intervals: (N, ...), linear in the values."""
        N = self.rows
        return self.is_point[:, None] * values[:N, :] + product(self.weights, values[N:, :])

    def expand(self, cotangent: Array) -> Array:
        """Apply the transpose of `reduce`, to (N, ...)."""
        xp = array_namespace(cotangent)
        return xp.concat([self.is_point[:, None] * cotangent, product(self.weights.T, cotangent)])

    def sum_by_row(self, gradient: Array) -> Array:
        """Add a gradient (N + E, D) with respect to the points to one (N, D) with respect to the centres."""
        xp = array_namespace(gradient)
        belongs = xp.astype(self.weights > 0.0, gradient.dtype)
        return gradient[: self.rows, :] + product(belongs, gradient[self.rows :, :])


def averages_of(X: Array, dimensions: int) -> Averages | None:
    """Return the points of inputs (N, D), or (N, 2 D) with half-widths; None if all rows are points."""
    if X.shape[1] == dimensions:
        return None
    widths = to_numpy(X[:, dimensions:])
    if not widths.any():
        return None
    backend, centres = backend_of(X), to_numpy(X[:, :dimensions])
    nodes, weights = [], []
    for n in np.flatnonzero(widths.any(axis=1)):
        own, share = _quadrature(centres[n], widths[n])
        nodes.append(own)
        row = np.zeros((len(centres), len(own)))
        row[n] = share
        weights.append(row)
    return Averages(
        backend.asarray(np.concatenate([centres, *nodes])),
        backend.asarray((~widths.any(axis=1)).astype(np.float64)),
        backend.asarray(np.concatenate(weights, axis=1)),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Averaged(Wrapped):
    """A kernel whose inputs may be intervals, over which the process is averaged.

    The average of white noise is zero, which quadrature does not reproduce: the kernel must have no white part.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the process, a function of D input dimensions.
    dimensions : int
        D. Inputs have D columns, or 2 D with the half-widths of the intervals, 0 for a point, in the last D columns.
    """

    kind: ClassVar[str] = "averaged"
    dimensions: int

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D or 2 D) and X2 (M, D or 2 D)."""
        (P1, first), (P2, second) = self._points(X1), self._points(X2)
        return _reduce(self.kernel(P1, P2), first, second)

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives; those with respect to the half-widths are left out."""
        (P1, first), (P2, second) = self._points(X1), self._points(X2)
        found = self.kernel.linearise(P1, P2)

        def pull_back(cotangent: Array) -> KernelGradient:
            if second is not None:
                cotangent = second.expand(cotangent.T).T
            if first is not None:
                cotangent = first.expand(cotangent)
            parameters, by_points = found.pull_back(cotangent)
            return KernelGradient(parameters, self._by_row(by_points, first, X1))

        return Linearised(_reduce(found.value, first, second), pull_back)

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,) of the process or of its averages."""
        xp = array_namespace(X)
        points, averages = self._points(X)
        if averages is None:
            return self.kernel.diagonal(points)
        nodes = points[averages.rows :, :]
        within = product(averages.weights, self.kernel(nodes, nodes))
        at_points = self.kernel.diagonal(points[: averages.rows, :])
        return averages.is_point * at_points + xp.sum(within * averages.weights, axis=1)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        xp = array_namespace(X, cotangent)
        points, averages = self._points(X)
        if averages is None:
            parameters, by_points = self.kernel.pull_back_diagonal(points, cotangent)
            return KernelGradient(parameters, self._by_row(by_points, None, X))
        nodes = points[averages.rows :, :]
        weighted = product(averages.weights.T, cotangent[:, None] * averages.weights)
        within = self.kernel.linearise(nodes, nodes).pull_back(weighted)
        alone = self.kernel.pull_back_diagonal(points[: averages.rows, :], averages.is_point * cotangent)
        by_points = xp.concat([alone.X1, 2.0 * within.X1])
        return KernelGradient(alone.parameters + within.parameters, self._by_row(by_points, averages, X))

    def correlation_length(self, dimensions: int) -> Array:
        """Return that of the kernel, (D,), or (2 D,): half-widths have the length of their dimension."""
        own = self.kernel.correlation_length(self.dimensions)
        return own if dimensions == self.dimensions else array_namespace(own).concat([own, own])

    def _points(self, X: Array) -> tuple[Array, Averages | None]:
        """Return the points of inputs, and the intervals to which they belong; None if all inputs are points."""
        averages = averages_of(X, self.dimensions)
        return (X[:, : self.dimensions], None) if averages is None else (averages.points, averages)

    def _by_row(self, gradient: Array, averages: Averages | None, X: Array) -> Array:
        """Convert a gradient with respect to points to one with respect to the rows of X."""
        xp = array_namespace(gradient)
        gradient = gradient if averages is None else averages.sum_by_row(gradient)
        return gradient if X.shape[1] == self.dimensions else xp.concat([gradient, xp.zeros_like(gradient)], axis=1)


def _reduce(value: Array, first: Averages | None, second: Averages | None) -> Array:
    """Average a covariance between points over the intervals of its rows and columns."""
    if first is not None:
        value = first.reduce(value)
    return value if second is None else second.reduce(value.T).T


def _quadrature(centre: np.ndarray, widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes (E, D) and weights (E,) of the average over a box with half-widths (D,)."""
    wide = np.flatnonzero(widths)
    x, w = np.polynomial.legendre.leggauss(NODES[len(wide)])
    steps = np.asarray(list(combinations(x, repeat=len(wide))))
    shares = np.asarray(list(combinations(0.5 * w, repeat=len(wide)))).prod(axis=1)
    nodes = np.tile(centre, (len(steps), 1))
    nodes[:, wide] += steps * widths[wide]
    return nodes, shares
