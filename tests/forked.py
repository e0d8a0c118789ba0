"""The command line in processes that are forked from one that has imported it: for tests that start it many times."""

from __future__ import annotations

import os
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import invgp.cli.run
import invgp.config.build
import invgp.inference.invert
import invgp.netcdf  # noqa: F401 - imported for the processes to come
from invgp.cli import main

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["__main__", __name__])


def forked(*arguments: str, cwd: Path) -> ForkServerProcess:
    """A command in a process group of its own, which says nothing."""
    process = CONTEXT.Process(target=_command, args=(arguments, cwd, dict(os.environ)))
    process.start()
    while process.is_alive() and os.getpgid(process.pid) != process.pid:
        time.sleep(0.001)
    return process


def _command(arguments: tuple[str, ...], cwd: Path, environment: dict[str, str]) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["invgp", *arguments]
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        main()
