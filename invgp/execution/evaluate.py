"""Evaluation of a batch of runs: look up recorded runs, make the others in parallel, each input once."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import Evaluations, ForwardModel, RunContext, Status
from invgp.errors import LedgerError, RunsFailedError
from invgp.execution.pools import Loop, Pool, WorkerDeath
from invgp.execution.tasks import (
    Task,
    TaskRunner,
    check_disk_space,
    look_up_task,
    make_killed_result,
    select_context,
    select_rows,
)
from invgp.ledger import FinishedRuns, LedgerAddress, Recorder
from invgp.operating_system import resend_lost_interrupts
from invgp.problem import Floats
from invgp.progress import Monitor, SilentMonitor


@dataclass
class Concurrency:
    """Measures how many runs were made at the same time.

    Rows that a model evaluates in one call, for example with a vectorised function, count as consecutive runs.

    Attributes
    ----------
    busy : float
        Sum of the durations of all runs, in s.
    elapsed : float
        Time during which at least one run was made, in s.
    """

    busy: float = 0.0
    elapsed: float = 0.0
    started: float | None = None  # start of the present block of runs

    @property
    def average(self) -> float:
        """Average number of simultaneous runs; 0 if there were no runs."""
        now = 0.0 if self.started is None else time.perf_counter() - self.started
        return self.busy / (self.elapsed + now) if self.elapsed + now else 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the duration of the block to `elapsed`."""
        self.started = time.perf_counter()
        try:
            yield
        finally:
            self.elapsed += time.perf_counter() - self.started
            self.started = None


ROWS_TRIED_SINGLY = 5  # of a task that kills its workers: if all of them do, so will the rest
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 1.0  # s, between two looks at the runs of another process


class BatchStopped(Exception):  # noqa: N818 - a decision, not an error
    """Raised by `watch` when the rest of a batch is not needed."""


def evaluate(
    model: ForwardModel,
    values: Floats,
    context: RunContext,
    *,
    pool: Pool | None = None,
    retries: int = 0,
    recorder: Recorder | None = None,
    monitor: Monitor | None = None,
    watch: Callable[[Evaluations], None] | None = None,
    concurrency: Concurrency | None = None,
) -> Evaluations:
    """Run a model for a batch of inputs. Equal rows are run once.

    The batch is divided into tasks of `model.rows_per_task` rows, whatever the pool, so that the outputs are
    bit-identical. In each worker, BLAS and OpenMP use one thread. A run that kills each worker that takes it fails with
    the status "killed".

    Parameters
    ----------
    model : ForwardModel
    values : array, shape (B, I)
        Inputs, in the units of the inputs of the model.
    context : RunContext
    pool : Pool, optional
        Workers that make the runs; by default a loop in this process.
    retries : int
        Largest number of repetitions of a failed run.
    recorder : Recorder, optional
        Ledger of the runs. Runs that it contains are not made, and other runs are recorded as soon as they finish. The
        rows of a task are recorded together, so that a resumed batch has the same tasks. A run that another process
        makes at this time is not made here; its outcome is awaited as long as that process is alive.
    monitor : Monitor, optional
    watch : callable, optional
        Called with each part of the outcome, in the order of the rows. If it raises `BatchStopped`, no further run is
        started, and the runs that have started are finished and recorded. If it raises another exception, the runs that
        have started are ended.
    concurrency : Concurrency, optional
        Measures how many runs are made at the same time.

    Returns
    -------
    Evaluations

    Raises
    ------
    LedgerError
        The ledger cannot be read or written.
    RunsFailedError
        The workers cannot make the runs.
    """
    if not len(values):
        return model.evaluate(values, context)
    monitor, concurrency = monitor or SilentMonitor(), concurrency or Concurrency()
    # A worker may have another working directory, and a program may replace the directory by a link.
    context = replace(context, directory=context.directory.resolve())
    rows = _OrderedRows(values, model.rows_per_task)
    batch = _BatchRunner(model, pool or Loop(), retries, recorder, concurrency, monitor, Event())
    parts = []
    with (
        resend_lost_interrupts(),
        closing(batch.run(rows.tasks, values[rows.first], select_context(context, rows.first))) as arriving,
    ):
        for task_part in arriving:
            for part, made in rows.add(task_part):
                _report(part, made, monitor, concurrency)
                parts.append(part)
                if watch is None:
                    continue
                try:
                    watch(part)
                except BatchStopped:
                    batch.stop.set()
                    for _ in arriving:
                        pass
                    raise
    if recorder is not None:
        recorder.sync()
    return Evaluations.concatenate(parts)


def _report(part: Evaluations, made: int, monitor: Monitor, concurrency: Concurrency) -> None:
    """Report the outcome of some rows, of which so many were run, to the monitor."""
    succeeded = int(part.ok.sum())
    monitor.add_runs(succeeded, len(part.status) - succeeded, reused=len(part.status) - made)
    monitor.report_concurrency(concurrency.average)
    if succeeded < len(part.status):
        monitor.report_failures([m for m, ok in zip(part.messages, part.ok, strict=True) if not ok])


class _TaskPart(NamedTuple):
    """The outcome of some rows of a task.

    Attributes
    ----------
    task : int
        Number of the task in the batch.
    rows : array of int
        Numbers of the unique rows.
    outcome : Evaluations
    made : bool
        Whether the rows were run; otherwise they were found in the ledger.
    """

    task: int
    rows: NDArray[np.intp]
    outcome: Evaluations
    made: bool


class _OrderedRows:
    """The rows of a batch and their outcome in order, from parts of tasks in any order. Equal rows have one run.

    Parameters
    ----------
    values : array, shape (B, I)
        Inputs.
    step : int
        Number of rows per task.

    Attributes
    ----------
    first : array of int, shape (U,)
        First position of each unique row.
    which : array of int, shape (B,)
        Number of the unique row for each row.
    tasks : list of arrays of int
        Numbers of the unique rows of each task.
    """

    def __init__(self, values: Floats, step: int) -> None:
        numbers: dict[bytes, int] = {}
        self.which = np.asarray([numbers.setdefault(row.tobytes(), len(numbers)) for row in values], dtype=np.intp)
        self.first = np.unique(self.which, return_index=True)[1]
        count = self.first.size
        self.tasks = [np.arange(start, min(start + step, count)) for start in range(0, count, step)]
        self._waiting: list[list[_TaskPart]] = [[] for _ in self.tasks]
        self._next_task, self._end = 0, 0
        self._outputs: list[Floats] = []
        self._status: list[Status] = []
        self._messages: list[str] = []

    def add(self, part: _TaskPart) -> Iterator[tuple[Evaluations, int]]:
        """Yield the outcome of the next rows, and how many unique ones were run, for each task that is now complete."""
        self._waiting[part.task].append(part)
        while self._next_task < len(self.tasks):
            parts, rows = self._waiting[self._next_task], self.tasks[self._next_task]
            if sum(part.rows.size for part in parts) < rows.size:
                return
            self._waiting[self._next_task] = []
            self._next_task += 1
            yield self._repeat(_join_parts(parts)), sum(part.rows.size for part in parts if part.made)

    def _repeat(self, outcome: Evaluations) -> Evaluations:
        """Return the outcome of the next rows: up to the first position of the unique row after those of `outcome`."""
        if self.first.size == self.which.size:
            return outcome
        self._outputs += list(outcome.outputs)
        self._status += outcome.status
        self._messages += outcome.messages
        done = len(self._status)
        start, self._end = self._end, int(self.first[done]) if done < self.first.size else self.which.size
        rows = self.which[start : self._end].tolist()
        return Evaluations(
            np.stack([self._outputs[i] for i in rows]),
            tuple(self._status[i] for i in rows),
            tuple(self._messages[i] for i in rows),
        )


def _join_parts(parts: list[_TaskPart]) -> Evaluations:
    """Return the rows of one task, in order."""
    if len(parts) == 1:
        return parts[0].outcome
    together = Evaluations.concatenate(part.outcome for part in parts)
    return select_rows(together, np.argsort(np.concatenate([part.rows for part in parts])))


class _BatchRunner(NamedTuple):
    """Runs the unique rows of a batch."""

    model: ForwardModel
    pool: Pool
    retries: int
    recorder: Recorder | None
    concurrency: Concurrency
    monitor: Monitor
    stop: Event

    def run(
        self, tasks: list[NDArray[np.intp]], values: Floats, context: RunContext
    ) -> Generator[_TaskPart, None, None]:
        """Yield the rows of all tasks as soon as they are found in the ledger or run."""
        wanted = list(enumerate(tasks))
        if self.recorder is None:
            yield from self._make_runs(wanted, values, context)
            return
        pause = SHORTEST_PAUSE
        try:
            while wanted and not self.stop.is_set():
                claimed = self.recorder.claim(values[np.concatenate([rows for _, rows in wanted])])
                ours, theirs = [], []
                start = 0
                for number, rows in wanted:
                    here = np.arange(start, start + rows.size)
                    start += rows.size
                    found, mine = claimed.found[here], claimed.ours[here]
                    if found.any():
                        self.recorder.reused += int(found.sum())
                        yield _TaskPart(number, rows[found], select_rows(claimed.outcome, here[found]), made=False)
                    if mine.any():
                        ours.append((number, rows[mine]))
                    if not (found | mine).all():
                        theirs.append((number, rows[~(found | mine)]))
                yield from self._make_runs(ours, values, context)
                self.recorder.release()  # a process that waits must not hold claims
                if theirs and not self.stop.is_set():
                    owner = next(filter(None, claimed.owners))
                    self.monitor.report_waiting(sum(rows.size for _, rows in theirs), owner)
                    pause = SHORTEST_PAUSE if ours or claimed.found.any() else min(2 * pause, LONGEST_PAUSE)
                    time.sleep(pause)
                wanted = theirs
        finally:
            with suppress(LedgerError):  # the first error is the important one; claims also end with the process
                self.recorder.release()

    def _make_runs(
        self, wanted: list[tuple[int, NDArray[np.intp]]], values: Floats, context: RunContext
    ) -> Generator[_TaskPart, None, None]:
        """Run rows, and record them as soon as they finish, in any order."""
        if not wanted:
            return
        tasks = [Task(values[rows], select_context(context, rows)) for _, rows in wanted]
        deaths: dict[int, WorkerDeath] = {}
        with closing(self._submit(tasks, record=True)) as results, self.concurrency.measure():
            for i, result in results:
                if isinstance(result, WorkerDeath):
                    deaths[i] = result
                else:
                    yield self._record(tasks[i], result, *wanted[i])
            for i, death in deaths.items():
                if self.stop.is_set():
                    return
                yield self._record(tasks[i], self._run_after_death(tasks[i], death), *wanted[i])

    def _record(self, task: Task, finished: FinishedRuns, number: int, rows: NDArray[np.intp]) -> _TaskPart:
        """Record the runs of a task, unless its worker has done so, and return their outcome."""
        self.concurrency.busy += finished.seconds * len(task.values)
        if self.recorder is not None and not finished.recorded:
            check_disk_space(finished.outcome, task.context.directory, self.recorder.ledger.path)
            self.recorder.record(*task, finished)
        return _TaskPart(number, rows, finished.outcome, made=True)

    def _run_after_death(self, task: Task, death: WorkerDeath) -> FinishedRuns:
        """Return the result of a task whose workers died: as they recorded it, or that of its rows one by one."""
        found = None if self.recorder is None else look_up_task(self.recorder, task)
        if found is not None:
            return found
        if len(task.values) == 1:
            return make_killed_result(self.model, task, death)
        return self._run_rows_singly(task)

    def _run_rows_singly(self, task: Task) -> FinishedRuns:
        """Run the rows of a task that kills its workers one by one, to find the row that does."""
        rows: dict[int, FinishedRuns] = {}
        deaths = 0
        # The rows are recorded together, as those of any task: a resumed batch must have the same tasks.
        with closing(self._submit([task.select_row(i) for i in range(len(task.values))], record=False)) as results:
            for i, result in results:
                deaths += isinstance(result, WorkerDeath)
                if deaths == len(rows) + 1 >= ROWS_TRIED_SINGLY:
                    raise RunsFailedError(
                        f"a worker process died whenever it ran {self.model.name!r}; workers = 1 runs it in this "
                        "process, where a debugger can see it"
                    )
                if isinstance(result, WorkerDeath):
                    rows[i] = make_killed_result(self.model, task.select_row(i), result)
                else:
                    rows[i] = result
        parts = [rows[i] for i in range(len(task.values))]
        return FinishedRuns(
            Evaluations.concatenate(part.outcome for part in parts),
            np.concatenate([part.attempts for part in parts]),
            sum(part.seconds for part in parts) / len(parts),
            next((part.worker for part in parts if part.worker), ""),
        )

    def _submit(
        self, tasks: list[Task], *, record: bool
    ) -> Generator[tuple[int, FinishedRuns | WorkerDeath], None, None]:
        address = None
        if record and self.pool.records_runs and self.recorder is not None:
            address = LedgerAddress.from_recorder(self.recorder)
        runner = TaskRunner(self.model, self.retries, address)
        return self.pool.run(runner, tasks, tasks[0].context.directory, self.stop)
