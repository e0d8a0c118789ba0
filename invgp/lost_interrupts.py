"""Interruptions by Ctrl-C that Python loses.

Python prints and drops an exception that is raised in a finalizer (``__del__``) or in the callback of a weak reference.
If Ctrl-C arrives while one is executed, the `KeyboardInterrupt` is lost and the program continues. The finalizer of a
Dask future, for example, is long enough for this to happen.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SECONDS_TO_RESEND = 0.05
"""Time until the signal is sent again. The finalizer should have ended; if it has not, the signal is sent once more."""


@contextmanager
def resend_lost_interrupts() -> Iterator[None]:
    """Send SIGINT to the main thread again when Python has dropped a `KeyboardInterrupt` within the block.

    No signal is sent after the end of the block: if one is still to be sent then, the block ends with
    `KeyboardInterrupt`. The block has no effect in another thread, because Python executes signal handlers in the main
    thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = sys.unraisablehook
    timers: list[threading.Timer] = []

    def resend_or_report(dropped: UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            timers.append(_resend())
        else:
            previous(dropped)

    sys.unraisablehook = resend_or_report
    try:
        yield
    except KeyboardInterrupt:
        _cancel(timers)
        raise
    except BaseException as error:
        if _cancel(timers):
            raise KeyboardInterrupt from error
        raise
    else:
        if _cancel(timers):
            raise KeyboardInterrupt
    finally:
        sys.unraisablehook = previous


def _cancel(timers: list[threading.Timer]) -> bool:
    """Cancel timers; return whether one of them had not sent its signal."""
    waiting = [timer for timer in timers if timer.is_alive()]
    for timer in waiting:
        timer.cancel()
    return bool(waiting)


def _resend() -> threading.Timer:
    # SIGINT may be ignored, as in a background job of a shell, when another signal was the one that was lost.
    if threading.current_thread() is threading.main_thread() and not callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    timer = threading.Timer(SECONDS_TO_RESEND, signal.pthread_kill, (main, signal.SIGINT))
    timer.daemon = True
    timer.start()
    return timer
