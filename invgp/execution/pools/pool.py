"""The protocol of pools, and those in this process: a loop, and threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

from threadpoolctl import threadpool_limits

from invgp.execution.run_directories import allow_runs, stop_runs
from invgp.operating_system import reserve_open_files

T = TypeVar("T")
R = TypeVar("R")

THREADS_PER_WORKER = 1
MOST_DEATHS = 2
"""Number of workers that may die with an item, after which the item is considered the cause."""


NEVER = Event()
"""An event that is not set."""


class WorkerDeath(NamedTuple):
    """The result of an item that kills its workers.

    Attributes
    ----------
    times : int
        Number of workers that died.
    """

    times: int


class Pool(Protocol):
    """Workers that process items; a context manager that ends them.

    Attributes
    ----------
    records_runs : bool
        Whether a worker can finish a run whose result is then lost, so that it must record the run itself.
    """

    records_runs: bool

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: Event = NEVER
    ) -> Generator[tuple[int, R | WorkerDeath], None, None]:
        """Yield the number of each item and the result of `work`, in the order in which the items finish.

        If a worker dies, another worker takes its item. If the generator is closed before its end, the programs whose
        run directory is below `directory` are killed.

        Parameters
        ----------
        work : callable
            Function of one item.
        items : sequence
        directory : Path
            Parent of the run directories.
        stop : threading.Event, optional
            When it is set, no further item is started; the results of the items that have started are still yielded.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Loop:
    """Processes one item after the other in this process, which is easy to debug."""

    records_runs = False

    def run(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        directory: Path,  # noqa: ARG002 - nothing runs in parallel
        stop: Event = NEVER,
    ) -> Generator[tuple[int, R | WorkerDeath], None, None]:
        """Yield the number and the result of each item, in order."""
        # As in a worker: the rounding errors of BLAS depend on the number of threads, and results must not depend on
        # the pool. The limit is set once for all items, because it takes longer than the start of a program.
        with threadpool_limits(THREADS_PER_WORKER):
            for number, item in enumerate(items):
                if stop.is_set():
                    return
                yield number, work(item)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""


class Threads(Loop):
    """Worker threads, started when they are needed and kept for the next batch.

    An item that kills its worker kills this process.

    Parameters
    ----------
    workers : int
        Number of threads.
    """

    records_runs = True

    def __init__(self, workers: int) -> None:
        reserve_open_files(workers)
        self.workers = workers
        self._threads: ThreadPool | None = None
        self._stopped: ThreadPool | None = None

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: Event = NEVER
    ) -> Generator[tuple[int, R | WorkerDeath], None, None]:
        """Yield the number and the result of each item, as they finish."""
        complete = False
        if self._stopped is not None:  # its threads must not record a killed run as a failed one
            self._stopped.join()
            self._stopped = None
        allow_runs(directory)
        threads = self._threads = self._threads or ThreadPool(self.workers)
        try:
            with threadpool_limits(THREADS_PER_WORKER):
                for done in threads.imap_unordered(partial(_run_item, work, stop), enumerate(items)):
                    if done is not None:
                        yield done
            complete = True
        finally:
            if not complete:  # a thread cannot be stopped, but the program that it waits for can
                self._threads, self._stopped = None, threads
                stop_runs(directory)
                threads.terminate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the threads; each closes its connection to the ledger."""
        if self._threads is not None:
            self._threads.terminate()
            self._threads.join()
            self._threads = None


def _run_item(work: Callable[[T], R], stop: Event, item: tuple[int, T]) -> tuple[int, R] | None:
    return None if stop.is_set() else (item[0], work(item[1]))
