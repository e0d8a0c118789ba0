"""Expected number of runs of an inversion."""

from __future__ import annotations

from typing import NamedTuple

from invgp.emulation.run_schedule import can_emulate, runs_in_a_step, runs_of_steps
from invgp.inference.factorised import SAMPLES
from invgp.inference.field import MOST_RUNS
from invgp.problem import Problem

USUAL_STEPS = 4  # typical number of outer steps of an emulated inversion, including the verification
USUAL_SAMPLES = 300  # typical runs per site of the coupled posterior without an emulator
USUAL_EVALUATIONS = 60  # typical evaluations of the bound of the full Gaussian


class Cost(NamedTuple):
    """Expected number of runs, and an explanation for users."""

    runs: int
    words: str


def expected_cost(problem: Problem) -> Cost:
    """Estimate the number of runs of an inversion."""
    settings, sites = problem.inference, problem.survey.size
    if problem.grid is not None:
        most = settings.max_runs or MOST_RUNS
        return Cost(most, "Each run takes the whole field; smooth models converge after about 50 to 300 runs. At most")
    if settings.posterior == "full gaussian":
        each = settings.samples or SAMPLES
        words = f"The full Gaussian takes {each} runs per site, about {USUAL_EVALUATIONS} times"
        return Cost(USUAL_EVALUATIONS * each * sites, words)
    if settings.emulator and can_emulate(problem):
        steps = runs_of_steps(problem)[: USUAL_STEPS - 1]
        runs = sum(steps) + runs_in_a_step(problem)
        return Cost(runs, f"The emulator takes about {len(steps) + 1} steps, including the verification")
    return Cost(USUAL_SAMPLES * sites, f"The coupled posterior takes about {USUAL_SAMPLES} runs per site")
