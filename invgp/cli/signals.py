"""Signals that ask a command to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from invgp.lost_interrupts import resend_lost_interrupts

# Batch systems ask a job to end by SIGTERM, a closed terminal by SIGHUP, a limit of processor time by SIGXCPU.
REQUESTS_TO_END = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Treat requests to end like Ctrl-C, so that every command saves its results; each counts once.

    A signal that the command was started to ignore, as by `nohup`, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # Python allows handlers in the main thread only
        yield
        return
    before = {number: signal.getsignal(number) for number in REQUESTS_TO_END}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        with resend_lost_interrupts():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    # A closed terminal and its shell both send SIGHUP: the second must not stop what keeps the results.
    signal.signal(number, _ignore)
    raise KeyboardInterrupt


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN, programs that are started do not inherit it."""
