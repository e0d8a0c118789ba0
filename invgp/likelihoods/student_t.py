"""Likelihood with Student's t noise, which has heavy tails and is robust against outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

from scipy.special import betaln, digamma

from invgp.core.backend import Array, array_namespace, device_of
from invgp.core.checks import check_boolean, check_number
from invgp.likelihoods._additive import AdditiveNoise
from invgp.likelihoods._arrays import check_parameters, mask_missing, replace_fields, set_fields
from invgp.likelihoods._per_output import log_per_output

MAX_LOG_DOF = 20.0  # beyond, the noise is Gaussian to all digits


@dataclass(frozen=True, eq=False, init=False, repr=False)
class StudentT(AdditiveNoise):
    """Student's t noise: y = f + scale e, where e has Student's t distribution, with P = Q.

    Parameters
    ----------
    scale : float or array, shape (P,) or (N, P), in the unit of y
        Scale of the noise, for all outputs, per output, or per datum. With shape (N, P) it is known and not learnt.
    dof : float
        Degrees of freedom, positive. The tails are heavier for smaller values, and the limit of
        large values is Gaussian noise. With 2 or fewer the variance is infinite. The mean of `moments` is always f.
    outputs : int, optional
        P; by default the last dimension of `scale`, or 1.
    learn : bool
        Whether the logarithm of the scale is a parameter.
    learn_dof : bool
        Whether the logarithm of the degrees of freedom is a parameter too; it is the last one.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import StudentT
    >>> mean, variance = StudentT(1.0, dof=4.0).moments(np.array([[[0.0]]]))
    >>> variance
    array([[[2.]]])
    """

    dof: float
    log_dof: float
    learn_dof: bool

    def __init__(
        self,
        scale: Array = 1.0,
        dof: float = 4.0,
        outputs: int | None = None,
        *,
        learn: bool = True,
        learn_dof: bool = False,
    ) -> None:
        dof = check_number("dof", dof, 0.0, open_below=True)
        check_boolean("learn_dof", learn_dof)
        scale_parameters = log_per_output("scale", scale, outputs, learn=learn)
        set_fields(self, log_scale=scale_parameters, dof=dof, log_dof=math.log(dof), learn_dof=learn_dof)

    @property
    def parameters(self) -> Array:
        """Logarithms of the scales, (K,), and of the degrees of freedom if they are learnt, (K + 1,)."""
        scales = self.log_scale.parameters
        if not self.learn_dof:
            return scales
        xp = array_namespace(scales)
        return xp.concat([scales, xp.asarray([self.log_dof], dtype=scales.dtype, device=device_of(scales))])

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood with other parameters."""
        if not self.learn_dof:
            return super().with_parameters(parameters)
        parameters = check_parameters(parameters, self.log_scale.parameters.shape[0] + 1)
        log_dof = float(parameters[-1])
        dof = math.exp(min(max(log_dof, -MAX_LOG_DOF), MAX_LOG_DOF))
        scales = self.log_scale.with_parameters(parameters[:-1])
        return replace_fields(self, log_scale=scales, dof=dof, log_dof=log_dof)

    def parameter_gradient(self, y: Array, f: Array) -> Array:
        """Compute the derivative of `log_density` with respect to each parameter, (S, N, K) or (S, N, K + 1)."""
        by_scale = super().parameter_gradient(y, f)
        if not self.learn_dof:
            return by_scale
        xp, r, nu = array_namespace(f), self._residual(y, f), self.dof
        squares = r * r
        constant = float(digamma(0.5 * (nu + 1.0)) - digamma(0.5 * nu)) - 1.0 / nu
        terms = constant - xp.log1p(squares / nu) + (nu + 1.0) * squares / (nu * (nu + squares))
        by_dof = 0.5 * nu * xp.sum(mask_missing(y, terms), axis=-1, keepdims=True)
        return xp.concat([by_scale, by_dof], axis=-1)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name; None for a default."""
        (name, scale), *rest = super().arguments().items()
        return {name: scale, "dof": self.dof, **dict(rest), "learn_dof": True if self.learn_dof else None}

    def _standard_log_density(self, r: Array) -> Array:
        # The difference of two large log gamma values would lose digits; the log beta function does not.
        constant = -float(betaln(0.5, 0.5 * self.dof)) - 0.5 * math.log(self.dof)
        return constant - 0.5 * (self.dof + 1.0) * array_namespace(r).log1p(r * r / self.dof)

    def _standard_slope(self, r: Array) -> Array:
        return (self.dof + 1.0) * (r * r / (self.dof + r * r))

    def _standard_variance(self) -> float:
        return self.dof / (self.dof - 2.0) if self.dof > 2.0 else math.inf
