"""One program, run once: in its own directory, within its time, and with nothing left behind."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from .protocol import RUN_DIRECTORY_VARIABLE, STOPPED
from .supervisor import Program

STDOUT = "standard_output.txt"
STDERR = "standard_error.txt"
TAIL = 2000
"""Characters of standard error that a message quotes."""
LOG_LIMIT = 64 * 2**20
"""Bytes of standard output or standard error beyond which a program is stopped, lest it fill the disk."""
KEPT = 32 * 2**10
"""Bytes kept at either end of a log that went beyond the limit."""

_THREAD_CAPS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
_LOOK_EVERY = 0.1  # s, at the size of the logs; the end of a program is seen at once

Environment = Mapping[bytes, bytes]


class Ending(Enum):
    """How a program came to its end."""

    EXITED = auto()
    TIMEOUT = auto()
    STDOUT_LIMIT = auto()
    STDERR_LIMIT = auto()


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    Parameters
    ----------
    ending : whether it ended by itself.
    returncode : its exit code, or minus the number of the signal that killed it.
    standard_error : its last `TAIL` characters.
    """

    ending: Ending
    returncode: int
    standard_error: str = field(default="", compare=False)


def make_environment(extras: Mapping[str, str], threads: int) -> Environment:
    """Our own environment, with numerical libraries capped at `threads`, and `extras`, which win."""
    added = {**dict.fromkeys(_THREAD_CAPS, str(threads)), **extras}
    return {**os.environb, **{os.fsencode(key): os.fsencode(value) for key, value in added.items()}}


def environment_in(place: str, mark: str, environment: Environment) -> Environment:
    """The environment of a program that runs in the directory `place`, and is found by `mark`."""
    ours = {RUN_DIRECTORY_VARIABLE: mark, "PWD": place}
    return {**environment, **{os.fsencode(name): os.fsencode(value) for name, value in ours.items()}}


def check_wanted(place: str) -> None:
    """Raise `OSError` if the run with the directory `place` is wanted no more."""
    if STOPPED and os.path.dirname(place) in STOPPED:  # noqa: PTH120 - to make a `Path` takes longer
        raise OSError(errno.ECANCELED, "its batch was stopped")


def run_process(
    argv: Sequence[str],
    directory: Path,
    environment: Environment,
    timeout: float | None = None,
    log_limit: int = LOG_LIMIT,
) -> Outcome:
    """Run `argv` in `directory` and wait; no shell, nothing on standard input, and no descendant outlives it.

    Standard output and standard error go to the files `STDOUT` and `STDERR` in `directory`: a descendant that
    holds them open cannot keep us waiting, as it could with a pipe. A program that writes more than `log_limit` to
    one of them is killed, and the file keeps `KEPT` bytes of its start and of its end.

    Parameters
    ----------
    argv : program (an absolute path) and arguments.
    directory : absolute path of an existing directory that no other run uses at the time.
    environment : the program's environment; ``PWD`` and ``INVGP_RUN_DIRECTORY`` are added.
    timeout : seconds; None waits without end.
    log_limit : bytes for each of standard output and standard error.

    Raises
    ------
    OSError
        If the program cannot be started, or the run is wanted no more.
    """
    place = str(directory)
    check_wanted(place)
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    with open_directory(place) as descriptor, _open_logs(descriptor) as logs:
        variables = environment_in(place, place, environment)
        with Program(argv, descriptor, variables, logs[0], logs[1], deadline=deadline) as program:
            ending = _wait(program, deadline, logs, log_limit, place)
        # A flood of the last moment, or one that ended by itself, is no less a flood.
        flood = _flood(logs, log_limit)
        for log in logs if flood is not None else ():
            _shorten(log, log_limit)
        return Outcome(flood or ending, program.returncode, _tail(logs[1]))


@contextmanager
def open_directory(place: str) -> Iterator[int]:
    """A descriptor of a directory, which must not be a link."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _open_logs(directory: int) -> Iterator[list[int]]:
    """New files to read and write, as descriptors: a file object takes longer to make than to use here."""
    files: list[int] = []
    try:
        for name in (STDOUT, STDERR):
            files.append(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666, dir_fd=directory))
        yield files
    finally:
        for file in files:
            os.close(file)


def _tail(log: int) -> str:
    """The last `TAIL` characters of a log; by its descriptor, since the program may have put a pipe in its place."""
    size = os.fstat(log).st_size
    return os.pread(log, 4 * TAIL, max(0, size - 4 * TAIL)).decode(errors="replace").strip()[-TAIL:] if size else ""


def _wait(program: Program, deadline: float, logs: Sequence[int], limit: int, place: str) -> Ending:
    while True:
        left = min(_LOOK_EVERY, deadline - time.monotonic())
        if program.wait(max(left, 0.0)):
            return Ending.EXITED
        if time.monotonic() >= deadline:
            return Ending.TIMEOUT
        flood = _flood(logs, limit)
        if flood is not None:
            return flood
        check_wanted(place)


def _flood(logs: Sequence[int], limit: int) -> Ending | None:
    """Which of standard output and standard error holds more than `limit` bytes; None if neither does."""
    for log, ending in zip(logs, (Ending.STDOUT_LIMIT, Ending.STDERR_LIMIT), strict=True):
        if os.fstat(log).st_size > limit:
            return ending
    return None


def _shorten(log: int, limit: int) -> None:
    """Cut the middle out of a log of more than `limit` bytes, in place: the disk may be full."""
    size = os.fstat(log).st_size
    if size > max(limit, 2 * KEPT):
        tail = os.pread(log, KEPT, size - KEPT)
        os.ftruncate(log, KEPT)
        os.pwrite(log, f"\n[invgp: {size - 2 * KEPT} bytes were cut out here]\n".encode() + tail, KEPT)
