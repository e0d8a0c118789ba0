"""The posterior of a site model with the emulator in the simulator's place, and the options of its samplers.

If runs fail in a part of the prior, its density contains the probability that a run succeeds: the posterior is that of
the values at which the simulator works.

Three samplers are used, the cheapest that is right. Importance sampling (`importance_draws`) reweights draws from the
Gaussian approximation; it is reliable if the Pareto k of the weights is small. Hamiltonian Monte Carlo
(`hamiltonian_draws`) starts at draws from the Gaussian, and is right for any shape with one mode. Tempered sequential
Monte Carlo (`tempered_draws`) starts at the prior; it finds all modes and their probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from invgp.core.backend import Array, Backend, to_numpy
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import solvable_factor
from invgp.core.sampling.site_target import SiteTarget
from invgp.emulation import Surrogate
from invgp.latent_model.noise_density import noise_log_density_gradient
from invgp.latent_model.problem_prior import prior_of
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class SamplingOptions:
    """Tuning of the samplers.

    Parameters
    ----------
    proposals : int
        Draws from the Gaussian for importance sampling, at first.
    largest_k_hat : float
        Largest Pareto k of their weights at which importance sampling is used.
    fewest_effective : int
        Fewest effective draws of importance sampling. With fewer, Hamiltonian Monte Carlo is repeated with longer
        chains.
    enough_effective : int
        Effective draws of importance sampling for which more draws from the Gaussian are made.
    draws : int
        Fewest equally weighted draws that importance sampling selects.
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
    most_longer : int
        Largest factor by which chains are made longer.
    """

    proposals: int = 4000
    largest_k_hat: float = 0.5
    fewest_effective: int = 1000
    enough_effective: int = 4000
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
    most_longer: int = 4

    def with_longer_chains(self, factor: float) -> SamplingOptions:
        """Return options with this many times as many iterations, rounded up and at most `most_longer` times."""
        times = min(math.ceil(factor), self.most_longer)
        return replace(self, iterations=times * self.iterations, most_iterations=times * self.most_iterations)


Report = Callable[[str], None]  # receives the stage of a computation, for users


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
        success = self.emulator.log_success(latents, self.sites)
        if success is None:
            return value, lambda: pull_back(slopes)
        works, pull_back_success = success
        ones = self.backend.namespace.ones_like(works)
        return value + works, lambda: pull_back(slopes) + pull_back_success(ones)

    def select(self, numbers: NDArray[np.intp]) -> EmulatedPosterior:
        """Return the posterior of some of the sites, by their positions (B,), from their data alone."""
        part = self.problem.select_sites(numbers)
        return EmulatedPosterior(part, self.emulator, self.sites[numbers], prior_of(part, self.backend), self.backend)

    def inducing_variables(self, v: Floats) -> Floats:
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
