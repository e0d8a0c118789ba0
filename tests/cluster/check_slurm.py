"""One inversion on this machine, the same through Slurm with a job cancelled in the middle: the same, to the bit.

Started by tests/cluster/slurm.sh, which sets up Slurm.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import xarray as xr
from dask_jobqueue import SLURMCluster

from invgp.ledger import Ledger

PATIENCE = 300.0  # s, for a busy machine
RUNS_BEFORE_THE_CANCELLATION = 10
CONFIG = """\
title = "A short line"

[survey]
file = "sites.csv"
coordinates.position.unit = "m"

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
adapter = "executable"
command = ["./simulator.sh", "{depth}"]
inputs = ["depth"]
outputs = ["time"]

[noise]
std.time = 0.02

[inference]
posterior = "full gaussian"
emulator = false
samples = 16
max_evaluations = 2
"""
SITES = "position,t\n0,0.50\n400,0.52\n800,0.49\n1200,0.47\n"
SIMULATOR = """\
#!/bin/sh
echo "$1" >> "$(dirname "$0")/started"
sleep 0.4
awk "BEGIN { print 2 * $1 / 2000 }"
"""


def main(folder: Path) -> None:
    """Make the survey, invert it both ways, and compare."""
    folder.mkdir(parents=True)
    (folder / "survey.toml").write_text(CONFIG)
    (folder / "sites.csv").write_text(SITES)
    (folder / "simulator.sh").write_text(SIMULATOR)
    (folder / "simulator.sh").chmod(0o755)
    print("on this machine:", invgp(folder, "alone.nc").communicate()[0].strip())
    (folder / "started").unlink()
    with SLURMCluster(
        queue="debug",
        cores=1,
        memory="1GB",
        walltime="01:00:00",
        python=sys.executable,
        local_directory=str(folder),
        log_directory=str(folder / "logs"),
        scheduler_options={"host": "127.0.0.1", "dashboard_address": ":0"},
    ) as cluster:
        cluster.adapt(minimum=2, maximum=2, interval="1s")  # a job that is cancelled is submitted anew
        process = invgp(folder, "slurm.nc", "--scheduler", cluster.scheduler_address)
        cancelled = cancel_in_the_middle(process, folder / "slurm.ledger.sqlite")
        printed, _ = process.communicate(timeout=PATIENCE)
        print("through Slurm:  ", printed.strip())
        print(f"cancelled: job {cancelled}; jobs at the end: {', '.join(jobs())}")
    if process.returncode:
        raise SystemExit("the inversion through Slurm failed")
    alone, through = (xr.load_dataset(folder / f"{name}.nc").drop_attrs() for name in ("alone", "slurm"))
    xr.testing.assert_identical(alone, through)
    recorded = ledger_rows(folder / "slurm.ledger.sqlite")
    started = len((folder / "started").read_text().split())
    print(f"the posteriors are identical, to the bit; {recorded} runs recorded, {started} started")


def invgp(folder: Path, output: str, *options: str) -> subprocess.Popen[str]:
    """`invgp run`, under way."""
    command = [sys.executable, "-m", "invgp", "run", "survey.toml", "-o", output, *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def cancel_in_the_middle(process: subprocess.Popen[str], ledger: Path) -> str:
    """Cancel a job that runs, once some runs are done."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.2)
        running = jobs("--states=RUNNING")
        if len(running) == 2 and ledger_rows(ledger) >= RUNS_BEFORE_THE_CANCELLATION:
            subprocess.run(["scancel", "--signal=KILL", running[0]], check=True)
            subprocess.run(["scancel", running[0]], check=True)
            return running[0]
    raise SystemExit("there was no moment to cancel a job")


def jobs(*options: str) -> list[str]:
    """The numbers of the jobs in the queue."""
    listed = subprocess.run(
        ["squeue", "--noheader", "--format=%A", *options], check=True, capture_output=True, text=True
    )
    return listed.stdout.split()


def ledger_rows(path: Path) -> int:
    """Runs that are done."""
    if not path.exists():
        return 0
    with Ledger(path, read_only=True) as ledger:
        return len(list(ledger.runs()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
