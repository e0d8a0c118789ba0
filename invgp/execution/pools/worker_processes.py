"""Worker processes on this machine, with loky.

Each worker is an executor with one process. If a worker dies, the others continue, and its item is known. With
`joblib.Parallel`, the whole batch would be lost.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Self

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool

from invgp.execution.pools.pool import MOST_DEATHS, NEVER, THREADS_PER_WORKER, R, T, WorkerDeath
from invgp.execution.run_directories import end_programs, mark_stopped
from invgp.operating_system import reserve_open_files

THREAD_LIMITS = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
    str(THREADS_PER_WORKER),
)


INTERRUPTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
SUBMISSION_POLL = 2e-4  # s, until loky has accepted an item
PARENT_POLL = 0.5  # s, between two checks of a worker that its parent is alive


class Processes:
    """Worker processes, started when they are needed and kept for the next batch.

    Parameters
    ----------
    workers : int
        Largest number of processes.
    """

    records_runs = True

    def __init__(self, workers: int) -> None:
        reserve_open_files(workers)
        self.workers = workers
        self._idle: list[ProcessPoolExecutor] = []

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: threading.Event = NEVER
    ) -> Generator[tuple[int, R | WorkerDeath], None, None]:
        """Yield the number and the result of each item, as they finish."""
        waiting, deaths = deque(range(len(items))), Counter[int]()
        running: dict[Future[R], tuple[int, ProcessPoolExecutor]] = {}
        done: SimpleQueue[Future[R]] = SimpleQueue()
        engaged: set[ProcessPoolExecutor] = set()
        finished: deque[tuple[int, R | WorkerDeath]] = deque()
        try:
            while (waiting and not stop.is_set()) or running or finished:
                while waiting and not stop.is_set() and len(running) < self.workers:
                    worker = self._idle.pop() if self._idle else start_worker()
                    engaged.add(worker)  # before it gets its item: Ctrl-C may arrive in between
                    try:
                        future = submit_uninterrupted(worker, work, items[waiting[0]], done)
                    except BrokenProcessPool:  # it died while it was idle
                        engaged.discard(worker)
                    else:
                        running[future] = waiting.popleft(), worker
                if finished:  # after every worker has received an item
                    yield finished.popleft()
                    continue
                # `concurrent.futures.wait` locks the futures. If Ctrl-C arrived then, loky would wait for ever.
                future = done.get()
                number, worker = running.pop(future)
                engaged.discard(worker)
                try:
                    finished.append((number, future.result()))
                    self._idle.append(worker)
                except BrokenProcessPool:
                    deaths[number] += 1
                    if deaths[number] < MOST_DEATHS:
                        waiting.append(number)
                    else:
                        finished.append((number, WorkerDeath(deaths[number])))
        finally:
            # After an interruption or an error, the runs are not needed. The programs of a dead worker may hang.
            if running or (waiting and not stop.is_set()) or deaths:
                with mark_stopped(directory):
                    for worker in engaged:
                        worker.shutdown(kill_workers=True)  # waits, so that it cannot start another program
                    end_programs(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._idle:
            worker.shutdown(kill_workers=kind is not None)
        self._idle.clear()


def start_worker(initializer: Callable[..., None] | None = None, *arguments: object) -> ProcessPoolExecutor:
    """Return an executor with one process.

    Parameters
    ----------
    initializer : callable, optional
        Called first in the process, with the id of this process and `arguments`; by default `initialise_worker`.
    """
    # The resource trackers of Python and of loky, which start here, ignore Ctrl-C but not SIGHUP. They inherit the
    # blocked signal: if they ended, loky would print a traceback per semaphore.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        resource_tracker.ensure_running()  # later, loky would unblock the signals
        initargs = os.getpid(), *arguments
        return ProcessPoolExecutor(
            1, env=THREAD_LIMITS, initializer=initializer or initialise_worker, initargs=initargs
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def submit_uninterrupted(
    worker: ProcessPoolExecutor, work: Callable[[T], R], item: T, done: SimpleQueue[Future[R]] | None = None
) -> Future[R]:
    """Submit one item to a worker while interrupting signals are blocked.

    Parameters
    ----------
    worker : ProcessPoolExecutor
    work : callable
        Function of one item.
    item : object
    done : SimpleQueue, optional
        Receives the future as soon as it is done.
    """
    # The first item starts the process. Any item may, because loky replaces a process that uses too much memory.
    with _block_interrupts():
        future: Future[R] = worker.submit(work, item)
        while not (future.running() or future.done()):  # loky cannot shut down with an item that is not accepted yet
            time.sleep(SUBMISSION_POLL)
        if done is not None:
            future.add_done_callback(done.put)
    return future


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Delay interrupting signals until the end of the block. A process that is started within never receives them.

    Ctrl-C goes to the whole process group. A worker that is just starting would print a traceback. The signal mask is
    for the worker, which inherits it. The handlers are for this process: another thread may receive a signal that is
    blocked in this thread, and Python executes the handler in the main thread all the same.
    """
    received: list[int] = []
    inside = True

    def handle(number: int, frame: FrameType | None) -> None:
        if inside:
            received.append(number)
        else:  # it has not been replaced by the earlier handler yet
            handlers[signal.Signals(number)](number, frame)

    before: Any = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    found: dict[signal.Signals, Any] = (
        {number: signal.getsignal(number) for number in INTERRUPTS} if _in_main_thread() else {}
    )
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, handle)
        yield
    finally:
        inside = False
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for one in received:
                signal.raise_signal(one)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def initialise_worker(parent: int) -> None:
    """Initialise a worker process. It ignores Ctrl-C, which its parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    threading.Thread(target=_exit_without_parent, args=(parent,), daemon=True).start()


def _exit_without_parent(parent: int) -> None:
    """Exit if the parent was killed: a resumed inversion would repeat the runs. The programs of the worker end, too."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL)
    os._exit(1)
