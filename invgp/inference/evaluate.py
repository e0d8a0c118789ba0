"""A batch of simulator runs, in parallel."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import joblib
import psutil
from joblib.externals.loky.process_executor import BrokenProcessPool
from threadpoolctl import threadpool_limits

from invgp.adapters.protocol import RUN_DIRECTORY_VARIABLE, Evaluations, ForwardModel, RunContext
from invgp.errors import RunsFailedError
from invgp.inference.monitor import Monitor, Silent
from invgp.problem import Floats

THREADS_PER_WORKER = 1
SECONDS_TO_DIE = 0.05


def evaluate(
    model: ForwardModel,
    values: Floats,
    context: RunContext,
    *,
    workers: int = 1,
    monitor: Monitor | None = None,
    watch: Callable[[Evaluations], None] | None = None,
) -> Evaluations:
    """Run the model at each row of `values`, (B, I).

    The batch is cut into tasks of `model.rows_per_task` rows whatever the number of workers, so that the outputs
    are the same to the bit. With ``workers=1`` it is a plain loop in this process, easy to debug. Otherwise the
    tasks run in that many processes, in each of which BLAS and OpenMP are held to one thread.

    Parameters
    ----------
    watch : called with each part as it comes back; it may raise, which stops the rest.
    """
    monitor = monitor or Silent()
    step = model.rows_per_task
    tasks = [(values[a : a + step], context.rows(a, a + step)) for a in range(0, len(values), step)]
    if not tasks:
        return model.evaluate(values, context)
    parts = []
    for part in _loop(model, tasks) if workers == 1 else _processes(model, tasks, workers):
        succeeded = int(part.ok.sum())
        monitor.ran(succeeded, len(part.status) - succeeded)
        if watch is not None:
            watch(part)
        parts.append(part)
    return Evaluations.concatenate(parts)


def _loop(model: ForwardModel, tasks: list[tuple[Floats, RunContext]]) -> Iterator[Evaluations]:
    for rows, context in tasks:
        # As in a worker: the number of threads decides how BLAS rounds, and results must not depend on the workers.
        with threadpool_limits(THREADS_PER_WORKER):
            part = model.evaluate(rows, context)
        yield part


def _processes(model: ForwardModel, tasks: list[tuple[Floats, RunContext]], workers: int) -> Iterator[Evaluations]:
    how = {"inner_max_num_threads": THREADS_PER_WORKER, "initializer": _leave_interrupts_to_the_parent}
    with joblib.parallel_config(backend="loky", n_jobs=workers, **how):
        # In order, as they come: the caller can count them, and the result does not depend on who was first.
        pool = joblib.Parallel(return_as="generator")
        results = pool(joblib.delayed(_run)(model, rows, context, os.getpid()) for rows, context in tasks)
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
            end_programs(tasks[0][1].directory)


def _run(model: ForwardModel, rows: Floats, context: RunContext, parent: int) -> Evaluations:
    """One task, in a worker process."""
    if os.getppid() != parent:
        os._exit(1)  # the inversion was killed: nobody waits for this run, and nobody else would stop it
    return model.evaluate(rows, context)


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
