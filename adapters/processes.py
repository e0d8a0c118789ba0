"""One program, run once: in its own directory and process group, within its time, and with nothing left behind.

Per run: one spawn, a wait that sleeps in the kernel, one signal to the process group, one look at a pipe. The
search for stray processes happens only when a run was cut short or left some.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from .guard import VARIABLE, guarded_by
from .protocol import RUN_DIRECTORY_VARIABLE, STOPPED
from .trees import end_group, end_tree, pipe_name, reap

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
_GRACE = 0.05  # s, for killed processes to close their files


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
    """

    ending: Ending
    returncode: int


def make_environment(extras: Mapping[str, str], threads: int) -> Environment:
    """Our own environment, with numerical libraries capped at `threads`, and `extras`, which win."""
    added = {**dict.fromkeys(_THREAD_CAPS, str(threads)), **extras}
    return {**os.environb, **{os.fsencode(key): os.fsencode(value) for key, value in added.items()}}


def environment_in(place: str, mark: str, environment: Environment) -> Environment:
    """The environment of a program that runs in the directory `place`, and is found by `mark`."""
    ours: dict[str, str | bytes] = {RUN_DIRECTORY_VARIABLE: mark, VARIABLE: guarded_by(), "PWD": place}
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
    environment : the program's environment; ``PWD``, ``INVGP_RUN_DIRECTORY`` and the mark of our guard are added.
    timeout : seconds; None waits without end.
    log_limit : bytes for each of standard output and standard error.

    Raises
    ------
    OSError
        If the program cannot be started, or the run is wanted no more.
    """
    place = str(directory)
    check_wanted(place)
    deadline = None if timeout is None else time.monotonic() + timeout
    process: subprocess.Popen[bytes] | None = None
    with _Lifeline() as lifeline, _opened(f"{place}/{STDOUT}", f"{place}/{STDERR}") as logs:
        try:
            process = subprocess.Popen(
                argv,
                cwd=place,
                env=environment_in(place, place, environment),
                stdin=subprocess.DEVNULL,
                stdout=logs[0],
                stderr=logs[1],
                pass_fds=(lifeline.given,),
                **apart(),
            )
            lifeline.hand_over()
            ending = _wait(process, deadline, logs, log_limit)
            if ending is not Ending.EXITED:
                end_tree(process.pid, place, lifeline.name)
            # Before the program is reaped: until then no other process can have taken its number.
            end_group(process.pid)
            if not lifeline.all_gone():
                end_tree(process.pid, place, lifeline.name)
            returncode = reap(process)
            # A flood of the last moment, or one that ended by itself, is no less a flood.
            flood = _flood(logs, log_limit)
            for log in logs if flood is not None else ():
                _shorten(log, log_limit)
            return Outcome(flood or ending, returncode)
        except BaseException as error:
            # An OSError of the spawn itself means that nothing runs; an interrupt of it may leave something.
            if process is not None or not isinstance(error, OSError):
                end_tree(None if process is None else process.pid, place, lifeline.name)
            if process is not None:
                reap(process)
            raise


def apart() -> dict[str, Any]:
    """How `Popen` keeps a program out of reach of Ctrl-C, and of the terminal if there is one.

    A session of its own does both. A process group is enough where there is no terminal. It is quicker: Linux schedules
    a new session as one more competitor for a busy machine.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return {"process_group": 0}
    return {"start_new_session": True}


def read_tail(path: Path, characters: int = TAIL) -> str:
    """Read the last `characters` of a file, however large it is."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * characters))
        return file.read(4 * characters).decode(errors="replace").strip()[-characters:]


class _Lifeline:
    """A pipe for descendants to inherit; the end that we hold reads as closed once all of them are gone."""

    def __init__(self) -> None:
        self._held, self.given = os.pipe()

    @property
    def name(self) -> str:
        return pipe_name(self._held)

    def hand_over(self) -> None:
        os.close(self.given)
        self.given = -1

    def all_gone(self) -> bool:
        poll = select.poll()
        poll.register(self._held, 0)  # a hang-up is always reported
        return bool(poll.poll(1000 * _GRACE))

    def __enter__(self) -> _Lifeline:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._held)
        if self.given >= 0:
            os.close(self.given)


@contextmanager
def _opened(*paths: str) -> Iterator[list[int]]:
    """New files to read and write, as descriptors: a file object takes longer to make than to use here."""
    files: list[int] = []
    try:
        files += (os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666) for path in paths)
        yield files
    finally:
        for file in files:
            os.close(file)


def _wait(process: subprocess.Popen[bytes], deadline: float | None, logs: Sequence[int], limit: int) -> Ending:
    with exit_watch(process) as ended:
        while True:
            left = _LOOK_EVERY if deadline is None else min(_LOOK_EVERY, deadline - time.monotonic())
            if ended(max(left, 0.0)):
                return Ending.EXITED
            if deadline is not None and time.monotonic() >= deadline:
                return Ending.TIMEOUT
            flood = _flood(logs, limit)
            if flood is not None:
                return flood


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


@contextmanager
def exit_watch(process: subprocess.Popen[bytes]) -> Iterator[Callable[[float], bool]]:
    """Give a function that waits some seconds and says whether the program has ended."""
    try:
        # `Popen.wait(timeout)` looks at growing intervals, up to 50 ms: too coarse for runs of a millisecond.
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, or older than 5.3

        def ended_by_polling(seconds: float) -> bool:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            return process.returncode is not None

        yield ended_by_polling
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        yield lambda seconds: bool(poll.poll(1000 * seconds))
    finally:
        os.close(descriptor)
