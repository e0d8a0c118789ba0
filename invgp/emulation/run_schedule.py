"""Number of runs of an inversion and of its steps, and number of sites with similar emulator errors."""

from __future__ import annotations

import math
from itertools import zip_longest

import numpy as np
from scipy.spatial.distance import cdist

from invgp.problem import Floats, Part, Problem

RUNS_PER_FEATURE = 1.3  # fewest runs of the first step, per coefficient of a quadratic polynomial in the latents
ENOUGH_PER_FEATURE = 4  # most runs of a step, per coefficient of a cubic polynomial, before they are doubled
FEWEST_PER_LATENT = 60  # runs in all that are always allowed, per latent and one more, if draws are the result
FEWEST_IN_A_STEP = 4  # fewest runs of a step, per latent and one more, if draws are the result
MANY_SITES = 1000  # sites up to which the simulator itself is used wherever the emulator is not accurate enough
LATE_STEP = 2  # step, from 0, by which the emulator of most simulators is accurate
FEWEST_IN_A_CHECK = 100  # fewest runs that verify an emulator: an error at 5% of the sites shows with probability 0.99
FEWEST_STEPS = 2  # outer steps without which no emulator is used
# Largest number of runs if `inference.max_runs` is not set; for site models the larger one of two, in all and per site.
MOST_FIELD_RUNS = 1000
MOST_RUNS, MOST_PER_SITE = 2000, 100  # with an emulator
MOST_DIRECT_RUNS, MOST_DIRECT_PER_SITE = 50_000, 5000  # without an emulator
MOST_EVALUATIONS = 20  # evaluations of the bound that are always allowed without an emulator
MOST_COMPARED_SITES = 1000  # sites with which all sites are compared; a random subset if there are more
PAIRS_AT_ONCE = 4_000_000  # pairs of sites that are compared at once, to limit memory


def simulated_parts(problem: Problem) -> list[Part]:
    """Return the sources whose data need simulator runs."""
    return [part for part in problem.parts if not part.direct]


def most_runs(problem: Problem) -> int:
    """Return the largest number of runs of an inversion: `inference.max_runs`, or its default.

    The default of a site model is far above what an inversion usually takes. It ends inversions that do not get
    anywhere, such as those of data in the wrong unit.
    """
    settings, sites = problem.inference, len(problem.simulated)
    if settings.max_runs is not None:
        return settings.max_runs
    if problem.grid is not None:
        return MOST_FIELD_RUNS * problem.runs_per_field
    if settings.emulator and can_emulate(problem):
        return max(MOST_RUNS, MOST_PER_SITE * sites, 2 * run_budget(problem))
    each = max(MOST_DIRECT_PER_SITE, MOST_EVALUATIONS * (settings.samples or 0))
    return max(MOST_DIRECT_RUNS, each * sites)


def run_budget(problem: Problem) -> int:
    """Return the largest number of runs on which emulators are built: `inference.runs_per_site`, and enough for one.

    A survey of few sites needs more runs per site, since the emulator is fitted to the runs of all sites.
    """
    return sum(_budget(part, problem) for part in simulated_parts(problem))


def runs_in_a_step(problem: Problem, step: int = 0) -> int:
    """Return the number of runs of an outer step: one run per site, or fewer if there are many sites.

    With many sites, the number doubles with each step. Surveys with many sites determine the latents precisely, so
    the first emulators are not accurate enough; without doubling, this would take many steps, each over all sites.

    Parameters
    ----------
    problem : Problem
    step : int
        Number of the step, from 0.
    """
    return sum(source_runs_in_a_step(problem, step))


def source_runs_in_a_step(problem: Problem, step: int = 0) -> tuple[int, ...]:
    """Return the number of runs of an outer step for each simulator; see `runs_in_a_step`."""
    return tuple(_in_a_step(part, problem, step) for part in simulated_parts(problem))


def runs_of_steps(problem: Problem) -> list[int]:
    """Return the runs of each outer step within `inference.runs_per_site`, less the runs of the verification."""
    return [sum(step) for step in source_runs_of_steps(problem)]


def source_runs_of_steps(problem: Problem) -> list[tuple[int, ...]]:
    """Return the runs of each outer step for each simulator; 0 after the last step of a simulator."""
    return list(zip_longest(*(_of_steps(part, problem) for part in simulated_parts(problem)), fillvalue=0))


def shares_runs(problem: Problem) -> bool:
    """Return whether there are many sites, more than the runs of a late step: most of them rely on runs at others."""
    pairs = zip(source_runs_in_a_step(problem, LATE_STEP), simulated_parts(problem), strict=True)
    return any(len(part.sites) > max(runs, MANY_SITES) for runs, part in pairs)


def source_runs_in_a_check(problem: Problem) -> tuple[int, ...]:
    """Return the number of runs for each simulator that verify the emulator if sites share runs."""
    pairs = zip(source_runs_in_a_step(problem), simulated_parts(problem), strict=True)
    return tuple(min(max(runs, FEWEST_IN_A_CHECK), len(part.sites)) for runs, part in pairs)


def can_emulate(problem: Problem) -> bool:
    """Return whether `inference.runs_per_site` is enough for an emulator of each simulator."""
    return all(len(_of_steps(part, problem)) >= FEWEST_STEPS for part in simulated_parts(problem))


def _latents_of(part: Part, problem: Problem) -> int:
    """Return the number of latent processes on which the runs of a source depend."""
    names = {variable.name for variable in part.problem.inputs}
    return max(sum(latent.size for latent in problem.latents if latent.name in names), 1)


def _budget(part: Part, problem: Problem) -> int:
    runs = math.ceil(part.problem.inference.runs_per_site * len(part.sites))
    if problem.inference.posterior != "sampled":
        return runs
    return max(runs, FEWEST_PER_LATENT * (_latents_of(part, problem) + 1))


def _in_a_step(part: Part, problem: Problem, step: int = 0) -> int:
    sites, latents = len(part.sites), _latents_of(part, problem)
    if problem.inference.posterior == "sampled":  # several runs per site if there are few sites
        sites *= math.ceil(FEWEST_IN_A_STEP * (latents + 1) / sites)
    return min(sites, (ENOUGH_PER_FEATURE * math.comb(latents + 3, 3)) << step)


def _in_first_step(part: Part, problem: Problem) -> int:
    """Return the number of runs of the first step: enough for a quadratic polynomial, also with few sites."""
    each = _in_a_step(part, problem)
    return each * math.ceil(RUNS_PER_FEATURE * math.comb(_latents_of(part, problem) + 2, 2) / each)


def _of_steps(part: Part, problem: Problem) -> list[int]:
    left = _budget(part, problem) - _in_a_step(part, problem)
    steps: list[int] = []
    while (runs := _in_a_step(part, problem, len(steps)) if steps else _in_first_step(part, problem)) <= left:
        steps.append(runs)
        left -= runs
    return steps


def effective_neighbours(problem: Problem, rng: np.random.Generator) -> Floats:
    """Return the effective number (N,) of sites within a length-scale of each site, including itself."""
    X = problem.survey.X
    others = X[problem.simulated]
    count = len(others)
    some = others if count <= MOST_COMPARED_SITES else others[rng.choice(count, MOST_COMPARED_SITES, replace=False)]
    lengths = [latent.correlation_length(X.shape[1]) for latent in problem.latents if not latent.discrepancy_of]
    shares, step = np.empty((len(lengths), len(X))), max(PAIRS_AT_ONCE // len(some), 1)
    for share, length in zip(shares, lengths, strict=True):
        for i in range(0, len(X), step):
            rows = slice(i, i + step)
            share[rows] = np.exp(-0.5 * cdist(X[rows] / length, some / length, "sqeuclidean")).sum(axis=1)
    return np.asarray(np.maximum(shares.mean(axis=0) * count / len(some), 1.0))
