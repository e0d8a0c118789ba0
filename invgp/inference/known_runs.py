"""The posterior of a problem from the runs that its ledger holds, without a new run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from invgp.core.coupled.gaussian_posterior import movement
from invgp.emulation.run_schedule import simulated_parts
from invgp.errors import ConfigError
from invgp.formatting import count_noun
from invgp.inference.coarse_field import start_from_coarse_model
from invgp.inference.emulator_search import fit, optimise_on_emulator, trusted_sites
from invgp.inference.field import record_bound, with_earlier_runs
from invgp.inference.field_state import FieldSearch, FieldSearchState
from invgp.inference.gaussian import check_shape, check_whole_posterior
from invgp.inference.runner import Runner
from invgp.inference.sampled import sampled_search
from invgp.inference.search_state import SearchResult, SearchState
from invgp.inference.site_model import SiteModel, uses_emulator
from invgp.problem import Problem

MOST_STEPS = 6  # of the optimisation, each with the noise that the one before has learnt
DRAWS = 64  # at which the runs must surround the posterior


def search_known_runs(model: Any, runner: Runner, state: Any) -> Any:
    """Find the posterior of a site or field model on its earlier runs.

    The result counts as converged only if the runs surround the posterior and the estimated error is small there.

    Parameters
    ----------
    model : SiteModel or FieldSearch
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : SearchState or FieldSearchState
        Present state of the search.

    Returns
    -------
    SearchState or FieldSearchState
    """
    if isinstance(model, FieldSearch):
        return _search_field(model, runner, state)
    return _search_sites(model, runner, state)


def _search_sites(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    problem = model.problem
    if not uses_emulator(problem):
        raise ConfigError("inference.emulator: must be true, and the runs enough for it, without new runs")
    state = fit(model, state, state.start)
    if state.emulator is None:
        raise _too_few(problem, [len(part.locate(state.runs.sites)[0]) for part in simulated_parts(problem)])
    posterior = state.start
    for _ in range(MOST_STEPS):
        state = optimise_on_emulator(model, runner, state, posterior)
        if state.candidate is None:
            return state
        moved, posterior = movement(posterior, state.posterior), state.posterior
        if moved < model.options.step_converged:
            break
        state = fit(model, state, posterior)
    converged = state.result.converged
    trusted = trusted_sites(model, state)
    if problem.inference.posterior == "sampled":
        search = sampled_search(model)
        state = search.sample_emulated(model, runner, state)
        converged = search.judge_draws(state).converged
        if state.samples is not None and state.emulator is not None:
            few = state.samples.latents[state.samples.thin(DRAWS)]
            trusted &= state.emulator.trusted_sites(few, model.all_sites, problem.inference.emulator_error)
    else:
        state = check_whole_posterior(model, check_shape(model, runner, state))
    doubtful = int(np.count_nonzero(~trusted & np.isin(model.all_sites, problem.simulated)))
    if doubtful:
        status = (
            f"the runs in the ledger do not cover the posterior at {doubtful:,} of "
            f"{count_noun(len(problem.simulated), 'site')}"
        )
        return replace(state, result=SearchResult(status, converged=False))
    if not converged:
        return replace(state, result=SearchResult("stopped before the posterior converged", converged=False))
    return replace(state, result=SearchResult("converged on the runs in the ledger", converged=True))


def _search_field(search: FieldSearch, runner: Runner, state: FieldSearchState) -> FieldSearchState:
    state = with_earlier_runs(search, runner, start_from_coarse_model(search, runner, state))
    if state.info is None:
        raise _too_few(search.problem, [len(state.outputs)])
    record_bound(runner, state)
    if state.info.few_runs >= search.options.few_runs:
        status = "the runs in the ledger are too few for this posterior"
        return replace(state, result=SearchResult(status, converged=False))
    return replace(state, result=SearchResult("converged on the runs in the ledger", converged=True))


def _too_few(problem: Problem, counts: list[int]) -> ConfigError:
    names = ", ".join(part.name for part in simulated_parts(problem))
    return ConfigError(
        f"ledger: must hold enough runs of {names} for a posterior without new runs, held "
        f"{', '.join(f'{count:,}' for count in counts)}; invert the problem with all its sources first"
    )
