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
        Fewest effective draws of the first proposals of importance sampling.
    enough_from_chains : int
        Effective draws of a result. With fewer, Hamiltonian Monte Carlo is repeated with longer chains, and tempering
        with more particles.
    least_effective : int
        Effective draws below which a result has not converged.
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
    valley : float
        Depth of a valley between two modes: the smaller of the largest densities on its sides, relative to its own.
    smoothing : float
        Width of the kernel of these densities, in standard deviations of the draws.
    smallest_mode : float
        Smallest probability of a mode.
    fewest_different : int
        Fewest different draws of a mode.
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
    most_more : int
        Largest factor by which particles are made more; tempering takes far longer than chains.
    """

    proposals: int = 4000
    largest_k_hat: float = 0.5
    fewest_effective: int = 1000
    enough_from_chains: int = 2000
    least_effective: int = 400
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
    valley: float = 3.0
    smoothing: float = 0.25
    smallest_mode: float = 0.01
    fewest_different: int = 20
    most_modes: int = 20
    rows_at_once: int = 50_000
    bridged: int = 1000
    independent: float = 1e-4
    most_longer: int = 4
    most_more: int = 2

    def with_longer_chains(self, factor: float) -> SamplingOptions:
        """Return options with this many times as many iterations, rounded up and at most `most_longer` times."""
        times = min(math.ceil(factor), self.most_longer)
        return replace(self, iterations=times * self.iterations, most_iterations=times * self.most_iterations)

    def with_more_particles(self, factor: float) -> SamplingOptions:
        """Return options with this many times as many particles, rounded up and at most `most_more` times."""
        times = min(math.ceil(factor), self.most_more)
        return replace(self, most_particles=times * self.most_particles, numbers_at_once=times * self.numbers_at_once)


CELLS = 128  # of the estimate of a density
VARIABLES_AT_ONCE = 512  # to limit memory
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


def find_valleys(latents: Floats, options: SamplingOptions) -> tuple[NDArray[np.bool_], Floats]:
    """Find variables whose draws lie in separate groups.

    The density of the draws of each variable is estimated by a kernel. Copies of a draw count for the shares of the
    groups, but only different draws show that there is a group.

    Parameters
    ----------
    latents : array, shape (R, N, Q)
    options : SamplingOptions

    Returns
    -------
    separate : array of bool, shape (N, Q)
        Whether there is a deep valley between two groups of draws, each with at least the smallest probability of a
        mode.
    middle : array, shape (N, Q)
        Lowest point of the valley.
    """
    flat = latents.reshape(len(latents), -1)
    separate, middle = np.zeros(flat.shape[1], dtype=bool), np.zeros(flat.shape[1])
    different = len(np.unique(flat[:, 0]))
    share = max(options.smallest_mode, options.fewest_different / different)
    if different < 2 or share >= 0.5:
        return separate.reshape(latents.shape[1:]), middle.reshape(latents.shape[1:])
    for i in range(0, flat.shape[1], VARIABLES_AT_ONCE):
        part = slice(i, i + VARIABLES_AT_ONCE)
        separate[part], middle[part] = _valleys(flat[:, part], share, options)
    return separate.reshape(latents.shape[1:]), middle.reshape(latents.shape[1:])


def _valleys(draws: Floats, share: float, options: SamplingOptions) -> tuple[NDArray[np.bool_], Floats]:
    """Find the deepest valley of the density of each variable (V,), by draws (R, V)."""
    count = draws.shape[1]
    low, high = draws.min(axis=0), draws.max(axis=0)
    width = np.maximum((high - low) / CELLS, 1e-300)
    cells = np.minimum(((draws - low) / width).astype(np.intp), CELLS - 1)
    counts = np.bincount((cells + CELLS * np.arange(count)).ravel(), minlength=CELLS * count).reshape(count, CELLS)
    smoothing = options.smoothing * draws.std(axis=0) / width
    centres = np.arange(CELLS)
    density = np.empty((count, CELLS))
    for k in range(count):
        kernel = np.exp(-0.5 * (centres[:, None] - centres) ** 2 / max(smoothing[k], 0.5) ** 2)
        density[k] = kernel @ counts[k]
    left, right = np.cumsum(counts, axis=1), np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    enough = np.minimum(left, right) >= share * len(draws)
    above = np.minimum(np.maximum.accumulate(density, axis=1), np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1])
    depth = np.where(enough, above / np.maximum(density, 1e-6 * above), 0.0)
    deepest = depth.argmax(axis=1)
    return depth.max(axis=1) > options.valley, low + (deepest + 0.5) * width


def label_modes(latents: Floats, options: SamplingOptions) -> NDArray[np.intp]:
    """Number the mode (R,) of each draw (R, N, Q) from 0, the most probable first.

    Draws are in the same mode if they lie on the same side of all valleys. Rare combinations share the last number.
    """
    separate, middle = find_valleys(latents, options)
    if not separate.any():
        return np.zeros(len(latents), dtype=np.intp)
    sides = latents[:, separate] > middle[separate]
    _, pattern, counts = np.unique(sides, axis=0, return_inverse=True, return_counts=True)
    order = np.empty(len(counts), dtype=np.intp)
    order[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.minimum(order[pattern.ravel()], options.most_modes - 1)
