"""The rows of a batch, shared out to servers by as many threads as there are connections."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from .protocol import Floats, Status


@dataclass
class Task:
    """One row, and the servers that took it without an answer."""

    row: int
    broken_off_by: list[str] = field(default_factory=list)


class Batch:
    """Rows that wait, that run, and that are done.

    Attributes
    ----------
    outputs : row -> (P,), of those that went well.
    failures : row -> status and message, of those that failed.
    busy : seconds that runs took, all in all.
    """

    def __init__(self, rows: Iterable[int], urls: Iterable[str]) -> None:
        self.outputs: dict[int, Floats] = {}
        self.failures: dict[int, tuple[Status, str]] = {}
        self.busy = 0.0
        self._waiting = [Task(row) for row in rows]
        self._running: list[Task] = []
        self._urls = set(urls)
        self._why: tuple[Status, str] = (Status.NOT_STARTED, "")
        self._changed = threading.Condition()
        self._over = threading.Event()

    def take(self, url: str) -> Task | None:
        """A row for a server: one that it has not broken off yet, unless all have. None if there will be none."""
        with self._changed:
            while url in self._urls and (self._waiting or self._running):
                for task in self._waiting:
                    if url not in task.broken_off_by or self._urls.issubset(task.broken_off_by):
                        self._waiting.remove(task)
                        self._running.append(task)
                        return task
                self._changed.wait()
            return None

    def spent(self, seconds: float) -> None:
        """A server was at work, whatever came of it."""
        with self._changed:
            self.busy += seconds

    def finish(self, task: Task, outputs: Floats) -> None:
        """A row went well."""
        with self._changed:
            self.outputs[task.row] = outputs
            self._leave(task)

    def fail(self, task: Task, status: Status, message: str) -> None:
        """A row failed, for good."""
        with self._changed:
            self.failures[task.row] = status, message
            self._leave(task)

    def put_back(self, task: Task | None) -> None:
        """A row waits again, behind the others; it fails if there is no server left."""
        with self._changed:
            if task is not None and task in self._running:
                self._waiting.append(task)
                self._leave(task)

    def give_up(self, url: str, message: str) -> None:
        """A server gets no more rows."""
        with self._changed:
            self._why = Status.NOT_STARTED, message
            self._urls.discard(url)
            self._settle()

    def stop(self, status: Status, message: str) -> None:
        """No server gets any more rows."""
        with self._changed:
            self._why = status, message
            self._urls.clear()
            self._settle()

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than there is something to wait for."""
        self._over.wait(seconds)

    def _leave(self, task: Task) -> None:
        self._running.remove(task)
        self._settle()

    def _settle(self) -> None:
        if not self._urls:
            for task in self._waiting:
                self.failures[task.row] = self._why
            self._waiting.clear()
        if not self._waiting and not self._running:
            self._over.set()
        self._changed.notify_all()
