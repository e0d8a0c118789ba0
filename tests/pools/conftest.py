"""Simulators whose runs take their time, or kill their worker; and a Dask cluster of separate processes."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from invgp.adapters import CallableModel, ExecutableModel, Quantity, RunContext

DASK = Path(sysconfig.get_path("scripts")) / "dask"
PATIENCE = 240.0  # s, for a busy machine

Program = Callable[..., ExecutableModel]


def rows(*x: float) -> np.ndarray:
    return np.asarray(x, dtype=float)[:, None]


def context(count: int, directory: Path) -> RunContext:
    return RunContext([f"run{i}" for i in range(count)], directory / "runs")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A shell script as a simulator: `$1` is its input, and `started` gets a line a start."""

    def make(body: str = "") -> ExecutableModel:
        script = tmp_path / "simulator.sh"
        counted = f'echo "$1" >> {tmp_path}/started'
        script.write_text(f'#!/bin/sh\n{counted}\n{textwrap.dedent(body)}\nawk "BEGIN {{ print $1 / 3 }}"\n')
        script.chmod(0o755)
        inputs, outputs = (Quantity("x", "m"),), (Quantity("z", "s"),)
        return ExecutableModel(("./simulator.sh", "{x}"), inputs, outputs, search_path=tmp_path)

    return make


@pytest.fixture
def function(tmp_path: Path) -> Callable[[str], CallableModel]:
    """A function of one row, which can be imported wherever its folder can be read."""

    def make(body: str) -> CallableModel:
        (tmp_path / "simulator.py").write_text(f"import os, signal\n\n\ndef run(x):\n    {body}\n    return x / 3\n")
        inputs, outputs = (Quantity("x", "m"),), (Quantity("z", "s"),)
        return CallableModel("simulator:run", inputs, outputs, vectorised=False, search_path=tmp_path)

    return make


def started(directory: Path) -> list[float]:
    """The inputs of all runs that were ever started, by the simulator's own count."""
    return [float(line) for line in (directory / "started").read_text().split()]


@contextmanager
def running(*command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}  # for the functions in problems.py
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(list(map(str, command)), env=environment, **quiet) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def cluster(folder: Path, *, workers: int, nanny: bool = True) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A scheduler on loopback and its workers, as a person starts them; its file, and its process."""
    file = folder / "scheduler.json"
    quiet = ("--no-dashboard", "--host", "127.0.0.1")
    with ExitStack() as stack:
        scheduler = stack.enter_context(running(DASK, "scheduler", "--scheduler-file", file, "--port", "0", *quiet))
        if workers:
            kind = ("--nworkers", str(workers), "--nthreads", "1", "--nanny" if nanny else "--no-nanny")
            here = ("--scheduler-file", file, "--local-directory", folder)
            stack.enter_context(running(DASK, "worker", *here, *kind, *quiet))
        with Client(scheduler_file=str(file), timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=PATIENCE)
        yield file, scheduler


@pytest.fixture(scope="session")
def dask_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The scheduler file of a cluster of two workers, which their nannies start again when they die."""
    with cluster(tmp_path_factory.mktemp("dask"), workers=2) as (file, _):
        yield str(file)
