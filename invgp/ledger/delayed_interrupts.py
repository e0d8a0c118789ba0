"""Signals that arrive while SQLite executes a statement.

SQLite calls Python functions, and Python may execute a signal handler in them. SQLite drops an exception that is raised
there, so a Ctrl-C would be lost.
"""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGALRM)
_INSTRUCTIONS = 100_000  # of SQLite's virtual machine between two calls of the progress handler


@contextmanager
def delay_interrupts(connection: sqlite3.Connection, is_over: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Raise the exception of a signal handler at the end of the block; a statement in progress is stopped.

    Parameters
    ----------
    connection : sqlite3.Connection
    is_over : callable
        Returns whether a statement must be stopped for another reason. SQLite then raises an error with the code
        SQLITE_INTERRUPT.
    """
    raised: list[BaseException] = []
    inside = True

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handlers[signal.Signals(number)](number, frame)
        except BaseException as error:
            if not inside:
                raise
            raised.append(error)

    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # the only thread that executes signal handlers
        found = {number: signal.getsignal(number) for number in _SIGNALS}
        handlers = {number: handler for number, handler in found.items() if callable(handler)}
    connection.set_progress_handler(lambda: bool(raised) or is_over(), _INSTRUCTIONS)
    try:
        for number in handlers:
            signal.signal(number, handle)
        yield
    finally:
        inside = False  # from now on, `handle` raises
        for number, handler in handlers.items():
            signal.signal(number, handler)
        connection.set_progress_handler(None, 0)
        if raised:
            raise raised[0]
