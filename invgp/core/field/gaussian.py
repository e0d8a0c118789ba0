"""Gaussians over the whitened variables, and normal draws that cover them evenly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from invgp.core.backend import Array, array_namespace, cholesky, device_of, identity, solve_triangular


@dataclass(frozen=True)
class Gaussian:
    """N(mean (R,), covariance (R, R)), with the lower Cholesky factor of the covariance."""

    mean: Array
    covariance: Array
    factor: Array

    @staticmethod
    def standard(variables: Array) -> Gaussian:
        """N(0, I) over as many variables as the array (R,) has, in its place."""
        xp = array_namespace(variables)
        eye = xp.eye(variables.shape[0], dtype=variables.dtype, device=device_of(variables))
        return Gaussian(xp.zeros_like(variables), eye, eye)

    @staticmethod
    def of_natural(precision: Array, shift: Array) -> Gaussian:
        """From the precision and its product with the mean."""
        xp = array_namespace(precision)
        inverse = solve_triangular(cholesky(precision, jitter=False), identity(precision))
        covariance = xp.matrix_transpose(inverse) @ inverse
        return Gaussian(covariance @ shift, covariance, cholesky(covariance))

    def natural(self) -> tuple[Array, Array]:
        """Precision, and its product with the mean."""
        inverse = solve_triangular(self.factor, identity(self.factor))
        precision = array_namespace(inverse).matrix_transpose(inverse) @ inverse
        return precision, precision @ self.mean

    def samples(self, normals: Array) -> Array:
        """(S, R), from standard normals (S, R)."""
        return self.mean + normals @ array_namespace(normals).matrix_transpose(self.factor)

    def kl(self) -> float:
        """Divergence from N(0, I), in nats."""
        xp = array_namespace(self.mean)
        squares = xp.sum(xp.square(self.mean)) + xp.sum(xp.linalg.diagonal(self.covariance)) - self.mean.shape[0]
        return float(0.5 * squares - xp.sum(xp.log(xp.linalg.diagonal(self.factor))))


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


def informed_directions(q: Gaussian) -> float:
    """How many directions the data inform: each counts by the share of the prior's variance that is gone."""
    return float(array_namespace(q.mean).sum(1.0 - array_namespace(q.mean).linalg.diagonal(q.covariance)))


def movement(old: Gaussian, new: Gaussian) -> float:
    """How far the mean moves, in standard deviations, over the directions that the data inform; or the spread."""
    xp = array_namespace(old.mean)
    directions = max(informed_directions(new), 1.0)
    change = solve_triangular(new.factor, (new.mean - old.mean)[:, None])
    ratio = solve_triangular(new.factor, old.factor)
    spread = 0.5 * (ratio @ xp.matrix_transpose(ratio) - identity(ratio))
    return math.sqrt(max(float(xp.sum(xp.square(change))), float(xp.sum(xp.square(spread)))) / directions)


def few_runs_share(q: Gaussian, certain: Array) -> float:
    """The share of the variance that a certain regression would take away, over the directions that it informs."""
    xp = array_namespace(certain)
    inverse = solve_triangular(q.factor, cholesky(certain))
    gained = certain.shape[0] - float(xp.sum(xp.square(inverse)))
    informed = certain.shape[0] - float(xp.sum(xp.linalg.diagonal(certain)))
    return float(max(gained, 0.0) / max(informed, 1.0))
