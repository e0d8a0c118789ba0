"""Learning kernels and inducing inputs with what the sites say held fixed.

At the optimum of q the bound, as a function of kernels and inducing inputs, has the same gradient as the evidence of a
Gaussian model whose likelihood is prod_n t_n: what the sites say does not change to first order. With e_n the part of
f_n that the inducing variables leave open,

    F = log int N(v; 0, I) prod_n t_n(A_n v) dv - sum_n tr(Lambda_n cov e_n) / 2
      = -log|P| / 2 + m^T P m / 2 - sum_n tr(Lambda_n cov e_n) / 2,

which needs no samples and no simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, product
from invgp.core.coupled.posterior import SiteFactors, natural_parameters, posterior_of
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import GeometryGradient, pull_back_batch, pull_back_factor
from invgp.core.optimisers import LBFGS


class Evidence(NamedTuple):
    """F and its gradient with respect to the kernels' free parameters (Q, 1 + D) and Z (Q, M, D)."""

    value: Array
    kernels: Array
    inducing: Array


def site_evidence(prior: Prior, sites: SiteFactors) -> Evidence:
    """The evidence of what the sites say, under a prior."""
    xp = array_namespace(sites.shift)
    natural = natural_parameters(prior, sites)
    q = posterior_of(natural)
    Q, M = q.mean.shape
    mean = xp.reshape(q.mean, (-1, 1))
    value = 0.5 * (xp.sum(q.mean * natural.shift) - q.log_determinant)
    by_precision = -0.5 * (product(xp.matrix_transpose(q.root), q.root) + mean @ mean.T)
    kernels, inducing = xp.zeros_like(prior.Z[:, 0, :1]), xp.zeros_like(prior.Z)
    factor = xp.zeros_like(prior.factor)
    for start, stop in prior.batches():
        geometry = prior.geometry(start, stop)
        W, B = geometry.projection, stop - start
        own = xp.linalg.diagonal(sites.precision[start:stop, ...]).T
        value = value - 0.5 * xp.sum(own * geometry.residual)
        by_projection = []
        for i in range(Q):
            weighted = xp.reshape(W * sites.precision[start:stop, i, :].T[:, None, :], (Q * M, B))
            pull = 2.0 * product(by_precision[i * M : (i + 1) * M, :], weighted)
            by_projection.append(pull + q.mean[i, :, None] * sites.shift[start:stop, i][None, :])
        gradient = GeometryGradient(xp.zeros_like(factor), xp.stack(by_projection), -0.5 * own)
        parts = pull_back_batch(prior.kernels, prior.Z, prior.X[start:stop, :], geometry, gradient)
        kernels, inducing, factor = kernels + parts[0], inducing + parts[1], factor + parts[2]
    through = pull_back_factor(prior.kernels, prior.Z, prior.factor, factor, prior.jitter)
    return Evidence(value, kernels + through[0], inducing + through[1])


@dataclass(frozen=True)
class Learning:
    """Which hyperparameters move, and how they are tied.

    The kernels' free parameters are ``start + ties @ theta``; theta begins at zero.

    Parameters
    ----------
    start : log variances and log length-scales, (Q, 1 + D).
    ties : (Q, 1 + D, H).
    spread : standard deviation (H,) of the normal prior of each theta about zero; infinite for none.
    inducing : whether the inducing inputs move too.
    """

    start: Array
    ties: Array
    spread: Array
    inducing: bool = False
    evaluations: int = 20
    optimiser: LBFGS = field(default_factory=lambda: LBFGS(tolerance=1e-6))

    def prior(self, prior: Prior, theta: Array, Z: Array) -> Prior:
        """The prior at these hyperparameters."""
        numbers = self.start + (self.ties @ theta[:, None])[..., 0]
        kernels = tuple(kernel.with_parameters(numbers[j, :]) for j, kernel in enumerate(prior.kernels))
        return prior.altered(kernels, Z)

    def log_prior(self, theta: Array) -> Array:
        """Log density of theta, less its constants."""
        return -0.5 * array_namespace(theta).sum((theta / self.spread) ** 2)

    def fit(self, prior: Prior, sites: SiteFactors, theta: Array) -> tuple[Array, Array]:
        """Theta (H,) and Z (Q, M, D) that maximise the evidence of the sites, from where they are."""
        xp = array_namespace(theta)
        H = theta.shape[0]
        start = xp.concat([theta, xp.reshape(prior.Z, (-1,))]) if self.inducing else theta
        state = self.optimiser.init(start)
        for _ in range(self.evaluations):
            if state.finished:
                break
            here, Z = self._split(state.trial, H, prior)
            try:
                evidence = site_evidence(self.prior(prior, here, Z), sites)
            except np.linalg.LinAlgError:
                state = self.optimiser.tell(state, np.inf, state.trial)
                continue
            by_theta = xp.sum(evidence.kernels[..., None] * self.ties, axis=(0, 1)) - here / self.spread**2
            gradient = xp.concat([by_theta, xp.reshape(evidence.inducing, (-1,))]) if self.inducing else by_theta
            state = self.optimiser.tell(state, -float(evidence.value + self.log_prior(here)), -gradient)
        return self._split(state.point, H, prior)

    def _split(self, vector: Array, H: int, prior: Prior) -> tuple[Array, Array]:
        xp = array_namespace(vector)
        return vector[:H], xp.reshape(vector[H:], prior.Z.shape) if self.inducing else prior.Z
