"""Gaussian process regression networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_integer
from invgp.likelihoods._additive import HALF_LOG_TWO_PI, GaussianNoise
from invgp.likelihoods._arrays import fill_missing, mask_missing, set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False, repr=False)
class GPRN(GaussianNoise):
    """Gaussian process regression network, y(x) = W(x) g(x) + noise: the correlations of the outputs depend on x.

    With R nodes, the latents of a site are first the P R weights, row by row (all weights of output 1, then of
    output 2, ...), then the R nodes g, so Q = P R + R.

    Parameters
    ----------
    std : float or array, shape (P,) or (N, P), in the unit of y
        Standard deviation of the Gaussian noise, for all outputs, per output, or per datum. With shape (N, P) it is
        known and not learnt.
    nodes : int
        R.
    outputs : int, optional
        P; by default the last dimension of `std`, or 1.
    learn : bool
        Whether the logarithm of the standard deviation is a parameter.

    References
    ----------
    Wilson, Knowles and Ghahramani (2012), Gaussian process regression networks, International Conference on Machine
    Learning.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import GPRN
    >>> likelihood = GPRN(0.1, nodes=1, outputs=2)
    >>> likelihood.latents
    3
    >>> mean, variance = likelihood.moments(np.array([[[1.0, 2.0, 3.0]]]))  # weights 1 and 2, node 3
    >>> mean
    array([[[3., 6.]]])
    """

    separable: ClassVar[bool] = False
    nodes: int

    def __init__(self, std: Array, nodes: int, outputs: int | None = None, *, learn: bool = True) -> None:
        check_integer("nodes", nodes, 1)
        set_fields(self, log_scale=log_per_output("std", std, outputs, learn=learn), nodes=nodes)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name; None for a default."""
        (name, scale), *rest = super().arguments().items()
        return {name: scale, "nodes": self.nodes, **dict(rest)}

    @property
    def latents(self) -> int:
        """Number of latents, Q = P R + R."""
        return (self.outputs + 1) * self.nodes

    def location(self, f: Array) -> Array:
        """Compute W g, (S, N, P).

        Parameters
        ----------
        f : array, shape (S, N, Q)
            Samples of the weights, output by output, and of the nodes.

        Returns
        -------
        array, shape (S, N, P)
        """
        xp = array_namespace(f)
        weights = xp.reshape(f[..., : -self.nodes], (*f.shape[:-1], self.outputs, self.nodes))
        return xp.sum(weights * f[..., None, -self.nodes :], axis=-1)

    def expected_log_density(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """Compute E[log p(y_n | f_n)] (N,) and its derivatives in closed form, for latents with these moments (N, Q).

        For independent weights and nodes, E[(y - w g)^2] = (y - E[w] E[g])^2 + E[w]^2 V[g] + V[w] E[g]^2 + V[w] V[g].

        Parameters
        ----------
        y : array, shape (N, P)
            Observations; NaN marks a missing one.
        mean, variance : array, shape (N, Q)
            Moments of independent normal latents.

        Returns
        -------
        value : array, shape (N,), in nats
        mean_derivative : array, shape (N, Q)
        variance_derivative : array, shape (N, Q)
            Twice the derivative with respect to the variance.
        parameter_derivative : array, shape (N, K)
        """
        xp = array_namespace(y, mean)
        N, R = mean.shape[0], self.nodes
        w, v = (xp.reshape(moment[:, :-R], (N, self.outputs, R)) for moment in (mean, variance))
        g, u = mean[:, None, -R:], variance[:, None, -R:]
        log_std, missing = self.log_scale.convert_like(mean[None, ...]), xp.isnan(y)
        nothing = xp.zeros_like(y)
        precision = xp.where(missing, nothing, xp.exp(-2.0 * log_std) + nothing)
        residual = fill_missing(y) - xp.sum(w * g, axis=-1)
        spread = xp.sum(xp.square(w) * u + v * (xp.square(g) + u), axis=-1)
        squares = precision * (xp.square(residual) + spread)
        terms = mask_missing(y, -0.5 * squares - log_std - HALF_LOG_TWO_PI)
        c, e = precision[..., None], residual[..., None]
        by_weights = c * (e * g - w * u), -c * (xp.square(g) + u)
        by_nodes = xp.sum(c * (e * w - v * g), axis=1), -xp.sum(c * (xp.square(w) + v), axis=1)
        gradient, curvature = (
            xp.concat([xp.reshape(weights, (N, self.outputs * R)), nodes], axis=1)
            for weights, nodes in zip(by_weights, by_nodes, strict=True)
        )
        parameters = self.log_scale.gradient(mask_missing(y, squares - 1.0)[None, ...])[0, ...]
        return xp.sum(terms, axis=-1), gradient, curvature, parameters
