"""Gaussian distributions of the whitened variables, distances between them, and stratified normal samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from invgp.core.backend import Array, array_namespace, cholesky, identity, solve_triangular


@dataclass(frozen=True)
class Gaussian:
    """Gaussian distribution of R variables.

    Attributes
    ----------
    mean : Array, shape (R,)
    covariance : Array, shape (R, R)
    factor : Array, shape (R, R)
        Lower Cholesky factor of the covariance.
    """

    mean: Array
    covariance: Array
    factor: Array

    def samples(self, normals: Array) -> Array:
        """Transform standard normals (S, R) to samples (S, R).

        Parameters
        ----------
        normals : array, shape (S, R)
            Standard normal numbers.

        Returns
        -------
        array, shape (S, R)
        """
        return self.mean + normals @ array_namespace(normals).matrix_transpose(self.factor)


@dataclass(frozen=True)
class LowRankGaussian:
    """Gaussian N(mean, (I + V V^T)^-1): a standard normal prior of R variables that the data narrow in r directions.

    All operations cost O(R r^2), except `dense`.

    Attributes
    ----------
    mean : Array, shape (R,)
    precision_factor : Array, shape (R, r)
        V. The data add V V^T to the precision; r is at most R.
    """

    mean: Array
    precision_factor: Array

    @staticmethod
    def prior(variables: Array) -> LowRankGaussian:
        """Return the prior N(0, I) for the size, type and device of an array (R,).

        Parameters
        ----------
        variables : array, shape (R,)
            Any array of this size, type and device.

        Returns
        -------
        LowRankGaussian
        """
        xp = array_namespace(variables)
        return LowRankGaussian(xp.zeros_like(variables), xp.zeros_like(variables)[:, None])

    @cached_property
    def capacitance_factor(self) -> Array:
        """Lower Cholesky factor (r, r) of the capacitance matrix I + V^T V.

        Its determinant is that of the precision I + V V^T.
        """
        gram = array_namespace(self.precision_factor).matrix_transpose(self.precision_factor) @ self.precision_factor
        return cholesky(identity(gram) + gram, jitter=False)

    @cached_property
    def removed_factor(self) -> Array:
        """U, shape (R, r), with the covariance I - U U^T."""
        xp = array_namespace(self.precision_factor)
        return xp.matrix_transpose(
            solve_triangular(self.capacitance_factor, xp.matrix_transpose(self.precision_factor))
        )

    def to_dense(self) -> Gaussian:
        """Convert to a `Gaussian` with a dense covariance."""
        xp = array_namespace(self.precision_factor)
        covariance = self.removed_factor @ xp.matrix_transpose(self.removed_factor)
        covariance = identity(covariance) - covariance
        return Gaussian(self.mean, covariance, cholesky(covariance))

    def samples(self, normals: Array) -> Array:
        """Transform standard normals (S, R) to samples (S, R).

        With L the capacitance factor, I - V L^-T (L + I)^-1 V^T is a square root of the covariance.

        Parameters
        ----------
        normals : array, shape (S, R)
            Standard normal numbers.

        Returns
        -------
        array, shape (S, R)
        """
        xp = array_namespace(normals)
        across = xp.matrix_transpose(normals @ self.precision_factor)
        inner_products = solve_triangular(self.capacitance_factor + identity(self.capacitance_factor), across)
        return self.mean + normals - xp.matrix_transpose(inner_products) @ xp.matrix_transpose(self.removed_factor)

    def step(self, precision_factor: Array, gradient: Array, step: float) -> LowRankGaussian:
        """Take a natural-gradient step.

        Parameters
        ----------
        precision_factor : Array, shape (R, k)
            V of the target precision I + V V^T.
        gradient : Array, shape (R,)
            Gradient of the expected log likelihood with respect to the mean.
        step : float
            Length of the step, between 0 and 1.
        """
        xp = array_namespace(gradient)
        if step < 1.0:
            precision_factor = xp.concat(
                [(1.0 - step) ** 0.5 * self.precision_factor, step**0.5 * precision_factor], axis=1
            )
        if precision_factor.shape[1] > precision_factor.shape[0]:
            precision_factor = xp.matrix_transpose(xp.linalg.qr(xp.matrix_transpose(precision_factor)).R)
        new = LowRankGaussian(self.mean, precision_factor)
        return LowRankGaussian(self.mean + step * new.covariance_times(gradient - self.mean), precision_factor)

    def covariance_times(self, vector: Array) -> Array:
        """Multiply a vector (R,) by the covariance.

        Parameters
        ----------
        vector : array, shape (R,)
            Vector.

        Returns
        -------
        array, shape (R,)
        """
        xp = array_namespace(vector)
        return vector - self.removed_factor @ (xp.matrix_transpose(self.removed_factor) @ vector)

    def project(self, projection: Array) -> LowRankGaussian:
        """Compute the distribution of w @ projection, for a projection (R, s) with orthonormal columns.

        Parameters
        ----------
        projection : array, shape (R, s)
            Matrix with orthonormal columns.

        Returns
        -------
        LowRankGaussian
        """
        xp = array_namespace(projection)
        removed_factor = xp.matrix_transpose(projection) @ self.removed_factor
        remaining = identity(self.capacitance_factor) - xp.matrix_transpose(removed_factor) @ removed_factor
        precision_factor = xp.matrix_transpose(
            solve_triangular(cholesky(remaining), xp.matrix_transpose(removed_factor))
        )
        return LowRankGaussian(self.mean @ projection, precision_factor)

    def kl(self) -> float:
        """Compute the KL divergence from the prior N(0, I), in nats."""
        xp = array_namespace(self.mean)
        squares = xp.sum(xp.square(self.mean)) - xp.sum(xp.square(self.removed_factor))
        return float(0.5 * squares + xp.sum(xp.log(xp.linalg.diagonal(self.capacitance_factor))))

    @property
    def informed_directions(self) -> float:
        """Number of directions that the data inform, each weighted by the removed fraction of its prior variance."""
        return float(
            array_namespace(self.removed_factor).sum(array_namespace(self.removed_factor).square(self.removed_factor))
        )


def orthogonal_normals(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Draw vectors (count, size) in blocks of orthogonal directions, with the lengths of standard normal vectors.

    Parameters
    ----------
    rng : numpy.random.Generator
        Random numbers.
    count, size : int
        Number of vectors, and their size.

    Returns
    -------
    array, shape (count, size)
    """
    blocks = []
    for start in range(0, count, size):
        directions, triangle = np.linalg.qr(rng.standard_normal((size, min(size, count - start))))
        directions *= np.sign(np.diagonal(triangle))  # makes the directions uniformly distributed
        blocks.append(directions.T * np.sqrt(rng.chisquare(size, (directions.shape[1], 1))))
    return np.concatenate(blocks)


def mirrored_normals(rng: np.random.Generator, pairs: int, size: int) -> np.ndarray:
    """Draw vectors (2 pairs, size): orthogonal normals, and the same with opposite sign.

    Parameters
    ----------
    rng : numpy.random.Generator
        Random numbers.
    pairs, size : int
        Number of pairs, and size of a vector.

    Returns
    -------
    array, shape (2 pairs, size)
    """
    normals = orthogonal_normals(rng, pairs, size)
    return np.concatenate([normals, -normals])


def mean_movement(old: LowRankGaussian, new: LowRankGaussian) -> float:
    """Compute the movement of the mean, in standard deviations (root mean square over the informed directions).

    Parameters
    ----------
    old, new : LowRankGaussian
        Posteriors before and after a step.

    Returns
    -------
    float
    """
    xp = array_namespace(old.mean)
    change = new.mean - old.mean
    squares = xp.sum(xp.square(change)) + xp.sum(xp.square(xp.matrix_transpose(new.precision_factor) @ change))
    return math.sqrt(float(squares) / max(new.informed_directions, 1.0))


def movement(old: LowRankGaussian, new: LowRankGaussian) -> float:
    """Compute the larger of the movements of mean and spread, in standard deviations, over the informed directions.

    Parameters
    ----------
    old, new : LowRankGaussian
        Posteriors before and after a step.

    Returns
    -------
    float
    """
    xp = array_namespace(old.mean)
    # Difference of the covariances, whitened by the new one. A difference of precisions would lose digits.
    inner_products = solve_triangular(
        new.capacitance_factor + identity(new.capacitance_factor),
        xp.matrix_transpose(new.precision_factor),
        transposed=True,
    )
    sides = [part + new.precision_factor @ (inner_products @ part) for part in (new.removed_factor, old.removed_factor)]
    difference = sides[0] @ xp.matrix_transpose(sides[0]) - sides[1] @ xp.matrix_transpose(sides[1])
    spread = 0.5 * math.sqrt(float(xp.sum(xp.square(difference))) / max(new.informed_directions, 1.0))
    return max(mean_movement(old, new), spread)


def few_runs_share(q: LowRankGaussian, error_free: LowRankGaussian) -> float:
    """Compute the fraction of the variance that is due to the uncertainty of the regression from few runs.

    Parameters
    ----------
    q : LowRankGaussian
        Posterior.
    error_free : LowRankGaussian
        Posterior if the regression had no error. The fraction refers to the directions that it informs.
    """
    xp = array_namespace(q.mean)
    across = xp.matrix_transpose(q.precision_factor) @ error_free.removed_factor
    gained = error_free.informed_directions + float(xp.sum(xp.square(across)) - xp.sum(xp.square(q.precision_factor)))
    return max(gained, 0.0) / max(error_free.informed_directions, 1.0)
