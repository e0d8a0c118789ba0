"""Functions in processes that are forked from one that has imported invgp: a campaign starts hundreds."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "__main__",
        "invgp.cli.run",
        "invgp.config.build_problem",
        "invgp.inference.invert",
        "invgp.execution.pools.dask_cluster",
        "invgp.execution.pools.worker_processes",
        "invgp.netcdf",
    ]
)


def start(
    target: Callable[..., None], *arguments: Any, cwd: Path, log: Path, environment: dict[str, str] | None = None
) -> ForkServerProcess:
    """Call a function in a process with a session of its own; what it prints goes to `log`."""
    environment = {**os.environ, **(environment or {})}
    process = CONTEXT.Process(target=_begin, args=(target, arguments, cwd, log, environment, sys.path))
    process.start()
    with suppress(ProcessLookupError):  # it may have ended already
        while os.getpgid(process.pid) != process.pid:
            time.sleep(0.001)
    return process


def finish(process: ForkServerProcess, seconds: float) -> bool:
    """Wait for a process; one that takes longer is ended, after it wrote its stack to its log. Whether it ended."""
    process.join(seconds)
    if process.exitcode is not None:
        return True
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGUSR1)  # its handler writes the stack
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return False


def command(*arguments: str) -> None:
    """The command line, for `start`."""
    from invgp.cli import main  # noqa: PLC0415 - in the process that was forked

    sys.argv = ["invgp", *arguments]
    main()


def _begin(
    target: Callable[..., None],
    arguments: tuple[Any, ...],
    cwd: Path,
    log: Path,
    environment: dict[str, str],
    path: list[str],
) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    signal.signal(signal.SIGINT, signal.default_int_handler)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    try:
        target(*arguments)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        raise SystemExit(70) from None
