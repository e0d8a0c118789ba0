"""Processes that wait for their next task, instead of a new one for each."""

from __future__ import annotations

import os
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Generic, Protocol, TypeVar


class Reusable(Protocol):
    """A process that can be used again."""

    def is_alive(self) -> bool:
        """Return whether the process can take a task."""

    def end(self) -> None:
        """End the process, whatever it does."""


Process = TypeVar("Process", bound=Reusable)


class IdleProcesses(Generic[Process]):
    """The idle processes of this process. A forked copy of it has none, and all end with it.

    Parameters
    ----------
    kind : type
        Class of the processes; without arguments, it starts one.
    """

    def __init__(self, kind: type[Process]) -> None:
        self.kind = kind
        self.idle: list[Process] = []
        self.owner = 0

    def take(self) -> Process:
        """Return an idle process, or a new one."""
        if self.owner != os.getpid():
            self.owner = os.getpid()
            self.idle.clear()
            # `multiprocessing` calls its finalizers in its workers, too. Persistent programs have been ended before.
            Finalize(None, self.end_all, exitpriority=0)
        while self.idle:
            with suppress(IndexError):  # another thread may have taken it
                process = self.idle.pop()
                if process.is_alive():
                    return process
                process.end()
        return self.kind()

    def end_all(self) -> None:
        """End the idle processes, unless they belong to the process of which this one is a copy."""
        for process in self.idle if self.owner == os.getpid() else ():
            process.end()
