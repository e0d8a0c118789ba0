"""Likelihood with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._additive import HALF_LOG_TWO_PI, GaussianNoise
from invgp.likelihoods._arrays import fill_missing, mask_missing, set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Gaussian(GaussianNoise):
    """Gaussian noise: y = f + noise, independent between data, with P = Q.

    In an inversion, the outputs (S, N, P) of the simulator take the place of f.

    Parameters
    ----------
    std : float or array, shape (P,) or (N, P), in the unit of y
        Standard deviation of the noise, for all outputs, per output, or per datum. With shape (N, P) it is known and
        not learnt.
    outputs : int, optional
        P; by default the last dimension of `std`, or 1.
    learn : bool
        Whether the logarithm of the standard deviation is a parameter.

    Raises
    ------
    ValueError
        `std` is not positive, or its shape does not match `outputs`.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Gaussian
    >>> likelihood = Gaussian(0.5)
    >>> likelihood.log_density(np.array([[1.0]]), np.array([[[1.0]]])).round(4)
    array([[-0.2258]])
    >>> likelihood.parameters.round(4)
    array([-0.6931])
    """

    def __init__(self, std: Array = 1.0, outputs: int | None = None, *, learn: bool = True) -> None:
        set_fields(self, log_scale=log_per_output("std", std, outputs, learn=learn))

    def predictive_log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        """Compute log E[p(y_n | f_n)] (N,) in closed form, for normal latents with mean and variance (N, P).

        Parameters
        ----------
        y : array, shape (N, P)
            Observations; NaN marks a missing one.
        mean, variance : array, shape (N, P)
            Moments of independent normal latents.

        Returns
        -------
        array, shape (N,), in nats
        """
        xp = array_namespace(y, mean)
        total = variance + xp.exp(2.0 * self.log_scale.convert_like(mean[None, ...]))
        terms = -0.5 * xp.square(fill_missing(y) - mean) / total - 0.5 * xp.log(total) - HALF_LOG_TWO_PI
        return xp.sum(mask_missing(y, terms), axis=-1)

    def expected_log_density(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """Compute E[log p(y_n | f_n)] (N,) and its derivatives in closed form, for latents with moments (N, P).

        Parameters
        ----------
        y : array, shape (N, P)
            Observations; NaN marks a missing one.
        mean, variance : array, shape (N, P)
            Moments of independent normal latents.

        Returns
        -------
        value : array, shape (N,), in nats
        mean_derivative : array, shape (N, P)
        variance_derivative : array, shape (N, P)
            Twice the derivative with respect to the variance.
        parameter_derivative : array, shape (N, K)
        """
        xp = array_namespace(y, mean)
        log_std, missing = self.log_scale.convert_like(mean[None, ...]), xp.isnan(y)
        precision = xp.where(missing, xp.zeros_like(mean), xp.exp(-2.0 * log_std) + xp.zeros_like(mean))
        residual = fill_missing(y) - mean
        squares = precision * (xp.square(residual) + variance)
        terms = mask_missing(y, -0.5 * squares - log_std - HALF_LOG_TWO_PI)
        parameters = self.log_scale.gradient(mask_missing(y, squares - 1.0)[None, ...])[0, ...]
        return xp.sum(terms, axis=-1), precision * residual, -precision, parameters
