"""`invgp check`: check a configuration, run its simulator and forecast the cost."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from invgp.api import ledger_path
from invgp.api.output_paths import check_posterior_path
from invgp.cli.console import json_option, print_json, print_line, print_warning
from invgp.cli.options import config_argument, data_option, without_option, workers_option
from invgp.config import load
from invgp.errors import DeviceMissingError, PriorConflictError, RunsFailedError
from invgp.formatting import append_unit, count_noun, format_duration, join_names
from invgp.operating_system import remove_if_empty

if TYPE_CHECKING:
    from invgp.adapters.protocol import Evaluations, Quantity, RunContext
    from invgp.execution.run_outcomes import FailedRuns
    from invgp.inference.pilot import Cost, Pilot
    from invgp.problem import Column, Floats, Observation, Part, Problem

EDIT = re.compile(r"#.*\bEDIT\b(?!\.)")  # not the sentence at the top that explains the mark
QUICK = 0.01  # s: a faster run is repeated to measure its duration
REPEATS = 200
MOST_NUMBERS = 12  # numbers printed per quantity
LONGEST_WAIT = 5.0  # s: the misfit at every site is computed if it takes less
LONGEST_COMPILATION = 60.0  # s: a Python function whose first call took less is called again, without compilation
LONGEST_PILOT, LONGEST_UNRECORDED = 10.0, 1.0  # s: a shorter pilot is made by itself, with and without a ledger
MOST_TRIED, FEWEST_TRIED = 20, 3  # runs at draws from the prior without a pilot, if they take less than LONGEST_WAIT
SHORTEST_RUN = 1e-3  # s, for forecasts
LONG_PILOT = 2.0  # s: a longer pilot measures the pace better than a single run


@click.command(
    epilog="Examples: invgp check survey.toml; invgp check survey.toml --workers 8; invgp check survey.toml --pilot; "
    "invgp check survey.toml --json"
)
@config_argument
@data_option
@without_option
@workers_option
@click.option(
    "--pilot/--no-pilot",
    default=None,
    help="Make the first runs of the inversion for a better forecast.  [default: if they take less than 10 s]",
)
@json_option
def command(config: Path, data: Path | None, without: tuple[str, ...], workers: int | None, pilot: bool | None) -> None:
    """Check CONFIG, run its simulator at the prior mean, and forecast the cost of the inversion.

    The forecast is more accurate with a pilot: the first runs of the inversion. They are recorded in the ledger, and
    `invgp run` continues from there. If the data are far outside what the simulator computes under the prior, the exit
    code is 6: a unit may be wrong.
    """
    problem = load(config, data=data).without(*without)
    check_posterior_path(problem.output.file, "output.file", problem, config)
    check_device(problem.inference.device)
    check_learnt_noise(problem)
    warn_about_marks(problem)
    warn_about_missing_markers(problem)
    modelled = np.full(problem.survey.Y.shape, np.nan)
    workers = workers or problem.inference.workers
    trials: list[Trial] = []
    with temporary_run_directory() as directory:
        for part in problem.parts:
            if not part.direct:
                trials.append(try_simulator(part, problem, directory))
                modelled[np.ix_(part.sites, part.columns)] = trials[-1].modelled
            elif problem.grid is None:
                found = part.problem.forward.evaluate(prior_mean_inputs(part.problem), run_labels(part, directory))
                modelled[np.ix_(part.sites, part.columns)] = part.problem.from_simulator(found.outputs, 1)[0]
        for trial in trials:
            warn_about_missing_timeout(trial.part.problem)
            warn_about_servers(trial.part.problem)
        print_survey(problem)
        features = [feature for trial in trials for feature in print_features(trial.part.problem, config)]
        for trial in trials:
            forward = trial.part.problem.forward
            of = f" ({trial.part.name})" if len(trials) > 1 else ""
            print_line(f"\nOne run of {forward.name!r}{of} at the prior mean, {run_place(trial.part)}:")
            print_quantities("in", forward.inputs, trial.rows[0])
            print_quantities("out", forward.outputs, trial.outcome.outputs[0])
        print_undeclared_units(problem)
        print_misfit(problem, modelled)
        stop_at_conflict(problem, modelled)
        coarse = try_coarse_models(problem, directory)
        rows, outcome, seconds = trials[0].rows, trials[0].outcome, trials[0].seconds
        pace = max(trial.pace for trial in trials)
        check_batches(problem, directory)
        first = make_pilot(problem, pilot, pace, workers, directory)
        tried = try_prior_draws(problem, pace, directory) if first is None else first.failed_runs
        report_failures(problem, tried)
    cost = print_cost(problem, trials, workers, first)
    if coarse:
        print_coarse_cost(cost, coarse, workers)
    print_json(
        {
            "title": problem.title,
            "sites": problem.survey.size,
            "direct": {part.name: part.problem.survey.size for part in problem.parts if part.direct},
            "sources": {trial.part.name: trial.part.problem.forward.name for trial in trials},
            "latents": {latent.name: latent.size for latent in problem.latents},
            "simulator": problem.forward.name,
            "features": [{"feature": feature, "fate": fate} for feature, fate in features],
            "inputs": as_dictionary(problem.forward.inputs, rows[0]),
            "outputs": as_dictionary(problem.forward.outputs, outcome.outputs[0]),
            "data": [
                fit for observation in problem.survey.observations for fit in misfits(problem, observation, modelled)
            ],
            "seconds_a_run": seconds,
            "runs": cost.runs,
            "runs_if_bent": cost.high,
            "tried_runs": 0 if tried is None else tried.runs,
            "failed_runs": 0 if tried is None else tried.failed,
            "pilot_runs": 0 if first is None else first.runs,
            "max_runs": cost.most,
            "coarse_runs": cost.coarse_runs,
            "max_coarse_runs": cost.most_coarse,
            "workers": workers,
        }
    )


def stop_at_conflict(problem: Problem, modelled: Floats) -> None:
    """Raise `PriorConflictError` if the data differ by a large factor from the outputs (N, P) at the prior mean."""
    from invgp.inference.prior_conflict import find_conflicts_at_prior_mean  # noqa: PLC0415 - as below

    conflicts = find_conflicts_at_prior_mean(problem, modelled)
    if conflicts:
        raise PriorConflictError(conflicts)


def make_pilot(problem: Problem, wanted: bool | None, pace: float, workers: int, directory: Path) -> Pilot | None:
    """Make the first runs of the inversion, if they are wanted or take little time; None otherwise."""
    from invgp.inference.pilot import pilot_size, run_pilot  # noqa: PLC0415 - it waits for SciPy

    size = pilot_size(problem)
    ledger = ledger_path(problem, problem.output.file)
    if wanted is None:
        longest = LONGEST_UNRECORDED if ledger is None else LONGEST_PILOT
        wanted = problem.inference.backend != "dask" and size * pace / workers <= longest
        if not wanted and size:
            print_line(f"\n--pilot makes the first {size:,} runs of the inversion, for a more accurate forecast.")
    if not wanted or not size:
        return None
    return run_pilot(problem, size, directory=directory, workers=workers, ledger=ledger)


def check_batches(problem: Problem, directory: Path) -> None:
    """Raise `RunsFailedError` if a vectorised function mixes the rows of a batch."""
    from invgp.validation.prior_trial import find_batch_fault  # noqa: PLC0415 - it waits for SciPy

    for part in problem.parts:
        if not part.direct and (fault := find_batch_fault(part, problem, directory)):
            raise RunsFailedError(fault)


def try_prior_draws(problem: Problem, pace: float, directory: Path) -> FailedRuns | None:
    """Run the simulators at draws from the prior, if they are fast enough; None otherwise."""
    from invgp.validation.prior_trial import try_prior  # noqa: PLC0415 - it waits for SciPy

    runs = int(min(MOST_TRIED, LONGEST_WAIT / max(pace, 1e-9)))
    return try_prior(problem, runs, directory) if runs >= FEWEST_TRIED else None


def report_failures(problem: Problem, tried: FailedRuns | None) -> None:
    """Print how many of the first runs failed, and why; stop if all did."""
    if tried is None:
        print_line("\nNo runs at draws from the prior were made, because they would take long: some may fail.")
        return
    if not tried.failed:
        print_line(f"\nNone of {count_noun(tried.runs, 'run')} at draws from the prior failed.")
        return
    text = tried.describe("at draws from the prior", problem.inference.max_failed_share)
    if tried.failed == tried.runs:
        raise RunsFailedError(text)
    print_warning(text)


def check_device(device: str) -> None:
    """Raise `DeviceMissingError` unless the device is available."""
    from invgp.core.backend import DeviceError, select_backend  # noqa: PLC0415 - help is given without waiting for SciPy

    try:
        select_backend(device)
    except DeviceError as error:
        raise DeviceMissingError(str(error)) from error


def check_learnt_noise(problem: Problem) -> None:
    """Raise `ConfigError` if the survey is too large for noise that is learnt."""
    from invgp.inference.sample_sizes import refuse_to_learn_noise  # noqa: PLC0415 - it waits for SciPy

    refuse_to_learn_noise(problem)


@contextmanager
def temporary_run_directory() -> Iterator[Path]:
    """Create a directory for runs; it is kept if a run failed, because the message refers to it."""
    directory = Path(mkdtemp(prefix="invgp-check-"))
    try:
        yield directory
    except KeyboardInterrupt:
        from invgp.execution.run_directories import remove_run_directories  # noqa: PLC0415 - rarely needed

        remove_run_directories(directory)
        raise
    finally:
        remove_if_empty(directory)


def prior_mean_inputs(problem: Problem) -> Floats:
    """Return the simulator inputs at the prior mean: one row per site, or one row for a field model."""
    means = problem.physical_prior_mean[None]
    return problem.to_simulator(means) if problem.grid is None else problem.field_to_simulator(means)


class Trial(NamedTuple):
    """One run of the simulator of a source at the prior mean, its duration, and the outputs (n, p) at its sites."""

    part: Part
    rows: Floats
    outcome: Evaluations
    seconds: float
    pace: float
    modelled: Floats


def run_place(part: Part) -> str:
    """Return where the simulator of a source is tried."""
    return "site 1" if part.problem.grid is None else "the whole grid"


def try_simulator(part: Part, problem: Problem, directory: Path) -> Trial:
    """Run the simulator of a source at the prior mean."""
    rows = prior_mean_inputs(part.problem)
    outcome, seconds, pace = time_run(part.problem, rows, directory)
    if not outcome.ok[0]:
        of = f" of {part.name}" if problem.sources else ""
        raise RunsFailedError(f"the simulator{of} failed at the prior mean, {run_place(part)}: {outcome.messages[0]}")
    modelled = outputs_at_sites(part.problem, rows, outcome.outputs, pace, directory)
    return Trial(part, rows, outcome, seconds, pace, modelled)


def try_coarse_models(problem: Problem, directory: Path) -> list[Trial]:
    """Run the coarse models at the prior mean; none if there are none. One that fails there is only warned of."""
    coarse, trials = problem.with_coarse_model, []
    if coarse is None:
        return []
    own = directory / "coarse"
    own.mkdir()
    for part in coarse.parts:
        if part.direct:
            continue
        try:
            trials.append(try_simulator(part, coarse, own))
        except RunsFailedError as error:
            print_warning(f"the coarse model is not usable: {error}")
    remove_if_empty(own)
    return trials


def run_labels(part: Part, directory: Path) -> RunContext:
    """Return the labels of one evaluation at each site of a source."""
    from invgp.adapters.protocol import RunContext  # noqa: PLC0415

    return RunContext([f"{part.name}-{n + 1}" for n in range(len(part.sites))], directory)


def time_run(problem: Problem, rows: Floats, directory: Path) -> tuple[Evaluations, float, float]:
    """Run the first row and measure its duration.

    The first call of a Python function may include its compilation, as of a function of Numba or JAX. It is called
    again, unless the first call took very long. A function may be compiled for each size of a batch.

    Returns
    -------
    outcome : Evaluations
    seconds : float
        Duration of a run.
    pace : float
        Time from one run to the next in a worker, in seconds; shorter if the simulator runs several at once.
    """
    from invgp.adapters import CallableModel  # noqa: PLC0415

    model, label = problem.forward, "prior-mean" if problem.grid is not None else "site-1"
    outcome, seconds, _ = _time(problem, rows[:1], [label], directory)
    if outcome.ok[0] and isinstance(model, CallableModel) and QUICK <= seconds < LONGEST_COMPILATION:
        seconds = min(seconds, _time(problem, rows[:1], [f"{label}-again"], directory)[1])
    pace = seconds / getattr(model, "runs_at_once", 1)
    if outcome.ok[0] and seconds < QUICK:
        many = np.repeat(rows[:1], min(REPEATS, model.rows_per_task), axis=0)
        times = [_time(problem, many, [f"repeat-{k}-{i}" for i in range(len(many))], directory) for k in range(2)]
        seconds, pace = min(duration for _, duration, _ in times), min(between for _, _, between in times)
    return outcome, seconds, pace


def _time(problem: Problem, rows: Floats, labels: Sequence[str], directory: Path) -> tuple[Evaluations, float, float]:
    """Run some rows; return the outcome, the duration of a run, and the time from one run to the next."""
    from invgp.adapters.protocol import RunContext, split_jacobian  # noqa: PLC0415

    started = time.perf_counter()
    outcome = problem.forward.evaluate(rows, RunContext(labels, directory))
    pace = (time.perf_counter() - started) / len(rows)
    outcome = replace(outcome, outputs=split_jacobian(problem.forward, outcome.outputs)[0])
    # An adapter that runs several rows at once reports the duration itself, without the time to connect.
    return outcome, pace if outcome.seconds is None else outcome.seconds / len(rows), pace


def outputs_at_sites(problem: Problem, rows: Floats, first: Floats, pace: float, directory: Path) -> Floats:
    """Return the outputs at the prior mean, (N, P), in the units of the data; NaN at sites that were not run."""
    if problem.grid is not None:
        everywhere: Floats = problem.field_from_simulator(first)[0]
        return everywhere
    from invgp.adapters.protocol import RunContext, split_jacobian  # noqa: PLC0415

    outputs = np.repeat(first, len(rows), axis=0)
    # The prior mean is the same at every site, but covariates and coordinates may differ.
    if np.any(rows != rows[0]):
        if pace * len(rows) < LONGEST_WAIT:
            labels = [f"site-{n + 1}" for n in range(len(rows))]
            outcome = problem.forward.evaluate(rows, RunContext(labels, directory))
            outputs, _ = split_jacobian(problem.forward, outcome.outputs)
            warn_about_failures(outcome)
        else:
            outputs[1:] = np.nan
    modelled: Floats = problem.from_simulator(outputs, 1)[0]
    return modelled


def warn_about_failures(outcome: Evaluations) -> None:
    """Warn about sites at which the simulator failed, with the reason at the first."""
    bad = np.flatnonzero(~outcome.ok)
    if bad.size:
        print_warning(
            f"the simulator failed at the prior mean at {bad.size} of {count_noun(len(outcome.status), 'site')}: "
            f"{outcome.messages[bad[0]]}"
        )


def warn_about_missing_timeout(problem: Problem) -> None:
    """Warn if a program has no timeout."""
    from invgp.adapters import BatchedModel, ExecutableModel  # noqa: PLC0415

    if isinstance(problem.forward, ExecutableModel | BatchedModel) and problem.forward.timeout is None:
        what = "batch" if isinstance(problem.forward, BatchedModel) else "run"
        print_warning(f"forward.timeout is not set: invgp waits forever for a {what} that hangs")


def warn_about_servers(problem: Problem) -> None:
    """Warn about servers that cannot be used if there are several: the run of the check needs only one of them."""
    from invgp.adapters import UmbridgeModel  # noqa: PLC0415

    if isinstance(problem.forward, UmbridgeModel) and len(problem.forward.urls) > 1:
        for fault in problem.forward.find_server_faults():
            print_warning(fault)


def warn_about_marks(problem: Problem) -> None:
    """Warn about lines of the configuration that are still marked EDIT."""
    marked = [n for n, line in enumerate(problem.config_text.splitlines(), start=1) if EDIT.search(line)]
    if marked:
        lines = join_names(marked)
        print_warning(f"the configuration is still marked EDIT in line{'s' * (len(marked) > 1)} {lines}: check them")


def warn_about_missing_markers(problem: Problem) -> None:
    """Warn about observations that probably mark missing data with a number such as -999."""
    for part in problem.parts:
        for name, (value, count) in part.problem.survey.suspected_markers().items():
            times = "once" if count == 1 else f"{count:,} times"
            print_warning(
                f"the observation {name!r} contains {value:g} {times}, far outside its other values. If this marks a "
                "missing observation, leave the cell empty"
            )


def print_features(problem: Problem, config: Path) -> list[tuple[str, str]]:
    """Print what became of each feature of the PEST case that is the simulator; return them."""
    case = getattr(problem.forward, "case", None)
    if case is None:
        return []
    from invgp.scaffolds.pest_case import describe_case  # noqa: PLC0415 - only for a PEST case

    features = describe_case(case, config)
    print_line(f"\nWhat became of {case.control.name}:")
    for feature, fate in features:
        print_line(f"  {feature}: {fate}")
    return features


def print_survey(problem: Problem) -> None:
    """Print the numbers of sites, observations and latents."""
    survey = problem.survey
    print_line(
        f"{problem.title or 'Survey'}: {count_noun(survey.size, 'site')}, {describe_extents(survey.coordinates)}"
    )
    if problem.grid is not None:
        print_line(f"Grid: {count_noun(problem.grid.size, 'node')}, {describe_extents(problem.grid.coordinates)}")
    present = np.concatenate([np.isfinite(part.problem.survey.Y).ravel() for part in problem.parts])
    print_line(f"{count_noun(int(present.sum()), 'observation')}, {(~present).sum():,} missing")
    for part in problem.parts[1:]:
        kind = "direct data" if part.direct else "data"
        own = part.problem.survey
        values = ", ".join(o.name for o in own.observations)
        print_line(f"{part.name}: {kind} at {count_noun(own.size, 'place' if part.direct else 'site')}: {values}")
    names = ", ".join(
        latent.name if latent.size == 1 else f"{latent.name} x {latent.size}" for latent in problem.latents
    )
    print_line(f"{count_noun(problem.latent_count, 'latent process', 'latent processes')}: {names}")


def describe_extents(coordinates: Sequence[Column]) -> str:
    """Return the extent along each coordinate."""
    return ", ".join(
        append_unit(f"{c.name} {c.values.min():.10g} to {c.values.max():.10g}", c.unit) for c in coordinates
    )


def print_quantities(direction: str, quantities: tuple[Quantity, ...], row: Floats) -> None:
    """Print numbers with their names and units."""
    for name, quantity in as_dictionary(quantities, row).items():
        some = [f"{v:.6g}" for v in quantity["values"][:MOST_NUMBERS]]
        left_out = len(quantity["values"]) - len(some)
        numbers = ", ".join([*some, f"... and {left_out:,} more"] if left_out else some)
        print_line(append_unit(f"  {direction:>3}  {name} = {numbers}", quantity["unit"]))


def as_dictionary(quantities: Sequence[Quantity], row: Floats) -> dict[str, dict[str, Any]]:
    """Return a row of numbers by the names of its quantities."""
    ends = np.cumsum([q.size for q in quantities])
    parts = np.split(row, ends[:-1])
    return {q.name: {"unit": q.unit, "values": values} for q, values in zip(quantities, parts, strict=True)}


def print_undeclared_units(problem: Problem) -> None:
    """Name the outputs of simulators that are taken to be in the unit of their observation, as no unit is declared."""
    units = {observation.name: observation.unit for observation in problem.survey.observations}
    names = [name for name in outputs_without_unit(problem.config_text) if name in units]
    if names:
        listed = ", ".join(f"{name} in {units[name]}" for name in names)
        print_line(
            f"No unit is declared for these outputs of the simulator; that of the observation is assumed: {listed}."
        )


def outputs_without_unit(config: str) -> list[str]:
    """Return the observations whose output has no unit in the text of a configuration."""
    try:
        document = tomllib.loads(config)
    except tomllib.TOMLDecodeError:
        return []
    sources = [one for one in document.get("sources", {}).values() if isinstance(one, dict)]
    outputs = [output for table in (document, *sources) for output in table.get("forward", {}).get("outputs", [])]
    tables = [output if isinstance(output, dict) else {"name": output} for output in outputs]
    return [str(table.get("source", table["name"])) for table in tables if "unit" not in table]


def print_misfit(problem: Problem, modelled: Floats) -> None:
    """Print the noise and the misfit of the prior mean."""
    print_line("\nNoise, and misfit of the prior mean:")
    for observation in problem.survey.observations:
        for fit in misfits(problem, observation, modelled):
            kind = problem.noise.kind_of(observation.name)
            words = describe_misfit(fit["noise_std"], fit["misfit"], kind, observation.unit)
            print_line(f"  {fit['name']}: {words}")


def misfits(problem: Problem, observation: Observation, modelled: Floats) -> Iterator[dict[str, Any]]:
    """Yield the noise and the misfit, in standard deviations (N,), of each column of an observation."""
    std = problem.noise.std[observation.name]
    misfit = (observation.values - modelled[:, problem.observation_slices[observation.name]]) / std
    for i, label in enumerate(observation.labels or (None,)):
        name = observation.name if label is None else f"{observation.name}[{label}]"
        noise = std[~np.isnan(observation.values[:, i]), i]
        yield {"name": name, "unit": observation.unit, "noise_std": noise, "misfit": misfit[:, i]}


def describe_misfit(noise: Floats, misfit: Floats, kind: str, unit: str) -> str:
    """Describe the noise (where observed) and the misfit (NaN where unknown) of one column of data."""
    if not noise.size:
        return "nothing was observed"
    spread = f"{noise.min():.4g}" if np.ptp(noise) == 0 else f"{noise.min():.4g} to {noise.max():.4g}"
    known = misfit[~np.isnan(misfit)]
    text = append_unit(f"{kind} noise, standard deviation {spread}", unit)
    if not known.size:
        return f"{text}; misfit not known"
    where = "" if known.size == noise.size else f" at {count_noun(known.size, 'site')}"
    worst = int(np.nanargmax(np.abs(misfit)))
    return (
        f"{text}; root mean square misfit {format_number(np.sqrt(np.mean(known**2)))} standard deviations{where}, "
        f"largest {format_number(abs(misfit[worst]))} at site {worst + 1:,}"
    )


def format_number(number: float) -> str:
    """Format a number with at least two digits and without an exponent if possible: 0.87, 730, 499,975."""
    return f"{number:,.0f}" if 99.5 <= number < 1e7 else f"{number:.2g}"


def print_coarse_cost(cost: Cost, trials: Sequence[Trial], workers: int) -> None:
    """Print the expected cost of the coarse models."""
    total = cost.coarse_runs * sum(trial.pace for trial in trials) / workers
    runs = " and ".join(format_duration(trial.seconds) for trial in trials)
    print_line(
        f"A run of the coarse model takes {runs}: about {cost.coarse_runs:,} runs, {format_duration(total)} of "
        f"simulation; never more than inference.max_coarse_runs = {cost.most_coarse:,}."
    )


def describe_run_time(seconds: float) -> str:
    """Return the duration of a run, rounded up to 1 ms."""
    return "less than 1 ms" if seconds < SHORTEST_RUN else format_duration(seconds)


def print_cost(problem: Problem, trials: Sequence[Trial], workers: int, pilot: Pilot | None) -> Cost:
    """Print the expected cost of the inversion, for the durations of the simulators."""
    from invgp.inference.pilot import expected_cost  # noqa: PLC0415 - it waits for SciPy

    cost = expected_cost(problem, pilot)
    total = cost.runs * trials[0].pace / workers
    if len(trials) > 1:
        total = sum(expected_cost(trial.part.problem).runs * trial.pace for trial in trials) / workers
    elif pilot is not None and pilot.pace * (pilot.runs - pilot.reused) > LONG_PILOT:
        total = cost.runs * pilot.pace
    runs = " and ".join(describe_run_time(trial.seconds) for trial in trials)
    total = max(total, SHORTEST_RUN * cost.runs)  # invgp itself takes longer to make a faster run and record it
    print_line(
        f"\nA run takes {runs}. {cost.words}: about {cost.runs:,} runs, "
        f"{format_duration(total)} of simulation with {count_noun(workers, 'worker')}."
    )
    if cost.high > cost.runs:
        print_line(f"A bent posterior, or one with several modes, can take {cost.high:,}.")
    if pilot is not None and (ledger := ledger_path(problem, problem.output.file)) is not None:
        print_line(f"The first {pilot.runs:,} of them are in {ledger}; `invgp run` continues from there.")
    default = "" if problem.inference.max_runs is not None else ", its default"
    kinks = (
        "" if problem.grid is not None or cost.high >= cost.most else " Kinks and jumps of the simulator can take more."
    )
    print_line(f"Never more than inference.max_runs = {cost.most:,} runs{default}.{kinks}")
    return cost
