"""Signals that arrive while SQLite executes a statement.

SQLite calls Python functions, and Python may execute a signal handler in them. SQLite drops an exception that is raised
there, so a Ctrl-C would be lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from invgp.operating_system import delay_interrupts

_INSTRUCTIONS = 100_000  # of SQLite's virtual machine between two calls of the progress handler


@contextmanager
def stop_when_interrupted(
    connection: sqlite3.Connection, is_over: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Stop a statement when a signal arrives, and raise the exception of its handler at the end of the block.

    Parameters
    ----------
    connection : sqlite3.Connection
    is_over : callable
        Returns whether a statement must be stopped for another reason. SQLite then raises an error with the code
        SQLITE_INTERRUPT.
    """
    with delay_interrupts() as raised:
        connection.set_progress_handler(lambda: bool(raised) or is_over(), _INSTRUCTIONS)
        try:
            yield
        finally:
            connection.set_progress_handler(None, 0)
