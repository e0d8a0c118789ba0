"""Calibration: the coverage of posterior intervals on simulated surveys with truths from the prior."""

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
from invgp.execution.pools import WorkerDeath
from invgp.execution.pools.worker_processes import Processes
from invgp.execution.run_directories import remove_run_directories
from invgp.problem import Problem
from invgp.validation.calibration_summary import first_failure, summary
from invgp.validation.calibration_trial import Trial, run_trial, with_serial_runs

Task = tuple[Problem, Problem, int, int, Path]

IDENTITY = "invgp_calibration"
DECISIVE = (
    "core",
    "emulation",
    "execution",
    "inference",
    "latent_model",
    "likelihoods",
)  # packages whose code determines a posterior
SUFFIXES = ("truth", "mean", "std", "score", "pit", "rank", "coverage", "coverage_error", "coverage_lower",
            "coverage_upper", "absolute_score", "error_ratio")  # fmt: skip
RESERVED = ("survey", "interval", "rank_site", "redrawn", "runs", "converged", "coverage", "coverage_error",
            "coverage_lower", "coverage_upper")  # fmt: skip


class InterruptedCalibration(KeyboardInterrupt):
    """The user interrupted the calibration.

    Attributes
    ----------
    result : xarray.Dataset or None
        Calibration of the surveys that were finished, as from `calibrate`; None if there are none.
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
    """Estimate the coverage of posterior intervals on simulated surveys.

    Each survey has a truth drawn from the prior and simulated data with noise. It is inverted, and the truth is
    compared with the posterior.

    Parameters
    ----------
    problem : Problem
    surveys : int
        Number of simulated surveys, K.
    seed : int, optional
        Random seed; by default `inference.seed`. The same seed gives a bit-identical result for any number of workers,
        and survey k does not depend on K.
    workers : int, optional
        Number of surveys that are inverted at the same time; by default `inference.workers`.
    drawn_from : Problem, optional
        Problem with the prior, the simulator and the noise of truths and data, to test a posterior with wrong
        assumptions; by default `problem`.
    finished : mapping of int to xarray.Dataset, optional
        Surveys of an earlier call by number, as passed to `keep`; they are not computed again.
    keep : callable, optional
        Called with the number and the dataset of each survey when it is finished.

    Returns
    -------
    xarray.Dataset
        Truths, their posterior probabilities and ranks by survey, site and label; the coverage and its band by
        interval and label. See the documentation of the calibration.

    Raises
    ------
    ConfigError
        An argument is not valid, or the names of the problem collide with those of the result.
    RunsFailedError
        The simulator fails at all truths drawn for a survey, or no inversion succeeded.
    InterruptedCalibration
        Ctrl-C; it contains the result of the surveys that were finished.

    References
    ----------
    Talts, Betancourt, Simpson, Vehtari and Gelman (2018), Validating Bayesian inference algorithms with
    simulation-based calibration, arXiv:1804.06788.
    """
    seed = problem.inference.seed if seed is None else seed
    workers = problem.inference.workers if workers is None else workers
    source = drawn_from or problem
    _check(problem, source, surveys, workers, seed)
    this = identity(problem, seed, drawn_from)
    done = {number: trial for number, trial in (finished or {}).items() if number <= surveys}
    failures: dict[int, str] = {}
    with _run_directory() as runs:
        tasks = [(problem, source, n, seed, runs / f"survey{n}") for n in range(1, surveys + 1) if n not in done]
        try:
            for trial in _trials(tasks, workers, runs):
                if trial.scores is None:
                    failures[trial.number] = trial.failure
                    continue
                scores = trial.scores.assign_attrs({IDENTITY: this})
                if keep is not None:
                    keep(trial.number, scores)
                done[trial.number] = scores
        except KeyboardInterrupt as error:
            raise InterruptedCalibration(summary(problem, done, seed, failures) if done else None) from error
        if not done:
            raise RunsFailedError(f"none of {surveys} simulated surveys could be inverted; {first_failure(failures)}")
    return summary(problem, done, seed, failures)


@contextmanager
def _run_directory() -> Iterator[Path]:
    """Create a directory for runs, and remove it unless runs fail, since the message then refers to it."""
    directory = Path(tempfile.mkdtemp(prefix="invgp-calibrate-")).resolve()
    try:
        yield directory
    except RunsFailedError:
        for empty in (*directory.iterdir(), directory):
            with suppress(OSError):
                empty.rmdir()
        raise
    except BaseException:
        remove_run_directories(directory)
        raise
    remove_run_directories(directory)


def identity(problem: Problem, seed: int, drawn_from: Problem | None = None) -> str:
    """Compute a digest of everything that determines a simulated survey, except its number."""
    decisive = [
        (
            p.forward.digest,
            replace(p.survey, file="", digest=""),
            p.latents,
            p.noise,
            p.inputs,
            p.outputs,
            with_serial_runs(p.inference).replace(seed=seed).model_dump(),
        )
        for p in (problem, drawn_from or problem)
    ]
    # The digest includes the code, not only the version, so that results of modified code are not mixed.
    home = Path(__file__).parent.parent
    code = [path.read_bytes() for part in DECISIVE for path in sorted((home / part).rglob("*.py"))]
    return str(joblib.hash((decisive, code), hash_name="sha1"))


def _trials(tasks: list[Task], workers: int, directory: Path) -> Iterator[Trial]:
    """Yield the result of each task when it is finished; with one worker, run the tasks in this process."""
    if workers == 1:
        yield from (run_trial(*task) for task in tasks)
        return
    with Processes(workers) as pool, closing(pool.run(_run, tasks, directory)) as results:
        for number, result in results:
            if isinstance(result, WorkerDeath):
                raise RunsFailedError(
                    f"a worker process died, {result.times} times, while it inverted simulated survey "
                    f"{tasks[number][2]}; workers = 1 inverts it in this process, where a debugger can be used"
                )
            yield result


def _run(task: Task) -> Trial:
    """Run one task in a worker process."""
    # Temporary files of a killed worker are removed with the directory of the runs.
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
    for name, count in Counter([*_variable_names(problem), *RESERVED]).items():
        if count > 1:
            raise ConfigError(
                f"{name!r} must be the name of one thing in a calibration's file, but is used for {count}"
            )


def _variable_names(problem: Problem) -> list[str]:
    """Return the names of variables and dimensions of a calibration file that derive from names of the problem."""
    survey = problem.survey
    dimensions = [*(latent.dimension for latent in problem.latents), *(o.dimension for o in survey.observations)]
    return [
        *(column.name for column in (*survey.coordinates, *survey.covariates)),
        *(f"{latent.name}_{suffix}" for latent in problem.latents for suffix in SUFFIXES),
        *(f"{observation.name}_observed" for observation in survey.observations),
        *{dimension for dimension in dimensions if dimension is not None},
    ]
