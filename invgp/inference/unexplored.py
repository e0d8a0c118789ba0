"""Search for latent values that may fit the data, though the emulator predicts that they do not.

This can be so far from all runs. Draws never enter such a region, so that runs at draws cannot correct the emulator
there. An example is an output that is constant beyond a limit: a regression continues the slope below the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Surrogate
from invgp.emulation.emulator import Emulator
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class ExplorationOptions:
    """Tuning of the search for such values.

    Parameters
    ----------
    candidates, most_candidates : int
        Draws from the prior at each site, and in all.
    uncertain : float
        Smallest standard deviation of the emulator, in noise standard deviations of an output.
    distance : float
        Distance of the sum of squared normalised residuals from its mean, in its standard deviations, up to which
        outputs fit the data.
    """

    candidates: int = 512
    most_candidates: int = 50_000
    uncertain: float = 1.0
    distance: float = 4.0


def unexplored_values(
    problem: Problem,
    emulator: Surrogate,
    gaussian: GaussianPosterior,
    rng: np.random.Generator,
    options: ExplorationOptions = ExplorationOptions(),
) -> tuple[Floats, NDArray[np.intp]]:
    """Choose latent values that fit the data within the uncertainty of the emulator, but not by its prediction.

    Parameters
    ----------
    problem : Problem
        Problem with learnt hyperparameters, and with the error of the emulator in its noise.
    emulator : Surrogate
    gaussian : GaussianPosterior
        Its prior is used.
    rng : numpy.random.Generator
    options : ExplorationOptions

    Returns
    -------
    latents : array, shape (1, B, Q)
        A random one of the values of each site, by the density of the data there.
    sites : array of int, shape (B,)
        Sites that have such values.
    """
    N, Q = problem.survey.size, problem.latent_count
    nothing = np.zeros((1, 0, Q)), np.arange(0)
    if not isinstance(emulator, Emulator) or not emulator.has_spread:
        return nothing
    sites = np.arange(N) if options.most_candidates >= N else rng.choice(N, options.most_candidates, replace=False)
    count = max(min(options.candidates, options.most_candidates // len(sites)), 1)
    prior = gaussian.prior
    std = np.sqrt(np.stack([to_numpy(kernel.diagonal(prior.X))[sites] for kernel in prior.kernels], axis=-1))
    latents = to_numpy(prior.mean)[sites] + std * rng.standard_normal((count, len(sites), Q))
    outputs, spread = emulator.predict(latents, sites), emulator.spread(latents, sites)
    noise = np.where(np.isfinite(problem.survey.Y), problem.noise_std, np.inf)[sites]
    residuals = np.nan_to_num(problem.survey.Y[sites] - outputs)
    wider = np.hypot(noise, spread)
    possible = fits_data(residuals / wider, noise, options) & ~fits_data(residuals / noise, noise, options)
    possible &= (spread / noise).max(axis=-1) > options.uncertain
    density = np.sum(-0.5 * (residuals / wider) ** 2 - np.log1p((spread / noise) ** 2) / 2.0, axis=-1)
    density = np.where(possible, density + rng.gumbel(size=density.shape), -np.inf)
    best = density.argmax(axis=0)
    some = np.flatnonzero(possible.any(axis=0))
    return latents[best[some], some][None], sites[some]


def fits_data(
    residuals: Floats, noise: Floats, options: ExplorationOptions = ExplorationOptions()
) -> NDArray[np.bool_]:
    """Return whether normalised residuals (..., B, P) are as small as noise; infinite noise marks missing data."""
    count = np.maximum(np.isfinite(noise).sum(axis=-1), 1)
    squares = np.sum(np.where(np.isfinite(noise), residuals, 0.0) ** 2, axis=-1)
    return np.asarray(squares <= count + options.distance * np.sqrt(2.0 * count))
