"""`invgp check`: is the config right, does the simulator run, and what will it cost?"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import click
import numpy as np

from invgp.adapters import ExecutableModel
from invgp.adapters.protocol import Evaluations, Quantity, RunContext
from invgp.cli.options import config_argument, data_option, workers_option
from invgp.cli.outputs import check_posterior_path, remove_if_empty
from invgp.cli.progress import duration
from invgp.config import load
from invgp.core.backend import DeviceError, place
from invgp.errors import DeviceMissingError, RunsFailedError
from invgp.problem import Floats, Problem

QUICK = 0.01  # s: below this, one run says little about the rate of many
MANY = 200
MOST_NUMBERS = 12  # of a quantity, that a person wants to read
PATIENCE = 5.0  # s that a person waits gladly for the misfit at every site


@click.command(epilog="Examples: invgp check survey.toml; invgp check survey.toml --workers 8")
@config_argument
@data_option
@workers_option
def command(config: Path, data: Path | None, workers: int | None) -> None:
    """Validate CONFIG, run its simulator once at the prior mean, and predict the cost of the inversion."""
    problem = load(config, data=data)
    check_posterior_path(problem.output.file, "output.file", problem, config)
    check_device(problem.inference.device)
    where = "site 1" if problem.grid is None else "the whole grid"
    rows = prior_rows(problem)
    with scratch() as directory:
        outcome, seconds = timed(problem, rows, directory)
        if not outcome.ok[0]:
            raise RunsFailedError(f"the simulator failed at the prior mean, {where}: {outcome.messages[0]}")
        modelled = at_sites(problem, rows, outcome.outputs, seconds, directory)
    warn_of_hanging(problem)
    say_survey(problem)
    click.echo(f"\nOne run of {problem.forward.name!r} at the prior mean, {where}:")
    say_quantities("in", problem.forward.inputs, rows[0])
    say_quantities("out", problem.forward.outputs, outcome.outputs[0])
    say_data(problem, modelled)
    say_cost(problem, seconds, workers or problem.inference.workers)


def check_device(device: str) -> None:
    """Raise `DeviceMissingError` unless the device is there."""
    try:
        place(device)
    except DeviceError as error:
        raise DeviceMissingError(str(error)) from error


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for runs. That of a failed run stays, since the message about it names it."""
    directory = Path(mkdtemp(prefix="invgp-check-"))
    try:
        yield directory
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        remove_if_empty(directory)


def prior_rows(problem: Problem) -> Floats:
    """What the simulator gets at the prior mean: a row a site, or one for a field model."""
    means = np.concatenate([latent.mean for latent in problem.latents])
    if problem.grid is not None:
        return problem.field_to_simulator(np.broadcast_to(means, (1, problem.grid.size, len(means))))
    return problem.to_simulator(np.broadcast_to(means, (1, problem.survey.size, len(means))))


def timed(problem: Problem, rows: Floats, directory: Path) -> tuple[Evaluations, float]:
    """The outcome of the first row, and the seconds a run takes."""
    model = problem.forward
    started = time.perf_counter()
    outcome = model.evaluate(rows[:1], RunContext(["site-1"], directory))
    seconds = time.perf_counter() - started
    if outcome.ok[0] and seconds < QUICK:
        many = np.repeat(rows[:1], min(MANY, model.rows_per_task), axis=0)
        labels = [f"repeat-{i + 1}" for i in range(len(many))]
        started = time.perf_counter()
        model.evaluate(many, RunContext(labels, directory))
        seconds = (time.perf_counter() - started) / len(many)
    return outcome, seconds


def at_sites(problem: Problem, rows: Floats, first: Floats, seconds: float, directory: Path) -> Floats:
    """What the simulator gives at the prior mean, (N, P), in data units; NaN at sites where that is not known."""
    if problem.grid is not None:
        everywhere: Floats = problem.field_from_simulator(first)[0]
        return everywhere
    outputs = np.repeat(first, len(rows), axis=0)
    # The prior mean is the same at every site, but a covariate or a coordinate may go in as well.
    if np.any(rows != rows[0]):
        if seconds * len(rows) < PATIENCE:
            labels = [f"site-{n + 1}" for n in range(len(rows))]
            outcome = problem.forward.evaluate(rows, RunContext(labels, directory))
            outputs = outcome.outputs
            warn_of_failures(outcome)
        else:
            outputs[1:] = np.nan
    modelled: Floats = problem.from_simulator(outputs, 1)[0]
    return modelled


def warn_of_failures(outcome: Evaluations) -> None:
    """Say at how many sites the simulator failed, and why at the first of them."""
    bad = np.flatnonzero(~outcome.ok)
    if bad.size:
        click.echo(
            f"invgp: warning: the simulator failed at the prior mean at {bad.size} of {len(outcome.status)} sites: "
            f"{outcome.messages[bad[0]]}",
            err=True,
        )


def warn_of_hanging(problem: Problem) -> None:
    """Say that a program may take as long as it likes, if it may."""
    if isinstance(problem.forward, ExecutableModel) and problem.forward.timeout is None:
        click.echo(
            "invgp: warning: forward.timeout is not set: a run that hangs is waited for for ever",
            err=True,
        )


def say_survey(problem: Problem) -> None:
    """Sites, observations, latents."""
    survey = problem.survey
    extents = ", ".join(f"{c.name} {c.values.min():.10g} to {c.values.max():.10g} {c.unit}" for c in survey.coordinates)
    click.echo(f"{problem.title or 'Survey'}: {counted(survey.size, 'site')}, {extents}")
    present = ~np.isnan(survey.Y)
    click.echo(f"{counted(int(present.sum()), 'observation')}, {(~present).sum():,} missing")
    names = ", ".join(
        latent.name if latent.size == 1 else f"{latent.name} x {latent.size}" for latent in problem.latents
    )
    click.echo(f"{counted(problem.latent_count, 'latent process', 'latent processes')}: {names}")


def counted(count: int, one: str, many: str = "") -> str:
    """``1 site``, ``2 sites``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def say_quantities(direction: str, quantities: tuple[Quantity, ...], row: Floats) -> None:
    """Numbers with their names and units."""
    ends = np.cumsum([q.size for q in quantities])
    for quantity, values in zip(quantities, np.split(row, ends[:-1]), strict=True):
        some = [f"{v:.6g}" for v in values[:MOST_NUMBERS]]
        numbers = ", ".join([*some, f"... ({len(values):,} numbers)"] if len(values) > MOST_NUMBERS else some)
        click.echo(f"  {direction:>3}  {quantity.name} = {numbers} {quantity.unit}")


def say_data(problem: Problem, modelled: Floats) -> None:
    """The noise in data units, and how far the prior mean is from the data."""
    click.echo("\nNoise, and misfit of the prior mean:")
    for observation in problem.survey.observations:
        std = problem.noise.std[observation.name]
        misfit = (observation.values - modelled[:, problem.observation_slices[observation.name]]) / std
        for i, label in enumerate(observation.labels or (None,)):
            name = observation.name if label is None else f"{observation.name}[{label}]"
            noise = std[~np.isnan(observation.values[:, i]), i]
            click.echo(f"  {name}: {described(noise, misfit[:, i], problem.noise.kind, observation.unit)}")


def described(noise: Floats, misfit: Floats, kind: str, unit: str) -> str:
    """The noise (where observed) and the misfit (NaN where not known) of one column of data, in words."""
    if not noise.size:
        return "nothing was observed"
    spread = f"{noise.min():.4g}" if np.ptp(noise) == 0 else f"{noise.min():.4g} to {noise.max():.4g}"
    known = misfit[~np.isnan(misfit)]
    text = f"{kind} noise, standard deviation {spread} {unit}"
    if not known.size:
        return f"{text}; misfit not known"
    where = "" if known.size == noise.size else f" at {counted(known.size, 'site')}"
    worst = int(np.nanargmax(np.abs(misfit)))
    return (
        f"{text}; root mean square misfit {plain(np.sqrt(np.mean(known**2)))} standard deviations{where}, "
        f"largest {plain(abs(misfit[worst]))} at site {worst + 1:,}"
    )


def plain(number: float) -> str:
    """Two digits at the least, and no power of ten where a person would write none: 0.87, 730, 499,975."""
    return f"{number:,.0f}" if 99.5 <= number < 1e7 else f"{number:.2g}"


def say_cost(problem: Problem, seconds: float, workers: int) -> None:
    """What the inversion will take."""
    from invgp.inference.cost import expected_cost  # noqa: PLC0415 - it waits for SciPy

    cost = expected_cost(problem)
    click.echo(
        f"\nA run takes {duration(seconds)}. {cost.words}: about {cost.runs:,} runs, "
        f"{duration(cost.runs * seconds / workers)} of simulation with {counted(workers, 'worker')}."
    )
    if problem.inference.max_runs is not None:
        click.echo(f"Never more than inference.max_runs = {problem.inference.max_runs:,} runs.")
