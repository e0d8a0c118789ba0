"""Programs end with the process that started them, even if that is killed with -9 and can do nothing about it.

With its first program, a process starts a guard: this file, as a program of its own, which sleeps until the process is
gone, kills all programs that bear its mark, and ends. The mark is in their environment, which what they start inherits.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress

VARIABLE = "INVGP_STARTED_BY"
_LOOK_EVERY = 1.0  # s, at whose child we are; the end of the pipe is seen at once, unless another process holds it
_PAUSE = 0.05  # s, for what is killed to end

_lock = threading.Lock()
_process, _mark = 0, b""


def guarded_by() -> bytes:
    """The mark of this process, which is guarded from now on."""
    global _process, _mark  # noqa: PLW0603 - one a process; a copy that was forked needs its own
    if _process != os.getpid():
        with _lock:
            if _process != os.getpid():
                _mark = f"{os.getpid()}-{time.time_ns()}".encode()
                _start(_mark.decode())
                _process = os.getpid()
    return _mark


def _start(mark: str) -> None:
    # The guard itself needs neither, or not before its time, and should start quickly.
    from multiprocessing.util import Finalize  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import psutil  # noqa: PLC0415

    with suppress(OSError):  # without a guard all goes on as well, until somebody is killed
        guard = subprocess.Popen(
            # Isolated, and without site-packages: it starts in a few milliseconds. The lone import is named to it.
            [sys.executable, "-I", "-S", __file__, mark, str(Path(psutil.__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        Finalize(None, _dismiss, (guard,), exitpriority=0)  # after programs that are kept running were ended


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    guard.kill()
    guard.wait()


def _watch() -> None:
    parent = os.getppid()
    while os.getppid() == parent and not select.select([0], [], [], _LOOK_EVERY)[0]:
        pass


def _end_all(mark: str) -> None:
    import psutil  # noqa: PLC0415

    def killed(process: psutil.Process) -> bool:
        with suppress(psutil.Error):  # it has ended, or it is another person's
            if process.environ().get(VARIABLE) == mark and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                return True
        return False

    # One that started while the others were looked through is seen the next time.
    while sum(map(killed, psutil.process_iter())):
        time.sleep(_PAUSE)


if __name__ == "__main__":
    _watch()
    sys.path.append(sys.argv[2])
    _end_all(sys.argv[1])
