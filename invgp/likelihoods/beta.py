"""Likelihood of fractions between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import on_host
from invgp.likelihoods._positive_shape import PositiveShape

SMALLEST_MEAN = 1e-12  # of a fraction: beyond, the log gamma function loses its digits


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Beta(PositiveShape):
    """Fractions with mean m = 1 / (1 + exp(-f)) and variance m (1 - m) / (1 + concentration), with P = Q.

    Parameters
    ----------
    concentration : float or array, shape (P,) or (N, P)
        Positive. With shape (N, P) it is known and not learnt.
    outputs : int, optional
        P; by default the last dimension of `concentration`, or 1.
    learn : bool
        Whether the logarithm of the concentration is a parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Beta
    >>> Beta(2.0).log_density(np.array([[0.3]]), np.array([[[0.0]]])).round(6) + 0.0  # uniform distribution
    array([[0.]])
    """

    shape_name: ClassVar[str] = "concentration"
    must: ClassVar[str] = "greater than 0 and less than 1"
    possible: ClassVar[float] = 0.5

    def __init__(self, concentration: Array = 1.0, outputs: int | None = None, *, learn: bool = True) -> None:
        self._set_shape(concentration, outputs, learn=learn)

    def _is_possible(self, y: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((y > 0) & (y < 1))

    def _terms(self, y: Array, f: Array, s: Array) -> Array:
        xp = array_namespace(f)
        m, rest = _fractions(f)
        gammas = on_host(gammaln, s) - on_host(gammaln, m * s) - on_host(gammaln, rest * s)
        return gammas + (m * s - 1.0) * xp.log(y) + (rest * s - 1.0) * xp.log1p(-y)

    def _shape_gradient(self, y: Array, f: Array, s: Array) -> Array:
        xp = array_namespace(f)
        m, rest = _fractions(f)
        change = on_host(digamma, s) - m * on_host(digamma, m * s) - rest * on_host(digamma, rest * s)
        return s * (change + m * xp.log(y) + rest * xp.log1p(-y))

    def _moments(self, f: Array, s: Array) -> tuple[Array, Array]:
        m, rest = _fractions(f)
        return m, m * rest / (1.0 + s)


def _fractions(f: Array) -> tuple[Array, Array]:
    """Compute 1 / (1 + exp(-f)) and 1 / (1 + exp(f)), neither below `SMALLEST_MEAN`."""
    xp = array_namespace(f)
    small = xp.exp(-xp.abs(f))
    larger = 1.0 / (1.0 + small)
    smaller = xp.maximum(small * larger, xp.full_like(f, SMALLEST_MEAN))
    return xp.where(f > 0.0, larger, smaller), xp.where(f > 0.0, smaller, larger)
