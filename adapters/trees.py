"""The end of a program and of all that came of it."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from .protocol import RUN_DIRECTORY_VARIABLE

_PATIENCE = 10.0  # s, for killed processes to end
_PAUSE = 0.005  # s, between looks at them

_log = logging.getLogger(__name__)


def reap(process: subprocess.Popen[bytes]) -> int:
    """Wait for a program that has ended or was killed; its return code."""
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        _log.warning("process %d was killed, but has not ended after %g s", process.pid, _PATIENCE)
        return -signal.SIGKILL


def end_group(leader: int) -> None:
    """Kill a program with all that is in its process group."""
    # An empty group is the usual case; macOS answers "not permitted" for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def pipe_name(descriptor: int) -> str:
    """What /proc calls a pipe among the open files of a process."""
    return f"pipe:[{os.fstat(descriptor).st_ino}]"


def end_tree(leader: int | None, place: str, lifeline: str = "") -> None:
    """Kill a program and all that came of it, round by round, since what is being killed may still spawn.

    Parameters
    ----------
    leader : of the program's process group; None if it is not known.
    place : what its environment says of its directory.
    lifeline : the name of a pipe whose writing end it was given; what came of it may have inherited that.
    """
    end = time.monotonic() + _PATIENCE
    strays = _strays(leader, place, lifeline)  # first of all, while the leader can still name its children
    if leader is not None:
        end_group(leader)
    while strays := [*strays, *_strays(leader, place, lifeline)]:
        for stray in strays:
            with suppress(psutil.Error):  # gone by now, or not ours to kill: the next look tells
                stray.kill()
        if time.monotonic() > end:
            pids = sorted({stray.pid for stray in strays})
            _log.warning("processes of the run in %s have been killed, but have not ended: %s", place, pids)
            return
        time.sleep(_PAUSE)
        strays = [stray for stray in strays if _is_alive(stray)]


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _strays(leader: int | None, place: str, lifeline: str) -> list[psutil.Process]:
    """Find the living processes of a run: descendants, members of its group, bearers of its marks."""
    children: set[int] = set()
    with suppress(psutil.NoSuchProcess):
        if leader is not None:
            children = {child.pid for child in psutil.Process(leader).children(recursive=True)}

    def belongs(process: psutil.Process) -> bool:
        # A process that vanishes, or that belongs to another user, is not one that we can end.
        with suppress(psutil.Error, OSError):
            return _is_alive(process) and (
                process.pid in children
                or leader in (os.getpgid(process.pid), os.getsid(process.pid))
                or process.environ().get(RUN_DIRECTORY_VARIABLE) == place
                or _inherited(process.pid, lifeline)
            )
        return False

    return [
        process for process in psutil.process_iter() if process.pid not in (leader, os.getpid()) and belongs(process)
    ]


def _inherited(pid: int, lifeline: str) -> bool:
    """Whether a process has the writing end of a pipe open, as all that came of the program have, and only that.

    A copy of ourselves that another thread has forked has the reading end. Only Linux tells: elsewhere the other marks
    must do.
    """
    ends = set()
    for file in Path(f"/proc/{pid}/fd").iterdir() if lifeline else ():
        with suppress(FileNotFoundError):
            if str(file.readlink()) == lifeline:
                ends.add(bool(file.lstat().st_mode & stat.S_IWUSR))
    return ends == {True}
