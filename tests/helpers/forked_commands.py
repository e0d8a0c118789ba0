"""The command line in processes that are forked from one that has imported it: for tests that start it many times."""

from __future__ import annotations

import os
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from invgp.cli import main

CONTEXT = get_context("forkserver")
# What a command imports as it goes; by the names of installed modules, for the server does not look into this folder.
CONTEXT.set_forkserver_preload(
    ["__main__", "invgp.cli.run", "invgp.config.build_problem", "invgp.inference.invert", "invgp.netcdf"]
)


def fork_command(*arguments: str, cwd: Path) -> ForkServerProcess:
    """A command in a process group of its own, which says nothing."""
    process = CONTEXT.Process(target=_command, args=(arguments, cwd, dict(os.environ)))
    process.start()
    with suppress(ProcessLookupError):  # it may have ended already
        while os.getpgid(process.pid) != process.pid:
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
