"""The workers of a Dask scheduler, used through the client of distributed.

joblib's Dask backend is not suitable: if an item kills every worker that takes it, `joblib.Parallel` waits for ever,
whereas a Dask future raises `KilledWorker`.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from invgp.errors import ConfigError, InvgpError, RunsFailedError
from invgp.execution.pools.dask_worker import allow_runs_again, run_item
from invgp.execution.pools.pool import NEVER, R, T, WorkerDeath
from invgp.execution.run_directories import end_programs, mark_stopped, stop_runs

RESPONSE_TIME = 10.0  # s, for the first response of a scheduler, and for the transfer of a result
CLUSTER_POLL = 1.0  # s, between two checks of the scheduler and the workers
ITEMS_PER_THREAD = 2  # one that runs and one that waits, so that a worker is never idle


class Cluster:
    """All threads of the workers of a running Dask scheduler.

    Parameters
    ----------
    scheduler : str
        Address such as ``tcp://10.0.0.1:8786``, or a scheduler file, whose name ends in ``.json``.
    patience : float
        Time limit in seconds without any worker.

    Raises
    ------
    ConfigError
        Dask is not installed, or there is no such scheduler.
    """

    records_runs = True

    def __init__(self, scheduler: str, patience: float) -> None:
        try:
            from distributed import Client  # noqa: PLC0415 - an extra, and slow to import
            from distributed.comm.addressing import resolve_address  # noqa: PLC0415 - as above
        except ImportError as error:
            raise ConfigError(
                f"inference.backend: 'dask' needs {error.name}, which is not installed: pip install 'invgp[dask]'"
            ) from error
        self.scheduler, self.patience = scheduler, patience
        self.client: Any
        self._directories: set[Path] = set()
        self._stopped: set[Path] = set()
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # our errors say the same
        try:
            address = _read_address(scheduler)
            resolve_address(address)  # with an invalid address, a client takes 20 s to end, with a traceback
            self.client = Client(address, timeout=RESPONSE_TIME, set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError, TypeError, ImportError, FutureWarning) as error:  # tls and ucx may need a library
            raise ConfigError(
                f"inference.scheduler: must be the address or file of a running Dask scheduler, was {scheduler!r}: "
                f"{getattr(error, 'strerror', None) or _first_line(error)}"
            ) from error

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: Event = NEVER
    ) -> Generator[tuple[int, R | WorkerDeath], None, None]:
        """Yield the number and the result of each item, as they finish."""
        batch = _Batch(self, work, items, directory, stop)
        suspects: list[int] = []
        self._directories.add(directory)
        complete = False
        if directory in self._stopped:
            with suppress(Exception):  # workers may have ended
                self.client.run(allow_runs_again, directory, on_error="ignore")
                self._stopped.discard(directory)
        try:
            for number, result in batch.results(range(len(items)), together=True):
                if isinstance(result, WorkerDeath):
                    suspects.append(number)
                else:
                    yield number, result
            # Dask blames all items that a dead worker had. Each of them is tried alone.
            for suspect in suspects:
                yield from batch.results([suspect], together=False)
            complete = True
        finally:
            if not complete and self.client.status == "running":
                self._stopped |= self._directories
                with suppress(Exception):  # the first error is the important one
                    self.client.cancel(list(batch.running), force=True)
                with mark_stopped(directory):  # a worker may end the programs of another one before that is informed
                    self._run_everywhere(stop_runs)

    @property
    def threads(self) -> int:
        """Number of threads of all present workers."""
        return sum(self.client.nthreads().values())

    def _run_everywhere(self, end: Callable[[Path], None]) -> None:
        """Call a function with each directory in every worker, and so on every machine."""
        for directory in self._directories if self.client.status == "running" else ():
            with suppress(Exception):
                self.client.run(end, directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run_everywhere(end_programs)  # persistent programs
        with suppress(Exception):
            self.client.close(timeout=CLUSTER_POLL)


class _Batch:
    """The items of one batch, and the futures of the submitted ones."""

    def __init__(
        self, cluster: Cluster, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: Event
    ) -> None:
        self.cluster, self.items, self.directory, self.stop = cluster, items, directory, stop
        self.running: dict[Any, int] = {}
        self._work = work
        self._name = f"invgp-{uuid4().hex}"
        self._submitted = 0
        self._done: SimpleQueue[Any] = SimpleQueue()
        self._last_worker, self._last_check, self._threads = time.monotonic(), 0.0, 0

    def results(self, numbers: Sequence[int], *, together: bool) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of some of the items, in any order."""
        waiting = deque(numbers)
        while waiting or self.running:
            self._check_cluster()
            if self.stop.is_set():
                waiting.clear()
            while waiting and len(self.running) < (max(ITEMS_PER_THREAD * self._threads, 1) if together else 1):
                self._submit(waiting.popleft())
            try:
                future = self._done.get(timeout=CLUSTER_POLL)
                result = self._result(future)
            except Empty:
                continue
            except TimeoutError:  # the worker died with the result: Dask repeats the item
                future.add_done_callback(self._done.put)
                continue
            yield self.running.pop(future), result

    def _submit(self, number: int) -> None:
        from cloudpickle import dumps  # noqa: PLC0415 - it comes with Dask

        self._submitted += 1
        key = f"{self._name}-{self._submitted}"
        # Pickled here: otherwise the scheduler would load the simulator, which could kill it.
        payload = dumps((self._work, self.items[number]))
        future = self.cluster.client.submit(run_item, payload, str(self.directory), key=key, pure=False)
        self.running[future] = number
        future.add_done_callback(self._done.put)

    def _result(self, future: Any) -> Any:
        from distributed.scheduler import KilledWorker  # noqa: PLC0415

        try:
            return future.result(timeout=RESPONSE_TIME)
        except KilledWorker as error:
            return WorkerDeath(error.allowed_failures + 1)
        except (InvgpError, TimeoutError):
            raise
        except Exception as error:
            self._check_scheduler()
            raise RunsFailedError(
                f"a Dask worker could not do its work ({_describe_error(error)}); workers need the Python, the "
                "packages and the files of this process"
            ) from error

    def _check_cluster(self) -> None:
        """Count the threads of the workers, from time to time; raise an error if there are none for too long."""
        now = time.monotonic()
        if now - self._last_check < CLUSTER_POLL:
            return
        self._check_scheduler()
        try:
            self._last_check, self._threads = now, self.cluster.threads
        except OSError as error:
            raise self._scheduler_error() from error
        self._last_worker = now if self._threads else self._last_worker
        if now - self._last_worker > self.cluster.patience:
            raise RunsFailedError(
                f"the Dask scheduler {self.cluster.scheduler!r} has had no worker for inference.worker_timeout = "
                f"{self.cluster.patience:g} s"
            )

    def _check_scheduler(self) -> None:
        if self.cluster.client.status != "running":
            raise self._scheduler_error()

    def _scheduler_error(self) -> RunsFailedError:
        return RunsFailedError(f"the Dask scheduler {self.cluster.scheduler!r} has gone")


def _read_address(scheduler: str) -> str:
    """Return the address of a scheduler. Its file may not have been written yet, but Dask would wait for ever."""
    if not scheduler.endswith(".json"):
        return scheduler
    deadline = time.monotonic() + RESPONSE_TIME
    while not Path(scheduler).exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        return str(json.loads(Path(scheduler).read_text())["address"])
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError("the file is no JSON object with 'address'") from error


def _describe_error(error: BaseException) -> str:
    line = _first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
