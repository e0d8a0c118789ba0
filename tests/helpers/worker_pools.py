"""Simulators whose runs take their time, or kill their worker; and a Dask cluster of separate processes."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from distributed import Client

from invgp.adapters import ExecutableModel, RunContext

DASK = Path(sysconfig.get_path("scripts")) / "dask"
PATIENCE = 240.0  # s, for a busy machine

Program = Callable[..., ExecutableModel]


def rows(*x: float) -> np.ndarray:
    return np.asarray(x, dtype=float)[:, None]


def context(count: int, directory: Path) -> RunContext:
    return RunContext([f"run{i}" for i in range(count)], directory / "runs")


def started_inputs(directory: Path) -> list[float]:
    """The inputs of all runs that were ever started, by the simulator's own count."""
    return [float(line) for line in (directory / "started").read_text().split()]


@contextmanager
def start_process(*command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}  # for the functions in the helpers
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
        scheduler = stack.enter_context(
            start_process(DASK, "scheduler", "--scheduler-file", file, "--port", "0", *quiet)
        )
        if workers:
            kind = ("--nworkers", str(workers), "--nthreads", "1", "--nanny" if nanny else "--no-nanny")
            here = ("--scheduler-file", file, "--local-directory", folder)
            stack.enter_context(start_process(DASK, "worker", *here, *kind, *quiet))
        with Client(scheduler_file=str(file), timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=PATIENCE)
        yield file, scheduler
