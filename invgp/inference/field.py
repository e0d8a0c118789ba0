"""Search for the posterior of a field model: one run takes the latents on the whole grid and returns all data.

The posterior is one of the leading modes of the prior, coupled across latents. Batches of runs come from a Gaussian
approximation of the posterior until a regression of the outputs is informative. Then they come from draws from the
exact posterior of the regression, and from a wider distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import gives_jacobian
from invgp.core.backend import Backend, to_numpy
from invgp.core.field.field_gaussian import LowRankGaussian
from invgp.core.field.field_inference import FieldState
from invgp.emulation.run_schedule import most_runs
from invgp.errors import RunsFailedError
from invgp.execution.simulator import FieldBatch, TooManyFailures
from invgp.inference.diagnostics import find_unexplained
from invgp.inference.earlier_runs import earlier_fields
from invgp.inference.field_draws import (
    DRAWS,
    draw_variables,
    has_new_modes,
    has_several_modes,
    pick,
    pick_from_all_modes,
)
from invgp.inference.field_learning import FieldLearning
from invgp.inference.field_model import compute_slopes, whiten_slopes
from invgp.inference.field_state import (
    CoarseRuns,
    DrawnPosterior,
    FieldOptions,
    FieldSearch,
    FieldSearchState,
    FieldStreams,
    Verification,
)
from invgp.inference.prior_conflict import stop_at_prior_conflict
from invgp.inference.runner import BudgetSpent, Runner
from invgp.inference.search_state import SearchResult
from invgp.latent_model.grid_modes import Field
from invgp.latent_model.noise_density import data_covariance, draw_discrepancy
from invgp.problem import FEWEST_FIELD_RUNS, Floats, Problem

SMALLEST_SHARE = 1e-9  # of the variance due to the regression, so that all draws may be chosen


def prepare_field(
    problem: Problem, backend: Backend, _runner: Runner, seed: int
) -> tuple[FieldSearch, FieldSearchState]:
    """Return the constant parts of a search, and its first state."""
    learning = FieldLearning(problem)
    search = FieldSearch(problem, backend, seed, FieldStreams.of(seed), learning, FieldOptions())
    outputs = np.empty((0, *problem.noise_std.shape))
    model = search.build(problem, outputs)
    nodes = 0 if problem.grid is None else len(problem.nodes)
    return search, FieldSearchState(
        model,
        model.algorithm.init(),
        theta=np.zeros(len(learning.spreads)),
        latents=np.empty((0, nodes, problem.latent_count)),
        outputs=outputs,
        learning_converged=not learning,
    )


def search_field(search: FieldSearch, runner: Runner, state: FieldSearchState) -> FieldSearchState:
    """Make batches of runs from the current posterior until it has converged or the budget is used.

    Parameters
    ----------
    search : FieldSearch
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : FieldSearchState
        Present state of the search.

    Returns
    -------
    FieldSearchState
    """
    settings, options = search.problem.inference, search.options
    budget = most_runs(search.problem)
    runner.begin(budget)
    each = runner.simulator.cost_of_field
    jacobians = all(gives_jacobian(part.problem.forward) for part in runner.simulator.simulators)
    most = None if settings.max_runs is None else settings.max_runs // each
    informative = jacobians or state.coarse is not None
    batch = options.first_batch(state.model.variables, most, informative=informative)
    state = with_earlier_runs(search, runner, state)
    if state.info is not None:
        batch = min(batch, options.fewest_later)
    settled = False
    while budget - runner.simulator.runs >= each:
        state = run_batch(search, runner, state, min(batch, (budget - runner.simulator.runs) // each))
        batch = options.next_batch(runner.simulator.runs // each, informative=informative)
        if _has_converged(options, state):
            if settled or _explains_data(search, state):
                return replace(state, result=SearchResult("the posterior has converged", converged=True))
            settled = True  # one more batch may show that the regression is wrong there
    if settings.max_runs is None:
        status = f"stopped at {budget} runs, since inference.max_runs is not set, before it converged"
    else:
        status = f"stopped at inference.max_runs = {budget} before the posterior converged"
    return replace(state, result=SearchResult(status, converged=False))


def with_earlier_runs(search: FieldSearch, runner: Runner, state: FieldSearchState) -> FieldSearchState:
    """Update the posterior with runs of earlier inversions, if there are enough of them.

    Parameters
    ----------
    search : FieldSearch
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : FieldSearchState
        Present state of the search.

    Returns
    -------
    FieldSearchState
    """
    latents, batch = earlier_fields(
        search.problem, runner.simulator.recorders, search.seed, everything=runner.simulator.budget == 0
    )
    if len(latents) < FEWEST_FIELD_RUNS:
        return state
    state = replace(
        state,
        outputs=batch.outputs,
        latents=latents if search.learning else state.latents,
        slopes=_slopes_of(state, latents, batch),
    )
    state = _update(search, state, state.inference, state.model.field.coordinates(latents))
    return runner.keep(_draw(search, state))


def _slopes_of(state: FieldSearchState, latents: Floats, batch: FieldBatch) -> Floats | None:
    """Return the derivatives (n, N, P, R) of outputs by the variables; None without Jacobians."""
    if batch.jacobians is None or not len(latents):
        return None
    return compute_slopes(state.model.problem, state.model.field, latents, batch.jacobians)


def _has_converged(options: FieldOptions, state: FieldSearchState) -> bool:
    if state.info is None or state.few_runs is None or not state.learning_converged:
        return False
    if state.few_runs >= (options.few_runs if state.drawn is None else options.few_runs_of_draws):
        return False
    if state.coarse is not None and state.verification.error >= options.verified:
        return False  # new fine runs must show that the correction of the coarse model is right
    if state.drawn is None:
        wrong = options.verified <= state.verification.error < math.inf  # infinite without new runs
        return state.info.movement < options.converged and not wrong
    steady = state.drawn.movement < options.draws_converged or state.drawn.same_modes
    return state.verification.error < options.verified and steady


def _explains_data(search: FieldSearch, state: FieldSearchState) -> bool:
    """Return whether the outputs of the regression at the posterior are compatible with the data of all sites."""
    rng, count = search.streams.points.spawn(1)[0], search.options.predicted
    problem = state.model.problem
    if state.drawn is None:
        normals = search.backend.asarray(rng.standard_normal((count, state.model.variables)))
        w = to_numpy(state.inference.q.samples(normals))
    else:
        w = pick(flatten(state.drawn.draws.w), count, rng)
    predicted = state.model.predict(state.inference, w, state.known)
    if problem.noise.discrepancy:
        predicted = predicted + draw_discrepancy(problem, predicted, data_covariance(problem), rng)
    return not find_unexplained(problem, predicted.mean(axis=0), predicted.std(axis=0)).any()


def run_batch(search: FieldSearch, runner: Runner, state: FieldSearchState, count: int) -> FieldSearchState:
    """Make one batch of runs, and update posterior and hyperparameters with it.

    Parameters
    ----------
    search : FieldSearch
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : FieldSearchState
        Present state of the search.
    count : int
        Number of runs.

    Returns
    -------
    FieldSearchState

    Raises
    ------
    BudgetSpent
        The budget has too few runs left, or too few for a first posterior.
    RunsFailedError
        Too many runs failed.
    """
    each = runner.simulator.cost_of_field
    too_few = state.inference.regression is None and count < FEWEST_FIELD_RUNS
    if too_few or not runner.simulator.can_afford(count * each):
        raise BudgetSpent(max(count, FEWEST_FIELD_RUNS) * each)
    from_prior = runner.simulator.runs == 0 and state.inference.regression is None and state.coarse is None
    runs = _make_runs(search, runner, state, count)
    coarse = _add_coarse_runs(search, runner, state, count)
    if from_prior:
        complete = np.ones(runs.outputs.shape[:2], dtype=bool)
        stop_at_prior_conflict(search.problem, runs.outputs, complete, np.arange(search.problem.survey.size))
    if state.inference.regression is not None and runs.near.any():
        near = runs.w[runs.near], runs.outputs[runs.near]
        verification = Verification.from_runs(state.model, state.inference, *near, state.known)
        state = replace(state, verification=verification)
    first = not len(state.outputs)
    state = replace(
        state,
        outputs=np.concatenate([state.outputs, runs.outputs]),
        slopes=runs.slopes if first or runs.slopes is None else _join(state.slopes, runs.slopes),
        coarse=coarse,
    )
    if search.learning:
        state = replace(state, latents=np.concatenate([state.latents, runs.latents]))
    noise = search.problem.noise
    if search.missing_counts(state.outputs) is not None and (noise.correlation or noise.correlates_sites):
        state = _whiten_again(search, state)
    state = _update(search, state, state.inference, runs.w)
    if search.learning and state.info is not None and state.info.few_runs < search.options.learnable:
        state = _learn(search, state)
    state = runner.keep(_draw(search, state))
    record_bound(runner, state)
    return state


def _join(slopes: Floats | None, new: Floats) -> Floats | None:
    """Return the derivatives of all runs; None if those of earlier runs are not known."""
    return None if slopes is None else np.concatenate([slopes, new])


def record_bound(runner: Runner, state: FieldSearchState) -> None:
    """Record the bound of a state, if it has a posterior."""
    if state.info is not None:
        condition = state.model.field.condition
        constant = state.model.whitening.log_scale + (0.0 if condition is None else condition.log_evidence)
        runner.record(state.info.elbo + constant, accepted=True)


def _whiten_again(search: FieldSearch, state: FieldSearchState) -> FieldSearchState:
    """Whiten data and outputs again, since correlated noise with missing outputs needs another order."""
    state = replace(state, model=state.model.whiten_again(search.missing_counts(state.outputs)))
    if state.inference.regression is None:
        return state
    known = state.model.whitening(state.outputs[: len(state.inference.outputs)])
    return replace(state, inference=replace(state.inference, outputs=search.backend.asarray(known)))


def _update(search: FieldSearch, state: FieldSearchState, inference: FieldState, w: Floats) -> FieldSearchState:
    """Update the state of an inference with the last n runs, at variables w (n, R)."""
    model, outputs = state.model, state.outputs
    observed = model.whitening.observed
    never = np.argwhere(observed)[np.isnan(outputs[:, observed]).all(axis=0)]
    if never.size:
        raise RunsFailedError(
            f"no run gave the output that was observed at site {never[0, 0] + 1}: leave the datum empty in the "
            "table of sites if the simulator cannot give it"
        )
    last = search.backend.asarray(model.whitening(outputs[-len(w) :]))
    slopes = None if state.slopes is None else whiten_slopes(model.whitening, state.slopes[-len(w) :])
    inference, info = model.algorithm.tell(
        inference,
        search.backend.asarray(w),
        last,
        search.streams.slices,
        slopes=None if slopes is None else search.backend.asarray(slopes),
        coarse=state.whitened_coarse_runs(),
    )
    return replace(state, inference=inference, info=info)


def _draw(search: FieldSearch, state: FieldSearchState) -> FieldSearchState:
    """Draw from the present posterior, if it is informative and not Gaussian."""
    if not search.samples_exactly or state.info is None or state.info.few_runs >= search.options.learnable:
        return replace(state, drawn=None)
    if state.model.is_gaussian(state.inference):
        return replace(state, drawn=None)
    draws = draw_variables(state.model, state.inference, search.streams.sampling.spawn(1)[0], DRAWS.short)
    stride = max(state.latents.shape[1] // search.options.compared, 1)
    values = state.model.field.latents(flatten(draws.w), nodes=slice(None, None, stride))
    few_runs = float(state.model.few_runs_shares(state.inference, flatten(draws.w)).mean())
    drawn, last = DrawnPosterior(draws, values.mean(axis=0), values.std(axis=0), few_runs), state.last_drawn
    if last is not None:
        moved = np.mean(((drawn.mean - last.mean) / drawn.std) ** 2), np.mean(np.log(drawn.std / last.std) ** 2)
        same = has_several_modes(draws) and not has_new_modes(draws, last.draws)
        drawn = replace(drawn, movement=float(np.sqrt(max(moved))), same_modes=same)
    return replace(state, drawn=drawn, last_drawn=drawn)


def _learn(search: FieldSearch, state: FieldSearchState) -> FieldSearchState:
    """Maximise the evidence over the hyperparameters, and update the posterior from the same runs."""
    theta = search.learning.fit(state.theta, hyperparameter_cost(search, state))
    moved = float(np.abs(theta - state.theta).max())
    state = replace(state, has_learned=True, learning_converged=moved < search.options.converged)
    if moved < search.options.same:
        return state
    model = search.build(search.learning.problem_at(theta), state.outputs)
    begin = _inference_in_basis(search.backend, model.field, state.model.field, state.inference)
    turned = None if state.slopes is None else state.slopes @ state.model.field.coordinates_of(model.field)
    coarse = state.coarse and replace(state.coarse, w=model.field.coordinates(state.coarse.latents))
    state = replace(state, theta=theta, model=model, slopes=turned, coarse=coarse)
    return _update(search, state, begin, model.field.coordinates(state.latents))


def hyperparameter_cost(search: FieldSearch, state: FieldSearchState) -> Callable[[Floats], float]:
    """Return the negative log posterior density of the hyperparameters, linearised at a state."""
    model = state.model
    return search.learning.negative_log_density(
        state.theta, model.field, model.algorithm, state.inference, search.backend
    )


def _inference_in_basis(backend: Backend, field: Field, old: Field, state: FieldState) -> FieldState:
    """Return a state without runs for another basis of the latents, at the posterior of a state."""
    turn = backend.asarray(old.coordinates_of(field))
    mean = backend.asarray(field.coordinates(old.latents(to_numpy(state.linear.mean)[None]))[0])
    start = LowRankGaussian(mean, turn.T @ state.linear.precision_factor)
    return FieldState(start.to_dense(), start)


class FieldRuns(NamedTuple):
    """Successful runs of a batch.

    Attributes
    ----------
    w : array, shape (n, R)
        Variables.
    near : array of bool, shape (n,)
        Runs from the posterior, not from a wider or a narrower distribution.
    latents : array, shape (n, G, Q)
        Latents on the grid.
    outputs : array, shape (n, N, P)
        Outputs; NaN where missing.
    slopes : array, shape (n, N, P, R), or None
        Derivatives of the outputs by the variables, if there are Jacobians.
    """

    w: Floats
    near: NDArray[np.bool_]
    latents: Floats
    outputs: Floats
    slopes: Floats | None


def _make_runs(search: FieldSearch, runner: Runner, state: FieldSearchState, count: int) -> FieldRuns:
    """Run the simulator at new variables; if too many runs fail, samples closer to the mean are tried."""
    simulator = runner.simulator
    for spread in search.options.narrower_spreads:
        w, near = _ask(search, state, count, search.streams.asking, search.streams.picking, spread)
        if not simulator.can_afford(count * simulator.cost_of_field):
            break
        try:
            latents = state.model.field.latents(w)
            batch = simulator.run_fields(latents, f"batch-{len(runner.trace) + 1}")
        except TooManyFailures:
            if simulator.failed == simulator.runs:
                break  # all runs fail, so samples closer to the mean would fail too
            continue
        valid = batch.valid
        slopes = _slopes_of(state, latents[valid], batch.select(valid))
        return FieldRuns(w[valid], (near & (spread == 1.0))[valid], latents[valid], batch.outputs[valid], slopes)
    raise runner.too_many_failures()


def _add_coarse_runs(search: FieldSearch, runner: Runner, state: FieldSearchState, count: int) -> CoarseRuns | None:
    """Return the runs of the coarse model with further ones from the posterior, for `count` runs of the fine model."""
    if state.coarse is None or runner.coarse is None:
        return None
    simulator, rng = runner.coarse, search.streams.coarse
    left = math.inf if simulator.runs_left is None else simulator.runs_left // simulator.cost_of_field
    wanted = int(min(search.options.coarse_per_fine * count, left))
    if not wanted:
        return state.coarse
    w, _ = _ask(search, state, wanted, rng, rng)
    latents = state.model.field.latents(w)
    try:
        batch = simulator.run_fields(latents, f"batch-{len(runner.trace) + 1}")
    except TooManyFailures:
        return state.coarse
    valid = batch.valid
    kept = latents[valid] if search.learning else state.coarse.latents[:0]
    return state.coarse.append(w[valid], kept, batch.outputs[valid])


def _ask(
    search: FieldSearch,
    state: FieldSearchState,
    count: int,
    asking: np.random.Generator,
    rng: np.random.Generator,
    spread: float = 1.0,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the variables (count, R) of the next runs, and which of them (count,) are from the posterior.

    If there are draws from the exact posterior, half of the others are from a wider distribution, and half are draws
    where the regression is uncertain, such as those of a long tail or of a mode without runs. The random numbers of a
    Gaussian posterior are `asking`, and those of draws `rng`.
    """
    if state.drawn is None:
        w = state.model.algorithm.ask(state.inference, count, asking, spread)
        return to_numpy(w), np.ones(count, dtype=np.bool_)
    draws = state.drawn.draws
    wide = round(search.options.tempered_share * count)
    near = pick_from_all_modes(draws, count - wide, rng)
    centre = flatten(draws.w).mean(axis=0)
    candidates = np.concatenate([flatten(draws.w), draws.doubtful])
    shares = state.model.few_runs_shares(state.inference, candidates) + SMALLEST_SHARE
    doubtful = rng.choice(len(candidates), wide // 2, replace=False, p=shares / shares.sum())
    w = np.concatenate([near, candidates[doubtful], pick(draws.tempered, wide - wide // 2, rng)])
    return centre + spread * (w - centre), np.arange(count) < len(near)


def flatten(w: Floats) -> Floats:
    """Return draws (n, C, R) of all chains as rows (n C, R)."""
    return w.reshape(-1, w.shape[-1])
