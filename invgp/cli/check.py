"""`invgp check`: is the config right, does the simulator run, and what will it cost?"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from invgp.adapters.protocol import Evaluations, Quantity, RunContext
from invgp.cli.options import config_argument, data_option, workers_option
from invgp.cli.progress import duration
from invgp.config import load
from invgp.errors import RunsFailedError
from invgp.problem import Floats, Problem

QUICK = 0.01  # seconds: below this, one run says little about the rate of many
MANY = 200


@click.command(epilog="Examples: invgp check survey.toml; invgp check survey.toml --workers 8")
@config_argument
@data_option
@workers_option
def command(config: Path, data: Path | None, workers: int | None) -> None:
    """Validate CONFIG, run its simulator once at the prior mean, and predict the cost of the inversion."""
    problem = load(config, data=data)
    with TemporaryDirectory(prefix="invgp-") as scratch:
        rows = problem.to_simulator(prior_means(problem))
        outcome, seconds = timed(problem, rows, Path(scratch))
    if not outcome.ok[0]:
        raise RunsFailedError(f"the simulator failed at the prior mean: {outcome.messages[0]}")
    modelled = problem.from_simulator(np.repeat(outcome.outputs[:1], problem.survey.size, axis=0), 1)[0, 0]
    say_survey(problem)
    click.echo(f"\nOne run of {problem.forward.name!r} at the prior mean, site 1:")
    say_quantities("in", problem.forward.inputs, rows[0])
    say_quantities("out", problem.forward.outputs, outcome.outputs[0])
    say_data(problem, modelled)
    say_cost(problem, seconds, workers or problem.inference.workers)


def prior_means(problem: Problem) -> Floats:
    """Physical prior means at every site, (1, N, Q)."""
    means = np.concatenate([latent.mean for latent in problem.latents])
    return np.broadcast_to(means, (1, problem.survey.size, len(means)))


def timed(problem: Problem, rows: Floats, directory: Path) -> tuple[Evaluations, float]:
    """The outcome of the first row, and the seconds a run takes."""
    model = problem.forward
    started = time.perf_counter()
    outcome = model.evaluate(rows[:1], RunContext(["check"], directory))
    seconds = time.perf_counter() - started
    if outcome.ok[0] and seconds < QUICK:
        many = np.repeat(rows[:1], min(MANY, model.rows_per_task), axis=0)
        labels = [f"check{i}" for i in range(len(many))]
        started = time.perf_counter()
        model.evaluate(many, RunContext(labels, directory))
        seconds = (time.perf_counter() - started) / len(many)
    return outcome, seconds


def say_survey(problem: Problem) -> None:
    """Sites, observations, latents."""
    survey = problem.survey
    extents = ", ".join(f"{c.name} {c.values.min():g} to {c.values.max():g} {c.unit}" for c in survey.coordinates)
    click.echo(f"{problem.title or 'Survey'}: {survey.size} sites, {extents}")
    present = ~np.isnan(survey.Y)
    click.echo(f"{present.sum():,} observations, {(~present).sum():,} missing")
    click.echo(f"{problem.latent_count} latent processes: {', '.join(latent.name for latent in problem.latents)}")


def say_quantities(direction: str, quantities: tuple[Quantity, ...], row: Floats) -> None:
    """Numbers with their names and units."""
    ends = np.cumsum([q.size for q in quantities])
    for quantity, values in zip(quantities, np.split(row, ends[:-1]), strict=True):
        numbers = ", ".join(f"{v:.6g}" for v in values)
        click.echo(f"  {direction:>3}  {quantity.name} = {numbers} {quantity.unit}")


def say_data(problem: Problem, modelled: Floats) -> None:
    """The noise in data units, and how far the prior mean is from the data."""
    click.echo("\nNoise and first misfit, at the prior mean:")
    for observation in problem.survey.observations:
        std = problem.noise.std[observation.name]
        modelled_here = modelled[problem.observation_slices[observation.name]]
        misfit = (observation.values - modelled_here) / std
        for i, label in enumerate(observation.labels or (None,)):
            name = observation.name if label is None else f"{observation.name}[{label}]"
            noise = std[~np.isnan(observation.values[:, i]), i]
            spread = f"{noise.min():.4g}" if np.ptp(noise) == 0 else f"{noise.min():.4g} to {noise.max():.4g}"
            click.echo(
                f"  {name}: {problem.noise.kind} noise, standard deviation {spread} {observation.unit}; "
                f"root mean square misfit {np.sqrt(np.nanmean(misfit[:, i] ** 2)):.2g} standard deviations"
            )


def say_cost(problem: Problem, seconds: float, workers: int) -> None:
    """What the inversion will take."""
    settings = problem.inference
    each = settings.samples * problem.survey.size
    most = each * settings.max_evaluations
    click.echo(
        f"\nA run takes {duration(seconds)}. An evaluation of the bound takes {each:,} runs "
        f"({settings.samples} a site): about {duration(each * seconds / workers)} with {workers} "
        f"worker{'s' if workers > 1 else ''}. At most {settings.max_evaluations} evaluations: {most:,} runs, "
        f"about {duration(most * seconds / workers)}."
    )
