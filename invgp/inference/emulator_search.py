"""Search for the Gaussian posterior on an emulator that is fitted to a few runs per site.

Each outer step runs the simulator at samples from the current posterior, refits the emulator to all runs so far, and
optimises the posterior on the emulator.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior, movement
from invgp.emulation import Surrogate, fit_emulators
from invgp.emulation.run_schedule import (
    FEWEST_STEPS,
    runs_in_a_step,
    shares_runs,
    simulated_parts,
    source_runs_in_a_step,
    source_runs_of_steps,
)
from invgp.emulation.solver_noise import estimate_solver_noise, place_lines
from invgp.formatting import count_noun
from invgp.inference.optimisation import Stop
from invgp.inference.prior_conflict import stop_at_prior_conflict
from invgp.inference.runner import Runner
from invgp.inference.search_state import STALLED, UNFINISHED, SearchResult, SearchState, Step
from invgp.inference.site_evaluation import draw_for_runs, emulator_evaluator, optimise, site_errors
from invgp.inference.site_model import SiteModel, StreamPurpose
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.problem import Floats, Problem


def outer_steps(problem: Problem) -> tuple[Step, ...]:
    """Return the outer steps that `inference.runs_per_site` allows."""
    return tuple(Step(number, sum(runs), runs) for number, runs in enumerate(source_runs_of_steps(problem)))


def search_on_emulator(model: SiteModel, runner: Runner, state: SearchState, *, patient: bool = False) -> SearchState:
    """Make outer steps until the posterior has converged and the error of the emulator is small.

    A search that does not converge though the error is small may be near a wrong solution. It ends after two such
    steps unless it is `patient`.

    Returns
    -------
    SearchState
        State with the posterior, the emulator, the runs and the outcome. The emulator is None if too many runs failed.

    Raises
    ------
    BudgetSpent
        The budget has too few runs for the next step and the verification.
    """
    problem, posterior, small, error = model.problem, state.posterior, False, np.inf
    errors, pooled = list[float](), shares_runs(problem)
    state = replace(state, result=UNFINISHED)
    while state.steps:
        step = state.steps[0]
        state = runner.keep(replace(state, steps=state.steps[1:]))
        state = _fit_for_step(model, runner, state, posterior, step)
        if state.emulator is None:
            if runner.simulator.partial:  # further runs may have the missing outputs
                continue
            break
        error, before = state.emulator.error, error
        if step.number and error > model.options.stalled * before and not _is_small(problem, state.emulator):
            state = measure_solver_noise(model, runner, state, posterior)
        state = optimise_on_emulator(model, runner, state, posterior)
        if state.candidate is None or state.emulator is None:
            break
        moved = movement(posterior, state.posterior, model.options.moving_share)
        posterior = model.algorithm(model.emulator_stages).limit_movement(
            posterior, state.posterior, model.options.farthest
        )
        was_small, small = small, _is_small(problem, state.emulator)
        errors.append(error)
        if pooled and not small and _has_stalled(errors, model.options.stalled):
            return replace(state, steps=(), result=STALLED)
        if step.number + 1 < FEWEST_STEPS or not small or _is_preliminary(model, state.emulator):
            continue
        if state.result.converged and moved < model.options.step_converged:
            return state
        if was_small and not patient:
            return replace(state, result=replace(state.result, converged=False))
    if state.candidate is not None and not state.result.converged:
        return state
    limit = problem.inference.runs_per_site
    status = f"stopped at inference.runs_per_site = {limit:g} before the emulator was good"
    return replace(state, result=SearchResult(status, converged=False))


def _has_stalled(errors: list[float], largest: float) -> bool:
    """Return whether the last two steps, each with twice as many runs as before, have hardly decreased the error."""
    return len(errors) > 3 and min(errors[-2:]) > largest * min(errors[:-2])


def _fit_for_step(
    model: SiteModel, runner: Runner, state: SearchState, posterior: GaussianPosterior, step: Step
) -> SearchState:
    """Fit the emulator to runs at samples from a posterior; earlier inversions may have made those of the first step.

    The emulator of the new state is None if it could not be fitted.
    """
    problem = model.problem
    if step.number == 0 and _has_runs(problem, state, step):
        state = fit(model, state, posterior)
        if state.emulator is not None:
            return state
    runner.require(step.runs + runs_in_a_step(problem))
    widened = model.options.widened if step.number or problem.inference.posterior == "sampled" else 1.0
    succeeded, from_prior = [], runner.simulator.runs == 0
    for latents, sites in draw_for_runs(model, posterior, step.source_runs, widened):
        batch = runner.sample(latents, f"emulator-step-{step.number + 1}", sites)
        if from_prior:
            stop_at_prior_conflict(problem, batch.outputs, batch.valid, sites)
        runs = state.runs.append(latents, batch.outputs, batch.valid, sites, step.number)
        state = replace(state, runs=runs)
        succeeded.append(batch.valid.any())
    state = fit(model, state, posterior)
    return state if all(succeeded) else replace(state, emulator=None)


def _has_runs(problem: Problem, state: SearchState, step: Step) -> bool:
    """Return whether earlier inversions have made enough runs of each simulator for a step."""
    counts = [len(part.locate(state.runs.sites)[0]) for part in simulated_parts(problem)]
    return all(count >= wanted for count, wanted in zip(counts, step.source_runs, strict=True))


def fit(model: SiteModel, state: SearchState, posterior: GaussianPosterior) -> SearchState:
    """Fit the emulator to all runs so far, with the noise of a posterior; it is None if this is not possible."""
    noise_std = with_learned_hyperparameters(model.problem, posterior).noise_std
    emulator = fit_emulators(
        model.problem, state.runs, noise_std=noise_std, rng=model.streams.design, wanted=model.wanted_error
    )
    if emulator is not None and state.solver_noise is not None:
        emulator = emulator.with_solver_noise(state.solver_noise)
    return replace(state, emulator=emulator)


def _is_preliminary(model: SiteModel, emulator: Surrogate) -> bool:
    """Return whether the error of an emulator dominates the posterior of a large survey.

    Its posterior only serves to place the next runs, and is optimised roughly.
    """
    shared = emulator.smooth_error * math.sqrt(float(np.median(model.neighbour_counts)))
    return model.uses_minibatches and shared > model.options.preliminary_error


def _is_small(problem: Problem, emulator: Surrogate) -> bool:
    return emulator.smooth_error <= 0.5 * problem.inference.emulator_error


def measure_solver_noise(
    model: SiteModel, runner: Runner, state: SearchState, posterior: GaussianPosterior
) -> SearchState:
    """Measure the numerical noise of the simulator near a posterior once, if the budget has enough runs.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : SearchState
        Present state of the search.
    posterior : GaussianPosterior
        Posterior near which the noise is measured.

    Returns
    -------
    SearchState
    """
    if state.emulator is None or state.solver_noise is not None:
        return state
    mean, factor = to_numpy(posterior.marginals.mean), to_numpy(posterior.factor)
    rng, noise = model.new_stream(StreamPurpose.SOLVER_NOISE), np.zeros(model.problem.noise_std.shape[1])
    for part in simulated_parts(model.problem):
        latents, numbers = place_lines(mean[part.sites], factor[part.sites], rng)
        if not runner.simulator.can_afford(latents.shape[0] * len(numbers)):
            return state
        batch = runner.sample(latents, "solver-noise", part.sites[numbers])
        outputs = np.where(batch.valid[..., None], batch.outputs, np.nan)
        noise[part.columns] = estimate_solver_noise(outputs[..., part.columns])
    emulator = state.emulator.with_solver_noise(noise)
    return runner.keep(replace(state, solver_noise=noise, emulator=emulator))


def optimise_on_emulator(
    model: SiteModel,
    runner: Runner,
    state: SearchState,
    posterior: GaussianPosterior,
    *,
    near_optimum: bool = False,
    stop: Stop | None = None,
) -> SearchState:
    """Optimise on the emulator of a state from a posterior, with the error of the emulator in the noise.

    Near the optimum, the first stages are left out. The search ends where `stop` returns True.
    """
    if state.emulator is None:
        raise ValueError("there is no emulator yet")
    stages = model.emulator_stages[: 1 if _is_preliminary(model, state.emulator) else None]
    algorithm = model.algorithm(stages, model.with_emulator_error(state.emulator))
    begin = algorithm.start_from(posterior, near_optimum=near_optimum)
    return optimise(model, runner, state, algorithm, begin, emulator_evaluator(state.emulator), stop)


def emulated_bound(model: SiteModel, state: SearchState) -> float:
    """Compute the bound at the posterior of a state on its emulator, without the emulator error in the noise."""
    if state.emulator is None:
        raise ValueError("there is no emulator yet")
    algorithm = model.algorithm(model.emulator_stages)
    return model.optimiser.bound(algorithm, state.posterior, emulator_evaluator(state.emulator))


def verify(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Verify the emulator with new runs from the posterior at its sites, if the budget has enough runs.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : SearchState
        Present state of the search.

    Returns
    -------
    SearchState
    """
    if state.emulator is None or state.candidate is None:
        return state
    sizes = [len(part.sites) for part in simulated_parts(model.problem)]
    counts = [min(runs, size) for runs, size in zip(source_runs_in_a_step(model.problem), sizes, strict=True)]
    for latents, sites in draw_for_runs(model, state.posterior, counts, 1.0):
        kept = ~state.direct[sites]
        state = _verify_at(model, runner, state, latents[:, kept], sites[kept])
    return state


def _verify_at(
    model: SiteModel, runner: Runner, state: SearchState, latents: Floats, sites: NDArray[np.intp]
) -> SearchState:
    """Verify the emulator at latents (S, B, Q) of sites (B,), if the budget has enough runs."""
    if not sites.size or not runner.simulator.can_afford(latents.shape[0] * len(sites)):
        return state
    batch = runner.sample(latents, "verification", sites)
    verification = state.verification.copy()
    verification[sites] = site_errors(model, state, batch, latents, sites)
    state = replace(state, verification=verification, failed_share=float(np.mean(~batch.valid)))
    unverified = np.isnan(verification[sites]) & np.isfinite(model.problem.survey.Y[sites]).any(axis=1)
    if not unverified.any():
        return state
    return state.with_note(
        f"At {unverified.sum()} of {count_noun(len(sites), 'site')} every run for the verification failed: the "
        "posterior there relies on runs elsewhere."
    )


def trusted_sites(model: SiteModel, state: SearchState) -> NDArray[np.bool_]:
    """Return a mask (N,) of the sites where the emulator of a state is accurate enough.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    state : SearchState
        Present state of the search.

    Returns
    -------
    array of bool, shape (N,)
    """
    if state.emulator is None or state.candidate is None:
        return np.zeros(model.problem.survey.size, dtype=bool)
    counts = [32 * len(part.sites) for part in simulated_parts(model.problem)]
    trusted = np.ones(model.problem.survey.size, dtype=bool)  # also where the data are direct
    for latents, sites in draw_for_runs(model, state.posterior, counts, 1.0):
        trusted[sites] = state.emulator.trusted_sites(latents, sites, model.problem.inference.emulator_error)
    return trusted
