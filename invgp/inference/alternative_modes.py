"""Other solutions of the whole field, for which the search starts again elsewhere, on the emulator.

A site's shape is judged given its neighbours, and in a smooth field these hold it where it is: a field that is mirrored
as a whole, and explains the data as well, is not seen from there. On an emulator further searches cost no runs. Only a
solution that may be as good as the first is worth some: the emulator must learn what is there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from invgp.core.backend import to_numpy
from invgp.emulation import Emulator, Runs
from invgp.errors import RunsFailedError
from invgp.inference.diagnostics import find_unexplained
from invgp.inference.inversion import BudgetSpent, SearchResult
from invgp.inference.multistart import Multistart, are_distinct, subset_of_sites
from invgp.inference.optimisation import Candidate
from invgp.latent_model.learned_problem import with_learned_hyperparameters
from invgp.wording import counted

if TYPE_CHECKING:
    from invgp.inference.emulated import EmulatedInversion

ODDS = 100.0  # a solution that is less probable than the best one by more is not told of
MOST_EXPLORED = 2


@dataclass(frozen=True)
class ExploredMode:
    """A solution, with the emulator that was fitted to runs about it.

    Attributes
    ----------
    elbo : its bound on that emulator, with the noise as it is.
    result : outcome of its search.
    sure : whether the emulator knows runs about it.
    """

    candidate: Candidate
    emulator: Emulator
    known: Runs
    elbo: float
    result: SearchResult
    sure: bool = True

    def alternatives(self, best: ExploredMode) -> bool:
        """Whether this solution is nearly as probable as another, or more so."""
        return self.elbo >= best.elbo - math.log(ODDS)


def search_alternative_modes(inversion: EmulatedInversion, result: SearchResult) -> SearchResult:
    """Keep the best solution there is, and say so if another explains the data about as well.

    Parameters
    ----------
    result : SearchResult
        Outcome of the first search.
    """
    first, emulator = inversion.candidate, inversion.emulator
    if (
        emulator is None
        or first is None
        or inversion.in_batches
        or not _suspects_other_modes(inversion, first, converged=result.converged)
    ):
        return result
    elbo = inversion.emulated_bound(first.posterior)
    best, others = ExploredMode(first, emulator, inversion.known, elbo, result), []
    search = Multistart(inversion, inversion.everywhere, first.posterior)
    try:
        for lead, rival in sorted(search.alternatives(), key=lambda pair: -pair[0])[:MOST_EXPLORED]:
            if lead < -math.log(ODDS):
                break
            there = _explore(inversion, rival, best, elbo + lead)
            if there is not None and are_distinct(there.candidate.posterior, best.candidate.posterior):
                best, there = (there, best) if there.sure and there.elbo > best.elbo else (best, there)
                others.append(there)
    finally:  # whoever interrupts this gets the best of what was explored, not what was under way
        inversion.candidate, inversion.emulator, inversion.known = best.candidate, best.emulator, best.known
    if others:
        inversion.record(best.elbo, accepted=True)
    nearest = sorted((other for other in others if other.alternatives(best)), key=lambda other: -other.elbo)
    inversion.notes += [describe_alternative(best, other) for other in nearest[:1]]
    return best.result


def _suspects_other_modes(inversion: EmulatedInversion, first: Candidate, *, converged: bool) -> bool:
    """Whether there may be another solution: seen from a part of the survey, which is cheap to search."""
    problem = with_learned_hyperparameters(inversion.problem, first.posterior)
    if not converged or find_unexplained(problem, first.predicted, first.predicted_std).any():
        return True
    part = subset_of_sites(problem, inversion.multistart)
    if len(part) == problem.survey.size:
        return True
    return any(lead > -math.log(ODDS) for lead, _ in Multistart(inversion, part, first.posterior).alternatives())


def _explore(inversion: EmulatedInversion, rival: Candidate, best: ExploredMode, elbo: float) -> ExploredMode | None:
    """The rival, with runs about it; None if it came to nothing."""
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
    """What a person should know of another solution."""
    here, there = (to_numpy(one.candidate.posterior.marginals.mean) for one in (best, other))
    spread = np.sqrt(np.diagonal(to_numpy(best.candidate.posterior.marginals.covariance), axis1=1, axis2=2))
    differs = (np.abs(here - there) > spread).any(axis=1)
    return (
        f"Another solution {'explains' if other.sure else 'may explain'} the data about as well, "
        f"{_describe_odds(best, other)}: it differs at {differs.sum()} of {counted(len(differs), 'site')}, and is no "
        "part of this posterior. A prior that knows better, or other data, would tell them apart."
    )


def _describe_odds(best: ExploredMode, other: ExploredMode) -> str:
    """Of the other, which may be the more probable one only if runs were too few to make sure."""
    lead = best.elbo - other.elbo
    if abs(lead) < math.log(1.5):
        return "and is as probable"
    if lead < 0.0:
        return "and may be the more probable one, which runs were too few to make sure of"
    return f"though this one is {math.exp(lead):.0f} times as probable"
