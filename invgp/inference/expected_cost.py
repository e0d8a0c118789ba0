"""Expected number of runs of an inversion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from invgp.emulation.run_schedule import (
    can_emulate,
    most_runs,
    run_budget,
    runs_in_a_step,
    runs_of_steps,
)
from invgp.formatting import count_noun
from invgp.problem import Problem

if TYPE_CHECKING:
    from invgp.inference.pilot import Pilot


@dataclass(frozen=True)
class CostOptions:
    """Experience with the cost of inversions; `tests/benchmarks/forecasts.py` compares forecasts with runs.

    Parameters
    ----------
    usual_steps : int
        Outer steps of an emulated inversion with a Gaussian posterior, including the verification.
    sampled_steps : float
        Outer steps of an inversion with draws, whose emulator is accurate from the start.
    growth : float
        Power of the emulator error after the first step with which the runs of an inversion with draws grow.
    usual_error : float
        Emulator error, in noise standard deviations, that is assumed without a pilot.
    direct : int
        Runs of a Gaussian posterior for each site where the emulator of the pilot is not accurate enough.
    direct_samples : int
        Runs per site without an emulator.
    largest_error : float
        Emulator error above which the runs do not grow any more.
    usual_field : int
        Runs of a field model without a pilot.
    field_growth, fewest_batches : float
        Runs of a field model relative to those of its pilot, divided by the squared part of the variance that is due to
        few runs after it; and the least of this ratio.
    """

    usual_steps: int = 4
    sampled_steps: float = 3.3
    growth: float = 0.25
    usual_error: float = 0.3
    direct: int = 180
    direct_samples: int = 300
    largest_error: float = 3.0
    usual_field: int = 150
    field_growth: float = 9.5
    fewest_batches: float = 2.0


class Cost(NamedTuple):
    """Expected number of runs, the largest number, and an explanation for users."""

    runs: int
    most: int
    words: str


def expected_cost(problem: Problem, pilot: Pilot | None = None, options: CostOptions = CostOptions()) -> Cost:
    """Forecast the number of runs of an inversion.

    Parameters
    ----------
    problem : Problem
    pilot : Pilot, optional
        First runs of the inversion, which make the forecast more accurate.
    options : CostOptions
    """
    runs, words = _expected_runs(problem, pilot, options)
    most = most_runs(problem)
    if pilot is not None:
        if pilot.finished:
            return Cost(pilot.runs, most, "The inversion needs no more runs than those of the pilot")
        runs = max(runs, pilot.runs)
    return Cost(min(runs, most), most, words)


def _expected_runs(problem: Problem, pilot: Pilot | None, options: CostOptions) -> tuple[int, str]:
    settings, sites = problem.inference, len(problem.simulated)
    if problem.grid is not None:
        return _runs_of_field(pilot, options)
    if not (settings.emulator and can_emulate(problem)):
        words = f"Without an emulator, the posterior takes about {options.direct_samples} runs per site"
        return options.direct_samples * sites, words
    if settings.posterior == "sampled":
        return _runs_with_draws(problem, options.usual_error if pilot is None else pilot.errors[-1], options)
    return _runs_of_gaussian(problem, pilot, options)


def _runs_of_field(pilot: Pilot | None, options: CostOptions) -> tuple[int, str]:
    """Return the runs of a field model."""
    if pilot is None or not math.isfinite(pilot.few_runs):
        return options.usual_field, "Each run takes the whole field"
    runs = pilot.runs * max(options.field_growth * pilot.few_runs**2, options.fewest_batches)
    return round(runs), f"{pilot.few_runs:.0%} of the posterior variance after the pilot is due to too few runs"


def _runs_of_gaussian(problem: Problem, pilot: Pilot | None, options: CostOptions) -> tuple[int, str]:
    """Return the runs of a Gaussian posterior on an emulator, and on the simulator where it is not accurate enough."""
    steps = runs_of_steps(problem)[: options.usual_steps - 1]
    usual, words = sum(steps) + runs_in_a_step(problem), f"The emulator takes about {len(steps) + 1} steps"
    if pilot is None:
        return usual, words
    if not math.isfinite(pilot.errors[-1]):
        return most_runs(problem), "The emulator could not be fitted"
    if pilot.inaccurate_sites:
        sites = count_noun(pilot.inaccurate_sites, "site")
        words += f", and the simulator itself may be needed at {sites}"
    return usual + options.direct * pilot.inaccurate_sites, words


def _runs_with_draws(problem: Problem, error: float, options: CostOptions) -> tuple[int, str]:
    """Return the runs of an inversion with draws, given the error of the first emulator."""
    steps, each, budget = runs_of_steps(problem), runs_in_a_step(problem), run_budget(problem)
    fewest = sum(steps[:2]) + (options.sampled_steps - 2.0) * each
    good = 0.5 * problem.inference.emulator_error
    if not math.isfinite(error):
        return budget, "The emulator could not be fitted"
    runs = round(fewest * max(min(error, options.largest_error) / good, 1.0) ** options.growth)
    return min(runs, budget), "The emulator is fitted to runs at draws from the posterior"
