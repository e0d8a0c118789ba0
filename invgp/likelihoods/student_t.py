"""Likelihood with Student's t noise, which has heavy tails and is robust against outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.special import betaln

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_number
from invgp.likelihoods._additive import AdditiveNoise
from invgp.likelihoods._arrays import set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False, repr=False)
class StudentT(AdditiveNoise):
    """Student's t noise: y = f + scale e, where e has Student's t distribution, with P = Q.

    Parameters
    ----------
    scale : float or array, shape (P,) or (N, P), in the unit of y
        Scale of the noise, for all outputs, per output, or per datum. With shape (N, P) it is known and not learnt.
    dof : float
        Degrees of freedom, positive; they are not learnt. The tails are heavier for smaller values, and the limit of
        large values is Gaussian noise. With 2 or fewer the variance is infinite. The mean of `moments` is always f.
    outputs : int, optional
        P; by default the last dimension of `scale`, or 1.
    learn : bool
        Whether the logarithm of the scale is a parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import StudentT
    >>> mean, variance = StudentT(1.0, dof=4.0).moments(np.array([[[0.0]]]))
    >>> variance
    array([[[2.]]])
    """

    dof: float

    def __init__(self, scale: Array = 1.0, dof: float = 4.0, outputs: int | None = None, *, learn: bool = True) -> None:
        dof = check_number("dof", dof, 0.0, open_below=True)
        set_fields(self, log_scale=log_per_output("scale", scale, outputs, learn=learn), dof=dof)

    def _arguments(self) -> dict[str, Any]:
        (name, scale), *rest = super()._arguments().items()
        return {name: scale, "dof": self.dof, **dict(rest)}

    def _standard_log_density(self, r: Array) -> Array:
        # The difference of two large log gamma values would lose digits; the log beta function does not.
        constant = -float(betaln(0.5, 0.5 * self.dof)) - 0.5 * math.log(self.dof)
        return constant - 0.5 * (self.dof + 1.0) * array_namespace(r).log1p(r * r / self.dof)

    def _standard_slope(self, r: Array) -> Array:
        return (self.dof + 1.0) * (r * r / (self.dof + r * r))

    def _standard_variance(self) -> float:
        return self.dof / (self.dof - 2.0) if self.dof > 2.0 else math.inf
