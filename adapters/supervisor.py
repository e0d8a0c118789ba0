"""Programs under a supervisor: a small process that starts a program and ends all its descendants.

A process keeps its idle supervisors for the next program. A supervisor ends when its parent process ends, even if that
is killed, and it ends the program that it supervises.
"""

from __future__ import annotations

import errno
import logging
import marshal
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from . import supervisor_process
from .idle_processes import IdleProcesses
from .protocol import RUN_DIRECTORY_VARIABLE
from .supervisor_process import ANSWER, ENDED, LENGTH, NOT_ENDED, PATIENCE, STARTED, kill_programs

SUBREAPER = sys.platform == "linux"
"""Whether supervisors are child subreapers; otherwise they find daemons by their environment."""

_POLL = 0.1  # s, between two checks that the program has not stopped its supervisor
_log = logging.getLogger(__name__)


class Program:
    """A running program with its descendants; a context manager that ends them.

    Parameters
    ----------
    argv : sequence of str
        Program (an absolute path) and arguments.
    directory : int
        Descriptor of the working directory.
    environment : mapping of bytes to bytes
        Complete environment, with ``INVGP_RUN_DIRECTORY``.
    stdout, stderr : int
        Descriptors.
    stdin : int, optional
        Descriptor; without it, standard input is empty.
    deadline : float
        Time on the monotonic clock until which to wait for the start. Afterwards `wait` and `end` still work.

    Raises
    ------
    OSError
        The program cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        directory: int,
        environment: Mapping[bytes, bytes],
        stdout: int,
        stderr: int,
        stdin: int | None = None,
        deadline: float = math.inf,
    ) -> None:
        self._mark = os.fsdecode(environment[RUN_DIRECTORY_VARIABLE.encode()])
        self._argv = argv
        self._status: int | None = None
        self._supervisor = _supervisors.take()
        try:
            files = (directory, stdout, stderr) if stdin is None else (directory, stdout, stderr, stdin)
            self._supervisor.send_request((list(argv), dict(environment), self._mark), files)
            answer = self._supervisor.receive_answer(_POLL)
            while answer is None and time.monotonic() < deadline:
                self._supervisor.wake()
                answer = self._supervisor.receive_answer(max(0.0, min(_POLL, deadline - time.monotonic())))
        except BaseException as error:
            self.end()
            if isinstance(error, EOFError | BrokenPipeError):
                sentence = f"the process that was to supervise it has ended, {self._supervisor.describe_end()}"
                raise OSError(errno.ECANCELED, sentence) from error
            raise
        self._check_started(answer)

    def _check_started(self, answer: tuple[int, int] | None) -> None:
        if answer is not None and answer[0] > STARTED:
            self._status = 0
            _supervisors.idle.append(self._supervisor)
            raise OSError(answer[0], os.strerror(answer[0]), self._argv[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def returncode(self) -> int:
        """Exit code of the program after its end, or minus the number of the signal that killed it."""
        return -signal.SIGKILL if self._status is None else os.waitstatus_to_exitcode(self._status)

    def wait(self, seconds: float) -> bool:
        """Wait for at most `seconds`; return whether the program and its descendants have ended."""
        if self._status is None:
            try:
                answer = self._supervisor.receive_answer(seconds)
            except EOFError:
                _log.warning("the process that supervised the run in %s was killed", self._mark)
                self._end_without_supervisor()
                self._supervisor.end()
                return True
            if answer is None:
                self._supervisor.wake()
                return False
            self._check_started(answer)
            if answer[0] == STARTED:
                return False
            self._status = answer[1]
            if answer[0] == ENDED:
                _supervisors.idle.append(self._supervisor)
            else:
                self._warn([])
                self._supervisor.end()
        return True

    def end(self) -> None:
        """Kill the program and its descendants, and wait for their end."""
        if self._status is not None:
            return
        self._supervisor.close()
        try:
            answer = self._supervisor.receive_answer(PATIENCE + 1.0)
            while answer is not None and answer[0] == STARTED:  # an interruption came before this answer was read
                answer = self._supervisor.receive_answer(PATIENCE + 1.0)
        except EOFError:  # it ran nothing, or it was killed
            self._end_without_supervisor()
        else:
            self._status = signal.SIGKILL if answer is None else answer[1]
            if answer is None or answer[0] == NOT_ENDED:
                self._warn([])
        finally:
            self._supervisor.end()

    def _end_without_supervisor(self) -> None:
        self._status = signal.SIGKILL
        if left := kill_programs(RUN_DIRECTORY_VARIABLE, self._mark):
            self._warn(left)

    def _warn(self, left: list[int]) -> None:
        which = f": {sorted(left)}" if left else ""
        _log.warning("processes of the run in %s have been killed, but have not ended%s", self._mark, which)


class _Supervisor:
    """A supervisor process, as seen by its parent."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            self._process = subprocess.Popen(
                # Without site-packages it starts in 20 ms. The directory of its only import is an argument.
                [
                    sys.executable,
                    "-I",
                    "-S",
                    supervisor_process.__file__,
                    str(Path(psutil.__file__).parents[1]),
                    RUN_DIRECTORY_VARIABLE,
                    str(SUBREAPER),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # so that Ctrl-C does not reach it and its program
            )
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def send_request(self, message: tuple[list[str], dict[bytes, bytes], str], files: Sequence[int]) -> None:
        content = marshal.dumps(message)
        content = LENGTH.pack(len(content)) + content
        sent = socket.send_fds(self._socket, [content], files)
        self._socket.sendall(content[sent:])

    def receive_answer(self, seconds: float) -> tuple[int, int] | None:
        """Wait for the next answer; None if there is none in time. Raise `EOFError` if there will be none."""
        if not self._poll.poll(1000 * seconds):
            return None
        try:
            content = self._socket.recv(ANSWER.size, socket.MSG_WAITALL)
        except ConnectionError:
            content = b""
        if len(content) < ANSWER.size:
            raise EOFError
        number, status = ANSWER.unpack(content)
        return number, status

    def describe_end(self) -> str:
        """Return its program and its exit code, as part of a message."""
        return f"{sys.executable} with exit code {self._process.poll()}"

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ask it to end its program, to answer, and to exit."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self.wake()

    def wake(self) -> None:
        """Continue it, in case the program has stopped it."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Close it and wait for its end; kill it if that takes too long."""
        self.close()
        self._socket.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_supervisors = IdleProcesses(_Supervisor)
