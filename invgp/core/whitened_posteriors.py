"""Coordinates in which an earlier estimate of the posterior is standard normal.

L-BFGS needs a well-scaled problem. A posterior that is a thousand times narrower than the prior is badly scaled in
coordinates whitened by the prior, but not in coordinates whitened by an earlier estimate of the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace, device_of
from invgp.core.posteriors import Full, Mixture


@dataclass(frozen=True)
class Whitening:
    """Map from x to the free parameters of a `Full` posterior: v = v0 + R0 a, R = R0 T, with (a, T) in x.

    Parameters
    ----------
    family : Full
        Family of the posterior.
    base : Mixture
        The earlier estimate, with v0 and R0; x = 0 is this posterior.
    """

    family: Full
    base: Mixture

    def start(self) -> Array:
        """Return the x of the base, a vector of zeros."""
        xp = array_namespace(self.base.mean)
        return xp.zeros_like(self.family.pack(self.base))

    def posterior(self, x: Array) -> Array:
        """Convert x to the free parameters of the family."""
        inner = self.family.unpack(x, self.base.spread)
        mean = self.base.mean + (self.base.spread @ inner.mean[..., None])[..., 0]
        return self.family.pack(Mixture(inner.weights, mean, self.base.spread @ inner.spread))

    def gradient(self, x: Array, posterior_gradient: Array) -> Array:
        """Convert the gradient with respect to the free parameters of the family to that with respect to x."""
        xp = array_namespace(x)
        inner = self.family.unpack(x, self.base.spread)
        outer = self.base.spread @ inner.spread
        K, Q, M = inner.mean.shape
        by_mean = xp.reshape(posterior_gradient[: K * Q * M], (K, Q, M))
        by_raw = xp.reshape(posterior_gradient[K * Q * M :], (K, Q, M, M))
        diagonal = xp.linalg.diagonal(by_raw) / xp.linalg.diagonal(outer)
        eye = xp.eye(M, dtype=x.dtype, device=device_of(x))
        by_spread = xp.tril(by_raw, k=-1) + diagonal[..., None] * eye
        Rt = xp.matrix_transpose(self.base.spread)
        by_inner = Rt @ by_spread
        on_diagonal = xp.linalg.diagonal(by_inner) * xp.linalg.diagonal(inner.spread)
        raw = xp.tril(by_inner, k=-1) + on_diagonal[..., None] * eye
        parts = [(Rt @ by_mean[..., None])[..., 0], raw]
        return xp.concat([xp.reshape(part, (-1,)) for part in parts])
