"""Likelihood with Laplace noise, which is robust against outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._additive import AdditiveNoise
from invgp.likelihoods._arrays import set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Laplace(AdditiveNoise):
    """Laplace noise: y = f + noise with density exp(-`|noise|` / scale) / (2 scale), with P = Q.

    Parameters
    ----------
    scale : float or array, shape (P,) or (N, P), in the unit of y
        Mean absolute noise, for all outputs, per output, or per datum. With shape (N, P) it is known and not learnt.
    outputs : int, optional
        P; by default the last dimension of `scale`, or 1.
    learn : bool
        Whether the logarithm of the scale is a parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Laplace
    >>> Laplace(1.0).log_density(np.array([[2.0]]), np.array([[[0.0]]])).round(4)
    array([[-2.6931]])
    """

    def __init__(self, scale: Array = 1.0, outputs: int | None = None, *, learn: bool = True) -> None:
        set_fields(self, log_scale=log_per_output("scale", scale, outputs, learn=learn))

    def _standard_log_density(self, r: Array) -> Array:
        return -array_namespace(r).abs(r) - math.log(2.0)

    def _standard_slope(self, r: Array) -> Array:
        return array_namespace(r).abs(r)

    def _standard_variance(self) -> float:
        return 2.0
