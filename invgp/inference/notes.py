"""Notes for users on possible problems of a posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import select_backend, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.formatting import count_noun
from invgp.latent_model.inducing_points import DEFAULTS, mean_share, needed_inducing_points
from invgp.problem import EarlierField, EarlierSites, Floats, Problem

FARTHEST_NOISE = 30.0  # factor between learnt and given noise above which a note is added
LARGE_SOLVER_NOISE = 0.1  # numerical noise of the simulator above which a note is added, in noise standard deviations
NAMED = 5  # most sites that a note lists
MOST_SUGGESTED = 8  # times the inducing points, beyond which no number is suggested


def noise_notes(problem: Problem, log_scales: Floats) -> list[str]:
    """Describe learnt noise that is far from the given value, as with few data or data without noise."""
    return [
        f"The learnt noise of {' and '.join(scale.observations)} is {math.exp(log_scale):.2g} times the given value: "
        "unless that is plausible, give it a prior, or fix it."
        for scale, log_scale in zip(problem.noise.scales, log_scales, strict=True)
        if abs(log_scale) > math.log(FARTHEST_NOISE)
    ]


def prior_notes(problem: Problem) -> list[str]:
    """Return what is doubtful about an earlier posterior that is part of the prior."""
    models = [part.problem.forward for part in problem.parts]
    return [doubt for model in models if isinstance(model, EarlierSites | EarlierField) for doubt in model.doubts]


def solver_noise_notes(problem: Problem, solver_noise: Floats | None) -> list[str]:
    """Describe observations whose outputs have numerical noise (P,) that is not small compared with their own."""
    if solver_noise is None:
        return []
    share = np.nanmedian(solver_noise / problem.noise_std, axis=0)
    return [
        f"The outputs for {name} change by about {share[columns].max():.2g} noise standard deviations between nearly "
        "equal inputs, as with a solver of low accuracy: this is part of the noise. A smaller tolerance of the solver "
        "would make the posterior narrower."
        for name, columns in problem.observation_slices.items()
        if share[columns].max() > LARGE_SOLVER_NOISE
    ]


def widened_notes(sites: NDArray[np.bool_] | None) -> list[str]:
    """Name the sites (N,) where the emulator is not accurate enough, though the simulator itself is not used."""
    if sites is None or not sites.any():
        return []
    numbers = np.flatnonzero(sites)
    named = ", ".join(str(n + 1) for n in numbers[:NAMED]) + (" and others" if len(numbers) > NAMED else "")
    return [
        f"At {len(numbers)} of {count_noun(len(sites), 'site')} the emulator is less accurate than "
        f"inference.emulator_error, which widens the posterior: site {named}."
    ]


def undetermined_shape_notes(unknown: NDArray[np.intp], looked_at: int, samples: int) -> list[str]:
    """Describe the sites, by their numbers from 0, whose shape error could not be determined."""
    if not len(unknown):
        return []
    named = ", ".join(str(n + 1) for n in unknown[:NAMED]) + (" and others" if len(unknown) > NAMED else "")
    return [
        f"At {len(unknown)} of {count_noun(looked_at, 'site')} the shape of the posterior could not be determined from "
        f"{samples} samples: site {named}."
    ]


def inducing_notes(problem: Problem, posterior: GaussianPosterior) -> list[str]:
    """Describe inducing points that are too few for the precision of the data, and how many would be enough."""
    prior = posterior.prior
    if prior.dense:
        return []
    omitted = np.concatenate([to_numpy(prior.geometry(*batch).residual).T for batch in prior.batches()])
    variance = np.diagonal(to_numpy(posterior.marginals.covariance), axis1=1, axis2=2)
    share = max(mean_share(omitted[:, j], variance[:, j]) for j in range(prior.latent_count))
    if share < DEFAULTS.reported_share:
        return []
    host = select_backend("cpu")
    kernels = [kernel.on_backend(host) for kernel in prior.kernels]
    precision = np.diagonal(to_numpy(posterior.sites.precision), axis1=1, axis2=2).mean(axis=0)
    most = min(problem.survey.size, MOST_SUGGESTED * prior.inducing_count)
    survey = problem.survey
    needed = needed_inducing_points(kernels, survey.X, survey.locations, precision.tolist(), most)
    enough = f"about {needed:,} would be enough" if needed else f"more than {most:,} would be necessary"
    return [
        f"The {count_noun(prior.inducing_count, 'inducing point')} omit {share:.0%} of the posterior variance, so that "
        f"means and spreads are not accurate: {enough} (inference.inducing)."
    ]


@dataclass(frozen=True)
class LinkOptions:
    """Thresholds of the suggestion of a log link.

    Parameters
    ----------
    correlation : float
        Smallest absolute posterior correlation of two latents at a site.
    positive : float
        Standard deviations, of the prior and of the posterior, by which the mean of a positive quantity exceeds zero.
    reach : float
        Distance from the mean along the ridge, in posterior standard deviations, at which the bend is measured.
    bend : float
        Smallest deviation of an output from a linear function, in standard deviations of the noise.
    straighter : float
        Largest bend in the logarithms, relative to the bend in the quantities themselves.
    share : float
        Smallest share of the sites.
    """

    correlation: float = 0.95
    positive: float = 2.0
    reach: float = 2.0
    bend: float = 0.3
    straighter: float = 0.5
    share: float = 0.1


Predict = Callable[[Floats, NDArray[np.intp]], Floats]


def log_link_notes(
    problem: Problem, mean: Floats, covariance: Floats, predict: Predict, options: LinkOptions = LinkOptions()
) -> list[str]:
    """Suggest a log link for pairs of latents whose posterior is a ridge that is straight in their logarithms.

    A strong correlation alone is no reason: a sum is linear in the quantities themselves. The outputs around the
    posterior mean are therefore compared with linear functions of the quantities and of their logarithms.

    Parameters
    ----------
    problem : Problem
    mean, covariance : arrays, shape (N, Q) and (N, Q, Q)
        Posterior mean and covariance of the processes at each site.
    predict : callable
        Latents (S, B, Q) at sites (B,) -> outputs (S, B, P), without runs.
    options : LinkOptions
    """
    names = [latent.name for latent in problem.latents for _ in range(latent.size)]
    prior_mean = np.concatenate([latent.mean for latent in problem.latents])
    prior_std = np.concatenate([latent.std for latent in problem.latents])
    linear = [latent.link.name == "identity" for latent in problem.latents for _ in range(latent.size)]
    candidates = np.flatnonzero(np.asarray(linear, dtype=bool) & (prior_mean > options.positive * prior_std))
    std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    positive = mean > options.positive * std
    suggested: dict[tuple[str, str], list[tuple[NDArray[np.intp], float]]] = {}
    for i, j in combinations(candidates, 2):
        correlation = covariance[:, i, j] / (std[:, i] * std[:, j])
        strong = (np.abs(correlation) > options.correlation) & positive[:, i] & positive[:, j]
        sites = np.flatnonzero(strong)
        sites = sites[_straight_in_logarithms(problem, mean, covariance, predict, sites, np.asarray([i, j]), options)]
        if len(sites) >= max(options.share * len(mean), 1.0):
            pair = (names[i], names[j])
            suggested.setdefault(pair, []).append((sites, float(np.median(correlation[sites]))))
    return [_suggest_log_link(pair, found, len(mean)) for pair, found in suggested.items()]


def _straight_in_logarithms(
    problem: Problem,
    mean: Floats,
    covariance: Floats,
    predict: Predict,
    sites: NDArray[np.intp],
    pair: NDArray[np.intp],
    options: LinkOptions,
) -> NDArray[np.bool_]:
    """Return at which sites (B,) the outputs bend along the ridge of a pair, and hardly bend in the logarithms."""
    if not sites.size:
        return np.zeros(0, dtype=bool)
    block, centre = covariance[np.ix_(sites, pair, pair)], mean[sites]
    scale = np.sqrt(np.diagonal(block, axis1=1, axis2=2))
    values, vectors = np.linalg.eigh(block / (scale[:, :, None] * scale[:, None, :]))
    axes = scale[:, :, None] * vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]  # (B, 2, 2): across, along
    steps = np.asarray([(across, options.reach * along) for across in (-1, 0, 1) for along in (-1, 0, 1)])
    moves = np.einsum("bij,sj->sbi", axes, steps)
    # The other latents follow the pair according to their posterior covariance.
    follow = covariance[sites][:, :, pair] @ np.linalg.pinv(block, hermitian=True)
    straight = centre + np.einsum("bqi,sbi->sbq", follow, moves)
    curved = straight.copy()
    curved[:, :, pair] = centre[:, pair] * np.exp(moves / centre[:, pair])
    noise = np.where(np.isfinite(problem.survey.Y), problem.noise_std, np.inf)[sites]
    design = np.column_stack([np.ones(len(steps)), steps])
    remainder = np.eye(len(steps)) - design @ np.linalg.pinv(design)  # what is left of a linear fit
    bends = [
        np.abs(np.einsum("rs,sbp->rbp", remainder, predict(f, sites) / noise)).max(axis=(0, 2))
        for f in (straight, curved)
    ]
    return np.asarray((bends[0] > options.bend) & (bends[1] < options.straighter * bends[0]))


def _suggest_log_link(pair: tuple[str, str], found: list[tuple[NDArray[np.intp], float]], count: int) -> str:
    sites, correlation = max(found, key=lambda one: len(one[0]))
    first, second = pair
    both = f"of {first}" if first == second else f"of {first} and {second}"
    what = "the logarithms of its labels" if first == second else "their logarithms"
    return (
        f"The posterior correlation {both} is about {correlation:.2f} at {len(sites)} of {count_noun(count, 'site')}, "
        f"and the outputs are more nearly linear in {what}: with link = 'log' for "
        f"{first if first == second else 'both'}, the posterior would be closer to a Gaussian there."
    )
