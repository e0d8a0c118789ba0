"""Tests of an emulator with new runs: at draws, and at latent values that it may exclude by mistake.

Such values can be far from all runs. Draws never enter such a region, so that runs at draws cannot correct the emulator
there. An example is an output that is constant beyond a limit: a regression continues the slope below the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Surrogate, fit_emulators
from invgp.emulation.emulator import Emulator
from invgp.emulation.run_schedule import FEWEST_IN_A_STEP, runs_in_a_step, simulated_parts, source_runs_in_a_step
from invgp.emulation.space_filling import farthest_points
from invgp.execution.simulator import Batch
from invgp.formatting import count_noun
from invgp.inference.runner import Runner
from invgp.inference.search_state import SearchState
from invgp.inference.site_evaluation import run_errors
from invgp.inference.site_model import SiteModel
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.latent_model.noise_density import noise_log_density
from invgp.problem import Floats, Problem

Chosen = tuple[Floats, NDArray[np.intp]]  # latents (S, B, Q) for new runs, and their sites (B,)


@dataclass(frozen=True)
class CheckOptions:
    """Thresholds of the tests.

    Parameters
    ----------
    predicted : int
        Draws at which outputs are computed.
    extreme : float
        Distance of a draw from the others, in standard deviations, beyond which the emulator is verified there.
    largest_widening : float
        Factor on the noise due to the error of the emulator below which the error is taken for harmless.
    largest_change : float
        Change of a posterior by this error that is not harmless: of the mean, in standard deviations, or of the
        logarithm of the standard deviation.
    largest_excess : float
        Logarithm of the density of the data at a run, relative to that on the emulator, above which the emulator has
        excluded the run by mistake.
    """

    predicted: int = 500
    extreme: float = 6.0
    largest_widening: float = 1.05
    largest_change: float = 0.1
    largest_excess: float = 2.0


class RunCheck(NamedTuple):
    """Comparison of an emulator with runs.

    Attributes
    ----------
    errors : array, shape (S, B)
        Errors of the emulator, in standard deviations of the noise; NaN where a run failed.
    log_weights : array, shape (S, B)
        Logarithms of the ratio of the density of the data by the simulator to that by the emulator, whose error is part
        of the noise; 0 where a run failed or lacks an output.
    failed : array of bool, shape (S, B)
        Which runs failed.
    """

    errors: Floats
    log_weights: Floats
    failed: NDArray[np.bool_]


def verify_at(
    model: SiteModel,
    runner: Runner,
    state: SearchState,
    latents: Floats,
    sites: NDArray[np.intp],
    label: str,
    stage: int,
) -> tuple[SearchState, RunCheck]:
    """Run the simulator at latents (S, B, Q) of sites (B,); return the state with the runs, and what they show."""
    if state.emulator is None:
        raise ValueError("there is no emulator yet")
    ratio = DensityRatio(model, state.emulator, state.posterior, sites)
    batch = runner.sample(latents, label, sites)
    state = replace(state, runs=state.runs.append(latents, batch.outputs, batch.valid, sites, stage))
    return state, RunCheck(run_errors(model, state, batch, latents, sites), ratio(latents, batch)[0], ~batch.valid)


class DensityRatio:
    """Ratio of the density of the data by the simulator to that by an emulator, whose error is part of the noise.

    Parameters
    ----------
    model : SiteModel
    emulator : Surrogate
    gaussian : GaussianPosterior
        Gaussian approximation, which has the learnt hyperparameters.
    sites : array of int, shape (B,)
    """

    def __init__(
        self, model: SiteModel, emulator: Surrogate, gaussian: GaussianPosterior, sites: NDArray[np.intp]
    ) -> None:
        self.emulator, self.sites, self.backend = emulator, sites, model.backend
        self.observed = np.isfinite(model.problem.survey.Y[sites])
        problems = [
            with_learned_hyperparameters(problem, gaussian).select_sites(sites)
            for problem in (model.problem, model.with_emulator_error(emulator))
        ]
        self.densities = [noise_log_density(problem, model.backend) for problem in problems]

    def __call__(self, latents: Floats, batch: Batch) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the logarithms (S, B) at runs with latents (S, B, Q), and which runs (S, B) have all outputs.

        Without an output the ratio is 1, its mean over the error of the emulator.
        """
        emulated = self.emulator.predict(latents, self.sites)
        found = np.isfinite(batch.outputs)
        known = batch.valid & np.all(found | ~self.observed, axis=-1)
        exact, wider = (
            to_numpy(density(self.backend.asarray(y)))
            for density, y in zip(self.densities, (np.where(found, batch.outputs, emulated), emulated), strict=True)
        )
        return np.where(known, exact - wider, 0.0), known


@dataclass(frozen=True)
class OutskirtOptions:
    """Tuning of runs far from the prior mean.

    Parameters
    ----------
    nearest, farthest : float
        Their distance from the prior mean, in standard deviations: the smallest of one latent, and the largest of all.
    candidates : int
        Values among which they are chosen.
    wrong : float
        Error of the emulator there, relative to `inference.emulator_error`, after which it is fitted again.
    """

    nearest: float = 2.0
    farthest: float = 3.0
    candidates: int = 4000
    wrong: float = 2.0


def run_unexplored(
    model: SiteModel,
    runner: Runner,
    state: SearchState,
    rng: np.random.Generator,
    options: CheckOptions = CheckOptions(),
) -> tuple[SearchState, bool]:
    """Run the simulator where the emulator may miss a part of the posterior; return whether it did not."""
    if state.emulator is None:
        return state, True
    problem = with_learned_hyperparameters(model.with_emulator_error(state.emulator), state.posterior)
    latents, sites = unexplored_values(
        problem, state.emulator, state.posterior, rng, _second_emulator(problem, state, rng)
    )
    few = np.sort(rng.permutation(len(sites))[: runs_in_a_step(model.problem)])
    if not few.size:
        return state, True
    if not runner.simulator.can_afford(len(few)):
        note = (
            f"At {count_noun(len(sites), 'site')} values far from all runs may fit the data, and no runs are left to "
            "find out: a part of the posterior may be missing."
        )
        return state.with_note(note), True
    sites = sites[few]
    ratio = DensityRatio(model, state.emulator, state.posterior, sites)
    batch = runner.sample(latents[:, few], "unexplored-values", sites)
    # As old runs: the error of the emulator is that at draws, not where it was expected to be wrong.
    runs = state.runs.append(latents[:, few], batch.outputs, batch.valid, sites, int(state.runs.stage.min()))
    noise = np.where(np.isfinite(problem.survey.Y), problem.noise_std, np.inf)[sites]
    residuals = (problem.survey.Y[sites] - np.nan_to_num(batch.outputs, nan=np.inf)) / noise
    # Next to the edge of what fits the data, a small error decides whether it does, and does not matter.
    excluded = ratio(latents[:, few], batch)[0] > options.largest_excess
    missed = fits_data(residuals, noise) & excluded & batch.valid
    return replace(state, runs=runs), not missed.any()


def _second_emulator(problem: Problem, state: SearchState, rng: np.random.Generator) -> Emulator | None:
    """Fit an emulator to all runs, by its errors at all of them, if that of the draws has no uncertainty of its own.

    The emulator of the draws is the most accurate one at the latest runs. It may be wrong elsewhere.
    """
    if not isinstance(state.emulator, Emulator) or state.emulator.has_spread:
        return None
    learned = with_learned_hyperparameters(problem, state.posterior)
    found = fit_emulators(problem, state.runs, noise_std=learned.noise_std, rng=rng, everywhere=True)
    return found if isinstance(found, Emulator) and found.name != state.emulator.name else None


def run_outskirts(
    model: SiteModel,
    runner: Runner,
    state: SearchState,
    rng: np.random.Generator,
    options: OutskirtOptions = OutskirtOptions(),
) -> tuple[SearchState, bool]:
    """Run the simulator far from the prior mean, if few runs are there; return whether the emulator was right there.

    Draws follow the emulator, so that no later run shows a fold or a limit just beyond the first runs.

    Parameters
    ----------
    model : SiteModel
    runner : Runner
    state : SearchState
    rng : numpy.random.Generator
    options : OutskirtOptions
    """
    prior, holds = state.posterior.prior, True
    mean = to_numpy(prior.mean)
    std = np.sqrt(np.stack([to_numpy(kernel.diagonal(prior.X)) for kernel in prior.kernels], axis=-1))
    for part, each in zip(simulated_parts(model.problem), source_runs_in_a_step(model.problem), strict=True):
        own = np.isin(state.runs.sites, part.sites)
        known = ((state.runs.latents - mean[state.runs.sites]) / std[state.runs.sites])[own]
        wanted = FEWEST_IN_A_STEP * (known.shape[1] + 1)
        missing = min(wanted - int(np.count_nonzero(np.abs(known).max(axis=1) > options.nearest)), each)
        if not len(known) or missing <= 0 or not runner.simulator.can_afford(missing):
            continue
        candidates = options.farthest * (2.0 * rng.random((options.candidates, known.shape[1])) - 1.0)
        candidates = candidates[np.linalg.norm(candidates, axis=1) <= options.farthest]
        candidates = candidates[np.abs(candidates).max(axis=1) > options.nearest]
        missing = min(missing, len(candidates))  # with many latents, few candidates are left
        if not missing:
            continue
        samples = math.ceil(missing / len(part.sites))
        z = candidates[farthest_points(candidates, known, samples * (missing // samples))]
        sites = np.sort(rng.choice(part.sites, missing // samples, replace=False))
        latents = mean[sites] + std[sites] * z.reshape(samples, len(sites), -1)
        state, check = verify_at(model, runner, state, latents, sites, "outskirts", int(state.runs.stage.min()))
        limit = options.wrong * model.problem.inference.emulator_error
        holds = holds and not bool(np.any(check.errors[np.isfinite(check.errors)] > limit))
    return state, holds


def extreme_draws(draws: Floats, distance: float) -> Chosen:
    """Return the draw of a site that is farthest from the others, (1, B, Q), at sites (B,) where it is very far.

    The distance from the median is in units of the standard deviation of a normal distribution with the same quartiles.
    """
    low, median, high = np.quantile(draws, [0.25, 0.5, 0.75], axis=0)
    scale = np.maximum((high - low) / 1.349, 1e-300)
    far = (np.abs(draws - median) / scale).max(axis=2)
    farthest = far.argmax(axis=0)
    sites = np.flatnonzero(far.max(axis=0) > distance)
    return draws[farthest[sites], sites][None], sites


def pick_draws(draws: Floats, runs: int, sites: NDArray[np.intp], rng: np.random.Generator) -> Chosen:
    """Pick a different draw for each of about `runs` runs: latents (S, B, Q), and their sites (B,).

    Each site gets the same number of runs; if there are more sites than runs, a random selection gets one each.
    """
    chosen = sites if runs >= len(sites) else np.sort(rng.choice(sites, runs, replace=False))
    numbers = rng.integers(len(draws), size=(max(runs // len(chosen), 1), len(chosen)))
    return draws[numbers, chosen], chosen


def sites_widened_by_error(
    model: SiteModel, emulator: Surrogate, latents: Floats, outputs: Floats, options: CheckOptions
) -> NDArray[np.bool_]:
    """Return a mask (N,) of the sites whose posterior the error of the emulator, which is part of the noise, changes.

    Parameters
    ----------
    model : SiteModel
    emulator : Surrogate
    latents : array, shape (R, N, Q)
        Some of the draws.
    outputs : array, shape (R, N, P)
        Outputs at these draws.
    options : CheckOptions
    """
    noisier = model.with_emulator_error(emulator)
    widened = noisier.noise_std / model.problem.noise_std
    widened = np.where(np.isfinite(model.problem.survey.Y), widened, 1.0).max(axis=1)
    y = model.backend.asarray(outputs)
    densities = [to_numpy(noise_log_density(problem, model.backend)(y)) for problem in (model.problem, noisier)]
    changed = change_by_weights(latents, densities[0] - densities[1]) > options.largest_change
    return np.asarray((widened > options.largest_widening) & changed)


def change_by_weights(latents: Floats, log_weights: Floats) -> Floats:
    """Compute how much weights change the mean and the standard deviation of draws, site by site.

    Parameters
    ----------
    latents : array, shape (R, N, Q)
    log_weights : array, shape (R, N)
        Logarithms of the weights of the draws of each site.

    Returns
    -------
    array, shape (N,)
        Change of the mean, in standard deviations of the draws, or absolute logarithm of the ratio of the standard
        deviations; the largest over the latents.
    """
    weights = np.exp(log_weights - log_weights.max(axis=0))
    weights = (weights / weights.sum(axis=0))[..., None]
    mean = np.sum(weights * latents, axis=0)
    std = np.sqrt(np.maximum(np.sum(weights * (latents - mean) ** 2, axis=0), 1e-300))
    before = np.maximum(latents.std(axis=0), 1e-150)
    change = np.maximum(np.abs(mean - latents.mean(axis=0)) / before, np.abs(np.log(std / before)))
    return np.asarray(change.max(axis=1))


def root_mean_square(errors: Floats, axis: int | None = None) -> Floats:
    """Return the root mean square without NaN; NaN if all are."""
    known = np.isfinite(errors)
    count = known.sum(axis=axis)
    mean = np.where(known, errors, 0.0)
    return np.sqrt(np.where(count > 0, (mean**2).sum(axis=axis) / np.maximum(count, 1), np.nan))


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
    margin : float
        Difference of the sums of squared residuals of two emulators above which they contradict each other.
    """

    candidates: int = 512
    most_candidates: int = 50_000
    uncertain: float = 1.0
    distance: float = 4.0
    margin: float = 9.0


def unexplored_values(
    problem: Problem,
    emulator: Surrogate,
    gaussian: GaussianPosterior,
    rng: np.random.Generator,
    second: Emulator | None = None,
    options: ExplorationOptions = ExplorationOptions(),
) -> tuple[Floats, NDArray[np.intp]]:
    """Choose latent values that fit the data within the uncertainty of the emulator, but not by its prediction.

    If a second emulator is given, its prediction and its uncertainty decide what fits the data, and values that the
    first one makes improbable are chosen.

    Parameters
    ----------
    problem : Problem
        Problem with learnt hyperparameters, and with the error of the emulator in its noise.
    emulator : Surrogate
    gaussian : GaussianPosterior
        Its prior is used.
    rng : numpy.random.Generator
    second : Emulator, optional
        Another emulator of the same simulator.
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
    wide = emulator if second is None else second
    if not isinstance(wide, Emulator) or not (wide.has_spread or second is not None):
        return nothing
    sites = np.arange(N) if options.most_candidates >= N else rng.choice(N, options.most_candidates, replace=False)
    count = max(min(options.candidates, options.most_candidates // len(sites)), 1)
    prior = gaussian.prior
    std = np.sqrt(np.stack([to_numpy(kernel.diagonal(prior.X))[sites] for kernel in prior.kernels], axis=-1))
    latents = to_numpy(prior.mean)[sites] + std * rng.standard_normal((count, len(sites), Q))
    outputs, spread = wide.predict(latents, sites), wide.spread(latents, sites)
    noise = np.where(np.isfinite(problem.survey.Y), problem.noise_std, np.inf)[sites]
    residuals = np.nan_to_num(problem.survey.Y[sites] - outputs)
    excluded = (
        residuals if second is None else np.nan_to_num(problem.survey.Y[sites] - emulator.predict(latents, sites))
    )
    if not wide.has_spread:
        spread = np.broadcast_to(np.sqrt(np.nanmean(wide.errors**2, axis=0)) * wide.unit, residuals.shape)
    wider = np.hypot(noise, spread)
    possible = fits_data(residuals / wider, noise, options) & ~fits_data(excluded / noise, noise, options)
    if second is None:
        possible &= (spread / noise).max(axis=-1) > options.uncertain
    else:
        change = np.sum((excluded / noise) ** 2 - (residuals / wider) ** 2, axis=-1)
        possible &= change > options.margin
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
