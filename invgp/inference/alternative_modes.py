"""Search for alternative solutions of the whole field, on the emulator.

The shape test of a site conditions on its neighbours. In a smooth field it cannot detect another solution of the whole
field, such as a mirrored one that explains the data equally well. Further searches on the emulator cost no runs. Only a
solution that may be as probable as the first is explored with new runs, because the emulator must be accurate there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from invgp.core.backend import to_numpy
from invgp.emulation import Emulator, Runs
from invgp.errors import RunsFailedError
from invgp.formatting import count_noun
from invgp.inference.diagnostics import find_unexplained
from invgp.inference.inversion import BudgetSpent, SearchResult
from invgp.inference.multistart import Multistart, are_distinct, subset_of_sites
from invgp.inference.optimisation import Candidate
from invgp.latent_model.learned_problem import with_learned_hyperparameters

if TYPE_CHECKING:
    from invgp.inference.emulated import EmulatedInversion

ODDS = 100.0  # an alternative that is less probable than the best solution by a larger factor is not reported
MOST_EXPLORED = 2  # most alternatives that are explored with new runs


@dataclass(frozen=True)
class ExploredMode:
    """A solution, with the emulator that was fitted to runs near it.

    Attributes
    ----------
    candidate : Candidate
    emulator : Emulator
    known : Runs
        Runs of this emulator.
    elbo : float, nats
        Bound on this emulator, without the emulator error in the noise.
    result : SearchResult
        Outcome of its search.
    sure : bool
        Whether the emulator was fitted to runs near this solution.
    """

    candidate: Candidate
    emulator: Emulator
    known: Runs
    elbo: float
    result: SearchResult
    sure: bool = True

    def is_plausible(self, best: ExploredMode) -> bool:
        """Return whether this solution is more probable than `best`, or less by at most a factor of `ODDS`."""
        return self.elbo >= best.elbo - math.log(ODDS)


def search_alternative_modes(inversion: EmulatedInversion, result: SearchResult) -> SearchResult:
    """Search for alternative solutions, keep the best one, and add a note if another is nearly as probable.

    Parameters
    ----------
    inversion : EmulatedInversion
        Its candidate, emulator and runs become those of the best solution.
    result : SearchResult
        Outcome of the first search.
    """
    first, emulator = inversion.candidate, inversion.emulator
    if (
        emulator is None
        or first is None
        or inversion.uses_minibatches
        or not _suspects_other_modes(inversion, first, converged=result.converged)
    ):
        return result
    elbo = inversion.emulated_bound(first.posterior)
    best, others = ExploredMode(first, emulator, inversion.known, elbo, result), []
    search = Multistart(inversion, inversion.all_sites, first.posterior)
    try:
        for lead, rival in sorted(search.alternatives(), key=lambda pair: -pair[0])[:MOST_EXPLORED]:
            if lead < -math.log(ODDS):
                break
            there = _explore(inversion, rival, best, elbo + lead)
            if there is not None and are_distinct(there.candidate.posterior, best.candidate.posterior):
                best, there = (there, best) if there.sure and there.elbo > best.elbo else (best, there)
                others.append(there)
    finally:  # after an interruption too, keep the best explored solution
        inversion.candidate, inversion.emulator, inversion.known = best.candidate, best.emulator, best.known
    if others:
        inversion.record(best.elbo, accepted=True)
    nearest = sorted((other for other in others if other.is_plausible(best)), key=lambda other: -other.elbo)
    inversion.notes += [describe_alternative(best, other) for other in nearest[:1]]
    return best.result


def _suspects_other_modes(inversion: EmulatedInversion, first: Candidate, *, converged: bool) -> bool:
    """Return whether to search the whole survey: after a poor first search, or if a subset has alternatives."""
    problem = with_learned_hyperparameters(inversion.problem, first.posterior)
    if not converged or find_unexplained(problem, first.predicted, first.predicted_std).any():
        return True
    part = subset_of_sites(problem, inversion.multistart)
    if len(part) == problem.survey.size:
        return True
    return any(lead > -math.log(ODDS) for lead, _ in Multistart(inversion, part, first.posterior).alternatives())


def _explore(inversion: EmulatedInversion, rival: Candidate, best: ExploredMode, elbo: float) -> ExploredMode | None:
    """Explore an alternative with new runs near it; None if its search failed."""
    unsure = ExploredMode(rival, best.emulator, best.known, elbo, best.result, sure=False)
    if not inversion.steps:
        return unsure
    inversion.candidate, inversion.emulator, inversion.known = rival, best.emulator, best.known
    try:
        result = inversion.search_on_emulator(rival.posterior)
    except BudgetSpent:
        return unsure
    except RunsFailedError:
        return None
    candidate, emulator = inversion.candidate, inversion.emulator
    if candidate is None or emulator is None:
        return None
    return ExploredMode(candidate, emulator, inversion.known, inversion.emulated_bound(candidate.posterior), result)


def describe_alternative(best: ExploredMode, other: ExploredMode) -> str:
    """Describe an alternative solution in one note for users."""
    here, there = (to_numpy(one.candidate.posterior.marginals.mean) for one in (best, other))
    spread = np.sqrt(np.diagonal(to_numpy(best.candidate.posterior.marginals.covariance), axis1=1, axis2=2))
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
