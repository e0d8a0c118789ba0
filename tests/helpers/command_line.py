"""A small project, and the command line in this process or in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Callable
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from invgp.cli import main

CONFIG = """\
title = "A short line"

[survey]
file = "sites.csv"

[survey.coordinates.position]
unit = "m"

[survey.observations.time]
columns = ["t"]
unit = "s"

[latents.depth]
unit = "m"
mean = 500
std = "15%"
kernel = { length_scale = 1000 }
positive = "down"

[forward]
adapter = "callable"
function = "model:time"
inputs = ["depth"]
outputs = ["time"]

[noise]
std.time = 0.02

[inference]
samples = 16
seed = 3
"""

SITES = """\
position,t
0,0.50
400,0.52
800,0.49
1200,0.47
1600,
2000,0.51
"""

# It leaves a mark, so that a test can see whether the simulator was paid for.
MODEL = """\
from pathlib import Path


def time(depth):
    Path(__file__).with_name("was_called").touch()
    return 2.0 * depth / 2000.0
"""

# Every evaluation of the bound takes runs for all samples at all sites.
FULL_GAUSSIAN = 'posterior = "full gaussian"\nemulator = false\nestimator = "score"'
SIMULATOR = 'awk "BEGIN { print 2 * $1 / 2000 }"'
SCRIPT = Path(sysconfig.get_path("scripts")) / "invgp"
MODULE = [sys.executable, "-m", "invgp"]
PATIENCE = 300.0  # s, for a very busy machine


def invgp(*arguments: str | Path, cwd: Path, program: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command line as a person runs it, in a process of its own."""
    command = [*(program or MODULE), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)


Command = Callable[..., subprocess.CompletedProcess[str]]


def run_in_process(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line in this process, which need not start Python: for a command that nobody interrupts."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    code, printed, reported = 0, StringIO(), StringIO()
    with ExitStack() as stack:
        stack.enter_context(chdir(cwd))
        stack.enter_context(redirect_stdout(printed))
        stack.enter_context(redirect_stderr(reported))
        stack.enter_context(patch.object(sys, "argv", ["invgp", *map(str, arguments)]))
        stack.enter_context(patch.object(tempfile, "tempdir", os.environ.get("TMPDIR")))
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(["invgp", *map(str, arguments)], code, printed.getvalue(), reported.getvalue())


def with_program(config: str = CONFIG, body: str = SIMULATOR, *, directory: Path) -> str:
    """The config with the simulator as a program, whose shell script is written beside it."""
    program = directory / "simulator.sh"
    program.write_text(f"#!/bin/sh\n{textwrap.dedent(body)}\n")
    program.chmod(0o755)
    return config.replace('adapter = "callable"', 'adapter = "executable"').replace(
        'function = "model:time"', 'command = ["./simulator.sh", "{depth}"]'
    )


def with_inference(*lines: str, config: str = CONFIG) -> str:
    """The config with these lines in its inference."""
    return config.replace("seed = 3", "\n".join(["seed = 3", *lines]))


def with_few_runs(config: str) -> str:
    """The config with few runs, for a simulator that takes its time: 4 for a step of the emulator, 12 without it."""
    return config.replace("samples = 16", "samples = 6").replace("sites.csv", "two_sites.csv")


def write_files(directory: Path, config: str = CONFIG) -> Path:
    """Write a config, its surveys and its function; give the config's path."""
    (directory / "survey.toml").write_text(config)
    (directory / "sites.csv").write_text(SITES)
    (directory / "two_sites.csv").write_text("\n".join(SITES.split("\n")[:3]))
    (directory / "model.py").write_text(MODEL)
    return directory / "survey.toml"
