"""The supervisor process: it runs other programs, one at a time, and ends all their descendants.

It is started from this file by `supervisor.py`, with a socket as its standard input. A request contains the program,
its environment and its open files. There are two answers: one after the start of the program, and one with the exit
status after the program and all its descendants have ended. If the parent closes the socket, they are killed.

On Linux it is a child subreaper: a process whose parent has ended becomes its child. Thus it finds daemons that have
left their session, closed all files and cleared their environment. Because it runs one program at a time, all its
children belong to that program. On other systems it searches the environment of all processes for the run directory.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress

LENGTH = struct.Struct("<I")
ANSWER = struct.Struct("<ii")
"""An errno, or one of the numbers below, and the status from `os.waitpid`."""
STARTED, ENDED, NOT_ENDED = 0, -1, -2
PATIENCE = 10.0
"""Time limit in seconds for killed processes to end. One that waits for a disk may never end."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PARENT_POLL = 1000  # ms, between two checks of the parent: a forked copy of it may keep the socket open
_PAUSE = 0.005  # s, between two searches for killed processes


def kill_programs(variable: str, directory: str, patience: float = PATIENCE) -> list[int]:
    """Kill the programs whose run directory is `directory` or below it.

    The search is repeated until it finds none, because a process may start another one before it is killed.

    Parameters
    ----------
    variable : str
        Name of the environment variable that holds the run directory of a program.
    directory : str
        Absolute path.
    patience : float
        Time limit in seconds.

    Returns
    -------
    list of int
        Process ids of the programs that have not ended in time.
    """
    import psutil  # noqa: PLC0415 - slow, and on Linux hardly ever needed

    def belongs(process: psutil.Process) -> bool:
        # A process that has ended, or that belongs to another user, cannot be killed.
        with suppress(psutil.Error):
            found = process.environ().get(variable, "")
            inside = found == directory or found.startswith(directory.rstrip(os.sep) + os.sep)
            return bool(inside and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid())
        return False

    end = time.monotonic() + patience
    while found := [process for process in psutil.process_iter() if belongs(process)]:
        if time.monotonic() > end:
            return [process.pid for process in found]
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(_PAUSE)
    return []


class Supervisor:
    """Runs programs for its parent process.

    Parameters
    ----------
    requests : socket
        Connection to the parent.
    variable : str
        Name of the environment variable that holds the run directory.
    subreaper : bool
        Whether to become a child subreaper.
    """

    def __init__(self, requests: socket.socket, variable: str, *, subreaper: bool) -> None:
        self._socket = requests
        self._variable = variable
        self._subreaper = subreaper and _become_subreaper()
        self._parent = os.getppid()
        self._null = os.open(os.devnull, os.O_RDWR)
        self._children, wake = os.pipe()
        for descriptor in (self._children, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # it ends when its parent ends
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._children, select.POLLIN)

    def serve(self) -> None:
        """Run the requested programs until the parent closes the connection."""
        continuing = True
        while continuing and (request := self._receive_request()) is not None:
            (argv, environment, mark), files = request
            try:
                program = self._spawn(argv, environment, files)
            except (OSError, ValueError) as error:
                self._send_answer(getattr(error, "errno", None) or 22, 0)
                continue
            finally:
                for file in files:
                    os.close(file)
            self._send_answer(STARTED, 0)
            status, continuing = self._wait(program)
            status, all_gone = self._end_all(program, mark, status)
            self._send_answer(ENDED if all_gone else NOT_ENDED, status)
            continuing &= all_gone  # remaining processes must not be attributed to the next program

    def _receive_request(self) -> tuple[tuple[list[str], dict[bytes, bytes], str], list[int]] | None:
        """Return the next program, and its directory, standard output, standard error and, if any, standard input."""
        while not self._parent_gone():
            if not any(descriptor == self._socket.fileno() for descriptor, _ in self._poll.poll(_PARENT_POLL)):
                self._drain()
                continue
            content, files, _, _ = socket.recv_fds(self._socket, 2**16, 4)
            for file in files:
                os.set_inheritable(file, False)
            while content and len(content) - LENGTH.size < LENGTH.unpack_from(content)[0]:
                more = self._socket.recv(2**20)
                if not more:
                    return None
                content += more
            return (marshal.loads(content[LENGTH.size :]), files) if content else None  # noqa: S302 - from the parent
        return None

    def _spawn(self, argv: list[str], environment: dict[bytes, bytes], files: list[int]) -> int:
        directory, *streams = files
        stdout, stderr, stdin = (*streams, self._null)[:3]
        os.fchdir(directory)
        try:
            return os.posix_spawn(
                argv[0],
                argv,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, file, i) for i, file in enumerate((stdin, stdout, stderr))],
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
            )
        finally:
            os.chdir("/")

    def _wait(self, program: int) -> tuple[int | None, bool]:
        """Wait for the end of a program; return its status and True, or None and False if it must be ended."""
        while not self._parent_gone():
            for descriptor, _ in self._poll.poll(_PARENT_POLL):
                if descriptor == self._socket.fileno():  # the parent has closed it
                    return None, False
            self._drain()
            pid = -1
            while pid:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == program:
                    return status, True
        return None, False

    def _end_all(self, program: int, mark: str, status: int | None) -> tuple[int, bool]:
        """Kill the rest of a program; return its status, and whether all its processes have ended."""
        end = time.monotonic() + PATIENCE
        if not self._subreaper:
            with suppress(ProcessLookupError, PermissionError):  # for a group of zombies on macOS
                os.killpg(program, signal.SIGKILL)
        # Repeated, because a process may start others before it is killed, and its children become ours.
        while (reaped := _reap()) is not None:
            if reaped[0] == program:
                status = reaped[1]
            if time.monotonic() > end:
                return signal.SIGKILL if status is None else status, False
            if reaped[0]:
                continue
            for child in self._own_children():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            select.select([self._children], [], [], _PAUSE)
            self._drain()
        left = [] if self._subreaper else kill_programs(self._variable, mark)
        return signal.SIGKILL if status is None else status, not left

    def _own_children(self) -> list[int]:
        try:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123 - pathlib is slow to import
                return [int(word) for word in file.read().split()]
        except OSError:  # a kernel without this file
            import psutil  # noqa: PLC0415

            return [child.pid for child in psutil.Process().children()]

    def _parent_gone(self) -> bool:
        return os.getppid() != self._parent

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._children, 4096)

    def _send_answer(self, number: int, status: int) -> None:
        with suppress(OSError):  # the parent has ended
            self._socket.sendall(ANSWER.pack(number, status))


def _reap() -> tuple[int, int] | None:
    """Return id and status of a child that has ended; id 0 if none has, None if there is no child."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None


def _become_subreaper() -> bool:
    import ctypes  # noqa: PLC0415 - only on Linux

    try:
        library = ctypes.CDLL(None)
        # A program may have stopped this process when the parent dies; the signal continues it.
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
        return bool(library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    Supervisor(socket.socket(fileno=0), sys.argv[2], subreaper=sys.argv[3] == "True").serve()
