"""A queue of rows for several servers, with one thread per connection, and the times of their requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .protocol import Floats, Status


@dataclass
class QueuedRow:
    """One row of a batch.

    Attributes
    ----------
    row : int
        Number of the row.
    url : str
        Server that makes the run, or made it last.
    broken_off_by : list of str
        Servers that accepted the row and did not answer.
    """

    row: int
    url: str = ""
    broken_off_by: list[str] = field(default_factory=list)


class RowQueue:
    """The rows of a batch that wait, that run, and that are finished.

    Parameters
    ----------
    rows : iterable of int
    urls : iterable of str
        Addresses of the servers.
    alone_first : iterable of str
        Servers that get a second row only after the first one is finished.

    Attributes
    ----------
    outputs : dict of int to array, shape (P,)
        Outputs of the successful rows.
    failures : dict of int to tuple
        Status and message of the failed rows.
    """

    def __init__(self, rows: Iterable[int], urls: Iterable[str], alone_first: Iterable[str] = ()) -> None:
        self.outputs: dict[int, Floats] = {}
        self.failures: dict[int, tuple[Status, str]] = {}
        self._waiting = [QueuedRow(row) for row in rows]
        self._running: list[QueuedRow] = []
        self._urls = set(urls)
        self._alone_first = set(alone_first)
        self._cause: tuple[Status, str] = (Status.NOT_STARTED, "")
        self._changed = threading.Condition()
        self._over = threading.Event()

    def take(self, url: str) -> QueuedRow | None:
        """Wait for a row for a server, and return it; None if there will be none.

        A row that the server has broken off is returned only if all servers have.
        """
        with self._changed:
            while url in self._urls and (self._waiting or self._running):
                is_held = url in self._alone_first and any(task.url == url for task in self._running)
                for task in () if is_held else self._waiting:
                    if url not in task.broken_off_by or self._urls.issubset(task.broken_off_by):
                        self._waiting.remove(task)
                        self._running.append(task)
                        task.url = url
                        return task
                self._changed.wait()
            return None

    def finish(self, task: QueuedRow, outputs: Floats) -> None:
        """Store the outputs of a row."""
        with self._changed:
            self.outputs[task.row] = outputs
            self._remove(task)

    def fail(self, task: QueuedRow, status: Status, message: str) -> None:
        """Store the failure of a row."""
        with self._changed:
            self.failures[task.row] = status, message
            self._remove(task)

    def put_back(self, task: QueuedRow | None) -> None:
        """Put a row at the end of the queue; it fails if there is no server left."""
        with self._changed:
            if task is not None and task in self._running:
                self._waiting.append(task)
                self._remove(task)

    def give_up(self, url: str, message: str) -> None:
        """Give a server no more rows."""
        with self._changed:
            self._cause = Status.NOT_STARTED, message
            self._urls.discard(url)
            self._update()

    def stop(self, status: Status, message: str) -> None:
        """Give no server any more rows."""
        with self._changed:
            self._cause = status, message
            self._urls.clear()
            self._update()

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than there are rows."""
        self._over.wait(seconds)

    def _remove(self, task: QueuedRow) -> None:
        self._alone_first.discard(task.url)
        self._running.remove(task)
        self._update()

    def _update(self) -> None:
        if not self._urls:
            for task in self._waiting:
                self.failures[task.row] = self._cause
            self._waiting.clear()
        if not self._waiting and not self._running:
            self._over.set()
        self._changed.notify_all()


SLOWED = 1.5
"""Requests that take longer than this, relative to one that was alone, wait for each other in the server."""


@dataclass
class _Server:
    """Requests to one server: the number under way and in all, and sums of durations in s with their counts."""

    under_way: int = 0
    started: int = 0
    alone: float = 0.0
    count_alone: int = 0
    beside: float = 0.0
    count_beside: int = 0


class RequestTimes:
    """Durations of the requests to several servers.

    A server may make fewer runs at the same time than it has requests; the others wait. Only a request that was alone
    shows how long a run takes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[str, _Server] = {}

    def __reduce__(self) -> tuple[type[RequestTimes], tuple[()]]:
        return RequestTimes, ()  # another process measures for itself

    @contextmanager
    def measure(self, url: str) -> Iterator[None]:
        """Measure the duration of the block, a request to a server."""
        with self._lock:
            server = self._servers.setdefault(url, _Server())
            server.under_way += 1
            server.started += 1
            place, is_first = server.started, server.under_way == 1
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            with self._lock:
                server.under_way -= 1
                if is_first and server.started == place:
                    server.alone += seconds
                    server.count_alone += 1
                else:
                    server.beside += seconds
                    server.count_beside += 1

    def was_alone(self, url: str) -> bool:
        """Return whether a server has made a run while it had no other request."""
        with self._lock:
            return url in self._servers and self._servers[url].count_alone > 0

    @property
    def busy(self) -> float:
        """Sum of the durations of all runs in s, without the time that requests waited for others."""
        with self._lock:
            return sum(server.alone + server.beside / _slowdown(server) for server in self._servers.values())


def _slowdown(server: _Server) -> float:
    """Return the ratio of the durations beside others and alone; 1 if it may be due to chance."""
    if not (server.count_alone and server.count_beside and server.alone):
        return 1.0
    ratio = (server.beside / server.count_beside) / (server.alone / server.count_alone)
    return ratio if ratio > SLOWED else 1.0
