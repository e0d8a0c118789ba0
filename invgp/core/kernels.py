"""Covariance functions of the latent processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace


@dataclass(frozen=True)
class Kernel:
    """A stationary covariance function with one length-scale for each input dimension (ARD).

    Parameters
    ----------
    correlation : a value of `CORRELATIONS`; takes squared scaled distances, (N, M).
    variance : prior variance of the process.
    length_scale : (D,), in the units of the inputs.
    """

    correlation: Callable[[Array], Array]
    variance: float
    length_scale: Array

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        return self.variance * self.correlation(squared_distances(X1 / self.length_scale, X2 / self.length_scale))


def squared_distances(X1: Array, X2: Array) -> Array:
    """Squared Euclidean distances (N, M), free of cancellation for neighbours far from the origin."""
    xp = array_namespace(X1, X2)
    return sum(
        (xp.square(X1[:, None, d] - X2[None, :, d]) for d in range(1, X1.shape[1])),
        start=xp.square(X1[:, None, 0] - X2[None, :, 0]),
    )


def squared_exponential(r2: Array) -> Array:
    """exp(-r^2 / 2)."""
    return array_namespace(r2).exp(-0.5 * r2)


def matern32(r2: Array) -> Array:
    """(1 + sqrt(3) r) exp(-sqrt(3) r)."""
    xp = array_namespace(r2)
    r = xp.sqrt(3.0 * r2)
    return (1.0 + r) * xp.exp(-r)


def matern52(r2: Array) -> Array:
    """(1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)."""
    xp = array_namespace(r2)
    r = xp.sqrt(5.0 * r2)
    return (1.0 + r + r * r / 3.0) * xp.exp(-r)


CORRELATIONS: dict[str, Callable[[Array], Array]] = {
    "squared exponential": squared_exponential,
    "matern 3/2": matern32,
    "matern 5/2": matern52,
}
