"""Signals while a file is written: the file is closed, and the interruption is raised afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from invgp.operating_system import delay_interrupts

# A signal arrives just after xarray has acquired its lock, in a process of its own: without the delay, it hangs.
INTERRUPTED_WRITE = """
import signal, sys
import xarray as xr
from xarray.backends import locks
from invgp import netcdf

inner, calls = locks.SerializableLock.acquire, []

def acquire(self, *arguments, **keywords):
    acquired = inner(self, *arguments, **keywords)
    calls.append(1)
    if len(calls) == int(sys.argv[2]):
        signal.raise_signal(signal.SIGINT)
    return acquired

locks.SerializableLock.acquire = acquire
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    netcdf.write(xr.Dataset({"depth": ("site", [1.0, 2.0])}), sys.argv[1])
except KeyboardInterrupt:
    netcdf.write(xr.Dataset({"depth": ("site", [3.0])}), sys.argv[1])
    print("interrupted", len(calls))
"""


@pytest.mark.parametrize("call", [1, 2])
def test_that_a_file_is_closed_though_ctrl_c_arrives_while_its_lock_is_taken(call: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED_WRITE, str(tmp_path / "a.nc"), str(call)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("interrupted")


def test_that_the_exception_of_the_handler_is_raised_at_the_end_of_the_block() -> None:
    known = []

    def raise_within_block() -> None:
        with delay_interrupts() as raised:
            known.append(len(raised))
            signal.raise_signal(signal.SIGINT)
            known.append(len(raised))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            raise_within_block()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert known == [0, 1]


def test_that_the_error_of_a_block_is_kept_without_a_signal() -> None:
    with pytest.raises(ValueError, match="own"), delay_interrupts():
        raise ValueError("own")


def test_that_other_threads_are_left_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def look() -> None:
        with delay_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
