"""How many runs an emulator is given, step by step, and how many sites see the same of its errors."""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial.distance import cdist

from invgp.problem import Floats, Problem

RUNS_PER_FEATURE = 1.3  # of a quadratic polynomial in the latents, in the first step, at least
ENOUGH_PER_FEATURE = 4  # of a cubic one, in any step, at the most
FEWEST_STEPS = 2
LOOKED_AT = 1000  # sites


def runs_in_a_step(problem: Problem, step: int = 0) -> int:
    """Runs in an outer step, from 0: one a site; where sites are many, fewer, and twice as many from step to step.

    Whoever has many sites has sharp data, for which the first emulators are not good enough; to learn that from a few
    runs at a time takes many steps, each of which visits all sites.
    """
    return min(problem.survey.size, (ENOUGH_PER_FEATURE * math.comb(problem.latent_count + 3, 3)) << step)


def runs_in_first_step(problem: Problem) -> int:
    """As a step should have, but enough for a quadratic polynomial where sites are few."""
    each = runs_in_a_step(problem)
    return each * math.ceil(RUNS_PER_FEATURE * math.comb(problem.latent_count + 2, 2) / each)


def runs_of_steps(problem: Problem) -> list[int]:
    """Runs of each outer step that `inference.runs_per_site` allows, the runs of the verification being kept."""
    left = problem.inference.runs_per_site * problem.survey.size - runs_in_a_step(problem)
    steps: list[int] = []
    while (runs := runs_in_a_step(problem, len(steps)) if steps else runs_in_first_step(problem)) <= left:
        steps.append(runs)
        left -= runs
    return steps


def can_emulate(problem: Problem) -> bool:
    """Whether the runs are enough for an emulator at all."""
    return len(runs_of_steps(problem)) >= FEWEST_STEPS


def effective_neighbours(problem: Problem, rng: np.random.Generator) -> Floats:
    """How many sites' worth of data share a length-scale with each site, itself included, (N,)."""
    X = problem.survey.X
    some = X if len(X) <= LOOKED_AT else X[rng.choice(len(X), LOOKED_AT, replace=False)]
    shares = [
        np.exp(-0.5 * cdist(X / latent.length_scale, some / latent.length_scale, "sqeuclidean")).sum(axis=1)
        for latent in problem.latents
    ]
    return np.asarray(np.maximum(np.mean(shares, axis=0) * len(X) / len(some), 1.0))
