"""Pilot: the first runs of an inversion, from which its cost is forecast; and the forecast.

The pilot is the beginning of the inversion itself. With a ledger, its runs are recorded, and the inversion continues
from there: no run is made twice, and the posterior is the same as without a pilot.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from invgp.core.backend import select_backend
from invgp.emulation import Runs, fit_emulators
from invgp.emulation.run_schedule import (
    can_emulate,
    most_runs,
    run_budget,
    runs_in_a_step,
    runs_of_steps,
    shares_runs,
    source_runs_in_a_check,
)
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import make_run_directory
from invgp.execution.run_outcomes import FailedRuns
from invgp.execution.simulator import Batch, FieldBatch, Simulator
from invgp.formatting import count_noun
from invgp.inference.field_model import FieldModel
from invgp.inference.field_state import FieldOptions, FieldSearchState
from invgp.inference.invert import (
    blas_threads,
    coarse_simulator,
    open_recorders,
    prepare_search,
    search_within_budget,
    strategy_of,
)
from invgp.inference.runner import Runner
from invgp.inference.search_options import can_draw, fewest_sites_for_a_part
from invgp.problem import Floats, Problem


class Pilot(NamedTuple):
    """The first runs of an inversion.

    Attributes
    ----------
    runs, reused : int
        Number of runs, and how many of them were taken from the ledger.
    coarse_runs : int
        Number of runs of a coarse model.
    pace : float
        Time from one run to the next, in s; NaN if all runs were taken from the ledger.
    finished : bool
        Whether the whole inversion needed no more runs.
    errors : tuple of float
        Error of an emulator that is fitted to the runs so far, in noise standard deviations, after each batch of a site
        model. It is the root mean square of cross-validation errors of the batch.
    inaccurate_sites : int
        Number of sites at which the error of the last of these emulators is above `inference.emulator_error`.
    few_runs : float
        Part of the posterior variance of a field model that is due to the small number of runs; NaN for a site model.
    failed_runs : FailedRuns
        The runs that failed.
    """

    runs: int
    reused: int
    pace: float
    finished: bool
    errors: tuple[float, ...]
    inaccurate_sites: int = 0
    few_runs: float = math.nan
    coarse_runs: int = 0
    failed_runs: FailedRuns = FailedRuns()


class PilotEndedError(Exception):
    """The pilot has made its runs."""


@dataclass
class PilotSimulator(Simulator):
    """A simulator that ends an inversion after some runs.

    Parameters
    ----------
    pilot_runs : int
        Number of runs; the batch that reaches it is the last.

    Attributes
    ----------
    known : Runs
        Runs of a site model.
    errors : list of float
        As in `Pilot`.
    inaccurate_sites : int
        As in `Pilot`.
    seconds : float
        Time that the batches have taken, in s.
    """

    pilot_runs: int = 0
    known: Runs = field(init=False)
    errors: list[float] = field(default_factory=list)
    inaccurate_sites: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.known = Runs.empty(self.problem.latent_count, self.problem.noise_std.shape[1])

    def run(
        self, f: Floats, label: str, sites: NDArray[np.intp] | None = None, *, allowed: float | None = None
    ) -> Batch:
        """Run a site model, and fit an emulator to all runs so far."""
        started = time.perf_counter()
        batch = super().run(f, label, sites, allowed=allowed)
        self.seconds += time.perf_counter() - started
        numbers = np.arange(self.problem.survey.size) if sites is None else sites
        self.known = self.known.append(f, batch.outputs, batch.valid, numbers, len(self.errors))
        emulator = fit_emulators(
            self.problem, self.known, noise_std=self.problem.noise_std, rng=np.random.default_rng(0)
        )
        self.errors.append(np.nan if emulator is None else emulator.error)
        if emulator is not None:
            errors = emulator.site_error(np.arange(self.problem.survey.size))
            self.inaccurate_sites = int(np.sum(errors > self.problem.inference.emulator_error))
        if self.runs >= self.pilot_runs:
            raise PilotEndedError
        return batch

    def run_fields(self, f: Floats, label: str) -> FieldBatch:
        """Run a field model."""
        if self.runs >= self.pilot_runs:  # the posterior of the runs so far is known only now
            raise PilotEndedError
        started = time.perf_counter()
        outcome = super().run_fields(f, label)
        self.seconds += time.perf_counter() - started
        return outcome


def pilot_size(problem: Problem) -> int:
    """Return the number of runs of a pilot: the first steps of the inversion; 0 if a pilot would give no information.

    A Gaussian posterior needs an emulator that is accurate near it, which shows in the second step.
    """
    if problem.grid is not None:
        model = FieldModel.build(problem, select_backend("cpu"), None, np.random.default_rng(0))
        most, each = problem.inference.max_runs, problem.runs_per_field
        informative, most_fields = problem.coarse is not None, None if most is None else most // each
        return each * FieldOptions().first_batch(model.variables, most_fields, informative=informative)
    if not (problem.inference.emulator and can_emulate(problem)):
        return 0
    return sum(runs_of_steps(problem)[: 1 if can_draw(problem) else 2])


def run_pilot(
    problem: Problem,
    size: int,
    *,
    directory: Path,
    workers: int | None = None,
    ledger: str | Path | None = None,
) -> Pilot:
    """Make the first runs of the inversion of a problem.

    Parameters
    ----------
    problem : Problem
    size : int
        Number of runs; the batch that reaches it is the last.
    directory : Path
        Directory of the runs.
    workers : int, optional
        As in `invgp.invert`.
    ledger : str or Path, optional
        Ledger of the inversion.

    Raises
    ------
    RunsFailedError, PriorConflictError, ConfigError, LedgerError
        As in `invgp.invert`.
    """
    strategy, settings = strategy_of(problem), problem.inference
    with (
        threadpool_limits(blas_threads(problem)),
        open_pool(settings, workers=workers) as pool,
        make_run_directory(directory) as runs,
        open_recorders(problem, ledger) as recorders,
    ):
        first, *others = [part.name for part in problem.parts if not part.direct]
        simulator = PilotSimulator(
            problem,
            runs,
            pool,
            budget=most_runs(problem),
            recorder=recorders.get(first),
            source_recorders={name: recorders[name] for name in others if name in recorders},
            pilot_runs=size,
        )
        runner = Runner(simulator, coarse_simulator(simulator, recorders))
        model, state = prepare_search(strategy, problem, select_backend(settings.device), runner, settings.seed)
        try:
            search_within_budget(strategy.search, model, runner, state)
        except PilotEndedError:
            finished = False
        else:
            finished = True
    made, latest = simulator.runs - simulator.reused, runner.latest
    return Pilot(
        simulator.runs,
        simulator.reused,
        simulator.seconds / made if made else np.nan,
        finished,
        tuple(simulator.errors),
        simulator.inaccurate_sites,
        latest.info.few_runs if isinstance(latest, FieldSearchState) and latest.info is not None else math.nan,
        0 if runner.coarse is None else runner.coarse.runs,
        simulator.failed_runs,
    )


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
    shared_steps : int
        Outer steps of a Gaussian posterior of a survey with more sites than runs, if the error of the emulator is small
        after the pilot, but not after its first step.
    most_checks : int
        Checks of its emulator if further steps do not make it more accurate.
    slowest_decrease : float
        Largest factor by which a further step decreases the error of its emulator.
    direct : int
        Runs of a Gaussian posterior for each site where the emulator of the pilot is not accurate enough.
    direct_samples : int
        Runs per site without an emulator.
    largest_error : float
        Emulator error above which the runs do not grow any more.
    usual_field : int
        Runs of a field model without a pilot.
    usual_corrections : int
        Runs of a field model that corrects a coarse model, without a pilot.
    field_growth, fewest_batches : float
        Runs of a field model relative to those of its pilot, divided by the squared part of the variance that is due to
        few runs after it; and the least of this ratio.
    bent_field, bent : float
        Runs of a field model, and of a Gaussian posterior, relative to their forecast, that a bent posterior can take.
    """

    usual_steps: int = 4
    sampled_steps: float = 3.3
    growth: float = 0.25
    usual_error: float = 0.3
    shared_steps: int = 3
    most_checks: int = 6
    slowest_decrease: float = 0.77
    direct: int = 180
    direct_samples: int = 300
    largest_error: float = 3.0
    usual_field: int = 150
    usual_corrections: int = 60
    field_growth: float = 9.5
    fewest_batches: float = 2.0
    bent_field: float = 3.0
    bent: float = 2.0


class Cost(NamedTuple):
    """Expected number of runs, the largest number, and an explanation for users; the same for a coarse model.

    Attributes
    ----------
    runs, most : int
        Number of runs if the posterior has a simple shape, and the largest number.
    words : str
    high : int
        Number of runs with a bent posterior, or one that the first runs do not show.
    coarse_runs, most_coarse : int
        The first two for the coarse model.
    """

    runs: int
    most: int
    words: str
    high: int
    coarse_runs: int = 0
    most_coarse: int = 0


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
            runs, words = pilot.runs, "The inversion needs no more runs than those of the pilot"
        runs = max(runs, pilot.runs)
    runs = min(runs, most)
    high = runs if pilot is not None and pilot.finished else min(max(_high_cost(problem, runs, options), runs), most)
    return Cost(runs, most, words, high, *_coarse_cost(problem, pilot, runs, options))


def _high_cost(problem: Problem, runs: int, options: CostOptions) -> int:
    """Return the number of runs of an inversion whose posterior is less simple than the forecast assumes."""
    if problem.grid is not None:
        return math.ceil(options.bent_field * runs)
    if problem.inference.emulator and can_emulate(problem) and can_draw(problem):
        return run_budget(problem)  # of the emulator
    return math.ceil(options.bent * runs)


def _coarse_cost(problem: Problem, pilot: Pilot | None, runs: int, options: CostOptions) -> tuple[int, int]:
    """Return the expected and the largest number of runs of the coarse model, for this number of fine runs."""
    coarse = problem.with_coarse_model
    if coarse is None:
        return 0, 0
    most = most_runs(coarse)
    if pilot is None:
        made, further = min(options.usual_field, most // 2), runs
    else:
        made, further = pilot.coarse_runs, 0 if pilot.finished else runs - pilot.runs
    return min(made + FieldOptions().coarse_per_fine * further, most), most


def _expected_runs(problem: Problem, pilot: Pilot | None, options: CostOptions) -> tuple[int, str]:
    settings, sites = problem.inference, len(problem.simulated)
    if problem.grid is not None:
        return _runs_of_field(problem, pilot, options)
    if not (settings.emulator and can_emulate(problem)):
        words = f"Without an emulator, the posterior takes about {options.direct_samples} runs per site"
        return options.direct_samples * sites, words
    if can_draw(problem):
        return _runs_with_draws(problem, options.usual_error if pilot is None else pilot.errors[-1], options)
    if shares_runs(problem):
        return _runs_of_shared(problem, pilot, options)
    return _runs_of_gaussian(problem, pilot, options)


def _runs_of_field(problem: Problem, pilot: Pilot | None, options: CostOptions) -> tuple[int, str]:
    """Return the runs of a field model."""
    if pilot is None or not math.isfinite(pilot.few_runs):
        usual = options.usual_field if problem.coarse is None else options.usual_corrections
        return usual, "Each run takes the whole field"
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


def _runs_of_shared(problem: Problem, pilot: Pilot | None, options: CostOptions) -> tuple[int, str]:
    """Return the runs of a Gaussian posterior of a survey with more sites than runs."""
    steps, words = runs_of_steps(problem), "Sites share runs, so that their number does not grow with the survey"
    count, check = options.shared_steps, sum(source_runs_in_a_check(problem))
    checks = 2 if problem.survey.size >= fewest_sites_for_a_part(problem) else 1
    if pilot is not None and len(pilot.errors) > 1 and np.isfinite(pilot.errors).all():
        before, error = pilot.errors[-2:]
        good, decrease = 0.5 * problem.inference.emulator_error, error / max(before, np.finfo(float).tiny)
        if error > good and decrease >= options.slowest_decrease:  # further steps and checks do not help
            return sum(steps[: count + 1]) + options.most_checks * check, words
        count += math.ceil(math.log(good / error) / math.log(decrease)) if error > good else -int(before <= good)
    elif pilot is not None and not math.isfinite(pilot.errors[-1]):
        return most_runs(problem), "The emulator could not be fitted"
    return sum(steps[:count]) + checks * check, words


def _runs_with_draws(problem: Problem, error: float, options: CostOptions) -> tuple[int, str]:
    """Return the runs of an inversion with draws, given the error of the first emulator."""
    steps, each, budget = runs_of_steps(problem), runs_in_a_step(problem), run_budget(problem)
    fewest = sum(steps[:2]) + (options.sampled_steps - 2.0) * each
    good = 0.5 * problem.inference.emulator_error
    if not math.isfinite(error):
        return budget, "The emulator could not be fitted"
    runs = round(fewest * max(min(error, options.largest_error) / good, 1.0) ** options.growth)
    return min(runs, budget), "The emulator is fitted to runs at draws from the posterior"
