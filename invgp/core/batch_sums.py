"""Sums over batches of sites, from which the bound and its gradient are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from invgp.core.backend import Array, array_namespace, zeros_like
from invgp.core.expectations import Expected
from invgp.core.geometry import Geometry, Gram
from invgp.core.parameters import learns_kernels, learns_latents

if TYPE_CHECKING:
    from invgp.core.bound import BoundState


@dataclass(frozen=True)
class BatchSum:
    """Sums over batches of sites.

    If the spreads of the posterior are factors, `spread` has the lower triangles that `spread_gradient` takes; for a
    dense `Full` posterior, the lower triangles of the gradient with respect to the factors. Adding to a sum, or
    finishing it, may overwrite its arrays.
    """

    value: Array
    weights: Array
    mean: Array
    spread: Array
    factor: Array
    kernels: Array
    inducing: Array
    likelihood: Array

    @staticmethod
    def zero(bound_state: BoundState) -> BatchSum:
        """Return the sum over no sites."""
        xp = array_namespace(bound_state.factor)
        q, p = bound_state.q, bound_state.parameters
        like = (q.weights, q.mean, q.spread, bound_state.factor, p.kernels, p.inducing, p.likelihood)
        return BatchSum(xp.sum(xp.zeros_like(q.weights)), *(zeros_like(a) for a in like))

    def plus(
        self, bound_state: BoundState, geometry: Geometry, sites: tuple[int, int], found: Expected, learn: Sequence[str]
    ) -> BatchSum:
        """Add a batch of sites with their expected log densities."""
        xp = array_namespace(bound_state.factor)
        q, weight = bound_state.q, bound_state.bound.weight
        by_weight = weight * xp.sum(found.value, axis=1)
        likelihood = self.likelihood
        if found.likelihood is not None:
            likelihood = likelihood + weight * xp.sum(q.weights[:, None] * found.likelihood, axis=0)
        value, weights = self.value + xp.sum(q.weights * by_weight), self.weights + by_weight
        whole = replace(self, value=value, weights=weights, likelihood=likelihood)
        if not learns_latents(learn):
            return whole
        share = weight * q.weights[:, None, None]
        pulled = bound_state.pull_back(geometry, share * found.gradient, 0.5 * share * found.curvature)
        gram = isinstance(pulled.spread, Gram)
        spread = pulled.spread.added_to(self.spread) if gram else self.spread + pulled.spread
        whole = replace(whole, mean=self.mean + pulled.mean, spread=spread)
        if not learns_kernels(learn):
            return whole
        X = bound_state.bound.X[slice(*sites), :]
        kernels, inducing, *factor = bound_state.pull_back_batch(geometry, X, pulled.geometry)
        whole = replace(whole, kernels=self.kernels + kernels, inducing=self.inducing + inducing)
        return replace(whole, factor=self.factor + factor[0]) if factor else whole
