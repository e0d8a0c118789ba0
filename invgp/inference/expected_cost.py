"""What an inversion will cost, before it starts."""

from __future__ import annotations

from typing import NamedTuple

from invgp.emulation.run_schedule import can_emulate, runs_in_a_step, runs_of_steps
from invgp.inference.factorised import SAMPLES
from invgp.inference.field import MOST_RUNS
from invgp.problem import Problem

USUAL_STEPS = 4  # of the emulator, verification included
USUAL_SAMPLES = 300  # a site, of the coupled posterior without an emulator
USUAL_EVALUATIONS = 60  # of the bound of the paper's full Gaussian


class Cost(NamedTuple):
    """Runs to expect, and how they come about."""

    runs: int
    words: str


def expected_cost(problem: Problem) -> Cost:
    """The runs that an inversion usually takes."""
    settings, sites = problem.inference, problem.survey.size
    if problem.grid is not None:
        most = settings.max_runs or MOST_RUNS
        return Cost(most, "Each run takes the whole field; smooth models converge after about 50 to 300 runs. At most")
    if settings.posterior == "full gaussian":
        each = settings.samples or SAMPLES
        words = f"The full Gaussian takes {each} runs a site, some {USUAL_EVALUATIONS} times"
        return Cost(USUAL_EVALUATIONS * each * sites, words)
    if settings.emulator and can_emulate(problem):
        steps = runs_of_steps(problem)[: USUAL_STEPS - 1]
        runs = sum(steps) + runs_in_a_step(problem)
        return Cost(runs, f"The emulator takes some {len(steps) + 1} steps, verification included")
    return Cost(USUAL_SAMPLES * sites, f"The coupled posterior takes some {USUAL_SAMPLES} runs a site")
