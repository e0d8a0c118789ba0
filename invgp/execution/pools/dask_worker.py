"""What a Dask worker does with an item; it lives on when whoever wants the item is killed."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from invgp.execution.pools.base import THREADS_PER_WORKER
from invgp.execution.stray_programs import abandon_runs

LOOK_EVERY = 1.0  # s, at whether somebody still wants the item


def in_worker(payload: bytes, directory: str) -> Any:
    """Do a pickled piece of work on an item, as long as it is wanted; its runs are in `directory`."""
    work, item = pickle.loads(payload)  # noqa: S301 - what the pool made
    _cap_threads()
    with _stopped_if_unwanted(Path(directory)):
        return work(item)


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
