"""Evaluation of a batch of runs: look up recorded runs, make the others in parallel, each input once."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
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
    unique = _find_unique_rows(values)
    batch = _BatchRunner(model, pool or Loop(), retries, recorder, concurrency, monitor, Event())
    parts = []
    with (
        resend_lost_interrupts(),
        closing(batch.run(values[unique.first], select_context(context, unique.first))) as unique_parts,
    ):
        for part, made in unique.repeat(unique_parts):
            succeeded = int(part.ok.sum())
            monitor.add_runs(succeeded, len(part.status) - succeeded, reused=len(part.status) - made)
            monitor.report_concurrency(concurrency.average)
            if succeeded < len(part.status):
                monitor.report_failures([m for m, ok in zip(part.messages, part.ok, strict=True) if not ok])
            if watch is not None:
                try:
                    watch(part)
                except BatchStopped:
                    batch.stop.set()
                    for _ in unique_parts:
                        pass
                    raise
            parts.append(part)
    if recorder is not None:
        recorder.sync()
    return Evaluations.concatenate(parts)


class _UniqueRows(NamedTuple):
    """The U unique rows of B rows.

    Attributes
    ----------
    first : array of int, shape (U,)
        First position of each unique row.
    which : array of int, shape (B,)
        Number of the unique row for each row.
    """

    first: NDArray[np.intp]
    which: NDArray[np.intp]

    def repeat(self, parts: Iterable[tuple[Evaluations, int]]) -> Iterator[tuple[Evaluations, int]]:
        """Yield the outcome of all rows, in order, from the outcome of the unique rows, in order."""
        outputs: list[Floats] = []
        status: list[Status] = []
        messages: list[str] = []
        start = 0
        for part, made in parts:
            if len(self.first) == len(self.which):
                yield part, made
                continue
            outputs += list(part.outputs)
            status += part.status
            messages += part.messages
            # The outcome is available up to the first position of the next unique row.
            end = int(self.first[len(status)]) if len(status) < len(self.first) else len(self.which)
            rows = self.which[start:end].tolist()
            yield (
                Evaluations(
                    np.stack([outputs[i] for i in rows]),
                    tuple(status[i] for i in rows),
                    tuple(messages[i] for i in rows),
                ),
                made,
            )
            start = end


def _find_unique_rows(values: Floats) -> _UniqueRows:
    numbers: dict[bytes, int] = {}
    which = np.asarray([numbers.setdefault(row.tobytes(), len(numbers)) for row in values], dtype=np.intp)
    return _UniqueRows(np.unique(which, return_index=True)[1], which)


class _TaskPart(NamedTuple):
    """The outcome of some rows of a task.

    Attributes
    ----------
    task : int
        Number of the task in the batch.
    rows : array of int
        Numbers of the rows in the batch.
    outcome : Evaluations
    made : bool
        Whether the rows were run; otherwise they were found in the ledger.
    """

    task: int
    rows: NDArray[np.intp]
    outcome: Evaluations
    made: bool


class _BatchRunner(NamedTuple):
    """Runs the unique rows of a batch."""

    model: ForwardModel
    pool: Pool
    retries: int
    recorder: Recorder | None
    concurrency: Concurrency
    monitor: Monitor
    stop: Event

    def run(self, values: Floats, context: RunContext) -> Generator[tuple[Evaluations, int], None, None]:
        """Yield the outcome of each task, in order, and how many of its rows were run."""
        step = self.model.rows_per_task
        tasks = [np.arange(start, min(start + step, len(values))) for start in range(0, len(values), step)]
        waiting: list[list[_TaskPart]] = [[] for _ in tasks]
        following = 0
        with closing(self._find_or_make(tasks, values, context)) as arriving:
            for part in arriving:
                waiting[part.task].append(part)
                while following < len(tasks) and _count_rows(waiting[following]) == tasks[following].size:
                    complete, waiting[following] = waiting[following], []
                    following += 1
                    made = _count_rows([part for part in complete if part.made])
                    if self.recorder is not None:
                        self.recorder.reused += _count_rows(complete) - made
                    yield _join_parts(complete), made

    def _find_or_make(
        self, tasks: list[NDArray[np.intp]], values: Floats, context: RunContext
    ) -> Generator[_TaskPart, None, None]:
        """Yield the rows of all tasks as soon as their outcome is available."""
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
        tasks = [Task(values[rows], select_context(context, rows)) for _, rows in wanted]
        with closing(self._run_tasks(tasks)) as results, self.concurrency.measure():
            for i, finished in results:
                task = tasks[i]
                self.concurrency.busy += finished.seconds * len(task.values)
                if self.recorder is not None and not finished.recorded:
                    check_disk_space(finished.outcome, task.context.directory, self.recorder.ledger.path)
                    self.recorder.record(*task, finished)
                yield _TaskPart(*wanted[i], finished.outcome, made=True)

    def _run_tasks(self, tasks: list[Task]) -> Generator[tuple[int, FinishedRuns], None, None]:
        """Yield the number and the result of each task, as they finish."""
        if not tasks:
            return
        deaths: dict[int, WorkerDeath] = {}
        with closing(self._submit(tasks, record=True)) as results:
            for number, result in results:
                if isinstance(result, WorkerDeath):
                    deaths[number] = result
                else:
                    yield number, result
        for number, death in deaths.items():
            if self.stop.is_set():
                return
            task = tasks[number]
            found = None if self.recorder is None else look_up_task(self.recorder, task)
            if found is None:
                single = len(task.values) == 1
                found = make_killed_result(self.model, task, death) if single else self._run_rows_singly(task)
            yield number, found

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


def _count_rows(parts: list[_TaskPart]) -> int:
    return sum(part.rows.size for part in parts)


def _join_parts(parts: list[_TaskPart]) -> Evaluations:
    """Return the rows of one task, in order."""
    if len(parts) == 1:
        return parts[0].outcome
    together = Evaluations.concatenate(part.outcome for part in parts)
    return select_rows(together, np.argsort(np.concatenate([part.rows for part in parts])))
