"""Search for a Gaussian posterior of a site model, with a covariance that is full across latents and sites.

By default the posterior is found on an emulator. At sites where the error of the emulator is not small compared with
the noise, the simulator is used afterwards. New runs verify the emulator at the other sites. Without an emulator, every
step runs the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.coupled.stage import Stage
from invgp.emulation.run_schedule import runs_in_a_step, shares_runs
from invgp.errors import RunsFailedError
from invgp.inference.diagnostics import DEFAULTS, Cavity
from invgp.inference.emulated_posterior import EmulatedPosterior, SamplingOptions
from invgp.inference.emulator_search import (
    measure_solver_noise,
    outer_steps,
    search_on_emulator,
    trusted_sites,
    verify,
)
from invgp.inference.importance_draws import check_gaussian
from invgp.inference.multistart import search_alternative_modes
from invgp.inference.notes import LARGE_SOLVER_NOISE, undetermined_shape_notes
from invgp.inference.partial_search import is_worth_a_part, search_on_part
from invgp.inference.restart import restart_around, restart_where_unexplained
from invgp.inference.runner import Runner
from invgp.inference.search_state import SearchState, judge_failures
from invgp.inference.shared_runs import RefinementOptions, judge_accuracy, verify_and_refine
from invgp.inference.site_evaluation import evaluator, optimise
from invgp.inference.site_model import SiteModel, StreamPurpose, fewest_runs, simulator_stages, start_of, uses_emulator
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters

Search = Callable[[SiteModel, Runner, SearchState], SearchState]


def search_gaussian(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Find the posterior on an emulator if possible, otherwise on the simulator.

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
    if uses_emulator(model.problem):
        return search_from_narrower_starts(search_emulated, model, runner, state)
    if model.problem.inference.emulator:
        state = state.with_note(
            f"inference.runs_per_site = {model.problem.inference.runs_per_site:g} is too few for an emulator of this "
            "survey: the simulator was used for every step, which takes far more runs."
        )
    if model.problem.inference.posterior == "sampled":
        state = state.with_note("The posterior is a Gaussian approximation, because draws need an emulator.")
    return search_from_narrower_starts(search_simulated, model, runner, state)


def search_from_narrower_starts(search: Search, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Search from the prior, and from narrower starts if the simulator fails too often under the prior.

    Parameters
    ----------
    search : callable
        Search from a state, such as `search_emulated`.
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
    runner.keep(state)
    for precision in model.options.narrower_starts:
        try:
            return search(model, runner, state)
        except RunsFailedError:
            if runner.trace or runner.simulator.failed == runner.simulator.runs:
                raise
        state = replace(runner.latest, start=start_of(model, runner, precision))
    return search(model, runner, state)


def search_emulated(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Search on the emulator, then with the simulator where the emulator is not accurate enough, and verify.

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
    state = replace(state, steps=outer_steps(model.problem))
    runner.begin(sum(step.runs for step in state.steps) + runs_in_a_step(model.problem))
    rounds = RefinementOptions()
    if is_worth_a_part(model):
        state = search_on_part(model, runner, state)
        rounds = replace(rounds, most_rounds=2)  # most were made in the part
    else:
        state = search_on_emulator(model, runner, state)
        state = search_alternative_modes(model, runner, state)
    if not state.result.converged and state.steps and state.emulator is not None and state.candidate is not None:
        state = search_on_emulator(model, runner, state, patient=True)
    if state.emulator is None:
        return search_simulated(
            model,
            runner,
            state.with_note(
                f"No emulator could be fitted, since too many of its runs {runner.simulator.failure_words}: the "
                "simulator was used for every step."
            ),
        )
    if shares_runs(model.problem):
        state = verify_and_refine(model, runner, state, rounds)
        if state.inaccurate is not None and 0 < state.inaccurate.sum() <= model.options.most_simulated:
            state = _use_simulator_at(model, runner, replace(state, inaccurate=None), state.inaccurate)
    else:
        state = _use_simulator_where_needed(model, runner, state)
    state = restart_where_unexplained(model, runner, state)
    state = check_shape(model, runner, state)
    state = _restart_where_doubtful(model, runner, state)
    return judge_failures(model.problem, check_whole_posterior(model, judge_accuracy(state)))


def _use_simulator_where_needed(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Use the simulator at all sites where the emulator is not accurate enough, and verify it at the others."""
    direct = ~trusted_sites(model, state)
    if direct.any():
        state = _use_simulator_at(model, runner, state, direct)
    state = verify(model, runner, state)
    failed = np.nan_to_num(state.verification) > 2.0 * model.problem.inference.emulator_error
    if failed.any():
        state = _use_simulator_at(model, runner, state, state.direct | failed)
    return state


def _use_simulator_at(model: SiteModel, runner: Runner, state: SearchState, sites: NDArray[np.bool_]) -> SearchState:
    """Optimise with the simulator at some sites (N,), unless its numerical noise is the reason for the error there.

    Estimates from a noisy simulator do not converge. The emulator averages the noise, and its error is added to the
    noise of the data.
    """
    state = measure_solver_noise(model, runner, state, state.posterior)
    if state.solver_noise is not None:
        share = np.nanmedian(state.solver_noise / model.problem.noise_std, axis=0)
        if share.max() > LARGE_SOLVER_NOISE:
            before = np.zeros_like(sites) if state.inaccurate is None else state.inaccurate
            return replace(state, inaccurate=before | sites)
    state = replace(state, direct=sites)
    return _optimise(model, runner, state, simulator_stages(model, runner), state.posterior)


def search_simulated(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Optimise on the simulator, again with more samples if too many outputs are missing, and test the result.

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
    problem, posterior = model.problem, state.start
    for _ in range(2):
        stages = simulator_stages(model, runner)
        runner.begin(problem.inference.max_evaluations * max(map(_samples, stages)) * len(problem.simulated))
        state = _optimise(model, runner, state, stages, posterior)
        enough = all(_samples(stage) >= fewest_runs(problem, runner, stage.kind) for stage in stages)
        if state.result.converged or enough:
            break
        posterior = state.posterior
    state = restart_where_unexplained(model, runner, state)
    return check_shape(model, runner, state)


def _samples(stage: Stage) -> int:
    return int(stage.points.base.shape[0])


def _optimise(
    model: SiteModel, runner: Runner, state: SearchState, stages: list[Stage], posterior: GaussianPosterior
) -> SearchState:
    """Optimise from a posterior, with the simulator at all sites where the emulator is not used."""
    algorithm = model.algorithm(stages)
    begin = algorithm.start_from(posterior, near_optimum=False)
    return optimise(model, runner, state, algorithm, begin, evaluator(runner, state))


def _restart_where_doubtful(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Search again around sites that use the simulator and have a large shape error, if these are few.

    Such sites can be next to a jump of the simulator.
    """
    if 2 * state.direct.sum() > len(state.direct):
        return state
    doubtful = state.direct & ~(state.shape_error <= DEFAULTS.doubtful)  # or not determined
    found = restart_around(model, runner, state, doubtful)
    return state if found.candidate is state.candidate else check_shape(model, runner, found)


def check_shape(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Test at each site whether the posterior is Gaussian, if the budget has enough runs.

    A posterior that factorises over the latents is not tested: it differs from the exact one in any case.

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
    if model.factorised:
        return state
    sites = model.all_sites
    need_runs = len(model.problem.simulated)
    simulated = need_runs if state.emulator is None else int(state.direct[model.problem.simulated].sum())
    options, samples = model.options, model.options.emulated_shape_samples
    if simulated == need_runs:
        samples = min(max(options.shape_runs // simulated, options.fewest_shape_samples), options.most_shape_samples)
    elif simulated:
        samples = 2 * options.fewest_shape_samples
    if state.candidate is None or not runner.simulator.can_afford(samples * simulated):
        return state
    problem = with_learned_hyperparameters(model.problem, state.posterior)
    if len(sites) > options.most_shape_sites and not simulated:
        sites = np.sort(model.streams.checks.choice(sites, options.most_shape_sites, replace=False))
    cavity = Cavity(state.posterior, sites, model.streams.checks, samples)
    errors = state.shape_errors.copy()
    errors[sites] = cavity.shape_errors(problem, evaluator(runner, state)(cavity.latents, "shape", sites))
    state = replace(state, shape_errors=errors)
    unknown = sites[np.isnan(state.shape_error[sites])]
    return runner.keep(replace(state, shape_notes=tuple(undetermined_shape_notes(unknown, len(sites), samples))))


def check_whole_posterior(model: SiteModel, state: SearchState) -> SearchState:
    """Add a note if the posterior of all sites together is not Gaussian; the shape test sees single sites only.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    state : SearchState
        Present state of the search.

    Returns
    -------
    SearchState
    """
    emulator, gaussian, size = state.emulator, state.posterior, model.problem.survey.size * model.problem.latent_count
    if emulator is None or state.candidate is None or not gaussian.prior.dense or size > model.options.most_checked:
        return state
    if model.factorised:
        return state
    problem = with_learned_hyperparameters(model.with_emulator_error(emulator), gaussian)
    posterior = EmulatedPosterior(problem, emulator, model.all_sites, gaussian.prior, model.backend)
    check = check_gaussian(posterior, gaussian, model.new_stream(StreamPurpose.GAUSSIAN_CHECK), SamplingOptions())
    if check.holds:
        return state
    return state.with_note(
        f"The posterior of all sites together is not Gaussian (Pareto k {check.k_hat:.2g}): its standard deviations "
        "may be too small. inference.posterior = 'sampled' draws from the exact posterior."
    )
