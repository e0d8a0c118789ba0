"""Likelihood of warped Gaussian processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._additive import HALF_LOG_TWO_PI
from invgp.likelihoods._arrays import (
    as_floats,
    check_latents,
    check_parameters,
    check_shapes,
    convert_like,
    fill_missing,
    mask_missing,
    no_gradient,
    replace_fields,
    set_fields,
)
from invgp.likelihoods._per_output import log_positive
from invgp.likelihoods._warp import Warp, invert_warp

Learn = Literal["nothing", "noise", "noise and warp"]
QUADRATURE_NODES = 80


@dataclass(frozen=True, eq=False, init=False)
class Warped:
    """Warped Gaussian process: t(y) = f + Gaussian noise with a monotone function t, and P = Q = 1.

    The warp is t(y) = y + sum_i a_i tanh(b_i (y + c_i)), so log p(y | f) = log N(t(y); f, std^2) + log t'(y).

    Parameters
    ----------
    std : float
        Standard deviation of the noise, on the scale of f and t(y).
    a, b, c : array, shape (I,)
        Parameters of the I terms of the warp; a >= 0, b > 0. With a = 0, or without terms, the noise is Gaussian.
    learn : {"nothing", "noise", "noise and warp"}
        Which parameters are learnt. "noise" (as in the paper): log std, K = 1. "noise and warp": log std, log a, log b
        and c, in this order, K = 1 + 3 I; then a must be positive.

    References
    ----------
    Snelson, Rasmussen and Ghahramani (2003), Warped Gaussian processes, Advances in Neural Information Processing
    Systems 16.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Warped
    >>> likelihood = Warped(1.0, a=[1.0], b=[1.0], c=[0.0])
    >>> likelihood.log_density(np.array([[0.0]]), np.array([[[0.0]]])).round(4)  # t'(0) = 2
    array([[-0.2258]])
    """

    latents: ClassVar[int] = 1
    outputs: ClassVar[int] = 1
    log_std: Array
    warp: Warp
    learn: Learn

    def __init__(
        self, std: Array = 1.0, a: Array = (), b: Array = (), c: Array = (), *, learn: Learn = "noise"
    ) -> None:
        if learn not in get_args(Learn):
            raise ValueError(f"learn must be one of {get_args(Learn)}, was {learn!r}")
        std = as_floats("std", std)
        if std.shape != ():
            raise ValueError(f"std must be a number, was of shape {tuple(std.shape)}")
        warp = Warp.of(a, b, c, positive=learn == "noise and warp")
        set_fields(self, log_std=log_positive("std", std), warp=warp, learn=learn)

    @property
    def std(self) -> Array:
        """Standard deviation of the noise, shape ()."""
        return array_namespace(self.log_std).exp(self.log_std)

    @property
    def parameters(self) -> Array:
        """The parameters selected by `learn`, shape (K,)."""
        xp = array_namespace(self.log_std)
        everything = [xp.reshape(self.log_std, (1,)), *self.warp.convert_like(self.log_std)]
        return xp.concat(everything)[: self._count]

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood with other parameters, (K,)."""
        parameters = check_parameters(parameters, self._count)
        if self.learn == "nothing":
            return self
        log_std, terms = array_namespace(parameters).reshape(parameters[:1], ()), self.warp.terms
        if self.learn == "noise":
            return replace_fields(self, log_std=log_std)
        parts = (parameters[1 + i * terms : 1 + (i + 1) * terms] for i in range(3))
        return replace_fields(self, log_std=log_std, warp=Warp(*parts))

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for y (N, 1) and f (S, N, 1)."""
        check_shapes(y, f, outputs=1, latents=1)
        at = self._residual_at(y, f)
        terms = -0.5 * at.residual * at.residual - at.log_std - HALF_LOG_TWO_PI + at.log_slope
        return mask_missing(y, terms)[..., 0]

    def parameter_gradient(self, y: Array, f: Array) -> Array:
        """Compute the derivative of `log_density` with respect to each parameter, (S, N, K)."""
        xp = array_namespace(y, f)
        check_shapes(y, f, outputs=1, latents=1)
        if self.learn == "nothing":
            return no_gradient(f)
        at = self._residual_at(y, f)
        gradient = at.residual * at.residual - 1.0
        if self.learn == "noise and warp":
            d_value, d_log_slope = self.warp.convert_like(f).gradients(fill_missing(y))
            gradient = xp.concat([gradient, d_log_slope - at.residual * xp.exp(-at.log_std) * d_value], axis=-1)
        return mask_missing(y, gradient)

    def predictive_log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        """Compute log E[p(y_n | f_n)] (N,) in closed form, for normal latents with mean and variance (N, 1).

        Parameters
        ----------
        y : array, shape (N, 1)
            Observations; NaN marks a missing one.
        mean, variance : array, shape (N, 1)
            Moments of a normal latent.

        Returns
        -------
        array, shape (N,), in nats
        """
        xp = array_namespace(y, mean)
        at = self._residual_at(y, mean)
        # Variance of (t(y) - f) / std: the noise contributes 1, the latent variance / std^2.
        wider = 1.0 + variance * xp.exp(-2.0 * at.log_std)
        terms = -0.5 * xp.square(at.residual) / wider - 0.5 * xp.log(wider) - at.log_std - HALF_LOG_TWO_PI
        return mask_missing(y, terms + at.log_slope)[..., 0]

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute mean and variance of y given f, (S, N, 1) each, by Gauss-Hermite quadrature over the noise."""
        check_latents(f, 1)
        return self.predictive_moments(f, array_namespace(f).zeros_like(f))

    def predictive_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Compute mean and variance of y, (..., 1) each, for normal f with this mean and variance (..., 1).

        Parameters
        ----------
        mean, variance : array, shape (..., 1)
            Moments of a normal latent.

        Returns
        -------
        mean, variance : array, shape (..., 1)
        """
        xp = array_namespace(mean)
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        spread = xp.sqrt(variance + xp.exp(2.0 * convert_like(self.log_std, mean)))
        weights = convert_like(weights / weights.sum(), mean)
        y = invert_warp(self.warp.convert_like(mean), mean + spread * convert_like(nodes, mean))
        mean = xp.sum(weights * y, axis=-1, keepdims=True)
        return mean, xp.sum(weights * xp.square(y - mean), axis=-1, keepdims=True)

    @property
    def _count(self) -> int:
        return {"nothing": 0, "noise": 1, "noise and warp": 1 + 3 * self.warp.terms}[self.learn]

    def _residual_at(self, y: Array, f: Array) -> _WarpedResidual:
        xp = array_namespace(y, f)
        log_std = convert_like(self.log_std, f)
        value, excess = self.warp.convert_like(f).value(fill_missing(y))
        return _WarpedResidual((value - f) * xp.exp(-log_std), xp.log1p(excess), log_std)


class _WarpedResidual(NamedTuple):
    residual: Array  # (t(y) - f) / std, (S, N, 1)
    log_slope: Array  # log t'(y), (N, 1)
    log_std: Array  # ()
