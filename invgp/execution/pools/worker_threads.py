"""Threads of this process: for simulators that are programs or servers, or that let go of Python's lock."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path

from threadpoolctl import threadpool_limits

from invgp.execution.pools.base import THREADS_PER_WORKER, Died, Loop, R, T
from invgp.execution.stray_programs import allow_runs, stop_runs
from invgp.open_files import reserve_open_files


class Threads(Loop):
    """As many threads; nothing to start or to end between two batches.

    An item that kills its worker kills this process: there is nobody to take over.
    """

    separate = True  # what a thread has finished is not lost with the one that waits for it

    def __init__(self, workers: int) -> None:
        reserve_open_files(workers)
        self.workers = workers

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path
    ) -> Generator[tuple[int, R | Died], None, None]:
        """Give each item's number and what became of it, as they finish."""
        whole = False
        allow_runs(directory)
        threads = ThreadPool(self.workers)
        try:
            with threadpool_limits(THREADS_PER_WORKER):
                yield from threads.imap_unordered(partial(_numbered, work), enumerate(items))
            whole = True
        finally:
            if not whole:  # a thread cannot be stopped, but what it waits for can
                stop_runs(directory)
            threads.terminate()


def _numbered(work: Callable[[T], R], item: tuple[int, T]) -> tuple[int, R]:
    return item[0], work(item[1])
