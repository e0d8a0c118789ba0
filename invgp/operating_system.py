"""Signals that arrive at a bad time, the limit of open files, full disks and empty directories."""

from __future__ import annotations

import errno
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import TYPE_CHECKING, Any

from invgp.errors import SystemLimitError

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


SECONDS_TO_RESEND = 0.05
"""Time until the signal is sent again. The finalizer should have ended; if it has not, the signal is sent once more."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGALRM)
FEWEST_OPEN_FILES = 64  # for one worker: libraries, streams, ledger and files of a program
OPEN_FILES_PER_WORKER = 10  # for each further worker process: pipes
USUAL_OPEN_FILES = 1024
PROBE_BYTES = 2**20
"""Size of a trial file. A disk with less space than this counts as full."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that mean: the disk is full, the quota is used up, the file is larger than allowed."""


@contextmanager
def resend_lost_interrupts() -> Iterator[None]:
    """Send SIGINT to the main thread again when Python has dropped a `KeyboardInterrupt` within the block.

    Python prints and drops an exception that is raised in a finalizer (``__del__``) or in the callback of a weak
    reference. If Ctrl-C arrives while one is executed, the `KeyboardInterrupt` is lost and the program continues. The
    finalizer of a Dask future, for example, is long enough for this to happen.

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


@contextmanager
def delay_interrupts() -> Iterator[list[BaseException]]:
    """Raise the exception of a signal handler at the end of the block.

    Python raises the exception of a signal handler, such as `KeyboardInterrupt`, between any two of its instructions.
    Locks of a library that is interrupted just after it has acquired one stay locked: a file that xarray writes could
    then never be closed.

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


def reserve_open_files(workers: int = 1) -> None:
    """Raise the soft limit of open files to a usual value, or to the number that the workers need.

    Parameters
    ----------
    workers : int
        Number of simulator runs at the same time.

    Raises
    ------
    SystemLimitError
        The hard limit is too low.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FEWEST_OPEN_FILES + OPEN_FILES_PER_WORKER * (workers - 1)
    wanted = max(USUAL_OPEN_FILES, needed)
    if now == resource.RLIM_INFINITY or now >= wanted:
        return
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if wanted > now:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    if wanted < needed:
        what = f" for {workers:,} workers" if workers > 1 else ""
        raise SystemLimitError(
            f"the limit of open files must be at least {needed:,}{what}, was {wanted:,}: raise it by "
            f"`ulimit -n {max(USUAL_OPEN_FILES, needed)}`"
        )


def find_write_error(directory: Path) -> OSError | None:
    """Write a temporary file in a directory, or in its nearest existing parent.

    Parameters
    ----------
    directory : Path

    Returns
    -------
    OSError or None
        Why nothing can be written; None if the file was written. Its `filename` is the directory.
    """
    nearest = next(place for place in (directory, *directory.absolute().parents) if place.is_dir())
    try:
        with TemporaryFile(dir=nearest) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        error.filename = str(nearest)
        return error
    return None


def remove_if_empty(directory: Path) -> None:
    """Remove a directory of runs, unless it contains the directory of a failed run."""
    with suppress(OSError):
        directory.rmdir()
