"""A batch of simulator runs: what is known is looked up, the rest is run, in parallel, each input once."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from threading import Event
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import Evaluations, ForwardModel, RunContext, Status
from invgp.errors import LedgerError, RunsFailedError
from invgp.execution.concurrency import Concurrency
from invgp.execution.monitor import Monitor, Silent
from invgp.execution.pools import Died, Loop, Pool
from invgp.execution.retries import picked, some_of
from invgp.execution.tasks import Task, Work, check_room, in_ledger, killed
from invgp.ledger import FinishedRuns, LedgerAddress, Recorder
from invgp.lost_interrupts import resend_lost_interrupts
from invgp.problem import Floats

HOPELESS = 5  # rows of a task: if the first all kill their workers, so will the rest
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 1.0  # s, between looks at what another process makes


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
    """Run the model at each row of `values`, (B, I); a row that is there twice is run once.

    The batch is cut into tasks of `model.rows_per_task` rows whatever the pool, so that the outputs are the same to the
    bit. In each of its workers BLAS and OpenMP are held to one thread. A run that kills every worker that takes it
    has failed, with the status "killed".

    Parameters
    ----------
    pool : where runs are made; by default a plain loop in this process.
    retries : how often a run that failed is tried again before it counts as failed.
    recorder : answers the runs that it knows, and gets the others as soon as they finish. The rows of a task are
        recorded together, so that a batch that is taken up again has the tasks that it had. A run that another process
        makes at this time is not made: it is waited for, as long as that process lives.
    watch : called with each part, in order. If it raises `BatchStopped`, no further run is started, and those that
        have started are finished and recorded. Any other exception also ends the runs that have started.
    concurrency : is told how long runs took, and how long there were any.
    """
    if not len(values):
        return model.evaluate(values, context)
    monitor, concurrency = monitor or Silent(), concurrency or Concurrency()
    # A worker may be in another directory, and a program may put a link in the place of this one.
    context = replace(context, directory=context.directory.resolve())
    once = _once(values)
    run = _Run(model, pool or Loop(), retries, recorder, concurrency, monitor, Event())
    parts = []
    with (
        resend_lost_interrupts(),
        closing(run.parts(values[once.first], some_of(context, once.first))) as several,
    ):
        for part, made in once.repeat(several):
            succeeded = int(part.ok.sum())
            monitor.ran(succeeded, len(part.status) - succeeded, answered=len(part.status) - made)
            if watch is not None:
                try:
                    watch(part)
                except BatchStopped:
                    run.stop.set()
                    for _ in several:
                        pass
                    raise
            parts.append(part)
    if recorder is not None:
        recorder.sync()
    return Evaluations.concatenate(parts)


class _Once(NamedTuple):
    """The different ones among B rows: `first` (U,) is where each comes first, `which` (B,) names one for each row."""

    first: NDArray[np.intp]
    which: NDArray[np.intp]

    def repeat(self, parts: Iterable[tuple[Evaluations, int]]) -> Iterator[tuple[Evaluations, int]]:
        """The outcome of all rows, in order, from that of the different ones, in order."""
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
            # A row is known if it is one of those, and so is each row before the first that is not.
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


def _once(values: Floats) -> _Once:
    numbers: dict[bytes, int] = {}
    which = np.asarray([numbers.setdefault(row.tobytes(), len(numbers)) for row in values], dtype=np.intp)
    return _Once(np.unique(which, return_index=True)[1], which)


class _Piece(NamedTuple):
    """What became of some rows of a task.

    Attributes
    ----------
    task : its number in the batch.
    rows : their numbers in the batch.
    made : whether they were run, and not answered by the ledger.
    """

    task: int
    rows: NDArray[np.intp]
    outcome: Evaluations
    made: bool


class _Run(NamedTuple):
    """How rows are run that are all different."""

    model: ForwardModel
    pool: Pool
    retries: int
    recorder: Recorder | None
    concurrency: Concurrency
    monitor: Monitor
    stop: Event

    def parts(self, values: Floats, context: RunContext) -> Generator[tuple[Evaluations, int], None, None]:
        """The outcome of each task, in order, and how many of its rows were run, and not answered by the ledger."""
        step = self.model.rows_per_task
        tasks = [np.arange(a, min(a + step, len(values))) for a in range(0, len(values), step)]
        pieces: list[list[_Piece]] = [[] for _ in tasks]
        following = 0
        with closing(self._pieces(tasks, values, context)) as arriving:
            for piece in arriving:
                pieces[piece.task].append(piece)
                while following < len(tasks) and _size(pieces[following]) == tasks[following].size:
                    whole, pieces[following] = pieces[following], []
                    following += 1
                    made = _size([piece for piece in whole if piece.made])
                    if self.recorder is not None:
                        self.recorder.reused += _size(whole) - made
                    yield _joined(whole), made

    def _pieces(
        self, tasks: list[NDArray[np.intp]], values: Floats, context: RunContext
    ) -> Generator[_Piece, None, None]:
        """The rows of all tasks, as soon as what became of them is known: answered, run, or waited for."""
        wanted = list(enumerate(tasks))
        if self.recorder is None:
            yield from self._made(wanted, values, context)
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
                        yield _Piece(number, rows[found], picked(claimed.outcome, here[found]), made=False)
                    if mine.any():
                        ours.append((number, rows[mine]))
                    if not (found | mine).all():
                        theirs.append((number, rows[~(found | mine)]))
                yield from self._made(ours, values, context)
                self.recorder.release()  # to wait with a claim would have others wait for us
                if theirs and not self.stop.is_set():
                    maker = next(filter(None, claimed.owners))
                    self.monitor.waiting(sum(rows.size for _, rows in theirs), maker)
                    pause = SHORTEST_PAUSE if ours or claimed.found.any() else min(2 * pause, LONGEST_PAUSE)
                    time.sleep(pause)
                wanted = theirs
        finally:
            with suppress(LedgerError):  # what led here is what counts; claims also end with the process
                self.recorder.release()

    def _made(
        self, wanted: list[tuple[int, NDArray[np.intp]]], values: Floats, context: RunContext
    ) -> Generator[_Piece, None, None]:
        """Run rows, and record what came of them as soon as it is there, whatever the order."""
        tasks = [Task(values[rows], some_of(context, rows)) for _, rows in wanted]
        with closing(self._finished(tasks)) as results, self.concurrency.under_way():
            for i, finished in results:
                task = tasks[i]
                self.concurrency.busy += finished.seconds * len(task.rows)
                if self.recorder is not None and not finished.recorded:
                    check_room(finished.outcome, task.context.directory, self.recorder.ledger.path)
                    self.recorder.record(*task, finished)
                yield _Piece(*wanted[i], finished.outcome, made=True)

    def _finished(self, tasks: list[Task]) -> Generator[tuple[int, FinishedRuns], None, None]:
        """The number of each task and what came of it, as they finish."""
        if not tasks:
            return
        died: dict[int, Died] = {}
        with closing(self._ran(tasks, record=True)) as results:
            for number, result in results:
                if isinstance(result, Died):
                    died[number] = result
                else:
                    yield number, result
        for number, death in died.items():
            if self.stop.is_set():
                return
            task = tasks[number]
            found = None if self.recorder is None else in_ledger(self.recorder, task)
            if found is None:
                found = killed(self.model, task, death) if len(task.rows) == 1 else self._row_by_row(task)
            yield number, found

    def _row_by_row(self, task: Task) -> FinishedRuns:
        """A task that kills its workers, to find out which row does."""
        rows: dict[int, FinishedRuns] = {}
        deaths = 0
        # Recorded together, as any task: taken up again, it must be the task that it was.
        with closing(self._ran([task.row(i) for i in range(len(task.rows))], record=False)) as results:
            for i, result in results:
                deaths += isinstance(result, Died)
                if deaths == len(rows) + 1 >= HOPELESS:
                    raise RunsFailedError(
                        f"a worker process died whenever it ran {self.model.name!r}; workers = 1 runs it in this "
                        "process, where a debugger can see it"
                    )
                rows[i] = killed(self.model, task.row(i), result) if isinstance(result, Died) else result
        parts = [rows[i] for i in range(len(task.rows))]
        return FinishedRuns(
            Evaluations.concatenate(part.outcome for part in parts),
            np.concatenate([part.attempts for part in parts]),
            sum(part.seconds for part in parts) / len(parts),
            next((part.worker for part in parts if part.worker), ""),
        )

    def _ran(self, tasks: list[Task], *, record: bool) -> Generator[tuple[int, FinishedRuns | Died], None, None]:
        itself = record and self.pool.separate and self.recorder is not None
        address = LedgerAddress.from_recorder(self.recorder) if itself and self.recorder is not None else None
        return self.pool.run(Work(self.model, self.retries, address), tasks, tasks[0].context.directory, self.stop)


def _size(pieces: list[_Piece]) -> int:
    return sum(piece.rows.size for piece in pieces)


def _joined(pieces: list[_Piece]) -> Evaluations:
    """The rows of one task, in order."""
    if len(pieces) == 1:
        return pieces[0].outcome
    together = Evaluations.concatenate(piece.outcome for piece in pieces)
    return picked(together, np.argsort(np.concatenate([piece.rows for piece in pieces])))
