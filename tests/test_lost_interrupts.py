"""Ctrl-C that arrives in a finalizer, where Python drops the exception, still interrupts."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from invgp.cli.console import signals_as_interrupts
from invgp.operating_system import resend_lost_interrupts

pytestmark = pytest.mark.processes

PATIENCE = 60.0  # s


class Finalized:
    """Calls a function in its finalizer."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def __del__(self) -> None:
        self.call()


@pytest.fixture
def handlers() -> Iterator[None]:
    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def finalize_and_wait(call: Callable[[], None]) -> None:
    """Call in a finalizer, then wait as for a long run."""
    instance = Finalized(call)
    del instance
    time.sleep(PATIENCE)


def test_that_an_interrupt_lost_in_a_finalizer_comes_again() -> None:
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), resend_lost_interrupts():
        finalize_and_wait(lambda: signal.raise_signal(signal.SIGINT))
    assert time.monotonic() - start < PATIENCE


def test_that_a_lost_request_to_end_interrupts_where_ctrl_c_is_ignored(handlers: None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pytest.raises(KeyboardInterrupt), signals_as_interrupts():
        finalize_and_wait(lambda: signal.raise_signal(signal.SIGTERM))


def test_that_other_errors_in_finalizers_are_reported_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: reported.append(type(dropped.exc_value)))
    before = sys.unraisablehook
    with resend_lost_interrupts():
        instance = Finalized(lambda: 1 // 0)
        del instance
    assert reported == [ZeroDivisionError]
    assert sys.unraisablehook is before


def test_that_threads_leave_the_hook_alone() -> None:
    hooks = []

    def look() -> None:
        with resend_lost_interrupts():
            hooks.append(sys.unraisablehook)

    before = sys.unraisablehook
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert hooks == [before]
