"""Programs that keep running: started once, and used for many rows.

A process keeps the programs of the model that it used last, one per thread. They are never pickled and never shared
with a child process.
"""

from __future__ import annotations

import itertools
import os
import select
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO

from .directories import RunDirectory
from .processes import Ending, Environment, Outcome, add_run_variables, check_not_stopped, open_directory
from .protocol import Status
from .run_errors import QUOTED, RunError, check_success, quote, start_error
from .supervisor import Program

Key = tuple[str, ...]

_CHUNK = 2**16  # bytes of one read
_KEPT = 4 * QUOTED  # bytes of standard error
_POLL = 0.1  # s, between two checks that a silent program is alive; a closed output is noticed at once
_GRACE = 1.0  # s, for a program to end after its standard input or output was closed

_counter = itertools.count(1)
_alive: set[PersistentProcess] = set()
_idle: dict[Key, list[PersistentProcess]] = {}
_finalizing_process = 0


class LostError(RunError):
    """A run failed in such a way that the program must not be used for another row."""


class PersistentProcess:
    """A running program that answers each line on its standard input by one line on its standard output.

    Parameters
    ----------
    argv : sequence of str
        Program (an absolute path) and arguments.
    environment : mapping
        Environment of the program; ``PWD`` and ``INVGP_RUN_DIRECTORY`` are added.
    home : Path
        Parent of the run directories. Nothing is written there. The program is found by this path if its worker is
        killed.

    Attributes
    ----------
    requests : int
        Number of lines that were sent.
    ahead : int
        Number of lines that the program may receive before it has answered the first of them.

    Raises
    ------
    RunError
        The program cannot be started.
    """

    def __init__(self, argv: Sequence[str], environment: Environment, home: Path) -> None:
        self.requests = 0
        self.ahead = 1
        self._pipes: list[IO[bytes]] = []
        self._unanswered = 0
        self._unsent = bytearray()
        self._received = bytearray()
        self._searched = 0  # bytes of `_received` that were searched for the end of a line
        self._errors = bytearray()
        self._mark = str(home / f"persistent-{os.getpid()}-{next(_counter)}")
        self._owner = os.getpid()
        self._resources = ExitStack()
        try:
            self._start(argv, environment)
        except BaseException as error:
            self._resources.close()
            if isinstance(error, OSError):
                raise start_error(error) from error
            raise
        _alive.add(self)
        _end_all_at_exit()

    def _start(self, argv: Sequence[str], environment: Environment) -> None:
        check_not_stopped(self._mark)
        run = RunDirectory.temporary("invgp-persistent-")
        self._resources.callback(run.remove)
        with ExitStack() as passed_on:
            passed: list[int] = []
            for mode in ("wb", "rb", "rb"):
                reading, writing = os.pipe()
                theirs, ours = (reading, writing) if mode == "wb" else (writing, reading)
                passed_on.callback(os.close, theirs)
                self._pipes.append(self._resources.enter_context(os.fdopen(ours, mode, buffering=0)))
                os.set_blocking(ours, False)
                passed.append(theirs)
            stdin, stdout, stderr = passed
            self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in self._pipes)
            place = str(run.path)
            directory = passed_on.enter_context(open_directory(place))
            variables = add_run_variables(environment, place, self._mark)
            self._program = self._resources.enter_context(Program(argv, directory, variables, stdout, stderr, stdin))
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        self._poll.register(self._stderr, select.POLLIN)

    def send(self, lines: bytes, count: int) -> None:
        """Send lines, as far as the pipe accepts them; `receive` sends the rest.

        Parameters
        ----------
        lines : bytes
            Complete lines.
        count : int
            Number of lines.

        Raises
        ------
        LostError
            The program has written something without a request; it must be ended.
        """
        if self._received and not self._unanswered:
            text = quote(bytes(self._received[:200]))
            raise LostError(Status.UNREADABLE, f"the program wrote without a request: {text!r}")
        self.requests += count
        self._unanswered += count
        self._unsent += lines
        self._send()

    def receive(self, timeout: float, limit: int) -> bytes:
        """Wait for the next line.

        Parameters
        ----------
        timeout : float
            Time limit for the complete line, in s.
        limit : int
            Largest length in bytes.

        Returns
        -------
        bytes

        Raises
        ------
        LostError
            There is no such line; the program must be ended.
        """
        deadline = time.monotonic() + timeout
        while (line := self._take_line(limit)) is None:
            self._send()
            left = deadline - time.monotonic()
            if left <= 0:
                raise LostError(Status.TIMEOUT, f"timed out after {timeout:g} s")
            ready = self._poll.poll(1000 * min(left, _POLL))
            for descriptor, _ in ready:
                if descriptor == self._stderr:
                    self._read_standard_error()
                elif descriptor == self._stdout:
                    self._read_output()
            # A child that outlives the program may hold its output open.
            if not ready and self._program.wait(0.0) and not self._read_output():
                raise self._end_error()
        self._unanswered -= 1
        self._errors.clear()
        return line

    @property
    def all_sent(self) -> bool:
        """Whether the pipe has accepted all lines."""
        return not self._unsent

    def quote_standard_error(self) -> str:
        """Return the end of standard error since the last answer, as part of a message; empty if there is none."""
        self._read_standard_error()
        words = quote(bytes(self._errors))
        return f"; standard error: {words}" if words else ""

    def end(self, grace: float = 0.0) -> None:
        """End the program and its descendants.

        Parameters
        ----------
        grace : float
            Time in seconds that the program has to end by itself after its standard input was closed.
        """
        if self not in _alive or self._owner != os.getpid():
            return
        _alive.discard(self)
        with self._resources:
            if grace > 0:
                self._pipes[0].close()
                self._program.wait(grace)

    def _send(self) -> None:
        """Write as much of the unsent lines as the pipe accepts."""
        if not self._unsent:
            return
        try:
            del self._unsent[: os.write(self._stdin, self._unsent)]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # the program reads no more, but may have answered
            self._unsent.clear()
        if self._unsent:
            self._poll.register(self._stdin, select.POLLOUT)
        else:
            with suppress(KeyError):
                self._poll.unregister(self._stdin)

    def _read_output(self) -> bool:
        """Read the available output; return whether there was any."""
        try:
            chunk = os.read(self._stdout, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            raise self._end_error()
        self._received += chunk
        return True

    def _take_line(self, limit: int) -> bytes | None:
        """Remove and return the first line that was received; None if it is not complete."""
        end = self._received.find(b"\n", self._searched)
        self._searched = len(self._received) if end < 0 else 0
        if (self._searched or end) > limit:
            raise LostError(Status.UNREADABLE, f"the answer is a line of more than {limit} bytes")
        if end < 0:
            return None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _read_standard_error(self) -> None:
        """Read standard error, and keep its end."""
        try:
            chunk = os.read(self._stderr, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            with suppress(KeyError):
                self._poll.unregister(self._stderr)
        self._errors += chunk
        del self._errors[:-_KEPT]

    def _end_error(self) -> LostError:
        """Return the error of a program that closed its output."""
        unfinished = f" in the middle of {quote(bytes(self._received[:200]))!r}" if self._received else ""
        if not self._program.wait(_GRACE):
            return LostError(Status.UNREADABLE, f"the program closed its standard output{unfinished}")
        try:
            check_success(Outcome(Ending.EXITED, self._program.returncode), None)
        except RunError as failure:
            return LostError(failure.status, f"{failure}{unfinished}")
        return LostError(Status.UNREADABLE, f"the program ended without an answer{unfinished}")


def take_idle(key: Key) -> PersistentProcess | None:
    """Return an idle program of this process, if there is one; the programs of other models are ended."""
    for other in [known for known in list(_idle) if known != key]:
        for program in _idle.pop(other, []):
            program.end(_GRACE)
    with suppress(KeyError, IndexError):
        return _idle[key].pop()
    return None


def keep_idle(key: Key, program: PersistentProcess) -> None:
    """Keep a program for the next row."""
    _idle.setdefault(key, []).append(program)


def end_all() -> None:
    """End every program that this process keeps running."""
    _idle.clear()
    for program in list(_alive):
        program.end(_GRACE)


def _end_all_at_exit() -> None:
    # `multiprocessing` calls its finalizers in its workers and in those of joblib, where `atexit` has no effect.
    global _finalizing_process  # noqa: PLW0603 - one per process
    if _finalizing_process != os.getpid():
        _finalizing_process = os.getpid()
        Finalize(None, end_all, exitpriority=10)
