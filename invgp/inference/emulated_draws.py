"""Draws from the posterior on an emulator, by the cheapest sampler that is right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import to_numpy
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Surrogate, fit_emulators
from invgp.inference.emulated_posterior import EmulatedPosterior, Report, SamplingOptions, find_gaps
from invgp.inference.hamiltonian_draws import draw_by_hamiltonian
from invgp.inference.importance_draws import draw_by_importance
from invgp.inference.multistart import subset_of_sites
from invgp.inference.search_state import SampledTarget, SearchState
from invgp.inference.site_model import SiteModel
from invgp.inference.tempered_draws import draw_by_tempering
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.latent_model.problem_prior import prior_of
from invgp.posterior import Samples
from invgp.problem import Floats

# Between batches of runs, which need fewer draws than the result. The search for modes uses the same options: the draws
# of one particle stay close together, and a mode has several of the 128 or more particles.
DRAFT = SamplingOptions(
    proposals=1000,
    fewest_effective=250,
    enough_effective=250,
    draws=500,
    chains=32,
    warmup=40,
    iterations=24,
    largest_r_hat=1.2,
    populations=2,
    fewest_particles=64,
    most_particles=128,
    numbers_at_once=16_000,
    gap=0.8,
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
    """

    gaussian_error: float = 0.25
    weighted_error: float = 0.1
    by_chance: float = 3.5
    searched: int = 128


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
        return draw_by_tempering(posterior, gaussian.sites, rng, options, report)
    k_hat = np.nan
    if target.explained:
        samples, reliable = draw_if_gaussian(posterior, gaussian, rng, options)
        k_hat = samples.k_hat
        if reliable:
            return samples, None
    samples = draw_by_hamiltonian(posterior, gaussian, rng, options, report)
    if samples.r_hat.max() > options.largest_r_hat and can_temper:
        return draw_by_tempering(posterior, gaussian.sites, rng, options, report)
    effective = float(samples.effective.min())
    if effective < options.fewest_effective and size <= options.most_tempered:
        longer = options.with_longer_chains(options.fewest_effective / effective)
        samples = draw_by_hamiltonian(posterior, gaussian, rng, longer, report)
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


def suspects_modes(model: SiteModel, state: SearchState, rng: np.random.Generator, report: Report) -> bool:
    """Search some neighbouring sites for several modes, from the prior, on an emulator for all runs."""
    problem, gaussian = model.problem, state.posterior
    learned = with_learned_hyperparameters(problem, gaussian)
    emulator = fit_emulators(problem, state.runs, noise_std=learned.noise_std, rng=rng, everywhere=True)
    if emulator is None:
        return False
    sites = model.all_sites
    if problem.survey.size * problem.latent_count > CHOICE.searched:
        sites = subset_of_sites(problem, rng, CHOICE.searched // problem.latent_count)
    posterior = posterior_on(model, emulator, gaussian, sites)
    xp, backend = model.backend.namespace, model.backend
    index = xp.asarray(sites.astype(np.int32), device=backend.device)
    factors = SiteFactors(*(xp.take(part, index, axis=0) for part in gaussian.sites))
    samples, _ = draw_by_tempering(posterior, factors, rng, DRAFT, report)
    separate, _ = find_gaps(samples.latents, DRAFT)
    return bool(separate.any())
