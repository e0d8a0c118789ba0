"""Learning kernels, inducing inputs and noise without samples or simulator.

At the optimum of q the bound, as a function of kernels and inducing inputs, has the same gradient as the evidence of a
Gaussian model whose likelihood is prod_n t_n: what the sites say does not change to first order. With e_n the part of
f_n that the inducing variables leave open,

    F = log int N(v; 0, I) prod_n t_n(A_n v) dv - sum_n tr(Lambda_n cov e_n) / 2
      = -log|P| / 2 + m^T P m / 2 - sum_n tr(Lambda_n cov e_n) / 2,

which needs no samples. Where the noise is Gaussian, what the sites say is known for other noise levels as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, product
from invgp.core.coupled.coupled_gaussian import Marginals, SiteFactors, gaussian_from_natural, natural_parameters
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import GeometryGradient, pull_back_batch, pull_back_factor
from invgp.core.optimisers import LBFGS

FARTHEST = 1.0  # change of any logarithm in one step: far away, what the sites say now means little


class Evidence(NamedTuple):
    """F, its gradient with respect to the kernels' free parameters (Q, 1 + D) and Z (Q, M, D), and the posterior."""

    value: Array
    kernels: Array
    inducing: Array
    marginals: Marginals


def site_evidence(prior: Prior, sites: SiteFactors) -> Evidence:
    """The evidence of what the sites say, under a prior."""
    xp = array_namespace(sites.shift)
    natural = natural_parameters(prior, sites)
    q = gaussian_from_natural(natural)
    Q, M = q.mean.shape
    mean = xp.reshape(q.mean, (-1, 1))
    value = 0.5 * (xp.sum(q.mean * natural.shift) - q.log_determinant)
    by_precision = -0.5 * (product(xp.matrix_transpose(q.root), q.root) + mean @ mean.T)
    marginals = []
    kernels, inducing = xp.zeros_like(prior.Z[:, 0, :1]), xp.zeros_like(prior.Z)
    factor = xp.zeros_like(prior.factor)
    for start, stop in prior.batches():
        geometry = prior.geometry(start, stop)
        W, B = geometry.projection, stop - start
        marginals.append(q.marginals(geometry, prior.mean))
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
    return Evidence(value, kernels + through[0], inducing + through[1], Marginals.concatenate(marginals))


class NoiseScaledFactors(NamedTuple):
    """What sites say as a function of the noise of groups of outputs.

    With the noise of group g scaled by exp(c_g), the sites say fixed + sum_g exp(-2 c_g) by_group_g, and their log
    likelihoods have the constants sum_g exp(-2 c_g) constants_g - counts_g c_g.

    Attributes
    ----------
    fixed : what does not depend on the noise.
    by_group : (G, N, Q, Q) and (G, N, Q).
    constants, counts : (G,), summed over the sites; counts are of observations.
    """

    fixed: SiteFactors
    by_group: SiteFactors
    constants: Array
    counts: Array

    def at(self, change: Array) -> SiteFactors:
        """What the sites say with other log scales."""
        xp = array_namespace(change)
        weight = xp.exp(-2.0 * change)
        return SiteFactors(
            self.fixed.precision + xp.sum(weight[:, None, None, None] * self.by_group.precision, axis=0),
            self.fixed.shift + xp.sum(weight[:, None, None] * self.by_group.shift, axis=0),
        )

    def constant(self, change: Array) -> Array:
        """The constants with other log scales, ()."""
        xp = array_namespace(change)
        return xp.sum(xp.exp(-2.0 * change) * self.constants - self.counts * change)

    def gradient(self, change: Array, marginals: Marginals, prior_mean: Array) -> Array:
        """Of the evidence with constants, with respect to the change (G,), given the posterior's marginals."""
        xp = array_namespace(change)
        offset = marginals.mean - prior_mean
        second = marginals.covariance + offset[..., :, None] * offset[..., None, :]
        linear = xp.sum(self.by_group.shift * offset, axis=(1, 2))
        quadratic = 0.5 * xp.sum(self.by_group.precision * second, axis=(1, 2, 3))
        return -2.0 * xp.exp(-2.0 * change) * (linear - quadratic + self.constants) - self.counts


class Hyperparameters(NamedTuple):
    """What is learnt beside the posterior.

    Attributes
    ----------
    theta : (H,), of the kernels.
    noise : (G,), log scales.
    Z : (Q, M, D).
    """

    theta: Array
    noise: Array
    Z: Array

    def step_towards(self, other: Hyperparameters, step: float) -> Hyperparameters:
        """A part of the way."""
        return Hyperparameters(*((1.0 - step) * a + step * b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Learning:
    """Which hyperparameters move, and how they are tied.

    The kernels' free parameters are ``start + ties @ theta``; theta and the log scales of the noise begin at zero, and
    have normal priors about it: log-normal ones about where the user put them.

    Parameters
    ----------
    start : log variances and log length-scales, (Q, 1 + D).
    ties : (Q, 1 + D, H).
    spread : standard deviation (H,) of the prior of each theta; infinite for none.
    noise_groups : (P, G), 1 where an output's noise belongs to a group; an output in no group has the noise it has.
    noise_spread : standard deviation (G,) of the prior of each log scale; infinite for none.
    inducing : whether the inducing inputs move too.
    """

    start: Array
    ties: Array
    spread: Array
    noise_groups: Array
    noise_spread: Array
    inducing: bool = False
    evaluations: int = 20
    optimiser: LBFGS = field(default_factory=lambda: LBFGS(tolerance=1e-6))

    def initial(self, prior: Prior) -> Hyperparameters:
        """Where the user put them."""
        xp = array_namespace(self.spread)
        return Hyperparameters(xp.zeros_like(self.spread), xp.zeros_like(self.noise_spread), prior.Z)

    def prior(self, prior: Prior, here: Hyperparameters) -> Prior:
        """The prior at these hyperparameters."""
        numbers = self.start + (self.ties @ here.theta[:, None])[..., 0]
        kernels = tuple(kernel.with_parameters(numbers[j, :]) for j, kernel in enumerate(prior.kernels))
        return prior.replace_parameters(kernels, here.Z)

    def log_prior(self, here: Hyperparameters) -> Array:
        """Log density of the hyperparameters, less its constants."""
        xp = array_namespace(here.theta)
        return -0.5 * (xp.sum((here.theta / self.spread) ** 2) + xp.sum((here.noise / self.noise_spread) ** 2))

    def fit(self, prior: Prior, said: NoiseScaledFactors, start: Hyperparameters) -> Hyperparameters:
        """Those that maximise the evidence of what the sites say, which belongs to the noise of `start`."""
        xp = array_namespace(start.theta)
        # Of one size with the others, whatever the unit of the coordinates: no optimiser could tell otherwise.
        unit = xp.stack([xp.broadcast_to(k.length_scale, (prior.Z.shape[-1],)) for k in prior.kernels])[:, None, :]
        state = self.optimiser.init(self._flat(start._replace(Z=start.Z / unit)))
        for _ in range(self.evaluations):
            if state.finished:
                break
            here = self._unflat(state.trial, start, unit)
            change = here.noise - start.noise
            moves = xp.concat([change, here.theta - start.theta])
            if not bool(xp.all(xp.abs(moves) < FARTHEST)):
                state = self.optimiser.tell(state, np.inf, state.trial)
                continue
            try:
                evidence = site_evidence(self.prior(prior, here), said.at(change))
            except np.linalg.LinAlgError:
                state = self.optimiser.tell(state, np.inf, state.trial)
                continue
            value = evidence.value + said.constant(change) + self.log_prior(here)
            by_theta = xp.sum(evidence.kernels[..., None] * self.ties, axis=(0, 1)) - here.theta / self.spread**2
            by_noise = -here.noise / self.noise_spread**2
            if by_noise.shape[0]:
                by_noise = by_noise + said.gradient(change, evidence.marginals, prior.mean)
            gradient = self._flat(Hyperparameters(by_theta, by_noise, evidence.inducing * unit))
            state = self.optimiser.tell(state, -float(value), -gradient)
        return self._unflat(state.point, start, unit)

    def _flat(self, here: Hyperparameters) -> Array:
        xp = array_namespace(here.theta)
        return xp.concat([here.theta, here.noise, *([xp.reshape(here.Z, (-1,))] if self.inducing else [])])

    def _unflat(self, vector: Array, like: Hyperparameters, unit: Array) -> Hyperparameters:
        """From a vector whose inducing inputs are in units (Q, 1, D)."""
        xp = array_namespace(vector)
        H, G = like.theta.shape[0], like.noise.shape[0]
        Z = xp.reshape(vector[H + G :], like.Z.shape) * unit if self.inducing else like.Z
        return Hyperparameters(vector[:H], vector[H : H + G], Z)
