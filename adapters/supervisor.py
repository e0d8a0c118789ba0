"""Programs run under a supervisor: a small process that starts a program, and ends all its descendants with it.

A process keeps the supervisors that it has started and that have nothing to do: one for each thread that has run a
program at the same time as others. A supervisor ends with the process that started it, even if that is killed with -9,
and ends all that it runs.
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
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from . import supervisor_process
from .protocol import RUN_DIRECTORY_VARIABLE
from .supervisor_process import ANSWER, ENDED, LENGTH, NOT_ENDED, PATIENCE, STARTED, kill_programs

SUBREAPER = sys.platform == "linux"
"""Whether supervisors are to be child subreapers; without, they find daemons by their environment."""

_LOOK_EVERY = 0.1  # s, whether a program that has not started stopped its supervisor
_log = logging.getLogger(__name__)
_idle: list[_Supervisor] = []
_owner = 0


class Program:
    """A program that was started, with all that comes of it. It is ended with the block of a ``with`` statement.

    Parameters
    ----------
    argv : program (an absolute path) and arguments.
    directory : descriptor of its working directory.
    environment : all of it, with ``INVGP_RUN_DIRECTORY``.
    stdout, stderr, stdin : descriptors; without `stdin` its standard input is empty.
    deadline : of `time.monotonic`, up to which we wait for its start; `wait` and `end` go on from there.

    Raises
    ------
    OSError
        If it cannot be started.
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
        self._supervisor = _take()
        try:
            files = (directory, stdout, stderr) if stdin is None else (directory, stdout, stderr, stdin)
            self._supervisor.ask((list(argv), dict(environment), self._mark), files)
            answer = self._supervisor.answer(_LOOK_EVERY)
            while answer is None and time.monotonic() < deadline:
                self._supervisor.wake()
                answer = self._supervisor.answer(max(0.0, min(_LOOK_EVERY, deadline - time.monotonic())))
        except BaseException as error:
            self.end()
            if isinstance(error, EOFError | BrokenPipeError):
                sentence = f"the process that was to supervise it has ended, {self._supervisor.ending}"
                raise OSError(errno.ECANCELED, sentence) from error
            raise
        self._check_started(answer)

    def _check_started(self, answer: tuple[int, int] | None) -> None:
        if answer is not None and answer[0] > STARTED:
            self._status = 0
            _idle.append(self._supervisor)
            raise OSError(answer[0], os.strerror(answer[0]), self._argv[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def returncode(self) -> int:
        """The exit code of a program that has ended, or minus the number of the signal that killed it."""
        return -signal.SIGKILL if self._status is None else os.waitstatus_to_exitcode(self._status)

    def wait(self, seconds: float) -> bool:
        """Wait, but no longer than some seconds; whether the program and all that came of it are gone."""
        if self._status is None:
            try:
                answer = self._supervisor.answer(seconds)
            except EOFError:
                _log.warning("the process that supervised the run in %s was killed", self._mark)
                self._end_without_supervisor()
                self._supervisor.dismiss()
                return True
            if answer is None:
                self._supervisor.wake()
                return False
            self._check_started(answer)
            if answer[0] == STARTED:
                return False
            self._status = answer[1]
            if answer[0] == ENDED:
                _idle.append(self._supervisor)
            else:
                self._warn([])
                self._supervisor.dismiss()
        return True

    def end(self) -> None:
        """Kill the program and all that came of it, and wait until they are gone."""
        if self._status is not None:
            return
        self._supervisor.close()
        try:
            answer = self._supervisor.answer(PATIENCE + 1.0)
            while answer is not None and answer[0] == STARTED:  # we were interrupted before we heard it
                answer = self._supervisor.answer(PATIENCE + 1.0)
        except EOFError:  # it ran nothing, or it was killed
            self._end_without_supervisor()
        else:
            self._status = signal.SIGKILL if answer is None else answer[1]
            if answer is None or answer[0] == NOT_ENDED:
                self._warn([])
        finally:
            self._supervisor.dismiss()

    def _end_without_supervisor(self) -> None:
        self._status = signal.SIGKILL
        if left := kill_programs(RUN_DIRECTORY_VARIABLE, self._mark):
            self._warn(left)

    def _warn(self, left: list[int]) -> None:
        which = f": {sorted(left)}" if left else ""
        _log.warning("processes of the run in %s have been killed, but have not ended%s", self._mark, which)


class _Supervisor:
    """Our side of a supervisor."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            self._process = subprocess.Popen(
                # Isolated, and without site-packages: it starts in 20 ms. The lone import is named to it.
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
                start_new_session=True,  # out of reach of Ctrl-C, and with it all that it runs
            )
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def ask(self, message: tuple[list[str], dict[bytes, bytes], str], files: Sequence[int]) -> None:
        content = marshal.dumps(message)
        content = LENGTH.pack(len(content)) + content
        sent = socket.send_fds(self._socket, [content], files)
        self._socket.sendall(content[sent:])

    def answer(self, seconds: float) -> tuple[int, int] | None:
        """Wait for the next answer; None if there is none in time. `EOFError` says that there will be none."""
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

    @property
    def ending(self) -> str:
        """What it was and how it ended, in words."""
        return f"{sys.executable} with exit code {self._process.poll()}"

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Have it end what it runs, answer, and end itself."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self.wake()

    def wake(self) -> None:
        """Have it go on: the program may have stopped it."""
        self._process.send_signal(signal.SIGCONT)

    def dismiss(self) -> None:
        """Wait for its end; kill it if that takes too long."""
        self.close()
        self._socket.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _take() -> _Supervisor:
    """A supervisor that has nothing to do."""
    global _owner  # noqa: PLW0603 - one a process: a copy that was forked needs its own
    if _owner != os.getpid():
        _owner = os.getpid()
        _idle.clear()
        # `multiprocessing` runs its finalizers in its workers too; programs that are kept running were ended before.
        Finalize(None, _dismiss_all, exitpriority=0)
    while _idle:
        with suppress(IndexError):  # another thread was quicker
            supervisor = _idle.pop()
            if supervisor.is_alive():
                return supervisor
            supervisor.dismiss()
    return _Supervisor()


def _dismiss_all() -> None:
    for supervisor in _idle if _owner == os.getpid() else ():
        supervisor.dismiss()
