"""Calibration: do a problem's posteriors cover truths drawn from its own prior as often as they say?"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import joblib
import xarray as xr

from invgp.errors import ConfigError, RunsFailedError
from invgp.execution.pools import Died
from invgp.execution.pools.worker_processes import Processes
from invgp.execution.run_directories import remove_all_runs
from invgp.problem import Problem
from invgp.validation.calibration_summary import first_of, summary
from invgp.validation.calibration_trial import Trial, in_a_loop, run_trial

Task = tuple[Problem, Problem, int, int, Path]

IDENTITY = "invgp_calibration"
DECISIVE = (
    "core",
    "emulation",
    "execution",
    "inference",
    "latent_model",
    "likelihoods",
)  # parts of invgp that decide what a posterior is
SUFFIXES = ("truth", "mean", "std", "score", "pit", "rank", "coverage", "coverage_error", "coverage_lower",
            "coverage_upper", "absolute_score", "error_ratio")  # fmt: skip
RESERVED = ("survey", "interval", "rank_site", "redrawn", "runs", "converged", "coverage", "coverage_error",
            "coverage_lower", "coverage_upper")  # fmt: skip


class InterruptedCalibration(KeyboardInterrupt):
    """The person stopped the calibration.

    Attributes
    ----------
    result : of the surveys that were finished, as `calibrate` would return it; None if there were none yet.
    """

    def __init__(self, result: xr.Dataset | None) -> None:
        super().__init__("the calibration was interrupted")
        self.result = result


def calibrate(
    problem: Problem,
    surveys: int,
    *,
    seed: int | None = None,
    workers: int | None = None,
    drawn_from: Problem | None = None,
    finished: Mapping[int, xr.Dataset] | None = None,
    keep: Callable[[int, xr.Dataset], None] | None = None,
) -> xr.Dataset:
    """Draw truths from the prior, simulate their data, invert them, and see how often intervals hold the truth.

    Parameters
    ----------
    surveys : K, how many are simulated.
    seed, workers : instead of the problem's own settings; `workers` surveys run at once. The same seed gives the same
        result, to the bit, whatever the number of workers, and survey k is the same whatever K.
    drawn_from : the problem whose prior, simulator and noise make truths and data, for a posterior whose
        assumptions are wrong; by default the problem itself.
    finished : surveys by number, as an earlier call gave them to `keep`; they are not computed again.
    keep : called with the number of each survey and what came of it, as soon as it is finished.

    Returns
    -------
    xarray.Dataset
        Truths, their probabilities and ranks by survey, site and label; the coverage and its band by interval and
        label. See the documentation of the calibration.

    Raises
    ------
    RunsFailedError
        The simulator fails at every truth that is drawn for a survey, or no inversion succeeded.
    InterruptedCalibration
        Ctrl-C; it carries the result of the surveys that were finished.
    """
    seed = problem.inference.seed if seed is None else seed
    workers = problem.inference.workers if workers is None else workers
    source = drawn_from or problem
    _check(problem, source, surveys, workers, seed)
    this = identity(problem, seed, drawn_from)
    done = {number: trial for number, trial in (finished or {}).items() if number <= surveys}
    failures: dict[int, str] = {}
    with _scratch() as runs:
        tasks = [(problem, source, n, seed, runs / f"survey{n}") for n in range(1, surveys + 1) if n not in done]
        try:
            for trial in _trials(tasks, workers, runs):
                if trial.judged is None:
                    failures[trial.number] = trial.failure
                    continue
                judged = trial.judged.assign_attrs({IDENTITY: this})
                if keep is not None:
                    keep(trial.number, judged)
                done[trial.number] = judged
        except KeyboardInterrupt as error:
            raise InterruptedCalibration(summary(problem, done, seed, failures) if done else None) from error
        if not done:
            raise RunsFailedError(f"none of {surveys} simulated surveys could be inverted; {first_of(failures)}")
    return summary(problem, done, seed, failures)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A directory for runs; it stays if they are why the calibration fails, since the message names theirs."""
    directory = Path(tempfile.mkdtemp(prefix="invgp-calibrate-")).resolve()
    try:
        yield directory
    except RunsFailedError:
        for empty in (*directory.iterdir(), directory):
            with suppress(OSError):
                empty.rmdir()
        raise
    except BaseException:
        remove_all_runs(directory)
        raise
    remove_all_runs(directory)


def identity(problem: Problem, seed: int, drawn_from: Problem | None = None) -> str:
    """A digest of all that decides what comes of a simulated survey, except its number."""
    decisive = [
        (
            p.forward.digest,
            replace(p.survey, file="", digest=""),
            p.latents,
            p.noise,
            p.inputs,
            p.outputs,
            replace(in_a_loop(p.inference), seed=seed),
        )
        for p in (problem, drawn_from or problem)
    ]
    # A release alone would not do: whoever works on the inference must not be shown what it said yesterday.
    home = Path(__file__).parent.parent
    code = [path.read_bytes() for part in DECISIVE for path in sorted((home / part).rglob("*.py"))]
    return str(joblib.hash((decisive, code), hash_name="sha1"))


def _trials(tasks: list[Task], workers: int, directory: Path) -> Iterator[Trial]:
    """What comes of each task, as they finish; with one worker a plain loop in this process."""
    if workers == 1:
        yield from (run_trial(*task) for task in tasks)
        return
    with Processes(workers) as pool, closing(pool.run(_run, tasks, directory)) as results:
        for number, result in results:
            if isinstance(result, Died):
                raise RunsFailedError(
                    f"a worker process died, {result.times} times, while it inverted simulated survey "
                    f"{tasks[number][2]}; workers = 1 inverts it in this process, where a debugger can see it"
                )
            yield result


def _run(task: Task) -> Trial:
    """One task, in a worker process."""
    # A worker that is killed leaves its temporary files; there, they are removed with the rest.
    tempfile.tempdir = str(task[-1].parent)
    try:
        return run_trial(*task)
    finally:
        tempfile.tempdir = None


def _check(problem: Problem, source: Problem, surveys: int, workers: int, seed: int) -> None:
    for name, value, least in (("surveys", surveys, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if value < least:
            raise ConfigError(f"{name}: must be at least {least}, was {value}")
    if (source.survey.Y.shape, source.latent_count) != (problem.survey.Y.shape, problem.latent_count):
        raise ConfigError("drawn_from: must have the sites, observations and latents of the problem")
    for name, count in Counter([*_names(problem), *RESERVED]).items():
        if count > 1:
            raise ConfigError(f"{name!r} must be the name of one thing in a calibration's file, was that of {count}")


def _names(problem: Problem) -> list[str]:
    """Variables and dimensions of a calibration's file that have names of the problem's."""
    survey = problem.survey
    dimensions = [*(latent.dimension for latent in problem.latents), *(o.dimension for o in survey.observations)]
    return [
        *(column.name for column in (*survey.coordinates, *survey.covariates)),
        *(f"{latent.name}_{suffix}" for latent in problem.latents for suffix in SUFFIXES),
        *(f"{observation.name}_observed" for observation in survey.observations),
        *{dimension for dimension in dimensions if dimension is not None},
    ]
