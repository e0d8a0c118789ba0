"""Draws from the prior of a process with unit variance, jointly at the points of a map and at the inducing points.

There are three methods. Up to `DENSE_POINTS` points, draws come from the Cholesky factor of their covariance given the
inducing variables. On larger regular grids they come from a periodic covariance that agrees with the kernel on the grid
(circulant embedding), which the fast Fourier transform diagonalises. For other sets of points, and where an embedding
would be too large, a draw is a function of position, such as a sum of waves (`prior_functions`).

References
----------
Dietrich and Newsam (1997), for circulant embedding; Wilson et al. (2021), for draws by Matheron's rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.fft
import scipy.linalg
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from invgp.core.kernels import Averaged, Kernel, averages_of
from invgp.maps.grids import MapGrid
from invgp.maps.prior_functions import PriorFunction, draw_functions, is_stationary
from invgp.maps.process_prior import SharedKernel
from invgp.problem import Floats

Indices = NDArray[np.intp]

DENSE_POINTS = 4000  # points of a map up to which draws use the Cholesky factor of their covariance
LARGEST_EMBEDDING = 2**24  # points of a periodic grid; draws on larger ones would take too long
EMBEDDING_ERROR = 1e-6  # largest error of a covariance by the embedding, relative to the variance
GRID_BYTES = 2**31  # largest size of all draws on a grid together
ENLARGEMENT = 1.3  # of a periodic grid whose covariance is not positive definite
REGULAR = 1e-6  # largest deviation of a regular axis from equal steps, in steps
GRID_NEIGHBOURS, INDUCING_NEIGHBOURS = 60, 20  # of an inducing point, on which its value is conditioned
FEWEST_NEIGHBOURS = 2  # of each point of an interval, if the inducing point is an average
NUGGET = 1e-9  # added to the covariance of neighbours, which may be singular
LOCATION_ERROR = 1e-8  # variance of the error of draws at inducing points, which nearly coincident points would amplify
SMALLEST_JITTER, LARGEST_JITTER = 1e-12, 1e-6  # added to a conditional covariance, which may be singular


class PriorDraw(Protocol):
    """K prior draws of a process with unit variance, or their deviation from the mean given the inducing variables."""

    def corrections(self, whitened: Floats) -> Floats:
        """Return c (K, M): given whitened inducing variables (K, M), the process at x is the draw plus w(x)^T c.

        Parameters
        ----------
        whitened : array, shape (K, M)
            Whitened inducing variables of K draws.

        Returns
        -------
        array, shape (K, M)
        """

    def at(self, X: Floats, rows: Indices) -> Floats:
        """Return the draws (K, B) at points X (B, D), which have the indices `rows` (B,) among all points.

        Parameters
        ----------
        X : array, shape (B, D)
            Points, in the units of the coordinates.
        rows : array of int, shape (B,)
            Their indices among all points.

        Returns
        -------
        array, shape (K, B)
        """


@dataclass(frozen=True)
class DenseDraw:
    """Draws of the deviation of a process from its mean given the inducing variables, at all points of a map.

    Attributes
    ----------
    values : array, shape (K, N)
    """

    values: Floats

    @staticmethod
    def sample(kernel: SharedKernel, X: Floats, count: int, rng: np.random.Generator) -> DenseDraw:
        """Draw at points X (N, D)."""
        W = kernel.project(X).weights
        covariance = kernel.kernel(X, X) - W.T @ W
        return DenseDraw(rng.standard_normal((count, len(X))) @ _singular_factor(covariance).T)

    def corrections(self, whitened: Floats) -> Floats:
        """Return the inducing variables themselves: the draws are deviations."""
        return whitened

    def at(self, X: Floats, rows: Indices) -> Floats:  # noqa: ARG002 - the points are known
        """Return the draws (K, B) at the points with the indices `rows`."""
        return self.values[:, rows]


@dataclass(frozen=True)
class ScalarDraw:
    """Draws of the deviation of a scalar from its mean given the inducing variables, which determine it: zero.

    Attributes
    ----------
    count : int
        Number of draws, K.
    """

    count: int

    def corrections(self, whitened: Floats) -> Floats:
        """Return the inducing variables themselves."""
        return whitened

    def at(self, X: Floats, rows: Indices) -> Floats:  # noqa: ARG002 - the same everywhere
        """Return zeros (K, B)."""
        return np.zeros((self.count, len(X)))


@dataclass(frozen=True)
class Embedding:
    """Square roots of the eigenvalues of a periodic covariance that agrees with a kernel on a regular grid.

    Attributes
    ----------
    roots : array, shape (P_1, ..., P_D)
    shape : tuple of int
        Shape of the grid.
    """

    roots: Floats
    shape: tuple[int, ...]

    @staticmethod
    def build(kernel: Kernel, grid: MapGrid) -> Embedding | None:
        """Return the embedding of a regular grid.

        Returns
        -------
        Embedding or None
            None if the kernel is not stationary, or a periodic covariance that is positive definite would be too large.
        """
        if not is_stationary(kernel):
            return None
        shape, steps = grid.shape, [_step(_axis(grid, name)) for name in grid.dims]
        order = [grid.dims.index(name) for name in grid.coordinates]
        periods = [2 * (n - 1) if n > 1 else 1 for n in shape]
        while True:
            periods = [scipy.fft.next_fast_len(period) for period in periods]
            if math.prod(periods) > LARGEST_EMBEDDING:
                return None
            lags = [h * np.minimum(np.arange(P), P - np.arange(P)) for h, P in zip(steps, periods, strict=True)]
            points = np.stack([lag.ravel() for lag in np.meshgrid(*lags, indexing="ij")], axis=-1)[:, order]
            covariance = kernel(points, np.zeros((1, len(order)))).reshape(periods)
            eigenvalues = scipy.fft.fftn(covariance).real
            total = float(eigenvalues.sum())
            negative = float(-np.minimum(eigenvalues, 0.0).sum())
            if negative <= EMBEDDING_ERROR * total:
                # The positive eigenvalues alone have a larger sum: scaled, they keep the variance.
                scale = total / (total + negative) / eigenvalues.size
                return Embedding(np.sqrt(scale * np.maximum(eigenvalues, 0.0)), shape)
            periods = [math.ceil(ENLARGEMENT * P) if P > 1 else 1 for P in periods]

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw (count, n_1, ..., n_D) on the grid."""
        found = np.empty((count, *self.shape), dtype=np.float32)
        inner = tuple(slice(n) for n in self.shape)
        for k in range(0, count, 2):
            noise = rng.standard_normal((2, *self.roots.shape))
            # The real and the imaginary part are independent draws.
            both = scipy.fft.fftn(self.roots * (noise[0] + 1j * noise[1]), overwrite_x=True)[inner]
            found[k] = both.real
            if k + 1 < count:
                found[k + 1] = both.imag
        return found


@dataclass(frozen=True)
class GridDraw:
    """Draws on a regular grid by circulant embedding, and at the inducing points given the nearest nodes.

    Attributes
    ----------
    kernel : SharedKernel
    values : array, shape (K, N)
    at_inducing : array, shape (K, M)
        With the jitter of the covariance of the inducing points, and that of `LOCATION_ERROR`.
    """

    kernel: SharedKernel
    values: NDArray[np.float32]
    at_inducing: Floats

    @staticmethod
    def sample(
        kernel: SharedKernel, embedding: Embedding, grid: MapGrid, count: int, rng: np.random.Generator
    ) -> GridDraw:
        """Draw on a grid, and at the inducing points."""
        values = embedding.draw(count, rng).reshape(count, -1)
        nodes = grid.at(tuple(slice(0, size) for size in grid.shape))
        inducing = InducingConditionals.build(kernel, nodes).draw(values, rng)
        return GridDraw(kernel, values, inducing + _draw_jitter(kernel, count, rng, LOCATION_ERROR))

    def corrections(self, whitened: Floats) -> Floats:
        """Return L^T (L L^T + e I)^-1 (L v - g(Z)), with e the variance of the error of g(Z)."""
        factor = self.kernel.factor
        apart = whitened @ factor.T - self.at_inducing
        covariance = factor @ factor.T + LOCATION_ERROR * np.eye(len(factor))
        return np.asarray(scipy.linalg.solve(covariance, apart.T, assume_a="pos", check_finite=False).T @ factor)

    def at(self, X: Floats, rows: Indices) -> Floats:  # noqa: ARG002 - the points are known
        """Return the draws (K, B) at the points with the indices `rows`."""
        return self.values[:, rows].astype(np.float64)


@dataclass(frozen=True)
class InducingConditionals:
    """Distribution of a process at inducing points given its values at the nodes of a grid.

    Each inducing point is conditioned on the nearest nodes and the nearest of the previous inducing points (the
    approximation of Vecchia).

    Attributes
    ----------
    nodes : list of array of int
        Nearest nodes of each inducing point; of one that is an average over an interval, nodes all over the interval.
    previous : list of array of int
        For each inducing point, the nearest of those before it.
    weights : list of array
        Weights of the nodes and the previous inducing points.
    spread : array, shape (M,)
        Conditional standard deviations.
    """

    nodes: list[Indices]
    previous: list[Indices]
    weights: list[Floats]
    spread: Floats

    @staticmethod
    def build(kernel: SharedKernel, nodes: Floats) -> InducingConditionals:
        """Return the conditional distributions for nodes (N, D)."""
        Z, extent = kernel.Z, np.ptp(nodes, axis=0)
        D, variance = nodes.shape[1], kernel.kernel.diagonal(Z)
        scale = kernel.kernel.correlation_length(D)
        scale = np.where(np.isfinite(scale), scale, np.where(extent > 0.0, extent, 1.0))
        tree, centres = cKDTree(nodes / scale), Z[:, :D] / scale
        inputs = np.concatenate([nodes, np.zeros((len(nodes), Z.shape[1] - D))], axis=1)
        nearest, previous, weights, spread = [], [], [], np.empty(len(Z))
        for i in range(len(Z)):
            average = averages_of(Z[i : i + 1], D)
            places = centres[i : i + 1] if average is None else average.points[1:] / scale
            each = min(max(GRID_NEIGHBOURS // len(places), FEWEST_NEIGHBOURS), len(nodes))
            nearest.append(np.unique(tree.query(places, k=each)[1]).astype(np.intp))
            distance = np.sum((centres[:i] - centres[i]) ** 2, axis=1)
            before = np.argsort(distance, kind="stable")[:INDUCING_NEIGHBOURS]
            around = np.concatenate([inputs[nearest[i]], Z[before]])
            own = kernel.kernel(around, Z[i : i + 1])[:, 0]
            weight = scipy.linalg.solve(
                kernel.kernel(around, around) + NUGGET * np.eye(len(around)), own, assume_a="pos", check_finite=False
            )
            previous.append(before)
            weights.append(weight)
            spread[i] = math.sqrt(max(float(variance[i] - weight @ own), 0.0))
        return InducingConditionals(nearest, previous, weights, spread)

    def draw(self, values: NDArray[np.float32], rng: np.random.Generator) -> Floats:
        """Draw at the inducing points, (K, M), given draws (K, N) at the nodes."""
        found = np.empty((len(values), len(self.nodes)))
        for i, (before, weight, spread) in enumerate(zip(self.previous, self.weights, self.spread, strict=True)):
            known = np.concatenate([values[:, self.nodes[i]], found[:, before]], axis=1)
            found[:, i] = known @ weight + spread * rng.standard_normal(len(values))
        return found


@dataclass(frozen=True)
class WaveDraw:
    """Draws that are functions of position: sums of waves, and of linear functions and noise where a kernel has them.

    Attributes
    ----------
    kernel : SharedKernel
    functions : list of PriorFunction
        Functions whose sum is the draw.
    at_inducing : array, shape (K, M)
    """

    kernel: SharedKernel
    functions: list[PriorFunction]
    at_inducing: Floats

    @staticmethod
    def sample(kernel: SharedKernel, count: int, rng: np.random.Generator) -> WaveDraw:
        """Draw functions with the covariance of a kernel."""
        unit, Z, average = kernel.kernel, kernel.Z, None
        if isinstance(unit, Averaged):
            average = averages_of(Z, unit.dimensions)
            Z = Z[:, : unit.dimensions] if average is None else average.points
            unit = unit.kernel
        functions = draw_functions(unit, Z, count, rng)
        inducing = np.asarray(sum(function(Z) for function in functions))
        inducing = inducing if average is None else average.reduce(inducing.T).T
        return WaveDraw(kernel, functions, inducing + _draw_jitter(kernel, count, rng))

    def corrections(self, whitened: Floats) -> Floats:
        """Return v - L^-1 g(Z)."""
        return whitened - scipy.linalg.solve_triangular(self.kernel.factor, self.at_inducing.T, lower=True).T

    def at(self, X: Floats, rows: Indices) -> Floats:  # noqa: ARG002 - functions need no index
        """Return the draws (K, B) at points X (B, D)."""
        return np.asarray(sum(function(X) for function in self.functions))


def is_regular(grid: MapGrid) -> bool:
    """Return whether the points are a grid with equal steps along each axis."""
    if grid.axes is None:
        return False
    steps = [np.diff(axis) for axis in grid.axes if len(axis) > 2]
    return all(np.ptp(step) <= REGULAR * np.abs(step).max() for step in steps)


def _axis(grid: MapGrid, name: str) -> Floats:
    if grid.axes is None:
        raise ValueError("the points are not a grid")
    return grid.axes[grid.coordinates.index(name)]


def _step(axis: Floats) -> float:
    return float((axis[-1] - axis[0]) / (len(axis) - 1)) if len(axis) > 1 else 0.0


def _singular_factor(covariance: Floats) -> Floats:
    """Return a Cholesky factor of a covariance that may be singular: points may be inducing points."""
    jitter = SMALLEST_JITTER
    while True:
        try:
            return np.asarray(np.linalg.cholesky(covariance + jitter * np.eye(len(covariance))))
        except np.linalg.LinAlgError:
            if jitter >= LARGEST_JITTER:
                raise
            jitter *= 10.0


def _draw_jitter(kernel: SharedKernel, count: int, rng: np.random.Generator, more: float = 0.0) -> Floats:
    """Draw the contribution (K, M) of the jitter, and of `more`, to the variance at the inducing points."""
    std = np.sqrt(kernel.jitter * kernel.kernel.diagonal(kernel.Z) + more)
    return np.asarray(std * rng.standard_normal((count, len(kernel.Z))))
