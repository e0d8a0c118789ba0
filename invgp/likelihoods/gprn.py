"""The Gaussian process regression network of Wilson, Knowles and Ghahramani (2012)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_integer
from invgp.likelihoods._additive import GaussianNoise
from invgp.likelihoods._arrays import set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False)
class GPRN(GaussianNoise):
    """y(x) = W(x) g(x) + noise: outputs whose correlation changes from place to place.

    With R nodes, the latents at a site are first the P R weights, row by row (all weights of output 1, then of
    output 2, ...), then the R nodes g, so Q = P R + R.

    Parameters
    ----------
    std : standard deviation of the noise, in the unit of y: a number shared by all outputs, (P,), or (N, P), which is
        known.
    nodes : R.
    outputs : P; by default what `std` says, or 1.
    learn : whether the logarithm of the standard deviation is a parameter.
    """

    separable: ClassVar[bool] = False
    nodes: int

    def __init__(self, std: Array, nodes: int, outputs: int | None = None, *, learn: bool = True) -> None:
        check_integer("nodes", nodes, 1)
        set_fields(self, log_scale=log_per_output("std", std, outputs, learn=learn), nodes=nodes)

    @property
    def latents(self) -> int:
        """Q = P R + R."""
        return (self.outputs + 1) * self.nodes

    def location(self, f: Array) -> Array:
        """W g, (S, N, P)."""
        xp = array_namespace(f)
        weights = xp.reshape(f[..., : -self.nodes], (*f.shape[:-1], self.outputs, self.nodes))
        return xp.sum(weights * f[..., None, -self.nodes :], axis=-1)
