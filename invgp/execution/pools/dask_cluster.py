"""The workers of a Dask scheduler, asked through distributed's own client.

joblib's Dask backend will not do: an item that kills every worker that takes it makes `joblib.Parallel` wait for ever,
where a future of Dask says `KilledWorker`.
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
from invgp.execution.pools.base import NEVER, Died, R, T
from invgp.execution.pools.dask_worker import allow_runs_again, in_worker
from invgp.execution.stray_programs import end_programs, stop_runs, stopped

SECONDS_TO_ANSWER = 10.0  # for a scheduler, when we first call it, and for a worker whose result is there
LOOK_EVERY = 1.0  # s, at whether scheduler and workers are still there
AHEAD = 2  # items given to a thread: one that runs, and one that need not wait for us


class Cluster:
    """The workers of a running Dask scheduler; all their threads are used.

    Parameters
    ----------
    scheduler : its address such as ``tcp://10.0.0.1:8786``, or its scheduler file, which ends in .json.
    patience : seconds that there may be no worker at all.

    Raises
    ------
    ConfigError
        Dask is not installed, or there is no such scheduler.
    """

    separate = True

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
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what it would say is told by our errors
        try:
            address = _address(scheduler)
            resolve_address(address)  # a client that gets one that is none takes 20 s to end, with a traceback
            self.client = Client(address, timeout=SECONDS_TO_ANSWER, set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError, TypeError, ImportError, FutureWarning) as error:  # tls, ucx may want a library
            raise ConfigError(
                f"inference.scheduler: must be the address or file of a Dask scheduler that runs, was {scheduler!r}: "
                f"{getattr(error, 'strerror', None) or _first_line(error)}"
            ) from error

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: Event = NEVER
    ) -> Generator[tuple[int, R | Died], None, None]:
        """Give each item's number and what became of it, as they finish."""
        batch = _Batch(self, work, items, directory, stop)
        suspects: list[int] = []
        self._directories.add(directory)
        whole = False
        if directory in self._stopped:
            with suppress(Exception):  # workers that have gone
                self.client.run(allow_runs_again, directory, on_error="ignore")
                self._stopped.discard(directory)
        try:
            for number, result in batch.results(range(len(items)), together=True):
                if isinstance(result, Died):
                    suspects.append(number)
                else:
                    yield number, result
            # Dask suspects all that a dead worker held. Alone, it is known who did it.
            for suspect in suspects:
                yield from batch.results([suspect], together=False)
            whole = True
        finally:
            if not whole and self.client.status == "running":
                self._stopped |= self._directories
                with suppress(Exception):  # what led here is what counts
                    self.client.cancel(list(batch.running), force=True)
                with stopped(directory):  # one may end the programs of another before that hears of it
                    self._everywhere(stop_runs)

    @property
    def threads(self) -> int:
        """Of all workers that are there now."""
        return sum(self.client.nthreads().values())

    def _everywhere(self, end: Callable[[Path], None]) -> None:
        """In every worker, and so on every machine."""
        for directory in self._directories if self.client.status == "running" else ():
            with suppress(Exception):
                self.client.run(end, directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._everywhere(end_programs)  # those that are kept running from run to run
        with suppress(Exception):
            self.client.close(timeout=LOOK_EVERY)


class _Batch:
    """The items of one batch, and those of them that are with the scheduler."""

    def __init__(
        self, cluster: Cluster, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: Event
    ) -> None:
        self.cluster, self.items, self.directory, self.stop = cluster, items, directory, stop
        self.running: dict[Any, int] = {}
        self._work = work
        self._name = f"invgp-{uuid4().hex}"
        self._submitted = 0
        self._done: SimpleQueue[Any] = SimpleQueue()
        self._seen, self._looked, self._threads = time.monotonic(), 0.0, 0

    def results(self, numbers: Sequence[int], *, together: bool) -> Iterator[tuple[int, Any]]:
        """What became of some of the items, in any order."""
        waiting = deque(numbers)
        while waiting or self.running:
            self._look()
            if self.stop.is_set():
                waiting.clear()
            while waiting and len(self.running) < (max(AHEAD * self._threads, 1) if together else 1):
                self._submit(waiting.popleft())
            try:
                future = self._done.get(timeout=LOOK_EVERY)
                result = self._result(future)
            except Empty:
                continue
            except TimeoutError:  # its worker has died and taken the result with it: Dask does it again
                future.add_done_callback(self._done.put)
                continue
            yield self.running.pop(future), result

    def _submit(self, number: int) -> None:
        from cloudpickle import dumps  # noqa: PLC0415 - it comes with Dask

        self._submitted += 1
        key = f"{self._name}-{self._submitted}"
        # Pickled by us: otherwise the scheduler would load the simulator as well, and die of it if it is a bad one.
        payload = dumps((self._work, self.items[number]))
        future = self.cluster.client.submit(in_worker, payload, str(self.directory), key=key, pure=False)
        self.running[future] = number
        future.add_done_callback(self._done.put)

    def _result(self, future: Any) -> Any:
        from distributed.scheduler import KilledWorker  # noqa: PLC0415

        try:
            return future.result(timeout=SECONDS_TO_ANSWER)
        except KilledWorker as error:
            return Died(error.allowed_failures + 1)
        except (InvgpError, TimeoutError):
            raise
        except Exception as error:
            self._check_scheduler()
            raise RunsFailedError(
                f"a Dask worker could not do its work ({_reason(error)}); workers need the Python, the packages and "
                "the files of this process"
            ) from error

    def _look(self) -> None:
        """Now and then, see who is there; raise if nobody is, for too long."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._check_scheduler()
        try:
            self._looked, self._threads = now, self.cluster.threads
        except OSError as error:
            raise self._gone() from error
        self._seen = now if self._threads else self._seen
        if now - self._seen > self.cluster.patience:
            raise RunsFailedError(
                f"the Dask scheduler {self.cluster.scheduler!r} has had no worker for inference.worker_timeout = "
                f"{self.cluster.patience:g} s"
            )

    def _check_scheduler(self) -> None:
        if self.cluster.client.status != "running":
            raise self._gone()

    def _gone(self) -> RunsFailedError:
        return RunsFailedError(f"the Dask scheduler {self.cluster.scheduler!r} has gone")


def _address(scheduler: str) -> str:
    """Of a scheduler; its file may still be about to be written, but Dask would wait for it for ever."""
    if not scheduler.endswith(".json"):
        return scheduler
    deadline = time.monotonic() + SECONDS_TO_ANSWER
    while not Path(scheduler).exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        return str(json.loads(Path(scheduler).read_text())["address"])
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError("the file is no JSON object with 'address'") from error


def _reason(error: BaseException) -> str:
    line = _first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
