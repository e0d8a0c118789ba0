"""Worker threads in this process, for simulators that are programs or servers, or that release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Event
from types import TracebackType

from threadpoolctl import threadpool_limits

from invgp.execution.pools.pool import NEVER, THREADS_PER_WORKER, Loop, R, T, WorkerDeath
from invgp.execution.run_directories import allow_runs, stop_runs
from invgp.operating_system import reserve_open_files


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
