"""One task of a batch, in the worker that does it: run, tried again where it fails, and recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from invgp.adapters.protocol import HOMES, Evaluations, ForwardModel, RunContext, Status, output_size
from invgp.disk_space import find_write_error
from invgp.errors import LedgerError
from invgp.execution.pools import Died
from invgp.execution.retries import attempt
from invgp.execution.stray_programs import end_programs, were_stopped
from invgp.ledger import FinishedRuns, LedgerAddress, Recorder
from invgp.problem import Floats

SPOILT_BY_A_FULL_DISK = {Status.NOT_STARTED, Status.EXIT_CODE, Status.KILLED, Status.UNREADABLE}


class Task(NamedTuple):
    """Rows of inputs (B, I) that one worker runs in one go."""

    rows: Floats
    context: RunContext

    def row(self, i: int) -> Task:
        """A task of one of the rows."""
        return Task(self.rows[i : i + 1], self.context.rows(i, i + 1))


@dataclass(frozen=True)
class Work:
    """What is done with a task.

    Parameters
    ----------
    retries : how often a run that failed is tried again.
    address : of the ledger; None if the rows are recorded elsewhere, or not at all.
    """

    model: ForwardModel
    retries: int
    address: LedgerAddress | None = None

    def __call__(self, task: Task) -> FinishedRuns:
        """Run a task. If it can be, it is recorded here: what happens to us afterwards can no longer undo it."""
        HOMES.setdefault(str(task.context.directory), str(task.context.directory))  # it was resolved
        _end_what_was_left(task.context)
        recorder = None if self.address is None else self.address.open_recorder()
        done = None if recorder is None else in_ledger(recorder, task)
        if done is not None:  # by a worker that died before it could say so
            return done
        finished = attempt(self.model, *task, self.retries)
        if recorder is None or were_stopped(task.context.directory):
            return finished
        check_room(finished.outcome, task.context.directory, recorder.ledger.path)
        recorder.record(*task, finished)
        return replace(finished, recorded=True)


def in_ledger(recorder: Recorder, task: Task) -> FinishedRuns | None:
    """What is recorded of a task; None if not all of it. Its rows are recorded together, so that one tells of most."""
    if not recorder.look_up(task.rows[:1]).found.all():
        return None
    known = recorder.look_up(task.rows)
    if not known.found.all():
        return None
    return FinishedRuns(known.outcome, np.ones(len(task.rows), dtype=np.int64), 0.0, "", recorded=True)


def killed(model: ForwardModel, task: Task, died: Died) -> FinishedRuns:
    """What is recorded of a task whose worker died each time."""
    count, times = len(task.rows), "once" if died.times == 1 else f"{died.times} times"
    messages = tuple(
        f"run {label}: its worker process died, {times}, while it ran {model.name!r}" for label in task.context.labels
    )
    outcome = Evaluations(np.full((count, output_size(model)), np.nan), (Status.KILLED,) * count, messages)
    return FinishedRuns(outcome, np.full(count, died.times, dtype=np.int64), 0.0, "")


def check_room(outcome: Evaluations, directory: Path, ledger: Path) -> None:
    """Raise if runs may have failed because their disk is full: that is not a failure of their inputs."""
    if not SPOILT_BY_A_FULL_DISK.intersection(outcome.status):
        return
    error = find_write_error(directory)
    if error is not None:
        reason = f"nothing more can be written in {error.filename!r} ({error.strerror}), so that runs fail"
        raise LedgerError(ledger, reason) from error


def _end_what_was_left(context: RunContext) -> None:
    """A worker that died had these runs before: its programs may still write into their directories."""
    for label in context.labels:
        place = context.directory / label
        if place.exists():
            end_programs(place)
