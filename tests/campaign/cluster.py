"""A Dask scheduler on loopback and its workers, in a session of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from distributed import Client

PATIENCE = 240.0  # s, for a busy machine


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Path]:
    """The scheduler file of a cluster whose nannies start workers again when they die."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scheduler.json"
    quiet = ("--no-dashboard", "--host", "127.0.0.1")
    here = ("--scheduler-file", str(file), "--local-directory", str(folder), "--nanny")
    commands = (
        ("scheduler", "--scheduler-file", str(file), "--port", "0", *quiet),
        ("worker", *here, "--nworkers", str(workers), "--nthreads", "1", *quiet),
    )
    processes = []
    try:
        for words in commands:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=(folder / f"{words[0]}.log").open("w"),
                    start_new_session=True,
                )
            )
        with Client(scheduler_file=str(file), timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=PATIENCE)
        yield file
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10.0)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_workers(file: Path, workers: int = 2) -> None:
    """Return when all workers are there: a nanny may still be starting one again."""
    with Client(scheduler_file=str(file), timeout=PATIENCE, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=PATIENCE)


def kill_worker(file: Path, number: int) -> None:
    """Kill one of the workers, as a batch system does; its nanny starts another."""
    with Client(scheduler_file=str(file), timeout=PATIENCE, set_as_default=False) as client:
        found = sorted(client.run(os.getpid).values())
    if found:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(found[number % len(found)]).kill()
    time.sleep(0.05)
