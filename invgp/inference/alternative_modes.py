"""Search for alternative solutions of the whole field, on the emulator.

The shape test of a site conditions on its neighbours. In a smooth field it cannot detect another solution of the whole
field, such as a mirrored one that explains the data equally well. Further searches on the emulator cost no runs. Only a
solution that may be as probable as the first is explored with new runs, because the emulator must be accurate there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from invgp.core.backend import to_numpy
from invgp.errors import RunsFailedError
from invgp.formatting import count_noun
from invgp.inference.emulator_search import emulated_bound, search_on_emulator
from invgp.inference.multistart import are_distinct, find_alternatives, subset_of_sites
from invgp.inference.restart import unexplained_sites
from invgp.inference.runner import BudgetSpent, Runner
from invgp.inference.search_state import SearchState
from invgp.inference.site_model import SiteModel
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters


@dataclass(frozen=True)
class ExploredMode:
    """A solution, with the emulator that was fitted to runs near it.

    Attributes
    ----------
    state : SearchState
        State of its search.
    elbo : float, nats
        Bound on its emulator, without the emulator error in the noise.
    sure : bool
        Whether the emulator was fitted to runs near this solution.
    """

    state: SearchState
    elbo: float
    sure: bool = True

    def is_plausible(self, best: ExploredMode, odds: float) -> bool:
        """Return whether this solution is more probable than `best`, or less by at most a factor."""
        return self.elbo >= best.elbo - math.log(odds)


def search_alternative_modes(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Search for alternative solutions, and return the state of the best one.

    A note is added if another solution is nearly as probable.

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
    if state.emulator is None or state.candidate is None or model.uses_minibatches:
        return state
    if not _suspects_other_modes(model, runner, state):
        return state
    options, elbo, steps = model.options, emulated_bound(model, state), state.steps
    best, others = ExploredMode(state, elbo), list[ExploredMode]()
    alternatives = sorted(find_alternatives(model, runner, state, model.all_sites), key=lambda pair: -pair[0])
    try:
        for lead, rival in alternatives[: options.most_explored]:
            if lead < -math.log(options.odds):
                break
            there = _explore(model, runner, replace(best.state, candidate=rival, steps=steps), elbo + lead)
            steps = runner.latest.steps
            if there is not None and are_distinct(there.state.posterior, best.state.posterior, options):
                best, there = (there, best) if there.sure and there.elbo > best.elbo else (best, there)
                others.append(there)
    finally:  # after an interruption too, keep the best explored solution
        state = runner.keep(replace(best.state, steps=steps))
    if others:
        runner.record(best.elbo, accepted=True)
    nearest = sorted(
        (other for other in others if other.is_plausible(best, options.odds)), key=lambda other: -other.elbo
    )
    return state.with_note(describe_alternative(best, nearest[0])) if nearest else state


def _suspects_other_modes(model: SiteModel, runner: Runner, state: SearchState) -> bool:
    """Return whether to search the whole survey: after a poor first search, or if a subset has alternatives."""
    if not state.result.converged or unexplained_sites(model, state).any():
        return True
    problem = with_learned_hyperparameters(model.problem, state.posterior)
    part = subset_of_sites(problem, model.streams.multistart, model.options.subset, model.options.subset_radius)
    if len(part) == model.problem.survey.size:
        return True
    return any(lead > -math.log(model.options.odds) for lead, _ in find_alternatives(model, runner, state, part))


def _explore(model: SiteModel, runner: Runner, rival: SearchState, elbo: float) -> ExploredMode | None:
    """Explore an alternative with new runs near it; None if its search failed.

    Parameters
    ----------
    model : SiteModel
    runner : Runner
    rival : SearchState
        State with the alternative as its candidate, and with the emulator of the best solution.
    elbo : float, nats
        Its bound on that emulator.
    """
    runner.keep(rival)
    unsure = ExploredMode(rival, elbo, sure=False)
    if not rival.steps:
        return unsure
    try:
        found = search_on_emulator(model, runner, rival)
    except BudgetSpent:
        return unsure
    except RunsFailedError:
        return None
    return None if found.emulator is None else ExploredMode(found, emulated_bound(model, found))


def describe_alternative(best: ExploredMode, other: ExploredMode) -> str:
    """Describe an alternative solution in one note for users."""
    here, there = (to_numpy(one.state.posterior.marginals.mean) for one in (best, other))
    spread = np.sqrt(np.diagonal(to_numpy(best.state.posterior.marginals.covariance), axis1=1, axis2=2))
    differs = (np.abs(here - there) > spread).any(axis=1)
    return (
        f"Another solution {'explains' if other.sure else 'may explain'} the data about as well, "
        f"{_describe_odds(best, other)}: it differs at {differs.sum()} of {count_noun(len(differs), 'site')}, and is "
        "not part of this posterior. A more specific prior, or other data, would distinguish them."
    )


def _describe_odds(best: ExploredMode, other: ExploredMode) -> str:
    """Describe the odds; the other solution can be more probable only if there were too few runs to verify it."""
    lead = best.elbo - other.elbo
    if abs(lead) < math.log(1.5):
        return "and is as probable"
    if lead < 0.0:
        return "and may be the more probable one, but there were too few runs to verify this"
    return f"though this one is {math.exp(lead):.0f} times as probable"
