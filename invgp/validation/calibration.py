"""Calibration: the coverage of posterior intervals on simulated surveys with truths from the prior."""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import joblib
import xarray as xr

from invgp import netcdf
from invgp.errors import ArgumentError, ConfigError, RunsFailedError
from invgp.execution.pools import WorkerDeath
from invgp.execution.pools.worker_processes import Processes
from invgp.execution.run_directories import remove_run_directories
from invgp.formatting import format_duration
from invgp.problem import Problem
from invgp.progress import SECONDS_BETWEEN_LINES
from invgp.validation.calibration_trial import Ledgers, Trial, run_trial, with_serial_runs
from invgp.validation.coverage import first_failure, summary

logger = logging.getLogger("invgp")
Task = tuple[Problem, Problem, int, int, Path, Ledgers | None]

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
RESERVED = ("survey", "interval", "rank_site", "rank_node", "redrawn", "runs", "converged", "coverage",
            "coverage_error", "coverage_lower", "coverage_upper")  # fmt: skip


class InterruptedCalibration(KeyboardInterrupt):
    """The user interrupted the calibration.

    Attributes
    ----------
    result : xarray.Dataset or None
        Calibration of the surveys that were finished, as from `invgp.calibrate`; None if there are none.
    """

    def __init__(self, result: xr.Dataset | None) -> None:
        super().__init__("the calibration was interrupted")
        self.result = result


def run_calibration(
    problem: Problem,
    surveys: int,
    *,
    seed: int | None = None,
    workers: int | None = None,
    drawn_from: Problem | None = None,
    folder: Path | None = None,
    keep_runs: bool = False,
    progress: bool = False,
) -> xr.Dataset:
    """Invert simulated surveys and summarise them; the parameters are those of `invgp.calibrate`.

    Parameters
    ----------
    folder : Path, optional
        Directory that keeps the finished surveys; those of an earlier call are not computed again.
    keep_runs : bool
        Whether to keep the runs of unfinished surveys there, too, until the survey is finished.

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
    finished = {} if folder is None else read_finished(folder, this)
    done = {number: trial for number, trial in finished.items() if number <= surveys}
    if len(done) < len(finished):
        logger.info("%d surveys are kept in %s; the result uses the first %d", len(finished), folder, surveys)
    failures: dict[int, str] = {}
    with _run_directory() as runs, show_surveys(surveys, len(done), quiet=not progress) as advance:
        ledgers: dict[int, Ledgers] = {}
        if folder is not None and keep_runs:
            folder.mkdir(parents=True, exist_ok=True)
            ledgers = {n: Ledgers.in_folder(folder, n, this) for n in range(1, surveys + 1)}
        tasks = [
            (problem, source, n, seed, runs / f"survey{n}", ledgers.get(n))
            for n in range(1, surveys + 1)
            if n not in done
        ]
        try:
            for trial in _trials(tasks, workers, runs):
                if trial.scores is None:
                    failures[trial.number] = trial.failure
                    continue
                scores = trial.scores.assign_attrs({IDENTITY: this})
                if folder is not None:
                    netcdf.write(scores, folder / f"survey{trial.number:05d}.nc")
                    Ledgers.in_folder(folder, trial.number, this).remove()
                advance()
                done[trial.number] = scores
        except KeyboardInterrupt as error:
            if folder is not None:  # Ctrl-C may arrive between the file of a survey and its count
                done = {number: trial for number, trial in read_finished(folder, this).items() if number <= surveys}
            raise InterruptedCalibration(summary(problem, done, seed, failures) if done else None) from error
        if not done:
            raise RunsFailedError(f"none of {surveys} simulated surveys could be inverted; {first_failure(failures)}")
    return summary(problem, done, seed, failures)


def read_finished(folder: Path, identity: str) -> dict[int, xr.Dataset]:
    """Read the surveys that an earlier call finished, by number; surveys of another calibration are an error."""
    kept = {path.stem.removeprefix("survey"): path for path in folder.glob("survey*.nc")}
    finished = {int(number): netcdf.read(path) for number, path in kept.items() if number.isdecimal()}
    if any(trial.attrs.get(IDENTITY) != identity for trial in finished.values()):
        raise ArgumentError(
            f"output: must not be that of another calibration, but {str(folder)!r} keeps surveys of another config, "
            "survey file, simulator, seed or version of invgp; remove that folder, or choose another output"
        )
    return finished


@contextmanager
def show_surveys(surveys: int, already: int, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Display the progress: a bar on a terminal, lines elsewhere; the result must be called after each survey."""
    if quiet:
        yield lambda: None
        return
    if sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
        from rich.progress import Progress  # noqa: PLC0415

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("[bold cyan]simulated surveys[/]", total=surveys, completed=already)
            yield lambda: bar.advance(task)
        return
    started = time.perf_counter()
    done, last = already, -SECONDS_BETWEEN_LINES

    def advance() -> None:
        nonlocal done, last
        done += 1
        seconds = time.perf_counter() - started
        if seconds - last > SECONDS_BETWEEN_LINES:
            last = seconds
            left = format_duration((surveys - done) * seconds / (done - already))
            print(f"survey {done:,} of {surveys:,} | about {left} left", file=sys.stderr, flush=True)

    yield advance


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
            p.grid,
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
    tempfile.tempdir = str(task[4].parent)
    try:
        return run_trial(*task)
    finally:
        tempfile.tempdir = None


def _check(problem: Problem, source: Problem, surveys: int, workers: int, seed: int) -> None:
    for name, value, least in (("surveys", surveys, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if value < least:
            raise ArgumentError(f"{name}: must be at least {least}, was {value}")
    if _shape(source) != _shape(problem):
        raise ArgumentError("drawn_from: must have the sites, observations, latents and grid of the problem")
    for name, count in Counter([*_variable_names(problem), *RESERVED]).items():
        if count > 1:
            raise ConfigError(
                f"{name!r} must be the name of one thing in a calibration's file, but is used for {count}"
            )


def _shape(problem: Problem) -> tuple[tuple[int, ...], int, int]:
    """Return the numbers of sites and observations, of latents, and of nodes."""
    return problem.survey.Y.shape, problem.latent_count, 0 if problem.grid is None else problem.grid.size


def _variable_names(problem: Problem) -> list[str]:
    """Return the names of variables and dimensions of a calibration file that derive from names of the problem."""
    survey, nodes = problem.survey, () if problem.grid is None else problem.grid.coordinates
    dimensions = [*(latent.dimension for latent in problem.latents), *(o.dimension for o in survey.observations)]
    return [
        *(column.name for column in survey.covariates),
        *{column.name for column in (*survey.coordinates, *nodes)},
        *(f"{latent.name}_{suffix}" for latent in problem.latents for suffix in SUFFIXES),
        *(f"{observation.name}_observed" for observation in survey.observations),
        *{dimension for dimension in dimensions if dimension is not None},
    ]
