"""Processes of this machine, by loky.

Each worker is a pool of one. If it dies, it dies alone: the others go on, and which item it had is known. A
`joblib.Parallel` would lose the whole batch, and not know why.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool

from invgp.execution.pools.base import CHANCES, NEVER, THREADS_PER_WORKER, Died, R, T
from invgp.execution.stray_programs import end_programs, stopped
from invgp.open_files import reserve_open_files

CAPS = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
    str(THREADS_PER_WORKER),
)


INTERRUPTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
SECONDS_TO_TAKE = 2e-4  # of loky, for a piece of work
SECONDS_BETWEEN_LOOKS = 0.5  # of a worker, at whether its parent is there


class Processes:
    """Worker processes, started when they are first needed, and kept from batch to batch."""

    separate = True

    def __init__(self, workers: int) -> None:
        reserve_open_files(workers)
        self.workers = workers
        self._idle: list[ProcessPoolExecutor] = []

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: threading.Event = NEVER
    ) -> Generator[tuple[int, R | Died], None, None]:
        """Give each item's number and what became of it, as they finish."""
        waiting, deaths = deque(range(len(items))), Counter[int]()
        running: dict[Future[R], tuple[int, ProcessPoolExecutor]] = {}
        engaged: set[ProcessPoolExecutor] = set()
        finished: deque[tuple[int, R | Died]] = deque()
        try:
            while (waiting and not stop.is_set()) or running or finished:
                while waiting and not stop.is_set() and len(running) < self.workers:
                    worker = self._idle.pop() if self._idle else new_worker()
                    engaged.add(worker)  # before it gets its work: Ctrl-C may come in between
                    try:
                        future = submit_undisturbed(worker, work, items[waiting[0]])
                    except BrokenProcessPool:  # it died while it had nothing to do
                        engaged.discard(worker)
                    else:
                        running[future] = waiting.popleft(), worker
                if finished:  # only now that every worker has something to do
                    yield finished.popleft()
                    continue
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number, worker = running.pop(future)
                    engaged.discard(worker)
                    try:
                        finished.append((number, future.result()))
                        self._idle.append(worker)
                    except BrokenProcessPool:
                        deaths[number] += 1
                        if deaths[number] < CHANCES:
                            waiting.append(number)
                        else:
                            finished.append((number, Died(deaths[number])))
        finally:
            # Interrupted, or failed: what still runs is wanted no more. Nor is what a dead worker left, which may hang.
            if running or (waiting and not stop.is_set()) or deaths:
                with stopped(directory):
                    for worker in engaged:
                        worker.shutdown(kill_workers=True)  # and wait: it must not start another program
                    end_programs(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._idle:
            worker.shutdown(kill_workers=kind is not None)
        self._idle.clear()


def new_worker(initializer: Callable[..., None] | None = None, *arguments: object) -> ProcessPoolExecutor:
    """Make a pool of one process, which begins by `initializer`, called with the parent's id and `arguments`."""
    # The trackers of Python and of loky, which start here, ignore Ctrl-C, but not the end of a terminal. They inherit
    # that it is held back: if they end, loky prints a traceback per semaphore.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        resource_tracker.ensure_running()  # loky would do so later, when it must not: it lets go of signals held back
        initargs = os.getpid(), *arguments
        return ProcessPoolExecutor(1, env=CAPS, initializer=initializer or begin_worker, initargs=initargs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def submit_undisturbed(worker: ProcessPoolExecutor, work: Callable[[T], R], item: T) -> Future[R]:
    """Give a worker one item, while Ctrl-C and its like are held back."""
    # The first item starts the process, and so may any, since loky replaces one that has grown too large.
    with _undisturbed():
        future: Future[R] = worker.submit(work, item)
        while not (future.running() or future.done()):  # loky trips over work that is not yet taken when it must end
            time.sleep(SECONDS_TO_TAKE)
    return future


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold Ctrl-C and its like back. A process that starts within never hears it; here it comes when the block ends.

    Ctrl-C goes to the whole process group. Between its start and its first line of ours, a worker would answer it with
    a traceback. The mask is for the worker, which inherits it; the handlers are for us, since a signal that this thread
    does not take another one may, and Python answers it here all the same.
    """
    heard: list[int] = []
    before: Any = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    answers = {number: signal.getsignal(number) for number in INTERRUPTS} if _in_main_thread() else {}
    answers = {number: answer for number, answer in answers.items() if callable(answer)}
    try:
        for number in answers:
            signal.signal(number, lambda number, _: heard.append(number))
        yield
    finally:
        for number, answer in answers.items():
            signal.signal(number, answer)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for one in heard:
            signal.raise_signal(one)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def begin_worker(parent: int) -> None:
    """Start of a worker process; what Ctrl-C means is the parent's to say."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def _end_without(parent: int) -> None:
    """End if the parent was killed: nobody wants what is under way, and whoever starts again would make it twice.

    Programs of ours end with us.
    """
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)
