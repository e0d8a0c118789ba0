"""The coarse model of a field model: the search for the posterior of the fine model starts from its posterior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from invgp.core.field.field_inference import FieldState
from invgp.emulation.run_schedule import most_runs
from invgp.errors import PriorConflictError, RunsFailedError
from invgp.inference.field import prepare_field, search_field, with_earlier_runs
from invgp.inference.field_state import CoarseRuns, FieldSearch, FieldSearchState, FieldStreams
from invgp.inference.runner import BudgetSpent, Runner
from invgp.problem import FEWEST_FIELD_RUNS

COARSE_STREAM = 1  # second number of the seed of the coarse model


def search_two_fidelities(search: FieldSearch, runner: Runner, state: FieldSearchState) -> FieldSearchState:
    """Find the posterior of the coarse model, and from there that of the fine one.

    Parameters
    ----------
    search : FieldSearch
        What is constant during the search.
    runner : Runner
        Makes the runs of both models, and keeps the latest state.
    state : FieldSearchState
        Present state of the search.

    Returns
    -------
    FieldSearchState
    """
    return search_field(search, runner, start_from_coarse_model(search, runner, state))


def start_from_coarse_model(search: FieldSearch, runner: Runner, state: FieldSearchState) -> FieldSearchState:
    """Return the state before the first fine runs: the runs and the posterior of the coarse model.

    If the coarse model has no posterior, because its runs fail or are far from the data, it is not used, and a note
    states why. Without a coarse model, the state is that at the prior.

    Parameters
    ----------
    search : FieldSearch
        What is constant during the search.
    runner : Runner
        Makes the runs of both models.
    state : FieldSearchState
        State at the prior.

    Returns
    -------
    FieldSearchState
    """
    simulator = runner.coarse
    if simulator is None:
        return state
    limited = max(round(search.options.coarse_share * most_runs(simulator.problem)), FEWEST_FIELD_RUNS)
    coarse_runner = Runner(simulator)
    own, start = prepare_field(
        simulator.problem.with_inference(max_runs=limited), search.backend, coarse_runner, search.seed
    )
    own = replace(own, streams=FieldStreams.of((search.seed, COARSE_STREAM)), options=search.options)
    try:
        find = with_earlier_runs if simulator.budget == 0 else search_field
        found = find(own, coarse_runner, coarse_runner.keep(start))
    except BudgetSpent:
        found = coarse_runner.latest
    except (RunsFailedError, PriorConflictError, np.linalg.LinAlgError) as error:
        return replace(state, coarse_failure=str(error).splitlines()[0])
    if found.info is None:
        return replace(state, coarse_failure="it has too few runs")
    theta, model = state.theta, state.model
    if found.has_learned:
        theta = found.theta
        model = search.build(search.learning.problem_at(theta), state.outputs)
    return replace(
        state,
        theta=theta,
        model=model,
        inference=FieldState(found.inference.q, found.inference.linear),
        drawn=found.drawn,
        coarse=CoarseRuns(found.variables, found.latents, found.outputs),
    )
