"""Signals that arrive within a block that must not be left halfway.

Python raises the exception of a signal handler, such as `KeyboardInterrupt`, between any two of its instructions. Locks
of a library that is interrupted just after it has acquired one stay locked: a file that xarray writes could then never
be closed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGALRM)


@contextmanager
def delay_interrupts() -> Iterator[list[BaseException]]:
    """Raise the exception of a signal handler at the end of the block.

    The block has no effect in another thread than the main thread, which alone executes signal handlers.

    Yields
    ------
    list of BaseException
        Exceptions that will be raised, of which the first one is. It is empty until a signal arrives.
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
    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in _SIGNALS}
        handlers = {number: handler for number, handler in found.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, handle)
        yield raised
    finally:
        inside = False  # from now on, `handle` raises
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if raised:
            raise raised[0]
