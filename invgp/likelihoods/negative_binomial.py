"""Likelihood of counts that vary more than those of a Poisson distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import COUNTS, are_counts, log_factorial, on_host
from invgp.likelihoods._positive_shape import PositiveShape


@dataclass(frozen=True, eq=False, init=False, repr=False)
class NegativeBinomial(PositiveShape):
    """Counts with mean m = exp(f) and variance m + m^2 / size, with P = Q.

    The limit of large sizes is `Poisson`. Set the prior mean of the latents to the logarithm of a typical count.

    Parameters
    ----------
    size : float or array, shape (P,) or (N, P)
        Inverse of the overdispersion, positive. With shape (N, P) it is known and not learnt.
    outputs : int, optional
        P; by default the last dimension of `size`, or 1.
    learn : bool
        Whether the logarithm of the size is a parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import NegativeBinomial
    >>> mean, variance = NegativeBinomial(2.0).moments(np.array([[[np.log(4.0)]]]))
    >>> mean.round(6), variance.round(6)
    (array([[[4.]]]), array([[[12.]]]))
    """

    shape_name: ClassVar[str] = "size"
    positive: ClassVar[bool] = True
    must: ClassVar[str] = COUNTS
    possible: ClassVar[float] = 0.0

    def __init__(self, size: Array = 1.0, outputs: int | None = None, *, learn: bool = True) -> None:
        self._set_shape(size, outputs, learn=learn)

    def _is_possible(self, y: NDArray[Any]) -> NDArray[np.bool_]:
        return are_counts(y)

    def _terms(self, y: Array, f: Array, s: Array) -> Array:
        ways = on_host(gammaln, y + s) - on_host(gammaln, s) - log_factorial(y)
        # log(s + m) = log s + log(1 + m / s), without overflow of m.
        log_ratio = f - array_namespace(f).log(s)
        return ways + y * log_ratio - (y + s) * _softplus(log_ratio)

    def _shape_gradient(self, y: Array, f: Array, s: Array) -> Array:
        xp = array_namespace(f)
        log_ratio = f - xp.log(s)
        share = _sigmoid(log_ratio)
        change = on_host(digamma, y + s) - on_host(digamma, s) - _softplus(log_ratio)
        return s * change - y + (y + s) * share

    def _moments(self, f: Array, s: Array) -> tuple[Array, Array]:
        mean = array_namespace(f).exp(f)
        return mean, mean + mean * mean / s


def _softplus(a: Array) -> Array:
    xp = array_namespace(a)
    return xp.log1p(xp.exp(-xp.abs(a))) + xp.maximum(a, xp.zeros_like(a))


def _sigmoid(a: Array) -> Array:
    xp = array_namespace(a)
    small = xp.exp(-xp.abs(a))
    return xp.where(a > 0.0, xp.ones_like(a), small) / (1.0 + small)
