"""Draws from the exact posterior of a site model, with the emulator in the simulator's place.

Three samplers are used, the cheapest that is right. Importance sampling reweights draws from the Gaussian
approximation; it is reliable if the Pareto k of the weights is small. Hamiltonian Monte Carlo starts at draws from the
Gaussian, and is right for any shape with one mode. Tempered sequential Monte Carlo (`tempered_draws`) starts at the
prior; it finds all modes and their probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from invgp.core.backend import Array, Backend, array_namespace, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import solvable_factor
from invgp.core.sampling.bridge import Evidence, bridge_evidence
from invgp.core.sampling.hamiltonian import HamiltonianOptions, LogDensity, sample
from invgp.core.sampling.site_target import SiteTarget
from invgp.core.sampling.statistics import effective_sample_size, split_r_hat
from invgp.emulation import Surrogate
from invgp.latent_model.noise_density import noise_log_density_gradient
from invgp.latent_model.prior import prior_of
from invgp.posterior import Samples
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class SamplingOptions:
    """Tuning of the samplers.

    Parameters
    ----------
    proposals : int
        Draws from the Gaussian for importance sampling.
    largest_k_hat : float
        Largest Pareto k of their weights at which importance sampling is used.
    fewest_effective : int
        Fewest effective draws of importance sampling.
    draws : int
        Equally weighted draws that importance sampling selects.
    chains, fewest_chains : int
        Chains of Hamiltonian Monte Carlo, and their smallest number for surveys with many sites.
    chain_numbers : int
        Latent values of all chains together, which determine the time; for a survey with more, there are fewer chains.
    warmup : int
        Iterations that are discarded.
    iterations, most_iterations : int
        Iterations that are kept; more if there are fewer chains.
    most_numbers : int
        Latent values of all draws together, which determine the memory.
    largest_r_hat : float
        Largest R-hat of chains that have converged.
    populations : int
        Populations of the tempered sampler.
    fewest_particles, most_particles : int
        Particles of each population, before they are limited by `numbers_at_once`.
    numbers_at_once : int
        Latent values of all particles together, which determine time and memory.
    most_tempered : int
        Largest number of variables (sites times latents) of the tempered sampler.
    gap : float
        Smallest gap between the draws of two modes, in standard deviations of all draws.
    smallest_mode : float
        Smallest probability of a mode.
    most_modes : int
        Largest number of modes that are distinguished.
    rows_at_once : int
        Rows for the emulator in one call, to limit memory.
    bridged : int
        Draws from the Gaussian, and most draws from the posterior, for the evidence of Hamiltonian Monte Carlo; 0 for
        none.
    independent : float
        Largest prior correlation of sites that are taken for independent, and tempered apart from each other.
    """

    proposals: int = 4000
    largest_k_hat: float = 0.5
    fewest_effective: int = 1000
    draws: int = 2000
    chains: int = 64
    fewest_chains: int = 16
    chain_numbers: int = 640_000
    warmup: int = 60
    iterations: int = 48
    most_iterations: int = 96
    most_numbers: int = 50_000_000
    largest_r_hat: float = 1.05
    populations: int = 4
    fewest_particles: int = 64
    most_particles: int = 1024
    numbers_at_once: int = 60_000
    most_tempered: int = 1500
    gap: float = 0.5
    smallest_mode: float = 0.01
    most_modes: int = 20
    rows_at_once: int = 50_000
    bridged: int = 1000
    independent: float = 1e-4


Report = Callable[[str], None]  # receives the stage of a computation, for users
HAMILTONIAN = "Hamiltonian Monte Carlo"  # name of the sampler, for users
RELIABLE, HOPELESS = 0.7, 1.0  # Pareto k below which weights are reliable, and above which they contain nothing
EQUAL = 0.1  # nats: weights that differ by less have no tail
LARGEST_CHANGE = 0.1  # relative change of the spread by weights between these that a good approximation may have


class EmulatedPosterior:
    """Posterior of a problem with the emulator in the simulator's place.

    Parameters
    ----------
    problem : Problem
        Problem with learnt hyperparameters, and with the error of the emulator in its noise.
    emulator : Surrogate
    sites : array of int, shape (N,)
        Numbers of the problem's sites in the survey of the emulator.
    prior : Prior
        Prior of the latents at these sites.
    backend : Backend
    """

    def __init__(
        self, problem: Problem, emulator: Surrogate, sites: NDArray[np.intp], prior: Prior, backend: Backend
    ) -> None:
        self.problem, self.emulator, self.sites, self.backend = problem, emulator, sites, backend
        self.density = noise_log_density_gradient(problem, backend)
        self.target = SiteTarget(prior, self._likelihood)

    def _likelihood(self, latents: Array) -> tuple[Array, Callable[[], Array]]:
        outputs, pull_back = self.emulator.linearise(latents, self.sites)
        value, slopes = self.density(outputs)
        return value, lambda: pull_back(slopes)

    def select(self, numbers: NDArray[np.intp]) -> EmulatedPosterior:
        """Return the posterior of some of the sites, by their positions (B,), from their data alone."""
        part = self.problem.select_sites(numbers)
        return EmulatedPosterior(part, self.emulator, self.sites[numbers], prior_of(part, self.backend), self.backend)

    def whitened(self, v: Floats) -> Floats:
        """Return the whitened inducing variables (R, Q, M) of variables (..., D)."""
        prior = self.target.prior
        inducing = v.reshape(-1, v.shape[-1])[:, : self.target.inducing_size]
        return inducing.reshape(-1, prior.latent_count, prior.inducing_count)

    def whiten(self, latents: Floats) -> Floats:
        """Return the whitened inducing variables (R, Q, N) of latents (R, N, Q), for a dense prior."""
        prior = self.target.prior
        centred = np.moveaxis(latents - to_numpy(prior.mean), 0, -1)  # (N, Q, R)
        factor = to_numpy(solvable_factor(prior.kernels, prior.factor))
        parts = [solve_triangular(factor[j], centred[:, j], lower=True) for j in range(prior.latent_count)]
        return np.ascontiguousarray(np.stack(parts).transpose(2, 0, 1))

    def latents(self, v: Floats) -> Floats:
        """Compute latents (..., N, Q) from variables of the prior (..., D)."""
        flat = to_numpy(self.target.latents(self.backend.asarray(v.reshape(-1, v.shape[-1]))))
        return flat.reshape(*v.shape[:-1], *flat.shape[1:])


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
    weights, variables = _importance_weights(posterior, gaussian, z, options.rows_at_once)
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


def _importance_weights(
    posterior: EmulatedPosterior, gaussian: GaussianPosterior, z: Floats, rows: int
) -> tuple[Floats, Floats]:
    """Return logarithms (R,) of the importance weights of draws z (R, D), and the variables (R, D) of the prior."""
    target, backend = posterior.target, posterior.backend
    centre, root = _extend(backend, gaussian, target.size)
    step = max(rows // target.prior.site_count, 1)
    values, variables = [], []
    for i in range(0, len(z), step):
        v = target.variables(backend.asarray(z[i : i + step]), centre, root)
        values.append(to_numpy(target.log_density_value(v)))
        variables.append(to_numpy(v))
    weights = np.concatenate(values) + 0.5 * np.sum(z**2, axis=1) - 0.5 * float(gaussian.q.log_determinant)
    return np.where(np.isfinite(weights), weights, -np.inf), np.concatenate(variables)


def draw_by_importance(
    posterior: EmulatedPosterior, gaussian: GaussianPosterior, rng: np.random.Generator, options: SamplingOptions
) -> tuple[Samples, float]:
    """Draw from a Gaussian approximation, and select draws by their importance weights.

    Returns
    -------
    samples : Samples
    effective : float
        Effective number of draws by the weights.
    """
    z = rng.standard_normal((options.proposals, posterior.target.size))
    weights, variables = _importance_weights(posterior, gaussian, z, options.rows_at_once)
    log_evidence = float(logsumexp(weights) - math.log(len(weights)))
    smoothed, k_hat = smooth_weights(weights)
    shares = np.exp(smoothed - logsumexp(smoothed))
    effective = float(1.0 / np.sum(shares**2))
    places = (rng.random() + np.arange(options.draws)) / options.draws
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
        np.full(count, min(effective, float(options.draws))),
        log_evidence,
        1.0 / math.sqrt(effective),
        posterior.whitened(v),
    )
    return samples, effective


def draw_by_hamiltonian(
    posterior: EmulatedPosterior,
    gaussian: GaussianPosterior,
    rng: np.random.Generator,
    options: SamplingOptions,
    report: Report,
) -> Samples:
    """Draw by Hamiltonian Monte Carlo in coordinates in which a Gaussian approximation is standard normal."""
    target, backend = posterior.target, posterior.backend
    centre, root = _extend(backend, gaussian, target.size)
    xp = array_namespace(root)

    def transform(matrix: Array) -> LogDensity:
        return target.around(centre, matrix @ root if matrix.shape == root.shape else _block(xp, matrix, root))

    numbers = target.prior.site_count * target.prior.latent_count
    chains = int(np.clip(options.chain_numbers // numbers, options.fewest_chains, options.chains))
    iterations = min(math.ceil(options.iterations * options.chains / chains), options.most_iterations)
    start = backend.asarray(rng.standard_normal((chains, target.size)))
    found = sample(
        target.around(centre, root),
        transform,
        start,
        rng,
        warmup=options.warmup,
        iterations=iterations,
        options=HamiltonianOptions(harmonic=True),
        report=lambda done: report(f"iteration {done} of {options.warmup + iterations}"),
    )
    kept = max(options.most_numbers // (numbers * chains), 4)
    draws = found.z[:: math.ceil(iterations / kept)].swapaxes(0, 1)
    v = np.stack([to_numpy(target.variables(backend.asarray(chain), centre, root)) for chain in draws])
    log_evidence, error = _bridge(posterior, gaussian, draws, rng.spawn(1)[0], options)
    samples = _from_chains(posterior, v, HAMILTONIAN, options)
    return replace(samples, log_evidence=log_evidence, log_evidence_error=error)


def _bridge(
    posterior: EmulatedPosterior,
    gaussian: GaussianPosterior,
    draws: Floats,
    rng: np.random.Generator,
    options: SamplingOptions,
) -> Evidence:
    """Estimate the evidence from draws (C, n, D) in coordinates in which the Gaussian is standard normal."""
    if not options.bridged:
        return Evidence(np.nan, np.nan)
    chains, D = len(draws), draws.shape[-1]
    few = draws[:, :: math.ceil(draws[..., 0].size / options.bridged)]
    own, _ = _importance_weights(posterior, gaussian, few.reshape(-1, D), options.rows_at_once)
    normals = rng.standard_normal((options.bridged, D))
    other, _ = _importance_weights(posterior, gaussian, normals, options.rows_at_once)
    by_chain = np.nan_to_num(own, neginf=own[np.isfinite(own)].min()).reshape(chains, -1, 1)
    effective = float(effective_sample_size(by_chain)[0]) if by_chain.shape[1] >= 4 else None
    return bridge_evidence(own, other, effective)


def _extend(backend: Backend, gaussian: GaussianPosterior, size: int) -> tuple[Array, Array]:
    """Return centre (D,) and root (Q M, Q M) of a Gaussian; variables beyond the inducing ones have mean zero."""
    xp = backend.namespace
    mean = xp.reshape(gaussian.q.mean, (-1,))
    rest = backend.asarray(np.zeros(size - mean.shape[0]))
    return xp.concat([mean, rest]), gaussian.q.root


def _block(xp: Any, matrix: Array, root: Array) -> Array:
    """Multiply a matrix (D, D) by the root of the inducing variables, with the identity for the other variables."""
    size, whole = root.shape[0], matrix.shape[0]
    left = matrix[:, :size] @ root
    return xp.concat([left, matrix[:, size:whole]], axis=1)


def _from_chains(posterior: EmulatedPosterior, v: Floats, method: str, options: SamplingOptions) -> Samples:
    """Return draws v (C, n, D) of chains that each visit the whole posterior."""
    latents = np.stack([posterior.latents(chain) for chain in v])
    C, n, N, Q = latents.shape
    by_variable = latents.reshape(C, n, N * Q)
    flat = latents.swapaxes(0, 1).reshape(C * n, N, Q)
    return Samples(
        flat,
        np.tile(np.arange(C), n),
        label_modes(flat, options),
        method,
        np.nan,
        split_r_hat(by_variable).reshape(N, Q),
        effective_sample_size(by_variable).reshape(N, Q),
        whitened=posterior.whitened(v.swapaxes(0, 1)),
    )


def find_gaps(latents: Floats, options: SamplingOptions) -> tuple[NDArray[np.bool_], Floats]:
    """Find variables whose draws lie in separate groups.

    Parameters
    ----------
    latents : array, shape (R, N, Q)
    options : SamplingOptions

    Returns
    -------
    separate : array of bool, shape (N, Q)
        Whether there is a wide gap between two groups of draws, each with at least the smallest probability of a mode.
    middle : array, shape (N, Q)
        Middle of the widest gap.
    """
    ordered = np.sort(latents, axis=0)
    count = len(ordered)
    few = max(int(options.smallest_mode * count), 2)
    inner = ordered[few - 1 : count - few + 1]
    gaps = np.diff(inner, axis=0)
    widest = gaps.argmax(axis=0)
    left = np.take_along_axis(inner, widest[None], axis=0)[0]
    gap = np.take_along_axis(gaps, widest[None], axis=0)[0]
    return gap > options.gap * latents.std(axis=0), left + 0.5 * gap


def label_modes(latents: Floats, options: SamplingOptions) -> NDArray[np.intp]:
    """Number the mode (R,) of each draw (R, N, Q) from 0, the most probable first.

    Draws are in the same mode if they lie on the same side of all gaps. Rare combinations share the last number.
    """
    separate, middle = find_gaps(latents, options)
    if not separate.any():
        return np.zeros(len(latents), dtype=np.intp)
    sides = latents[:, separate] > middle[separate]
    _, pattern, counts = np.unique(sides, axis=0, return_inverse=True, return_counts=True)
    order = np.empty(len(counts), dtype=np.intp)
    order[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.minimum(order[pattern.ravel()], options.most_modes - 1)
