"""A batch of simulator runs, in parallel."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import joblib
import numpy as np
import psutil
from joblib.externals.loky.process_executor import BrokenProcessPool
from threadpoolctl import threadpool_limits

from invgp.adapters.protocol import RUN_DIRECTORY_VARIABLE, Evaluations, ForwardModel, RunContext, Status
from invgp.errors import LedgerError, RunsFailedError
from invgp.inference.attempts import attempt, picked, replaced, some_of
from invgp.inference.monitor import Monitor, Silent
from invgp.ledger import Finished, Recorder
from invgp.problem import Floats

THREADS_PER_WORKER = 1
SECONDS_TO_DIE = 0.05
ROOM = 2**20  # bytes: a disk with less is as good as full
SPOILT_BY_A_FULL_DISK = {Status.NOT_STARTED, Status.EXIT_CODE, Status.KILLED, Status.UNREADABLE}


class Task(NamedTuple):
    """Rows of inputs (B, I) that one worker runs in one go."""

    rows: Floats
    context: RunContext


def evaluate(
    model: ForwardModel,
    values: Floats,
    context: RunContext,
    *,
    workers: int = 1,
    retries: int = 0,
    recorder: Recorder | None = None,
    monitor: Monitor | None = None,
    watch: Callable[[Evaluations], None] | None = None,
) -> Evaluations:
    """Run the model at each row of `values`, (B, I).

    The batch is cut into tasks of `model.rows_per_task` rows whatever the number of workers, so that the outputs
    are the same to the bit. With ``workers=1`` it is a plain loop in this process, easy to debug. Otherwise the
    tasks run in that many processes, in each of which BLAS and OpenMP are held to one thread.

    Parameters
    ----------
    retries : how often a run that failed is tried again before it counts as failed.
    recorder : answers the runs that it knows, and gets the others as soon as they finish. The rows of a task are
        recorded together, so that a batch that is taken up again has the tasks that it had.
    watch : called with each part, in order; it may raise, which stops the rest.
    """
    if not len(values):
        return model.evaluate(values, context)
    monitor = monitor or Silent()
    known = None if recorder is None else recorder.known(values)
    step = model.rows_per_task
    everything = [np.arange(a, min(a + step, len(values))) for a in range(0, len(values), step)]
    missing = everything if known is None else [rows[~known.found[rows]] for rows in everything]
    tasks = [Task(values[rows], some_of(context, rows)) for rows in missing if rows.size]
    parts = []
    with closing(_outcomes(model, tasks, workers, retries, recorder)) as fresh:
        for rows, unknown in zip(everything, missing, strict=True):
            part = next(fresh) if known is None or unknown.size == rows.size else picked(known.outcome, rows)
            if 0 < unknown.size < rows.size:
                part = replaced(part, unknown - rows[0], next(fresh))
            if recorder is not None:
                recorder.answered += rows.size - unknown.size
            succeeded = int(part.ok.sum())
            monitor.ran(succeeded, len(rows) - succeeded)
            if watch is not None:
                watch(part)
            parts.append(part)
    if recorder is not None:
        recorder.sync()
    return Evaluations.concatenate(parts)


def _outcomes(
    model: ForwardModel, tasks: list[Task], workers: int, retries: int, recorder: Recorder | None
) -> Generator[Evaluations]:
    """The outcome of each task, in order; it is recorded as soon as it is there, whatever the order."""
    early: dict[int, Evaluations] = {}
    following = 0
    run = _loop(model, tasks, retries) if workers == 1 else _processes(model, tasks, workers, retries)
    with closing(run) as results:
        for number, finished in results:
            if recorder is not None:
                _check_room(finished.outcome, tasks[number].context.directory, recorder)
                recorder.record(*tasks[number], finished)
            early[number] = finished.outcome
            while following in early:
                yield early.pop(following)
                following += 1


def _loop(model: ForwardModel, tasks: list[Task], retries: int) -> Generator[tuple[int, Finished]]:
    # As in a worker: the number of threads decides how BLAS rounds, and results must not depend on the workers. Once
    # for all tasks: it takes longer than to start a program.
    with threadpool_limits(THREADS_PER_WORKER):
        for number, task in enumerate(tasks):
            yield number, attempt(model, *task, retries)


def _processes(model: ForwardModel, tasks: list[Task], workers: int, retries: int) -> Generator[tuple[int, Finished]]:
    if not tasks:
        return
    how = {"inner_max_num_threads": THREADS_PER_WORKER, "initializer": _leave_interrupts_to_the_parent}
    with joblib.parallel_config(backend="loky", n_jobs=workers, **how):
        pool = joblib.Parallel(return_as="generator_unordered")
        results = pool(joblib.delayed(_run)(i, model, task, retries, os.getpid()) for i, task in enumerate(tasks))
    whole = False
    try:
        yield from results
        whole = True
    except BrokenProcessPool as error:
        raise RunsFailedError(
            f"a worker process could not start or died while it ran {model.name!r} ({str(error).splitlines()[0]}); "
            "workers = 1 runs it in this process, where a debugger can see it"
        ) from error
    finally:
        if not whole:  # interrupted, or failed: what still runs is wanted no more
            results.close()
            end_programs(tasks[0].context.directory)


def _run(number: int, model: ForwardModel, task: Task, retries: int, parent: int) -> tuple[int, Finished]:
    """One task, in a worker process."""
    if os.getppid() != parent:
        os._exit(1)  # the inversion was killed: nobody waits for this run, and nobody else would stop it
    return number, attempt(model, *task, retries)


def _check_room(outcome: Evaluations, directory: Path, recorder: Recorder) -> None:
    """Raise if runs may have failed because their disk is full: that is not a failure of their inputs."""
    if not SPOILT_BY_A_FULL_DISK.intersection(outcome.status):
        return
    nearest = next(place for place in (directory, *directory.absolute().parents) if place.is_dir())
    try:
        with TemporaryFile(dir=nearest) as probe:
            probe.write(bytes(ROOM))
    except OSError as error:
        reason = f"nothing more can be written in {str(nearest)!r} ({error.strerror}), so that runs fail"
        raise LedgerError(recorder.ledger.path, reason) from error


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C goes to the whole process group; a worker's own traceback would only confuse."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_programs(directory: Path) -> None:
    """Kill the programs of runs in `directory`: a worker that was killed can no longer end its own."""
    home = directory.absolute()
    # One that started while the others were looked through is seen the next time.
    while sum(_killed(process, home) for process in psutil.process_iter()):
        time.sleep(SECONDS_TO_DIE)


def _killed(process: psutil.Process, home: Path) -> bool:
    try:
        ours = Path(process.environ().get(RUN_DIRECTORY_VARIABLE, "")).is_relative_to(home)
        if not ours or process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.kill()
        return True
    except psutil.Error:  # it has ended, or it is another person's
        return False
