"""Gaussians over the whitened variables, and normal draws that cover them evenly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from invgp.core.backend import Array, array_namespace, cholesky, identity, solve_triangular


@dataclass(frozen=True)
class Gaussian:
    """N(mean (R,), covariance (R, R)), with the lower Cholesky factor of the covariance."""

    mean: Array
    covariance: Array
    factor: Array

    def samples(self, normals: Array) -> Array:
        """(S, R), from standard normals (S, R)."""
        return self.mean + normals @ array_namespace(normals).matrix_transpose(self.factor)


@dataclass(frozen=True)
class LowRankGaussian:
    """N(mean, (I + V V^T)^-1): the prior of R variables, narrowed by what data say in few directions.

    Nothing here costs more than R r^2, whatever the number of variables.

    Attributes
    ----------
    mean : (R,).
    added : V (R, r), whose V V^T the data add to the precision; r is at most R.
    """

    mean: Array
    added: Array

    @staticmethod
    def prior(variables: Array) -> LowRankGaussian:
        """N(0, I) over as many variables as the array (R,) has, in its place."""
        xp = array_namespace(variables)
        return LowRankGaussian(xp.zeros_like(variables), xp.zeros_like(variables)[:, None])

    @cached_property
    def capacity(self) -> Array:
        """The lower Cholesky factor (r, r) of I + V^T V, which has the determinant of the precision."""
        gram = array_namespace(self.added).matrix_transpose(self.added) @ self.added
        return cholesky(identity(gram) + gram, jitter=False)

    @cached_property
    def removed_factor(self) -> Array:
        """U (R, r): the covariance is I - U U^T."""
        xp = array_namespace(self.added)
        return xp.matrix_transpose(solve_triangular(self.capacity, xp.matrix_transpose(self.added)))

    def dense(self) -> Gaussian:
        """The same with its covariance."""
        xp = array_namespace(self.added)
        covariance = self.removed_factor @ xp.matrix_transpose(self.removed_factor)
        covariance = identity(covariance) - covariance
        return Gaussian(self.mean, covariance, cholesky(covariance))

    def samples(self, normals: Array) -> Array:
        """(S, R), from standard normals (S, R), by the root I - V L^-T (L + I)^-1 V^T of the covariance."""
        xp = array_namespace(normals)
        across = xp.matrix_transpose(normals @ self.added)
        inner = solve_triangular(self.capacity + identity(self.capacity), across)
        return self.mean + normals - xp.matrix_transpose(inner) @ xp.matrix_transpose(self.removed_factor)

    def step(self, added: Array, gradient: Array, step: float) -> LowRankGaussian:
        """After a natural-gradient step towards I + V V^T, where the expected log likelihood has this gradient (R,)."""
        xp = array_namespace(gradient)
        if step < 1.0:
            added = xp.concat([(1.0 - step) ** 0.5 * self.added, step**0.5 * added], axis=1)
        if added.shape[1] > added.shape[0]:
            added = xp.matrix_transpose(xp.linalg.qr(xp.matrix_transpose(added)).R)
        new = LowRankGaussian(self.mean, added)
        return LowRankGaussian(self.mean + step * new.covariance_times(gradient - self.mean), added)

    def covariance_times(self, vector: Array) -> Array:
        """The covariance times a vector (R,)."""
        xp = array_namespace(vector)
        return vector - self.removed_factor @ (xp.matrix_transpose(self.removed_factor) @ vector)

    def along(self, turn: Array) -> LowRankGaussian:
        """Of w turn, for orthonormal columns (R, r)."""
        xp = array_namespace(turn)
        removed_factor = xp.matrix_transpose(turn) @ self.removed_factor
        left = identity(self.capacity) - xp.matrix_transpose(removed_factor) @ removed_factor
        added = xp.matrix_transpose(solve_triangular(cholesky(left), xp.matrix_transpose(removed_factor)))
        return LowRankGaussian(self.mean @ turn, added)

    def kl(self) -> float:
        """Divergence from N(0, I), in nats."""
        xp = array_namespace(self.mean)
        squares = xp.sum(xp.square(self.mean)) - xp.sum(xp.square(self.removed_factor))
        return float(0.5 * squares + xp.sum(xp.log(xp.linalg.diagonal(self.capacity))))

    @property
    def informed_directions(self) -> float:
        """How many directions the data inform: each counts by the share of the prior's variance that is gone."""
        return float(
            array_namespace(self.removed_factor).sum(array_namespace(self.removed_factor).square(self.removed_factor))
        )


def orthogonal_normals(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Rows (count, size) in blocks of orthogonal directions, each as long as a standard normal vector is."""
    blocks = []
    for start in range(0, count, size):
        directions, triangle = np.linalg.qr(rng.standard_normal((size, min(size, count - start))))
        directions *= np.sign(np.diagonal(triangle))  # without it, they are not uniform
        blocks.append(directions.T * np.sqrt(rng.chisquare(size, (directions.shape[1], 1))))
    return np.concatenate(blocks)


def mirrored_normals(rng: np.random.Generator, pairs: int, size: int) -> np.ndarray:
    """Rows (2 pairs, size): orthogonal normals and their mirror images."""
    normals = orthogonal_normals(rng, pairs, size)
    return np.concatenate([normals, -normals])


def shift(old: LowRankGaussian, new: LowRankGaussian) -> float:
    """How far the mean moves, in standard deviations, over the directions that the data inform."""
    xp = array_namespace(old.mean)
    change = new.mean - old.mean
    squares = xp.sum(xp.square(change)) + xp.sum(xp.square(xp.matrix_transpose(new.added) @ change))
    return math.sqrt(float(squares) / max(new.informed_directions, 1.0))


def movement(old: LowRankGaussian, new: LowRankGaussian) -> float:
    """How far the mean moves, in standard deviations, over the directions that the data inform; or the spread."""
    xp = array_namespace(old.mean)
    # The difference of the covariances, whitened by the new one; as a difference of precisions it would cancel badly.
    inner = solve_triangular(new.capacity + identity(new.capacity), xp.matrix_transpose(new.added), transposed=True)
    sides = [part + new.added @ (inner @ part) for part in (new.removed_factor, old.removed_factor)]
    apart = sides[0] @ xp.matrix_transpose(sides[0]) - sides[1] @ xp.matrix_transpose(sides[1])
    spread = 0.5 * math.sqrt(float(xp.sum(xp.square(apart))) / max(new.informed_directions, 1.0))
    return max(shift(old, new), spread)


def few_runs_share(q: LowRankGaussian, certain: LowRankGaussian) -> float:
    """The share of the variance that a certain regression would take away, over the directions that it informs."""
    xp = array_namespace(q.mean)
    across = xp.matrix_transpose(q.added) @ certain.removed_factor
    gained = certain.informed_directions + float(xp.sum(xp.square(across)) - xp.sum(xp.square(q.added)))
    return max(gained, 0.0) / max(certain.informed_directions, 1.0)
