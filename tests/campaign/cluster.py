"""A Dask scheduler on loopback and its workers, in sessions of their own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from distributed import Client

PATIENCE = 240.0  # s, for a busy machine
WORKERS = 2


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes
    ----------
    file : its scheduler file.
    nanny : the process that starts its workers, and starts them again when they die.
    """

    file: Path
    nanny: int

    def wait_for_workers(self) -> None:
        """Return when all workers are there: the nanny may still be starting one again."""
        with Client(scheduler_file=str(self.file), timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(WORKERS, timeout=PATIENCE)

    def kill_worker(self, moments: random.Random) -> bool:
        """Kill one of the workers, as a batch system does; whether there was one."""
        found = []
        for process in psutil.Process(self.nanny).children():
            with suppress(psutil.Error):
                if any("spawn_main" in word for word in process.cmdline()):
                    found.append(process)
        if not found:
            return False
        with suppress(psutil.NoSuchProcess):
            moments.choice(found).kill()
        return True


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a scheduler and workers, as a person does, and end them."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scheduler.json"
    quiet = ("--no-dashboard", "--host", "127.0.0.1")
    here = ("--scheduler-file", str(file), "--local-directory", str(folder), "--nanny")
    commands = (
        ("scheduler", "--scheduler-file", str(file), "--port", "0", *quiet),
        ("worker", *here, "--nworkers", str(WORKERS), "--nthreads", "1", *quiet),
    )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for words in commands:
            with (folder / f"{words[0]}.log").open("w") as log:
                streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": log}
                command = [sys.executable, "-m", "dask", *words]
                processes.append(subprocess.Popen(command, start_new_session=True, **streams))
        started = Cluster(file, processes[1].pid)
        started.wait_for_workers()
        yield started
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10.0)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
