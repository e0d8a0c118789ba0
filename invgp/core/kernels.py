"""Covariance functions of the latent processes, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace, clip_negative, exp_in_place, product, sum_of_products, to_numpy

MAX_DIRECT_DIMENSIONS = 8  # in more dimensions, distances are computed by a matrix product


class Correlation(NamedTuple):
    """A correlation as a function of the squared scaled distance r2, alone and with its derivative.

    Both functions may overwrite the distances.
    """

    value: Callable[[Array], Array]
    value_and_slope: Callable[[Array], tuple[Array, Array]]


class Covariance(NamedTuple):
    """A covariance matrix (N, M), and its derivative with respect to the squared scaled distances."""

    value: Array
    slope: Array


class KernelGradient(NamedTuple):
    """Gradient of a scalar with respect to the parameters and the first inputs of a covariance matrix.

    Attributes
    ----------
    log_variance : array, shape ()
    log_length_scale : array, shape (D,), or (1,) if the dimensions share one length-scale
    X1 : array, shape (N, D)
    """

    log_variance: Array
    log_length_scale: Array
    X1: Array


@dataclass(frozen=True)
class Kernel:
    """A stationary covariance function with one length-scale per input dimension (ARD), or one for all of them.

    Parameters
    ----------
    correlation : Correlation
        A value of `CORRELATIONS`.
    variance : array, shape ()
        Prior variance of the process.
    length_scale : array, shape (D,), or (1,) if all dimensions share one, in the units of the inputs
        Length-scales.
    """

    correlation: Correlation
    variance: Array
    length_scale: Array

    @property
    def name(self) -> str:
        """Key of the correlation in `CORRELATIONS`."""
        return next((name for name, known in CORRELATIONS.items() if known is self.correlation), "of your own")

    def __repr__(self) -> str:
        scales = ", ".join(f"{float(scale):.4g}" for scale in to_numpy(self.length_scale))
        return f"Kernel({self.name!r}, variance={float(self.variance):.4g}, length_scale=[{scales}])"

    @property
    def parameters(self) -> Array:
        """Free parameters: log variance, then log length-scales, shape (1 + D,), or (2,) with one length-scale."""
        xp = array_namespace(self.length_scale)
        variance = xp.asarray(self.variance, dtype=self.length_scale.dtype, device=self.length_scale.device)
        return xp.log(xp.concat([xp.reshape(variance, (1,)), self.length_scale]))

    def with_parameters(self, parameters: Array) -> Kernel:
        """Return the same type of kernel with other free parameters."""
        values = array_namespace(parameters).exp(parameters)
        return Kernel(self.correlation, values[0], values[1:])

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        covariance = self.correlation.value(squared_distances(X1 / self.length_scale, X2 / self.length_scale))
        covariance *= self.variance
        return covariance

    def with_slope(self, X1: Array, X2: Array) -> Covariance:
        """Compute the covariance (N, M) and its derivative, which `pull_back` needs."""
        r2 = squared_distances(X1 / self.length_scale, X2 / self.length_scale)
        value, slope = self.correlation.value_and_slope(r2)
        value *= self.variance
        slope *= self.variance
        return Covariance(value, slope)

    def pull_back(self, X1: Array, X2: Array, covariance: Covariance, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the covariance, `cotangent` (N, M), which is overwritten."""
        xp = array_namespace(X1, X2, cotangent)
        log_variance = xp.sum(xp.vecdot(cotangent, covariance.value))
        weight = cotangent
        weight *= covariance.slope
        # A shift does not change distances, and avoids cancellation of large coordinates below.
        centre = xp.mean(X2, axis=0)
        Y1, Y2 = (X1 - centre) / self.length_scale, (X2 - centre) / self.length_scale
        columns = xp.sum(weight, axis=0)[:, None]
        across = product(weight, Y2)
        apart = xp.sum(weight, axis=1)[:, None] * Y1
        apart -= across
        spread = sum_of_products(Y1, apart) - sum_of_products(Y1, across) + sum_of_products(columns * Y2, Y2)
        if self.length_scale.shape[0] == 1:
            spread = xp.sum(spread, keepdims=True)
        apart *= 2.0 / self.length_scale
        return KernelGradient(log_variance, -2.0 * spread, X1=apart)


def squared_distances(X1: Array, X2: Array) -> Array:
    """Compute squared Euclidean distances (N, M): directly in few dimensions, by a matrix product in many."""
    xp = array_namespace(X1, X2)
    if X1.shape[1] <= MAX_DIRECT_DIMENSIONS:
        return sum(
            (xp.square(X1[:, None, d] - X2[None, :, d]) for d in range(1, X1.shape[1])),
            start=xp.square(X1[:, None, 0] - X2[None, :, 0]),
        )
    # A shift does not change distances, and avoids cancellation of large coordinates.
    centre = xp.mean(X2, axis=0)
    X1, X2 = X1 - centre, X2 - centre
    # |x1|^2 + |x2|^2 - 2 x1 x2 as one product, of (x1, |x1|^2, 1) and (-2 x2, 1, |x2|^2).
    norms1, norms2 = xp.vecdot(X1, X1)[:, None], xp.vecdot(X2, X2)[:, None]
    left = xp.concat([X1, norms1, xp.ones_like(norms1)], axis=1)
    right = xp.concat([-2.0 * X2, xp.ones_like(norms2), norms2], axis=1)
    return clip_negative(product(left, right.T))


def squared_exponential(r2: Array) -> Array:
    """Compute exp(-r^2 / 2); the squared distances are overwritten."""
    r2 *= -0.5
    return exp_in_place(r2)


def squared_exponential_and_slope(r2: Array) -> tuple[Array, Array]:
    """Compute `squared_exponential` and its derivative with respect to r2."""
    value = squared_exponential(r2)
    return value, -0.5 * value


def matern32(r2: Array) -> Array:
    """Compute (1 + sqrt(3) r) exp(-sqrt(3) r)."""
    xp = array_namespace(r2)
    r = xp.sqrt(3.0 * r2)
    return (1.0 + r) * xp.exp(-r)


def matern32_and_slope(r2: Array) -> tuple[Array, Array]:
    """Compute `matern32` and its derivative with respect to r2."""
    xp = array_namespace(r2)
    r = xp.sqrt(3.0 * r2)
    decay = xp.exp(-r)
    return (1.0 + r) * decay, -1.5 * decay


def matern52(r2: Array) -> Array:
    """Compute (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)."""
    xp = array_namespace(r2)
    r = xp.sqrt(5.0 * r2)
    return (1.0 + r + r * r / 3.0) * xp.exp(-r)


def matern52_and_slope(r2: Array) -> tuple[Array, Array]:
    """Compute `matern52` and its derivative with respect to r2."""
    xp = array_namespace(r2)
    r = xp.sqrt(5.0 * r2)
    decay = xp.exp(-r)
    return (1.0 + r + r * r / 3.0) * decay, (-5.0 / 6.0) * (1.0 + r) * decay


CORRELATIONS: dict[str, Correlation] = {
    "squared exponential": Correlation(squared_exponential, squared_exponential_and_slope),
    "matern 3/2": Correlation(matern32, matern32_and_slope),
    "matern 5/2": Correlation(matern52, matern52_and_slope),
}
