"""Laplace noise: the sum of absolute residuals, robust against outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._additive import AdditiveNoise
from invgp.likelihoods._arrays import set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False)
class Laplace(AdditiveNoise):
    """y = f + noise with density exp(-`|noise|` / scale) / (2 scale), and P = Q.

    Parameters
    ----------
    scale : mean absolute noise, in the unit of y: a number shared by all outputs, (P,), or (N, P), which is known.
    outputs : P; by default what `scale` says, or 1.
    learn : whether the logarithm of the scale is a parameter.
    """

    def __init__(self, scale: Array = 1.0, outputs: int | None = None, *, learn: bool = True) -> None:
        set_fields(self, log_scale=log_per_output("scale", scale, outputs, learn=learn))

    def _standard_log_density(self, r: Array) -> Array:
        return -array_namespace(r).abs(r) - math.log(2.0)

    def _standard_slope(self, r: Array) -> Array:
        return array_namespace(r).abs(r)

    def _standard_variance(self) -> float:
        return 2.0
