"""Learning of kernels, inducing inputs and noise levels, without samples and simulator runs.

At the optimum of q, the bound as a function of kernels and inducing inputs has the same gradient as the evidence of a
Gaussian model with the likelihood prod_n t_n, because the bound is stationary with respect to the site factors t_n.
With e_n the deviation of f_n from its expectation given the inducing variables,

    F = log int N(v; 0, I) prod_n t_n(A_n v) dv - sum_n tr(Lambda_n cov e_n) / 2
      = -log|P| / 2 + m^T P m / 2 - sum_n tr(Lambda_n cov e_n) / 2,

which needs no samples. For Gaussian noise, the site factors are known functions of the noise level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, product
from invgp.core.coupled.coupled_gaussian import (
    CoupledGaussian,
    Marginals,
    SiteFactors,
    gaussian_from_natural,
    natural_parameters,
)
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import (
    GeometryGradient,
    join_parameters,
    pull_back_batch,
    pull_back_factor,
    split_parameters,
)
from invgp.core.optimisers import LBFGS

MAX_LOG_CHANGE = 1.0  # largest change of a log hyperparameter in one fit: the site factors are valid only nearby


class Evidence(NamedTuple):
    """Evidence of site factors, with its gradient.

    Attributes
    ----------
    value : Array, shape ()
        F, in nats.
    kernels : Array, shape (P,)
        Gradient with respect to the free parameters of the kernels.
    inducing : Array, shape (Q, M, D)
        Gradient with respect to the inducing inputs.
    marginals : Marginals
        Posterior at the sites.
    """

    value: Array
    kernels: Array
    inducing: Array
    marginals: Marginals


def site_evidence(prior: Prior, sites: SiteFactors) -> Evidence:
    """Compute the evidence F of site factors under a prior, its gradient, and the posterior at the sites.

    Parameters
    ----------
    prior : Prior
        The prior.
    sites : SiteFactors
        Factors of all sites.

    Returns
    -------
    Evidence

    Raises
    ------
    numpy.linalg.LinAlgError
        If the posterior precision is not positive definite.
    """
    xp = array_namespace(sites.shift)
    natural = natural_parameters(prior, sites)
    q = gaussian_from_natural(natural)
    Q, M = q.mean.shape
    mean = xp.reshape(q.mean, (-1, 1))
    value = 0.5 * (xp.sum(q.mean * natural.shift) - q.log_determinant)
    by_precision = -0.5 * (product(xp.matrix_transpose(q.root), q.root) + mean @ mean.T)
    marginals = []
    kernels, inducing = xp.zeros_like(join_parameters(prior.kernels)), xp.zeros_like(prior.Z)
    factor = xp.zeros_like(prior.factor)
    for start, stop in prior.batches():
        geometry = prior.geometry(start, stop)
        W, B = geometry.projection, stop - start
        marginals.append(q.marginals(geometry, prior.mean[start:stop, :]))
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


def evidence_value(prior: Prior, sites: SiteFactors) -> tuple[float, CoupledGaussian]:
    """Compute the evidence F of site factors under a prior without its gradient, and the posterior.

    Parameters
    ----------
    prior : Prior
        The prior.
    sites : SiteFactors
        Factors of all sites.

    Returns
    -------
    value : float, in nats
    posterior : CoupledGaussian

    Raises
    ------
    numpy.linalg.LinAlgError
        If the posterior precision is not positive definite.
    """
    xp = array_namespace(sites.shift)
    natural = natural_parameters(prior, sites)
    q = gaussian_from_natural(natural)
    value = 0.5 * (xp.sum(q.mean * natural.shift) - q.log_determinant)
    for start, stop in () if prior.dense else prior.batches():
        own = xp.linalg.diagonal(sites.precision[start:stop, ...]).T
        value = value - 0.5 * xp.sum(own * prior.geometry(start, stop).residual)
    return float(value), q


class NoiseScaledFactors(NamedTuple):
    """Site factors as a function of the noise scales of G groups of outputs.

    If the noise of group g is scaled by exp(c_g), the site factors are fixed + sum_g exp(-2 c_g) by_group_g, and the
    log likelihoods have the constant sum_g exp(-2 c_g) constants_g - counts_g c_g.

    Attributes
    ----------
    fixed : SiteFactors
        Part that does not depend on the noise scales.
    by_group : SiteFactors, shapes (G, N, Q, Q) and (G, N, Q)
        Part of each group.
    constants : Array, shape (G,)
        Constants of the expected log likelihoods, summed over the sites.
    counts : Array, shape (G,)
        Number of observations of each group.
    """

    fixed: SiteFactors
    by_group: SiteFactors
    constants: Array
    counts: Array

    def site_factors(self, change: Array) -> SiteFactors:
        """Compute the site factors for log scales that differ by `change`, shape (G,).

        Parameters
        ----------
        change : array, shape (G,)
            Change of the log scale of each group of outputs.

        Returns
        -------
        SiteFactors
        """
        xp = array_namespace(change)
        weight = xp.exp(-2.0 * change)
        return SiteFactors(
            self.fixed.precision + xp.sum(weight[:, None, None, None] * self.by_group.precision, axis=0),
            self.fixed.shift + xp.sum(weight[:, None, None] * self.by_group.shift, axis=0),
        )

    def constant(self, change: Array) -> Array:
        """Compute the constant of the log likelihood, shape (), for log scales that differ by `change`, shape (G,).

        Parameters
        ----------
        change : array, shape (G,)
            Change of the log scale of each group of outputs.

        Returns
        -------
        array, shape (), in nats
        """
        xp = array_namespace(change)
        return xp.sum(xp.exp(-2.0 * change) * self.constants - self.counts * change)

    def gradient(self, change: Array, marginals: Marginals, prior_mean: Array) -> Array:
        """Compute the gradient (G,) of the evidence plus `constant` with respect to `change`, given the marginals.

        Parameters
        ----------
        change : array, shape (G,)
            Change of the log scale of each group of outputs.
        marginals : Marginals
            Posterior marginals of the sites.
        prior_mean : array, shape (N, Q)
            Prior mean at the sites.

        Returns
        -------
        array, shape (G,)
        """
        xp = array_namespace(change)
        offset = marginals.mean - prior_mean
        second = marginals.covariance + offset[..., :, None] * offset[..., None, :]
        linear = xp.sum(self.by_group.shift * offset, axis=(1, 2))
        quadratic = 0.5 * xp.sum(self.by_group.precision * second, axis=(1, 2, 3))
        return -2.0 * xp.exp(-2.0 * change) * (linear - quadratic + self.constants) - self.counts


class Hyperparameters(NamedTuple):
    """Hyperparameters that are learnt together with the posterior.

    Attributes
    ----------
    theta : Array, shape (H,)
        Free parameters of the kernels; see `HyperparameterLearning`.
    noise : Array, shape (G,)
        Log scale of the noise of each group of outputs.
    Z : Array, shape (Q, M, D)
        Inducing inputs.
    """

    theta: Array
    noise: Array
    Z: Array

    def step_towards(self, other: Hyperparameters, step: float) -> Hyperparameters:
        """Interpolate linearly: `step` 0 returns these values, 1 those of `other`.

        Parameters
        ----------
        other : Hyperparameters
            Values at step 1.
        step : float
            Length of the step.

        Returns
        -------
        Hyperparameters
        """
        return Hyperparameters(*((1.0 - step) * a + step * b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class HyperparameterLearning:
    """Definition of the hyperparameters that are learnt, and their optimisation.

    The free parameters of the kernels are ``start + ties @ theta``. Theta and the log scales of the noise start at
    zero and have normal priors with mean zero, so variances, length-scales and noise levels have log-normal priors
    around the values in the configuration. The variance of the noise can have an inverse-gamma prior instead.

    Parameters
    ----------
    start : Array, shape (P,)
        Free parameters of all kernels at theta = 0.
    ties : Array, shape (P, H)
        Linear map from theta to the free parameters of the kernels.
    spread : Array, shape (H,)
        Standard deviation of the prior of each theta; infinite for a flat prior.
    noise_groups : Array, shape (P, G)
        1 where the noise of an output belongs to a group. The noise of an output without a group is fixed.
    noise_spread : Array, shape (G,)
        Standard deviation of the prior of each log scale; infinite for a flat prior.
    noise_degrees : Array, shape (G,), or None
        Degrees of freedom nu of the inverse-gamma prior of each squared scale, with shape and scale nu / 2, by which
        the normal prior is multiplied; 0 or None without one.
    inducing : bool
        Whether the inducing inputs are learnt.
    evaluations : int
        Maximum number of evaluations of the evidence in one fit.
    optimiser : LBFGS
        Optimiser of the evidence.
    """

    start: Array
    ties: Array
    spread: Array
    noise_groups: Array
    noise_spread: Array
    noise_degrees: Array | None = None
    inducing: bool = False
    evaluations: int = 20
    optimiser: LBFGS = field(default_factory=lambda: LBFGS(tolerance=1e-6))

    def initial_values(self, prior: Prior) -> Hyperparameters:
        """Return the values of the configuration: zeros, and the inducing inputs of the prior.

        Parameters
        ----------
        prior : Prior
            Prior of the configuration.

        Returns
        -------
        Hyperparameters
        """
        xp = array_namespace(self.spread)
        return Hyperparameters(xp.zeros_like(self.spread), xp.zeros_like(self.noise_spread), prior.Z)

    def prior_at(self, prior: Prior, here: Hyperparameters) -> Prior:
        """Return the prior with these hyperparameters.

        Parameters
        ----------
        prior : Prior
            Prior of the configuration.
        here : Hyperparameters
            Values of the hyperparameters.

        Returns
        -------
        Prior
        """
        kernels = split_parameters(prior.kernels, self.start + (self.ties @ here.theta[:, None])[..., 0])
        return prior.replace_parameters(kernels, here.Z)

    def log_prior(self, here: Hyperparameters) -> Array:
        """Compute the log prior density of the hyperparameters, without constants.

        Parameters
        ----------
        here : Hyperparameters
            Values of the hyperparameters.

        Returns
        -------
        array, shape (), in nats
        """
        xp = array_namespace(here.theta)
        normal = -0.5 * (xp.sum((here.theta / self.spread) ** 2) + xp.sum((here.noise / self.noise_spread) ** 2))
        if self.noise_degrees is None:
            return normal
        return normal - xp.sum(self.noise_degrees * (here.noise + 0.5 * xp.exp(-2.0 * here.noise)))

    def fit(self, prior: Prior, factors: NoiseScaledFactors, start: Hyperparameters) -> Hyperparameters:
        """Maximise the evidence of the site factors plus the log prior of the hyperparameters.

        Parameters
        ----------
        prior : Prior
            Prior that defines the sites and the types of kernels.
        factors : NoiseScaledFactors
            Site factors for the noise scales of `start`.
        start : Hyperparameters
            Start of the optimisation.

        Returns
        -------
        Hyperparameters
            No log hyperparameter differs from `start` by more than `MAX_LOG_CHANGE`.
        """
        xp = array_namespace(start.theta)
        # Inducing inputs in units of the length-scales have the same order of magnitude as the log hyperparameters.
        unit = xp.stack([kernel.correlation_length(prior.Z.shape[-1]) for kernel in prior.kernels])[:, None, :]
        extent = (xp.max(prior.X, axis=0) - xp.min(prior.X, axis=0))[: prior.Z.shape[-1]]
        unit = xp.where(xp.isfinite(unit), unit, xp.where(extent > 0.0, extent, xp.ones_like(extent)))
        state = self.optimiser.init(self._to_vector(start._replace(Z=start.Z / unit)))
        for _ in range(self.evaluations):
            if state.finished:
                break
            here = self._from_vector(state.trial, start, unit)
            change = here.noise - start.noise
            moves = xp.concat([change, here.theta - start.theta])
            if not bool(xp.all(xp.abs(moves) < MAX_LOG_CHANGE)):
                state = self.optimiser.tell(state, np.inf, state.trial)
                continue
            try:
                evidence = site_evidence(self.prior_at(prior, here), factors.site_factors(change))
            except np.linalg.LinAlgError:
                state = self.optimiser.tell(state, np.inf, state.trial)
                continue
            value = evidence.value + factors.constant(change) + self.log_prior(here)
            by_theta = xp.sum(evidence.kernels[:, None] * self.ties, axis=0) - here.theta / self.spread**2
            by_noise = -here.noise / self.noise_spread**2
            if self.noise_degrees is not None:
                by_noise = by_noise + self.noise_degrees * (xp.exp(-2.0 * here.noise) - 1.0)
            if by_noise.shape[0]:
                by_noise = by_noise + factors.gradient(change, evidence.marginals, prior.mean)
            gradient = self._to_vector(Hyperparameters(by_theta, by_noise, evidence.inducing * unit))
            state = self.optimiser.tell(state, -float(value), -gradient)
        return self._from_vector(state.point, start, unit)

    def _to_vector(self, here: Hyperparameters) -> Array:
        """Concatenate the learnt hyperparameters to one vector."""
        xp = array_namespace(here.theta)
        return xp.concat([here.theta, here.noise, *([xp.reshape(here.Z, (-1,))] if self.inducing else [])])

    def _from_vector(self, vector: Array, like: Hyperparameters, unit: Array) -> Hyperparameters:
        """Convert a vector, with inducing inputs in units (Q, 1, D), to hyperparameters."""
        xp = array_namespace(vector)
        H, G = like.theta.shape[0], like.noise.shape[0]
        Z = xp.reshape(vector[H + G :], like.Z.shape) * unit if self.inducing else like.Z
        return Hyperparameters(vector[:H], vector[H : H + G], Z)
