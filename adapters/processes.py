"""Execution of one program in its own directory, with a time limit. No descendant of the program survives."""

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
"""Characters of standard error, and of standard output, that are kept for messages."""
LOG_LIMIT = 64 * 2**20
"""Bytes of standard output or standard error after which a program is killed, so that it does not fill the disk."""
KEPT = 32 * 2**10
"""Bytes that are kept at the start and at the end of a log that is too large."""

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
_POLL = 0.1  # s, between two checks of the size of the logs; the end of a program is noticed at once

Environment = Mapping[bytes, bytes]


class Ending(Enum):
    """How a program ended."""

    EXITED = auto()
    TIMEOUT = auto()
    STDOUT_LIMIT = auto()
    STDERR_LIMIT = auto()


@dataclass(frozen=True)
class Outcome:
    """The end of a program.

    Parameters
    ----------
    ending : Ending
    returncode : int
        Exit code, or minus the number of the signal that killed it.
    standard_error, standard_output : str
        The last `TAIL` characters of each.
    """

    ending: Ending
    returncode: int
    standard_error: str = field(default="", compare=False)
    standard_output: str = field(default="", compare=False)


def make_environment(extras: Mapping[str, str], threads: int) -> Environment:
    """Return the environment of this process, with a number of threads for numerical libraries, and with `extras`."""
    added = {**dict.fromkeys(_THREAD_VARIABLES, str(threads)), **extras}
    return {**os.environb, **{os.fsencode(key): os.fsencode(value) for key, value in added.items()}}


def add_run_variables(environment: Environment, place: str, mark: str) -> Environment:
    """Return an environment with the directory `place` of a run and the `mark` by which its program is found."""
    ours = {RUN_DIRECTORY_VARIABLE: mark, "PWD": place}
    return {**environment, **{os.fsencode(name): os.fsencode(value) for name, value in ours.items()}}


def check_not_stopped(place: str) -> None:
    """Raise `OSError` if the batch of the run with the directory `place` was stopped."""
    if STOPPED and os.path.dirname(place) in STOPPED:  # noqa: PTH120 - a `Path` is slower
        raise OSError(errno.ECANCELED, "its batch was stopped")


def run_process(
    argv: Sequence[str],
    directory: Path,
    environment: Environment,
    timeout: float | None = None,
) -> Outcome:
    """Run a program and wait for its end. No shell is involved, and standard input is empty.

    Standard output and standard error are written to the files `STDOUT` and `STDERR` in `directory`. Unlike with a
    pipe, a descendant that keeps them open does not delay the end. A program that writes more than `LOG_LIMIT` to one
    of them is killed, and `KEPT` bytes at the start and at the end of the file are kept.

    Parameters
    ----------
    argv : sequence of str
        Program (an absolute path) and arguments.
    directory : Path
        Absolute path of an existing directory that no other run uses.
    environment : mapping
        Environment of the program; ``PWD`` and ``INVGP_RUN_DIRECTORY`` are added.
    timeout : float, optional
        Time limit in s; None for no limit.

    Returns
    -------
    Outcome

    Raises
    ------
    OSError
        The program cannot be started, or the batch was stopped.
    """
    place = str(directory)
    check_not_stopped(place)
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    with open_directory(place) as descriptor, _open_logs(descriptor) as logs:
        variables = add_run_variables(environment, place, place)
        with Program(argv, descriptor, variables, logs[0], logs[1], deadline=deadline) as program:
            ending = _wait(program, deadline, logs, place)
        # The limit also holds for a program that has ended by itself.
        flood = _find_flood(logs)
        for log in logs if flood is not None else ():
            _shorten(log)
        return Outcome(flood or ending, program.returncode, _read_tail(logs[1]), _read_tail(logs[0]))


@contextmanager
def open_directory(place: str) -> Iterator[int]:
    """Open a directory, which must not be a link; yield its descriptor."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _open_logs(directory: int) -> Iterator[list[int]]:
    """Create the two log files; yield their descriptors, which are faster than file objects."""
    files: list[int] = []
    try:
        for name in (STDOUT, STDERR):
            files.append(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666, dir_fd=directory))
        yield files
    finally:
        for file in files:
            os.close(file)


def _read_tail(log: int) -> str:
    """Return the last `TAIL` characters of a log, by its descriptor: the program may have replaced the file."""
    size = os.fstat(log).st_size
    return os.pread(log, 4 * TAIL, max(0, size - 4 * TAIL)).decode(errors="replace").strip()[-TAIL:] if size else ""


def _wait(program: Program, deadline: float, logs: Sequence[int], place: str) -> Ending:
    while True:
        left = min(_POLL, deadline - time.monotonic())
        if program.wait(max(left, 0.0)):
            return Ending.EXITED
        if time.monotonic() >= deadline:
            return Ending.TIMEOUT
        flood = _find_flood(logs)
        if flood is not None:
            return flood
        check_not_stopped(place)


def _find_flood(logs: Sequence[int]) -> Ending | None:
    """Return which of standard output and standard error has more than `LOG_LIMIT` bytes; None if neither has."""
    for log, ending in zip(logs, (Ending.STDOUT_LIMIT, Ending.STDERR_LIMIT), strict=True):
        if os.fstat(log).st_size > LOG_LIMIT:
            return ending
    return None


def _shorten(log: int) -> None:
    """Remove the middle of a log of more than `LOG_LIMIT` bytes, in place, because the disk may be full."""
    size = os.fstat(log).st_size
    if size > max(LOG_LIMIT, 2 * KEPT):
        tail = os.pread(log, KEPT, size - KEPT)
        os.ftruncate(log, KEPT)
        os.pwrite(log, f"\n[invgp: {size - 2 * KEPT} bytes were cut out here]\n".encode() + tail, KEPT)
