"""Gaussian noise whose standard deviation is a latent process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._additive import HALF_LOG_TWO_PI
from invgp.likelihoods._arrays import check_latents, check_shapes, fill_missing, mask_missing, no_gradient
from invgp.likelihoods._fixed import WithoutParameters


@dataclass(frozen=True)
class HeteroscedasticGaussian(WithoutParameters):
    """Gaussian noise that varies between sites: y = f_1 + exp(f_2) e with standard normal e, P = 1 and Q = 2.

    The second latent is the logarithm of the standard deviation of the noise. Set its prior mean to the logarithm of a
    typical noise level: ``SAVIGP(HeteroscedasticGaussian(), prior_mean=(0.0, np.log(0.3)))``.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import HeteroscedasticGaussian
    >>> mean, variance = HeteroscedasticGaussian().moments(np.array([[[3.0, np.log(2.0)]]]))
    >>> mean, variance.round(6)
    (array([[[3.]]]), array([[[4.]]]))
    """

    latents: ClassVar[int] = 2
    outputs: ClassVar[int] = 1

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for y (N, 1) and f (S, N, 2)."""
        check_shapes(y, f, outputs=1, latents=2)
        xp = array_namespace(y, f)
        location, log_std = f[..., :1], f[..., 1:]
        residual = (fill_missing(y) - location) * xp.exp(-log_std)
        return mask_missing(y, -0.5 * residual * residual - log_std - HALF_LOG_TWO_PI)[..., 0]

    def expected_log_density(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """Compute E[log p(y_n | f_n)] (N,) and its derivatives in closed form, for latents with moments (N, 2).

        Parameters
        ----------
        y : array, shape (N, 1)
            Observations; NaN marks a missing one.
        mean, variance : array, shape (N, 2)
            Moments of the latents: the mean of y, and the logarithm of its standard deviation.

        Returns
        -------
        value : array, shape (N,), in nats
        mean_derivative : array, shape (N, 2)
        variance_derivative : array, shape (N, 2)
            Twice the derivative with respect to the variance.
        parameter_derivative : array, shape (N, 0)
        """
        xp = array_namespace(y, mean)
        log_std, seen = mean[:, 1:], xp.astype(~xp.isnan(y), mean.dtype)
        precision = seen * xp.exp(2.0 * variance[:, 1:] - 2.0 * log_std)
        residual = fill_missing(y) - mean[:, :1]
        squares = precision * (xp.square(residual) + variance[:, :1])
        value = -0.5 * squares - seen * (log_std + HALF_LOG_TWO_PI)
        gradient = xp.concat([precision * residual, squares - seen], axis=1)
        return (
            value[:, 0],
            gradient,
            -xp.concat([precision, 2.0 * squares], axis=1),
            no_gradient(mean[None, ...])[0, ...],
        )

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute mean and variance of y given f, (S, N, 1) each."""
        check_latents(f, 2)
        return f[..., :1], array_namespace(f).exp(2.0 * f[..., 1:])
