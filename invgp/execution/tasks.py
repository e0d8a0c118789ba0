"""One task of a batch, as a worker executes it: run, repeat failed runs, record."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import HOMES, Evaluations, ForwardModel, RunContext, Status, output_size
from invgp.errors import LedgerError
from invgp.execution.pools import WorkerDeath
from invgp.execution.run_directories import end_programs, were_stopped
from invgp.ledger import FinishedRuns, LedgerAddress, Recorder
from invgp.operating_system import find_write_error
from invgp.problem import Floats

Rows = NDArray[np.intp]


def run_with_retries(model: ForwardModel, values: Floats, context: RunContext, retries: int = 0) -> FinishedRuns:
    """Run a model in this process, and repeat the runs that fail.

    Parameters
    ----------
    model : ForwardModel
    values : array, shape (B, I)
        Inputs, one row per run.
    context : RunContext
    retries : int
        Largest number of repetitions of a failed run.

    Returns
    -------
    FinishedRuns
    """
    rows, attempts, seconds = np.arange(len(values)), np.zeros(len(values), dtype=np.int64), 0.0
    outcome: Evaluations | None = None
    while True:
        start = time.perf_counter()
        new = model.evaluate(values[rows], select_context(context, rows))
        seconds += time.perf_counter() - start if new.seconds is None else new.seconds
        outcome = new if outcome is None else _replace_rows(outcome, rows, new)
        attempts[rows] += 1
        rows = np.flatnonzero(~outcome.ok)
        if not rows.size or attempts.max() > retries:
            return FinishedRuns(outcome, attempts, seconds / max(len(values), 1), f"{platform.node()}:{os.getpid()}")


def select_context(context: RunContext, rows: Rows) -> RunContext:
    """Return the context of some of the runs.

    Parameters
    ----------
    context : RunContext
    rows : array of int
        Numbers of the runs.

    Returns
    -------
    RunContext
    """
    return replace(context, labels=[context.labels[i] for i in rows])


def select_rows(outcome: Evaluations, rows: Rows) -> Evaluations:
    """Return the outcome of some of the runs.

    Parameters
    ----------
    outcome : Evaluations
    rows : array of int
        Numbers of the runs.

    Returns
    -------
    Evaluations
    """
    return Evaluations(
        outcome.outputs[rows], tuple(outcome.status[i] for i in rows), tuple(outcome.messages[i] for i in rows)
    )


def _replace_rows(outcome: Evaluations, rows: Rows, new: Evaluations) -> Evaluations:
    """Return the outcome of all runs, with some rows replaced."""
    outputs, status, messages = outcome.outputs.copy(), list(outcome.status), list(outcome.messages)
    outputs[rows] = new.outputs
    for i, one, message in zip(rows, new.status, new.messages, strict=True):
        status[i], messages[i] = one, message
    return Evaluations(outputs, tuple(status), tuple(messages))


EFFECTS_OF_A_FULL_DISK = {Status.NOT_STARTED, Status.EXIT_CODE, Status.KILLED, Status.UNREADABLE}


class Task(NamedTuple):
    """Rows that one worker runs together.

    Attributes
    ----------
    values : array, shape (B, I)
        Inputs.
    context : RunContext
    """

    values: Floats
    context: RunContext

    def select_row(self, i: int) -> Task:
        """Return a task with one of the rows."""
        return Task(self.values[i : i + 1], self.context.rows(i, i + 1))


@dataclass(frozen=True)
class TaskRunner:
    """Executes tasks in a worker; it can be pickled.

    Parameters
    ----------
    model : ForwardModel
    retries : int
        Largest number of repetitions of a failed run.
    address : LedgerAddress, optional
        Ledger in which the worker records the runs; None if the worker does not record them.
    """

    model: ForwardModel
    retries: int
    address: LedgerAddress | None = None

    def __call__(self, task: Task) -> FinishedRuns:
        """Execute a task. If possible the runs are recorded here, so that they are not lost if the worker dies."""
        HOMES.setdefault(str(task.context.directory), str(task.context.directory))  # the path is resolved
        _end_leftover_programs(task.context)
        recorder = None if self.address is None else self.address.open_recorder()
        recorded = None if recorder is None else look_up_task(recorder, task)
        if recorded is not None:  # another worker recorded the runs and died before it returned them
            return recorded
        finished = run_with_retries(self.model, *task, self.retries)
        if recorder is None or were_stopped(task.context.directory):
            return finished
        check_disk_space(finished.outcome, task.context.directory, recorder.ledger.path)
        recorder.record(*task, finished)
        return replace(finished, recorded=True)


def look_up_task(recorder: Recorder, task: Task) -> FinishedRuns | None:
    """Return the recorded runs of a task; None unless all are recorded.

    Parameters
    ----------
    recorder : Recorder
        Ledger of the runs.
    task : Task

    Returns
    -------
    FinishedRuns or None
    """
    # The rows of a task are recorded together, so the first row is usually sufficient.
    if not recorder.look_up(task.values[:1]).found.all():
        return None
    result = recorder.look_up(task.values)
    if not result.found.all():
        return None
    return FinishedRuns(result.outcome, np.ones(len(task.values), dtype=np.int64), 0.0, "", recorded=True)


def make_killed_result(model: ForwardModel, task: Task, death: WorkerDeath) -> FinishedRuns:
    """Return the result of a task that kills each of its workers.

    Parameters
    ----------
    model : ForwardModel
    task : Task
    death : WorkerDeath
        How many workers died.

    Returns
    -------
    FinishedRuns
    """
    count, times = len(task.values), "once" if death.times == 1 else f"{death.times} times"
    messages = tuple(
        f"run {label}: its worker process died, {times}, while it ran {model.name!r}" for label in task.context.labels
    )
    outcome = Evaluations(np.full((count, output_size(model)), np.nan), (Status.KILLED,) * count, messages)
    return FinishedRuns(outcome, np.full(count, death.times, dtype=np.int64), 0.0, "")


def check_disk_space(outcome: Evaluations, directory: Path, ledger: Path) -> None:
    """Raise `LedgerError` if runs may have failed because their disk is full; such failures are not recorded.

    Parameters
    ----------
    outcome : Evaluations
    directory : Path
        Parent of the run directories.
    ledger : Path
        File that the error names.
    """
    if not EFFECTS_OF_A_FULL_DISK.intersection(outcome.status):
        return
    error = find_write_error(directory)
    if error is not None:
        reason = f"nothing more can be written in {error.filename!r} ({error.strerror}), so that runs fail"
        raise LedgerError(ledger, reason) from error


def _end_leftover_programs(context: RunContext) -> None:
    """End the programs of a worker that died with these runs; they may still write into the run directories."""
    try:
        present = {path.name for path in context.directory.iterdir()}  # one look for the many runs of a batch
    except FileNotFoundError:
        return
    for label in present.intersection(context.labels):
        place = context.directory / label
        if place.exists():
            end_programs(place)
