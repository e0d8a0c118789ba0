"""Student's t noise: heavy tails, robust against outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import betaln

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_number
from invgp.likelihoods._additive import AdditiveNoise
from invgp.likelihoods._arrays import set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False)
class StudentT(AdditiveNoise):
    """y = f + scale e, where e has Student's t distribution, and P = Q.

    Parameters
    ----------
    scale : in the unit of y: a number shared by all outputs, (P,), or (N, P), which is known.
    dof : degrees of freedom, positive; 4 has heavy tails, infinitely many are Gaussian. It is not learnt. With 2 or
        fewer the variance is infinite; the mean of `moments` is always f, the location.
    outputs : P; by default what `scale` says, or 1.
    learn : whether the logarithm of the scale is a parameter.
    """

    dof: float

    def __init__(self, scale: Array = 1.0, dof: float = 4.0, outputs: int | None = None, *, learn: bool = True) -> None:
        dof = check_number("dof", dof, 0.0, open_below=True)
        set_fields(self, log_scale=log_per_output("scale", scale, outputs, learn=learn), dof=dof)

    def _standard_log_density(self, r: Array) -> Array:
        # The beta function, since the difference of two large log gammas would lose its digits.
        constant = -float(betaln(0.5, 0.5 * self.dof)) - 0.5 * math.log(self.dof)
        return constant - 0.5 * (self.dof + 1.0) * array_namespace(r).log1p(r * r / self.dof)

    def _standard_slope(self, r: Array) -> Array:
        return (self.dof + 1.0) * (r * r / (self.dof + r * r))

    def _standard_variance(self) -> float:
        return self.dof / (self.dof - 2.0) if self.dof > 2.0 else math.inf
