"""Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._additive import HALF_LOG_TWO_PI, GaussianNoise
from invgp.likelihoods._arrays import fill_missing, mask_missing, set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False)
class Gaussian(GaussianNoise):
    """y = f + noise with independent Gaussian noise, and P = Q.

    After a simulator, its outputs (S, N, P) take the place of f.

    Parameters
    ----------
    std : standard deviation of the noise, in the unit of y: a number shared by all outputs, (P,), or (N, P), one for
        each datum, which is known and not learnt.
    outputs : P; by default what `std` says, or 1.
    learn : whether the logarithm of the standard deviation is a parameter.
    """

    def __init__(self, std: Array = 1.0, outputs: int | None = None, *, learn: bool = True) -> None:
        set_fields(self, log_scale=log_per_output("std", std, outputs, learn=learn))

    def predictive_log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log of the expectation of p(y_n | f_n) over normal latents with mean and variance (N, P); (N,)."""
        xp = array_namespace(y, mean)
        total = variance + xp.exp(2.0 * self.log_scale.convert_like(mean[None, ...]))
        terms = -0.5 * xp.square(fill_missing(y) - mean) / total - 0.5 * xp.log(total) - HALF_LOG_TWO_PI
        return xp.sum(mask_missing(y, terms), axis=-1)
