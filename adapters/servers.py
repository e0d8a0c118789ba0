"""Programs that are kept running: one started, many rows asked of it, and nothing left behind.

A process keeps the programs of the model that it ran last, one for each thread that ran it. They are never pickled
and never shared with a child process.
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
from .failures import QUOTED, not_started, quoted
from .lines import LostError
from .outcomes import RunError, check_success
from .processes import Ending, Environment, Outcome, check_wanted, environment_in, open_directory
from .protocol import Status
from .supervisor import Program

Key = tuple[str, ...]

_CHUNK = 2**16  # bytes, of one read
_KEPT = 4 * QUOTED  # bytes of standard error
_LOOK_EVERY = 0.1  # s, at whether a program that says nothing still runs; its closed output is seen at once
_GRACE = 1.0  # s, for a program to end by itself once its standard input or output is closed

_counter = itertools.count(1)
_alive: set[Server] = set()
_idle: dict[Key, list[Server]] = {}
_process_that_tidies_up = 0


class Server:
    """A running program: lines go in, and as many lines come out.

    Attributes
    ----------
    asked : lines that it was ever sent.
    ahead : how many lines it gets before the first of them is answered; whoever talks to it decides.

    Parameters
    ----------
    argv : program (an absolute path) and arguments.
    environment : of the program; ``PWD`` and ``INVGP_RUN_DIRECTORY`` are added.
    home : directory of the runs. Nothing is written there; by its name whoever ends the runs of a worker that was
        killed finds the program.

    Raises
    ------
    RunError
        If it cannot be started.
    """

    def __init__(self, argv: Sequence[str], environment: Environment, home: Path) -> None:
        self.asked = 0
        self.ahead = 1
        self._pipes: list[IO[bytes]] = []
        self._unanswered = 0
        self._unsent = bytearray()
        self._received = bytearray()
        self._searched = 0  # bytes of it, for the end of a line
        self._said = bytearray()
        self._mark = str(home / f"persistent-{os.getpid()}-{next(_counter)}")
        self._owner = os.getpid()
        self._resources = ExitStack()
        try:
            self._start(argv, environment)
        except BaseException as error:
            self._resources.close()
            if isinstance(error, OSError):
                raise not_started(error) from error
            raise
        _alive.add(self)
        _tidy_up_at_exit()

    def _start(self, argv: Sequence[str], environment: Environment) -> None:
        check_wanted(self._mark)
        run = RunDirectory.temporary("invgp-persistent-")
        self._resources.callback(run.remove)
        with ExitStack() as given:
            pipes = [os.pipe() for _ in range(3)]
            for (reading, writing), mode in zip(pipes, ("wb", "rb", "rb"), strict=True):
                theirs, ours = (reading, writing) if mode == "wb" else (writing, reading)
                given.callback(os.close, theirs)
                os.set_blocking(ours, False)
                self._pipes.append(self._resources.enter_context(os.fdopen(ours, mode, buffering=0)))
            (stdin, _), (_, stdout), (_, stderr) = pipes
            self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in self._pipes)
            place = str(run.path)
            directory = given.enter_context(open_directory(place))
            variables = environment_in(place, self._mark, environment)
            self._program = self._resources.enter_context(Program(argv, directory, variables, stdout, stderr, stdin))
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        self._poll.register(self._stderr, select.POLLIN)

    def say(self, requests: bytes, count: int) -> None:
        """Send whole lines, `count` of them, as far as the pipe takes them; `hear` sends the rest.

        Raises
        ------
        LostError
            If the program has said something that nobody asked for; it must then be ended.
        """
        if self._received and not self._unanswered:
            text = quoted(bytes(self._received[:200]))
            raise LostError(Status.UNREADABLE, f"the program wrote without being asked: {text!r}")
        self.asked += count
        self._unanswered += count
        self._unsent += requests
        self._send()

    def hear(self, timeout: float, limit: int) -> bytes:
        """Wait for the next line.

        Parameters
        ----------
        timeout : seconds for the whole of it.
        limit : bytes that it may have.

        Raises
        ------
        LostError
            If no such line came; the program must then be ended.
        """
        deadline = time.monotonic() + timeout
        while (line := self._line(limit)) is None:
            self._send()
            left = deadline - time.monotonic()
            if left <= 0:
                raise LostError(Status.TIMEOUT, f"timed out after {timeout:g} s")
            ready = self._poll.poll(1000 * min(left, _LOOK_EVERY))
            for descriptor, _ in ready:
                if descriptor == self._stderr:
                    self._listen()
                elif descriptor == self._stdout:
                    self._receive()
            # Its output may be held open by a child that outlives it.
            if not ready and self._program.wait(0.0) and not self._receive():
                raise self._ending()
        self._unanswered -= 1
        self._said.clear()
        return line

    @property
    def all_sent(self) -> bool:
        """Whether the program's pipe has taken all that was said."""
        return not self._unsent

    def last_words(self) -> str:
        """Quote the end of standard error since the last answer, as part of a message; nothing if it said nothing."""
        self._listen()
        words = quoted(bytes(self._said))
        return f"; standard error: {words}" if words else ""

    def end(self, grace: float = 0.0) -> None:
        """End the program and all that came of it; its input is closed first, and it has `grace` seconds to go."""
        if self not in _alive or self._owner != os.getpid():
            return
        _alive.discard(self)
        with self._resources:
            if grace > 0:
                self._pipes[0].close()
                self._program.wait(grace)

    def _send(self) -> None:
        """Write what the pipe takes of what is unsent."""
        if not self._unsent:
            return
        try:
            del self._unsent[: os.write(self._stdin, self._unsent)]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # it reads no more, but may have answered: its output tells
            self._unsent.clear()
        if self._unsent:
            self._poll.register(self._stdin, select.POLLOUT)
        else:
            with suppress(KeyError):
                self._poll.unregister(self._stdin)

    def _receive(self) -> bool:
        """Read what there is; whether there was something."""
        try:
            chunk = os.read(self._stdout, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            raise self._ending()
        self._received += chunk
        return True

    def _line(self, limit: int) -> bytes | None:
        """Take the first line out of what was received; None if it is not complete."""
        end = self._received.find(b"\n", self._searched)
        self._searched = len(self._received) if end < 0 else 0
        if (self._searched or end) > limit:
            raise LostError(Status.UNREADABLE, f"the answer is a line of more than {limit} bytes")
        if end < 0:
            return None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _listen(self) -> None:
        """Keep the end of what is on standard error."""
        try:
            chunk = os.read(self._stderr, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            with suppress(KeyError):
                self._poll.unregister(self._stderr)
        self._said += chunk
        del self._said[:-_KEPT]

    def _ending(self) -> LostError:
        """Say how a program came to close its output."""
        unfinished = f" in the middle of {quoted(bytes(self._received[:200]))!r}" if self._received else ""
        if not self._program.wait(_GRACE):
            return LostError(Status.UNREADABLE, f"the program closed its standard output{unfinished}")
        try:
            check_success(Outcome(Ending.EXITED, self._program.returncode), None)
        except RunError as failure:
            return LostError(failure.status, f"{failure}{unfinished}")
        return LostError(Status.UNREADABLE, f"the program ended without an answer{unfinished}")


def take(key: Key) -> Server | None:
    """Take an idle program of this process, if there is one; those of other models are ended."""
    for other in [known for known in list(_idle) if known != key]:
        for server in _idle.pop(other, []):
            server.end(_GRACE)
    with suppress(KeyError, IndexError):
        return _idle[key].pop()
    return None


def give_back(key: Key, server: Server) -> None:
    """Keep a program for the next row."""
    _idle.setdefault(key, []).append(server)


def end_all() -> None:
    """End every program that this process keeps running."""
    _idle.clear()
    for server in list(_alive):
        server.end(_GRACE)


def _tidy_up_at_exit() -> None:
    # `multiprocessing` runs its finalizers in its workers, and in joblib's, where atexit is passed over.
    global _process_that_tidies_up  # noqa: PLW0603 - one a process, like the exit itself
    if _process_that_tidies_up != os.getpid():
        _process_that_tidies_up = os.getpid()
        Finalize(None, end_all, exitpriority=10)
