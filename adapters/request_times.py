"""How long servers take for requests, alone and beside others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
