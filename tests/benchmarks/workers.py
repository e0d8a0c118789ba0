"""Two workers against one, on a simulator of 50 ms, for each back end.

    python tests/benchmarks/workers.py

The simulator is a program that sleeps, so that two of them need no more than one core. One worker and two are timed in
turns, on pools whose workers have started, and medians count. Dask has its scheduler and workers in other processes.
"""

from __future__ import annotations

import argparse
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from workload import seconds

from invgp.adapters import ExecutableModel, Quantity, RunContext
from invgp.execution.evaluate import evaluate
from invgp.execution.pools import Pool, open_pool
from invgp.execution.pools.pool import Threads
from invgp.execution.pools.worker_processes import Processes
from invgp.problem import InferenceSettings

BACKENDS = ("loky", "threading", "dask")
DASK = str(Path(sysconfig.get_path("scripts")) / "dask")
PATIENCE = 240.0  # s, for workers to start


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Measure and print; how many times faster two workers are, by back end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="runs a measurement (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements a side (default: %(default)s)")
    parser.add_argument("--milliseconds", type=float, default=50.0, help="a run (default: %(default)s)")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="(default: all)")
    chosen = parser.parse_args(arguments)
    ratios = {}
    print(f"{chosen.runs} runs of {chosen.milliseconds:g} ms, median of {chosen.repeats}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = sleeper(folder, chosen.milliseconds / 1000)
        for backend in chosen.backends:
            with pool(backend, 1, folder) as one, pool(backend, 2, folder) as two:
                times = median_seconds(model, (one, two), chosen.runs, chosen.repeats, folder)
            ratios[backend] = times[0] / times[1]
            print(f"{backend:10} one {times[0]:7.3f} s, two {times[1]:7.3f} s, ratio {ratios[backend]:.2f}")
    return ratios


def sleeper(folder: Path, length: float) -> ExecutableModel:
    """A program that takes so many seconds, and no core."""
    script = folder / "sleeper.sh"
    script.write_text(f'#!/bin/sh\nsleep {length}\necho "$1"\n')
    script.chmod(0o755)
    return ExecutableModel(("./sleeper.sh", "{x}"), (Quantity("x", "m"),), (Quantity("z", "s"),), search_path=folder)


@contextmanager
def pool(backend: str, workers: int, folder: Path) -> Iterator[Pool]:
    """A pool of so many workers, also if it is one."""
    with ExitStack() as stack:
        if backend == "dask":
            file = folder / f"scheduler{workers}.json"
            for part in (("scheduler", "--port", "0"), ("worker", "--nworkers", str(workers), "--nthreads", "1")):
                common = ("--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard")
                process = subprocess.Popen([DASK, *part, *common], stderr=subprocess.DEVNULL, cwd=folder)
                stack.callback(process.wait)
                stack.callback(process.terminate)
            deadline = time.monotonic() + PATIENCE
            while not file.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            opened = open_pool(InferenceSettings(backend="dask", scheduler=str(file)))
            opened.client.wait_for_workers(workers, timeout=PATIENCE)
        else:
            opened = Processes(workers) if backend == "loky" else Threads(workers)
        yield stack.enter_context(opened)


def median_seconds(model: ExecutableModel, pools: Sequence[Pool], runs: int, repeats: int, folder: Path) -> list[float]:
    """Median seconds of each pool, after a first batch in which its workers start."""
    values = np.arange(float(runs))[:, None]

    def batch(each: Pool, count: int) -> None:
        context = RunContext([f"run-{i}" for i in range(count)], folder / "runs")
        assert np.array_equal(evaluate(model, values[:count], context, pool=each).outputs, values[:count])

    for each in pools:
        batch(each, min(runs, 4))
    times = [[seconds(lambda each=each: batch(each, runs)) for each in pools] for _ in range(repeats)]
    return np.median(times, axis=0).tolist()


if __name__ == "__main__":
    main()
