"""The functions that Dask workers execute. A worker continues if the process that submitted the items is killed."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from invgp.execution.pools.pool import THREADS_PER_WORKER
from invgp.execution.run_directories import abandon_runs, allow_runs

CLIENT_POLL = 1.0  # s, between two checks that an item is still needed
SECONDS_TO_STOP = 10.0  # for runs whose programs were killed
STOP_POLL = 0.02  # s, between two checks that they have stopped

_active: Counter[Path] = Counter()  # number of items that this worker processes, by their directory
_active_lock = threading.Lock()


def run_item(payload: bytes, directory: str) -> Any:
    """Process an item. Its runs are stopped when the scheduler has forgotten the item.

    Parameters
    ----------
    payload : bytes
        Pickled pair of the function and the item.
    directory : str
        Parent of the run directories.
    """
    work, item = pickle.loads(payload)  # noqa: S301 - made by the pool
    _limit_threads()
    with _count_active(Path(directory)), _stop_if_forgotten(Path(directory)):
        return work(item)


async def allow_runs_again(directory: Path) -> None:
    """Allow runs in `directory` after a batch was stopped, when the runs of that batch have ended.

    Otherwise a run whose program was killed could be recorded as a failed run. A Python function cannot be stopped, but
    its result is valid, so the wait for it is limited.
    """
    deadline = time.monotonic() + SECONDS_TO_STOP
    while _active[directory] and time.monotonic() < deadline:
        await asyncio.sleep(STOP_POLL)
    allow_runs(directory)


@contextmanager
def _count_active(directory: Path) -> Iterator[None]:
    with _active_lock:
        _active[directory] += 1
    try:
        yield
    finally:
        with _active_lock:
            _active[directory] -= 1


@cache
def _limit_threads() -> None:
    """Limit BLAS to one thread, once for all: the threads of a worker cannot remove the limit independently."""
    threadpool_limits(THREADS_PER_WORKER)


@contextmanager
def _stop_if_forgotten(directory: Path) -> Iterator[None]:
    """Stop the runs in `directory` if the scheduler forgets the item, as it does when the client has ended."""
    from distributed.worker import get_worker  # noqa: PLC0415 - an extra, and slow to import

    worker, done = get_worker(), threading.Event()
    key = str(worker.get_current_task())

    def watch() -> None:
        while not done.wait(CLIENT_POLL):
            if _is_forgotten(worker, key):
                abandon_runs(directory)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _is_forgotten(worker: Any, key: str) -> bool:
    from distributed.utils import sync  # noqa: PLC0415

    task = worker.state.tasks.get(key)
    if task is not None and task.state != "cancelled":
        return False
    try:
        known = sync(worker.loop, worker.scheduler.get_task_status, keys=[key])
    except (OSError, TimeoutError, RuntimeError):  # the scheduler has ended, or the worker is about to end
        return False
    return known[key] is None
