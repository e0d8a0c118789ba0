"""What a Dask worker does with an item; it lives on when whoever wants the item is killed."""

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

from invgp.execution.pools.base import THREADS_PER_WORKER
from invgp.execution.stray_programs import abandon_runs, allow_runs

LOOK_EVERY = 1.0  # s, at whether somebody still wants the item
SECONDS_TO_STOP = 10.0  # for runs whose programs were killed
SECONDS_BETWEEN_LOOKS = 0.02  # at whether they have stopped

_active: Counter[Path] = Counter()  # items that this worker works on, by their directory
_active_lock = threading.Lock()


def in_worker(payload: bytes, directory: str) -> Any:
    """Do a pickled piece of work on an item, as long as it is wanted; its runs are in `directory`."""
    work, item = pickle.loads(payload)  # noqa: S301 - what the pool made
    _cap_threads()
    with _counted(Path(directory)), _stopped_if_unwanted(Path(directory)):
        return work(item)


async def allow_runs_again(directory: Path) -> None:
    """Allow runs in `directory` after a batch was stopped, when the runs of that batch are over.

    Otherwise a run whose program was killed could be recorded as one that failed. A Python function cannot be stopped,
    but what it gives is an outcome, so the wait for it is limited.
    """
    deadline = time.monotonic() + SECONDS_TO_STOP
    while _active[directory] and time.monotonic() < deadline:
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
    allow_runs(directory)


@contextmanager
def _counted(directory: Path) -> Iterator[None]:
    with _active_lock:
        _active[directory] += 1
    try:
        yield
    finally:
        with _active_lock:
            _active[directory] -= 1


@cache
def _cap_threads() -> None:
    """Once and for all, as Dask's nannies do: threads of one worker could not lift it again one by one."""
    threadpool_limits(THREADS_PER_WORKER)


@contextmanager
def _stopped_if_unwanted(directory: Path) -> Iterator[None]:
    """Meanwhile, see whether the scheduler has forgotten the item, as it does when the client is gone."""
    from distributed.worker import get_worker  # noqa: PLC0415 - an extra, and slow to import

    worker, done = get_worker(), threading.Event()
    key = str(worker.get_current_task())

    def look() -> None:
        while not done.wait(LOOK_EVERY):
            if _is_forgotten(worker, key):
                abandon_runs(directory)
                return

    threading.Thread(target=look, daemon=True).start()
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
    except (OSError, TimeoutError, RuntimeError):  # the scheduler is gone, or we are about to be
        return False
    return known[key] is None
