"""Draws from the posterior on an emulator, by the cheapest sampler that is right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import to_numpy
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Surrogate, fit_emulators
from invgp.inference.emulated_posterior import EmulatedPosterior, Report, SamplingOptions, find_valleys
from invgp.inference.hamiltonian_draws import draw_by_hamiltonian
from invgp.inference.importance_draws import draw_by_importance, importance_weights_at
from invgp.inference.multistart import subset_of_sites
from invgp.inference.search_state import SampledTarget, SearchState
from invgp.inference.site_model import SiteModel
from invgp.inference.tempered_draws import TEMPERED, draw_by_tempering
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.latent_model.noise_density import noise_log_density
from invgp.latent_model.problem_prior import prior_of
from invgp.posterior import Samples
from invgp.problem import Floats

# Between batches of runs, which need fewer draws than the result. The search for modes uses the same options: the draws
# of one particle stay close together, and a mode has several of the 128 or more particles.
DRAFT = SamplingOptions(
    proposals=1000,
    fewest_effective=250,
    enough_effective=250,
    enough_from_chains=250,
    draws=500,
    chains=32,
    warmup=40,
    iterations=24,
    largest_r_hat=1.2,
    populations=2,
    fewest_particles=64,
    most_particles=128,
    numbers_at_once=16_000,
    smallest_mode=0.04,
    bridged=0,
)


@dataclass(frozen=True)
class SamplerChoice:
    """Thresholds of the choice of a sampler.

    Parameters
    ----------
    gaussian_error : float
        Largest distance of the Gaussian approximation from the draws, in standard deviations, at which no runs are
        made beyond the posterior.
    weighted_error, by_chance : float
        The same for importance sampling, which is not used beyond: a constant, and what is added for the scatter of
        draws, divided by the square root of their effective number.
    searched : int
        Largest number of variables (sites times latents) of the search for modes.
    most_parts : int
        Most parts of a larger survey that are searched.
    candidates, fewest_candidates, most_candidates : int
        Draws from the prior at each site that show which sites may have several modes, their smallest number, and most
        in all.
    largest_weight : float
        Logarithm of an importance weight, relative to the evidence, that a draw has where a Gaussian misses mass.
    missed : float
        Share of such draws above which the Gaussian is not used.
    """

    gaussian_error: float = 0.25
    weighted_error: float = 0.1
    by_chance: float = 3.5
    searched: int = 128
    most_parts: int = 3
    candidates: int = 1000
    fewest_candidates: int = 200
    most_candidates: int = 1_000_000
    largest_weight: float = 4.6
    missed: float = 0.02


CHOICE = SamplerChoice()


def posterior_on(
    model: SiteModel, emulator: Surrogate, gaussian: GaussianPosterior, sites: NDArray[np.intp] | None = None
) -> EmulatedPosterior:
    """Return the posterior on an emulator, with its error in the noise: of all sites, or of some with a dense prior."""
    problem = with_learned_hyperparameters(model.with_emulator_error(emulator), gaussian)
    if sites is None:
        return EmulatedPosterior(problem, emulator, model.all_sites, gaussian.prior, model.backend)
    part = problem.select_sites(sites)
    return EmulatedPosterior(part, emulator, sites, prior_of(part, model.backend), model.backend)


def draw_on_emulator(
    model: SiteModel, target: SampledTarget, options: SamplingOptions, rng: np.random.Generator, report: Report
) -> tuple[Samples, Floats | None]:
    """Draw from the posterior with the cheapest sampler that is right.

    Returns
    -------
    samples : Samples
    tempered : array, shape (R, N, Q), or None
        Draws from a wider distribution; None if the posterior is nearly Gaussian.
    """
    gaussian = target.gaussian
    posterior = posterior_on(model, target.emulator, gaussian)
    size = posterior.target.prior.site_count * posterior.target.prior.latent_count
    can_temper = gaussian.prior.dense and size <= options.most_tempered
    if target.several_modes and can_temper:
        return _draw_all_modes(posterior, gaussian.sites, rng, options, report)
    k_hat = np.nan
    if target.explained:
        samples, reliable = draw_if_gaussian(posterior, gaussian, rng, options)
        k_hat = samples.k_hat
        if reliable and not _misses(posterior, gaussian, target.starts, samples.log_evidence, options):
            return samples, None
    samples = draw_by_hamiltonian(posterior, gaussian, rng, options, report, target.starts)
    if samples.r_hat.max() > options.largest_r_hat and can_temper:
        return _draw_all_modes(posterior, gaussian.sites, rng, options, report)
    effective = float(samples.effective.min())
    if effective < options.enough_from_chains and size <= options.most_tempered:
        longer = options.with_longer_chains(options.enough_from_chains / effective)
        samples = draw_by_hamiltonian(posterior, gaussian, rng, longer, report, target.starts)
        if samples.effective.min() < options.enough_from_chains and can_temper:
            other, tempered = _draw_all_modes(posterior, gaussian.sites, rng, options, report)
            if other.effective.min() > samples.effective.min() and other.r_hat.max() <= options.largest_r_hat:
                return other, tempered
    samples = replace(samples, k_hat=k_hat)
    near = target.explained and _distance(samples, gaussian) <= CHOICE.gaussian_error
    return samples, None if near else _draw_wider(posterior, gaussian, rng)


def draw_if_gaussian(
    posterior: EmulatedPosterior, gaussian: GaussianPosterior, rng: np.random.Generator, options: SamplingOptions
) -> tuple[Samples, bool]:
    """Draw by importance sampling; also return whether the posterior is so close to the Gaussian that this is right."""
    samples, effective = draw_by_importance(posterior, gaussian, rng, options)
    if samples.k_hat > options.largest_k_hat or effective < options.fewest_effective:
        return samples, False
    # Weights with a heavy tail do not show how much wider the posterior is than the Gaussian.
    limit = CHOICE.weighted_error + CHOICE.by_chance * effective**-0.5
    return samples, _distance(samples, gaussian) <= limit


def _distance(samples: Samples, gaussian: GaussianPosterior) -> float:
    """Return the largest distance of draws from a Gaussian approximation over all sites, in standard deviations."""
    marginals = gaussian.marginals
    return float(samples.distance_from(to_numpy(marginals.mean), to_numpy(marginals.covariance)).max())


def _draw_wider(posterior: EmulatedPosterior, gaussian: GaussianPosterior, rng: np.random.Generator) -> Floats:
    """Draw from the Gaussian approximation with twice its spread."""
    root, mean = to_numpy(gaussian.q.root), to_numpy(gaussian.q.mean).ravel()
    normals = rng.standard_normal((256, posterior.target.size))
    v = np.concatenate([mean + 2.0 * normals[:, : len(mean)] @ root, normals[:, len(mean) :]], axis=1)
    return posterior.latents(v)


def _draw_all_modes(
    posterior: EmulatedPosterior,
    factors: SiteFactors,
    rng: np.random.Generator,
    options: SamplingOptions,
    report: Report,
) -> tuple[Samples, Floats]:
    """Draw by tempering, with more particles if too few draws are effective."""
    samples, tempered = draw_by_tempering(posterior, factors, rng, options, report)
    effective = float(samples.effective.min())
    if effective >= options.enough_from_chains:
        return samples, tempered
    more = options.with_more_particles(options.enough_from_chains / effective)
    return draw_by_tempering(posterior, factors, rng, more, report)


def _misses(
    posterior: EmulatedPosterior,
    gaussian: GaussianPosterior,
    starts: Floats | None,
    log_evidence: float,
    options: SamplingOptions,
) -> bool:
    """Return whether a Gaussian misses a part of the posterior that the search for modes has found.

    Importance weights do not show it, because no draw of the Gaussian lies there.
    """
    if starts is None:
        return False
    log_weights = importance_weights_at(posterior, gaussian, starts, options.rows_at_once)
    return bool(np.mean(log_weights - log_evidence > CHOICE.largest_weight) > CHOICE.missed)


@dataclass(frozen=True)
class ModeSearch:
    """Result of a search for modes.

    Attributes
    ----------
    several : bool
        Whether draws lie in separate groups.
    starts : array, shape (R, D), or None
        The draws, as variables of the prior; None if some sites were not searched.
    """

    several: bool
    starts: Floats | None = None


def modes_of_draws(samples: Samples | None) -> ModeSearch | None:
    """Return what draws show about modes if they were tempered, from the prior; None for other draws."""
    if samples is None or not samples.method.startswith(TEMPERED):
        return None
    return _modes_among(samples)


def _modes_among(samples: Samples) -> ModeSearch:
    separate, _ = find_valleys(samples.latents, DRAFT)
    starts = samples.whitened
    return ModeSearch(bool(separate.any()), None if starts is None else starts.reshape(len(starts), -1))


def search_modes(model: SiteModel, state: SearchState, rng: np.random.Generator, report: Report) -> ModeSearch:
    """Search for several modes from the prior, on an emulator for all runs: at all sites, or at some neighbouring ones.

    The draws are also starts of Markov chains: chains that start in one mode cannot show that there are others.
    """
    problem, gaussian = model.problem, state.posterior
    learned = with_learned_hyperparameters(problem, gaussian)
    emulator = fit_emulators(problem, state.runs, noise_std=learned.noise_std, rng=rng, everywhere=True)
    if emulator is None:
        return ModeSearch(several=False)
    if problem.survey.size * problem.latent_count <= CHOICE.searched:
        found = _modes_among(_search_sites(model, emulator, gaussian, model.all_sites, rng, report))
        return found if gaussian.prior.dense else ModeSearch(found.several)
    most = CHOICE.searched // problem.latent_count
    suspicious = _suspicious_sites(model, emulator, gaussian, rng)
    X = problem.survey.X / np.maximum(np.ptp(problem.survey.X, axis=0), 1e-300)
    for _ in range(CHOICE.most_parts):
        if suspicious.size:
            centre = X[rng.choice(suspicious)]
            sites = np.sort(np.argsort(np.sum((X - centre) ** 2, axis=1), kind="stable")[:most])
        else:
            sites = subset_of_sites(problem, rng, most)
        separate, _ = find_valleys(_search_sites(model, emulator, gaussian, sites, rng, report).latents, DRAFT)
        if separate.any():
            return ModeSearch(several=True)
        suspicious = np.setdiff1d(suspicious, sites)
        if not suspicious.size:
            break
    return ModeSearch(several=False)


def _search_sites(
    model: SiteModel,
    emulator: Surrogate,
    gaussian: GaussianPosterior,
    sites: NDArray[np.intp],
    rng: np.random.Generator,
    report: Report,
) -> Samples:
    posterior = posterior_on(model, emulator, gaussian, sites)
    xp, backend = model.backend.namespace, model.backend
    index = xp.asarray(sites.astype(np.int32), device=backend.device)
    factors = SiteFactors(*(xp.take(part, index, axis=0) for part in gaussian.sites))
    return draw_by_tempering(posterior, factors, rng, DRAFT, report)[0]


def _suspicious_sites(
    model: SiteModel, emulator: Surrogate, gaussian: GaussianPosterior, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return the sites whose own data leave several modes, each without what its neighbours contribute."""
    problem = with_learned_hyperparameters(model.with_emulator_error(emulator), gaussian)
    N, Q, prior = problem.survey.size, problem.latent_count, gaussian.prior
    count = min(CHOICE.candidates, CHOICE.most_candidates // N)
    if count < CHOICE.fewest_candidates:
        return np.arange(0)
    std = np.sqrt(np.stack([to_numpy(kernel.diagonal(prior.X)) for kernel in prior.kernels], axis=-1))
    latents = to_numpy(prior.mean) + std * rng.standard_normal((count, N, Q))
    outputs = emulator.predict(latents, model.all_sites)
    density = to_numpy(noise_log_density(problem, model.backend)(model.backend.asarray(outputs)))
    shares = np.cumsum(np.exp(density - density.max(axis=0)), axis=0)
    shares /= shares[-1]
    places = (np.arange(CHOICE.candidates) + rng.random()) / CHOICE.candidates
    found = []
    for n in range(N):
        chosen = np.minimum(np.searchsorted(shares[:, n], places), count - 1)
        separate, _ = find_valleys(latents[chosen, n][:, None], DRAFT)
        if separate.any():
            found.append(n)
    return np.asarray(found, dtype=np.intp)
