"""Importance sampling of the posterior on an emulator, with draws from its Gaussian approximation."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from scipy.special import logsumexp

from invgp.core.backend import Array, Backend, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.inference.emulated_posterior import EmulatedPosterior, SamplingOptions
from invgp.posterior import Samples
from invgp.problem import Floats

RELIABLE, HOPELESS = 0.7, 1.0  # Pareto k below which weights are reliable, and above which they contain nothing
EQUAL = 0.1  # nats: weights that differ by less have no tail
LARGEST_CHANGE = 0.1  # relative change of the spread by weights between these that a good approximation may have


class GaussianCheck(NamedTuple):
    """Comparison of a Gaussian approximation with the exact posterior by importance weights.

    Attributes
    ----------
    k_hat : float
        Pareto k of the weights.
    spread_change : float
        Median over sites and latents of the absolute logarithm of the ratio of standard deviations.
    """

    k_hat: float
    spread_change: float

    @property
    def holds(self) -> bool:
        """Whether the Gaussian is a good approximation: reliable weights, or weights that hardly change the spread."""
        return self.k_hat <= RELIABLE or (self.k_hat <= HOPELESS and self.spread_change <= LARGEST_CHANGE)


def check_gaussian(
    posterior: EmulatedPosterior, gaussian: GaussianPosterior, rng: np.random.Generator, options: SamplingOptions
) -> GaussianCheck:
    """Compare a Gaussian approximation with the posterior on the emulator, jointly over all sites and latents."""
    z = rng.standard_normal((options.draws, posterior.target.size))
    weights, variables = importance_weights(posterior, gaussian, z, options.rows_at_once)
    if not np.isfinite(weights).any():
        return GaussianCheck(np.inf, np.inf)
    smoothed, k_hat = smooth_weights(weights)
    shares = np.exp(smoothed - logsumexp(smoothed))[:, None, None]
    latents = posterior.latents(variables)
    mean = np.sum(shares * latents, axis=0)
    variance = np.sum(shares * (latents - mean) ** 2, axis=0)
    change = np.abs(0.5 * np.log(np.maximum(variance, 1e-300) / latents.var(axis=0)))
    return GaussianCheck(k_hat, float(np.median(change)))


def smooth_weights(weights: Floats) -> tuple[Floats, float]:
    """Smooth the largest of log weights (R,), and return the Pareto k; weights that are nearly equal have k = 0."""
    finite = weights[np.isfinite(weights)]
    if np.ptp(finite) < EQUAL:
        return weights, 0.0
    # The function takes log likelihoods, whose negative values are the log weights of leave-one-out cross-validation.
    negative = -np.maximum(weights, finite.min() - 100.0)
    smoothed, k_hat = array_stats.psislw(negative)  # type: ignore[no-untyped-call]
    return np.asarray(smoothed), float(k_hat)


def importance_weights(
    posterior: EmulatedPosterior, gaussian: GaussianPosterior, z: Floats, rows: int
) -> tuple[Floats, Floats]:
    """Return logarithms (R,) of the importance weights of draws z (R, D), and the variables (R, D) of the prior."""
    target, backend = posterior.target, posterior.backend
    centre, root = extend_gaussian(backend, gaussian, target.size)
    step = max(rows // target.prior.site_count, 1)
    values, variables = [], []
    for i in range(0, len(z), step):
        v = target.variables(backend.asarray(z[i : i + step]), centre, root)
        values.append(to_numpy(target.log_density_value(v)))
        variables.append(to_numpy(v))
    weights = np.concatenate(values) + 0.5 * np.sum(z**2, axis=1) - 0.5 * float(gaussian.q.log_determinant)
    return np.where(np.isfinite(weights), weights, -np.inf), np.concatenate(variables)


def importance_weights_at(posterior: EmulatedPosterior, gaussian: GaussianPosterior, v: Floats, rows: int) -> Floats:
    """Return logarithms (R,) of the importance weights of draws from elsewhere, as variables v (R, D) of the prior."""
    return importance_weights(posterior, gaussian, whiten(posterior, gaussian, v), rows)[0]


def whiten(posterior: EmulatedPosterior, gaussian: GaussianPosterior, v: Floats) -> Floats:
    """Return the coordinates (R, D) of variables v (R, D) of a dense prior in which a Gaussian is standard normal."""
    centre, root = extend_gaussian(posterior.backend, gaussian, posterior.target.size)
    return np.asarray(np.linalg.solve(to_numpy(root).T, (v - to_numpy(centre)).T).T)


def draw_by_importance(
    posterior: EmulatedPosterior, gaussian: GaussianPosterior, rng: np.random.Generator, options: SamplingOptions
) -> tuple[Samples, float]:
    """Draw from a Gaussian approximation, and select draws by their importance weights.

    If the weights are reliable, so many draws are made that enough of them are effective: the Monte Carlo error of a
    mean is then below 0.02 standard deviations.

    Returns
    -------
    samples : Samples
    effective : float
        Effective number of draws by the weights.
    """
    size = posterior.target.size

    def propose(count: int) -> tuple[Floats, Floats]:
        return importance_weights(posterior, gaussian, rng.standard_normal((count, size)), options.rows_at_once)

    weights, variables = propose(options.proposals)
    smoothed, k_hat = smooth_weights(weights)
    effective = effective_number(smoothed)
    most = options.most_numbers // size
    wanted = min(math.ceil(len(weights) * options.enough_effective / effective), most) - len(weights)
    if wanted > 0 and k_hat <= options.largest_k_hat and effective >= options.fewest_effective:
        more, more_variables = propose(wanted)
        weights, variables = np.concatenate([weights, more]), np.concatenate([variables, more_variables])
        smoothed, k_hat = smooth_weights(weights)
        effective = effective_number(smoothed)
    log_evidence = float(logsumexp(weights) - math.log(len(weights)))
    shares = np.exp(smoothed - logsumexp(smoothed))
    selected = max(options.draws, min(round(effective), options.enough_effective))
    places = (rng.random() + np.arange(selected)) / selected
    chosen = rng.permutation(np.minimum(np.searchsorted(np.cumsum(shares), places), len(shares) - 1))
    v = variables[chosen]
    latents = posterior.latents(v)
    count = (latents.shape[1], latents.shape[2])
    samples = Samples(
        latents,
        np.arange(len(latents)) * options.populations // len(latents),
        np.zeros(len(latents), dtype=np.intp),
        "importance sampling of the Gaussian approximation",
        k_hat,
        np.ones(count),
        np.full(count, effective),
        log_evidence,
        1.0 / math.sqrt(effective),
        posterior.inducing_variables(v),
    )
    return samples, effective


def effective_number(log_weights: Floats) -> float:
    """Return the effective number of draws with these log weights (R,)."""
    return float(np.exp(2.0 * logsumexp(log_weights) - logsumexp(2.0 * log_weights)))


def extend_gaussian(backend: Backend, gaussian: GaussianPosterior, size: int) -> tuple[Array, Array]:
    """Return centre (D,) and root (Q M, Q M) of a Gaussian; variables beyond the inducing ones have mean zero."""
    xp = backend.namespace
    mean = xp.reshape(gaussian.q.mean, (-1,))
    rest = backend.asarray(np.zeros(size - mean.shape[0]))
    return xp.concat([mean, rest]), gaussian.q.root
