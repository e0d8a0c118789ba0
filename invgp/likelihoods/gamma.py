"""Likelihood of positive observations with a constant coefficient of variation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import mask_missing, on_host
from invgp.likelihoods._positive_shape import PositiveShape


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Gamma(PositiveShape):
    """Positive observations with mean m = exp(f) and variance m^2 / shape, with P = Q.

    With shape 1 the distribution is exponential.

    Parameters
    ----------
    shape : float or array, shape (P,) or (N, P)
        Shape parameter, positive. With shape (N, P) it is known and not learnt.
    outputs : int, optional
        P; by default the last dimension of `shape`, or 1.
    learn : bool
        Whether the logarithm of the shape is a parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Gamma
    >>> Gamma(1.0).log_density(np.array([[2.0]]), np.array([[[0.0]]]))  # exponential distribution
    array([[-2.]])
    """

    shape_name: ClassVar[str] = "shape"
    positive: ClassVar[bool] = True
    must: ClassVar[str] = "positive"
    possible: ClassVar[float] = 1.0

    def __init__(self, shape: Array = 1.0, outputs: int | None = None, *, learn: bool = True) -> None:
        self._set_shape(shape, outputs, learn=learn)

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
        filled, s = self._fill(y), self._shape_like(mean[None, ...])
        s = s + xp.zeros_like(mean)
        ratio = filled * xp.exp(0.5 * variance - mean)  # E[y / exp(f)]
        terms = mask_missing(y, self._constant(filled, s) - s * (mean + ratio))
        change = s * (xp.log(s) + 1.0 - on_host(digamma, s) + xp.log(filled) - mean - ratio)
        gradient, curvature = mask_missing(y, s * (ratio - 1.0)), mask_missing(y, -s * ratio)
        parameters = self.log_shape.gradient(mask_missing(y, change)[None, ...])[0, ...]
        return xp.sum(terms, axis=-1), gradient, curvature, parameters

    def _is_possible(self, y: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(y > 0)

    def _constant(self, y: Array, s: Array) -> Array:
        xp = array_namespace(y, s)
        return s * xp.log(s) - on_host(gammaln, s) + (s - 1.0) * xp.log(y)

    def _terms(self, y: Array, f: Array, s: Array) -> Array:
        return self._constant(y, s) - s * (f + y * array_namespace(f).exp(-f))

    def _shape_gradient(self, y: Array, f: Array, s: Array) -> Array:
        xp = array_namespace(f)
        return s * (xp.log(s) + 1.0 - on_host(digamma, s) + xp.log(y) - f - y * xp.exp(-f))

    def _moments(self, f: Array, s: Array) -> tuple[Array, Array]:
        mean = array_namespace(f).exp(f)
        return mean, mean * mean / s
