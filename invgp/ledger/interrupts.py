"""Ctrl-C and its like while SQLite works.

SQLite calls functions of ours, and Python may run a signal handler in them. What the handler raises there is lost:
SQLite only learns that the call has failed.
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
def keep_interrupts(connection: sqlite3.Connection, is_over: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Raise what a signal handler raises within the block at its end; a long statement is given up for it.

    Parameters
    ----------
    connection : sqlite3.Connection
    is_over : callable
        Whether a statement must be given up for another reason. SQLite then raises an error with the code
        SQLITE_INTERRUPT.
    """
    raised: list[BaseException] = []
    inside = True

    def answer(number: int, frame: FrameType | None) -> None:
        try:
            handlers[signal.Signals(number)](number, frame)
        except BaseException as error:
            if not inside:
                raise
            raised.append(error)

    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other thread runs signal handlers
        found = {number: signal.getsignal(number) for number in _SIGNALS}
        handlers = {number: handler for number, handler in found.items() if callable(handler)}
    connection.set_progress_handler(lambda: bool(raised) or is_over(), _INSTRUCTIONS)
    try:
        for number in handlers:
            signal.signal(number, answer)
        yield
    finally:
        inside = False  # from now on, `answer` does what the handler does
        for number, handler in handlers.items():
            signal.signal(number, handler)
        connection.set_progress_handler(None, 0)
        if raised:
            raise raised[0]
