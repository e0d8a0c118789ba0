"""Likelihood of two classes, with the normal distribution function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scipy.special import log_ndtr, ndtr

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import check_latents, check_shapes, mask_missing, on_host
from invgp.likelihoods.logistic import BinaryLabels


@dataclass(frozen=True)
class Probit(BinaryLabels):
    """Binary classification: p(class 1 | f) = Phi(f), the normal distribution function, with P = Q = 1.

    Labels are 0 and 1, or -1 and 1. Predictive probabilities have a closed form.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Probit
    >>> probability, variance = Probit().moments(np.array([[[0.0]]]))
    >>> probability
    array([[[0.5]]])
    """

    latents: ClassVar[int] = 1
    outputs: ClassVar[int] = 1

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for y (N, 1) and f (S, N, 1)."""
        check_shapes(y, f, outputs=1, latents=1)
        return mask_missing(y, on_host(log_ndtr, _signs(y) * f))[..., 0]

    def predictive_log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        """Compute log E[p(y_n | f_n)] (N,) in closed form, for normal latents with mean and variance (N, 1).

        Parameters
        ----------
        y : array, shape (N, 1)
            Labels, 0 and 1 or -1 and 1; NaN marks a missing one.
        mean, variance : array, shape (N, 1)
            Moments of a normal latent.

        Returns
        -------
        array, shape (N,), in nats
        """
        ratio = _signs(y) * mean / array_namespace(mean).sqrt(1.0 + variance)
        return mask_missing(y, on_host(log_ndtr, ratio))[..., 0]

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute the probability of class 1 and the variance of its indicator, (S, N, 1) each."""
        check_latents(f, 1)
        return on_host(ndtr, f), on_host(ndtr, f) * on_host(ndtr, -f)

    def predictive_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Compute the probability of class 1 and its variance, (..., 1) each, for normal f with moments (..., 1).

        Parameters
        ----------
        mean, variance : array, shape (..., 1)
            Moments of a normal latent.

        Returns
        -------
        mean, variance : array, shape (..., 1)
        """
        ratio = mean / array_namespace(mean).sqrt(1.0 + variance)
        return on_host(ndtr, ratio), on_host(ndtr, ratio) * on_host(ndtr, -ratio)


def _signs(y: Array) -> Array:
    xp = array_namespace(y)
    return xp.where(y > 0.0, xp.ones_like(y), -xp.ones_like(y))
