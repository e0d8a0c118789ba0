"""Measure the cost of the inversion by the size of the survey: seconds, processor seconds and peak memory.

With --record the rows go to results.json too, beside those of other sizes that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from accuracy import find_covered

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import at_least, run
from recording import record

HERE = Path(__file__).resolve().parent
BARRED = 10_000  # number of soundings for which limits are set, on two cores
HALF_AN_HOUR = 1800.0  # s
MEMORY = 8192.0  # MiB
LEAST, MOST = 90.0, 98.0  # % of truths inside 95% intervals
MACHINE = "Measured on two cores shared with other programs, with one BLAS thread and 200 inducing points."


@dataclass(frozen=True)
class Cost:
    """The cost of one inversion; coverage is the share of truths inside the 95% intervals."""

    soundings: int
    seconds: float
    processors: float  # s
    peak: float  # MiB
    runs: int
    coverage: float

    def __str__(self) -> str:
        sizes = f"{self.soundings:10,}{self.seconds:10.0f}{self.processors:8.0f}{self.peak:10.0f}"
        return f"{sizes}{self.runs:8,}{self.coverage:12.1%}"

    def rows(self) -> list[dict[str, object]]:
        """Return the rows for results.json."""
        seconds, processors, peak, runs, inside = (
            {"measure": measure, "setting": self.setting, "ours": value}
            for measure, value in (
                ("seconds", self.seconds),
                ("CPU seconds", self.processors),
                ("peak memory, MiB", self.peak),
                ("runs", self.runs),
                ("truths inside 95%, %", 100.0 * self.coverage),
            )
        )
        if self.soundings != BARRED:
            return [seconds, processors, peak, runs, inside]
        return [
            seconds | {"reference": HALF_AN_HOUR, "source": "half an hour"},
            processors,
            peak | {"reference": MEMORY, "source": "8 GiB"},
            runs,
            inside | {"reference": LEAST, "source": "at least", "better": "higher"},
            inside | {"reference": MOST, "source": "at most"},
        ]

    @property
    def setting(self) -> str:
        """Name of the survey in results.json."""
        return f"{self.soundings:,} soundings"


def main() -> None:
    """Print one row per survey as soon as it is finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--soundings",
        type=at_least(1),
        nargs="+",
        default=[1000, 10_000, 100_000],
        metavar="N",
        help="sizes of surveys (default: 1000 10000 100000)",
    )
    parser.add_argument("--record", action="store_true", help="also write the rows to results.json")
    arguments = parser.parse_args()
    print(f"{'soundings':>10}{'seconds':>10}{'CPU s':>8}{'peak MiB':>10}{'runs':>8}{'inside 95%':>12}")
    for count in arguments.soundings:
        cost = measure_survey(count)
        print(cost, flush=True)
        if arguments.record:
            keep(cost)


def measure_survey(count: int) -> Cost:
    """Generate a survey and invert it, in a separate process."""
    survey, posterior = HERE / "data" / f"scaling_{count}.csv", HERE / "results" / f"scaling_{count}.nc"
    posterior.parent.mkdir(exist_ok=True)
    make = [sys.executable, str(HERE / "make_survey.py"), "--soundings", str(count), "--output", str(survey)]
    subprocess.run(make, check=True, capture_output=True)
    command = [sys.executable, "-m", "invgp", "run", "em_survey.toml", "--quiet"]
    start = time.perf_counter()
    with subprocess.Popen([*command, "--data", str(survey), "-o", str(posterior)], cwd=HERE) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"scaling.py: the inversion of {count} soundings ended with exit code {process.returncode}.")
    truth = np.loadtxt(survey.with_name(f"{survey.stem}_truth.csv"), delimiter=",", skiprows=1)[:, 2:]
    with xr.open_dataset(posterior) as found:
        runs, inside = int(found.attrs["invgp_runs"]), float(find_covered(found, truth).mean())
    return Cost(count, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, runs, inside)


def keep(cost: Cost) -> None:
    """Write the rows of one size to results.json, and keep those of other sizes."""
    path = HERE / "results.json"
    (entry,) = json.loads(path.read_text(encoding="utf-8")) if path.exists() else [{"rows": []}]
    others = [row for row in entry["rows"] if row["setting"] != cost.setting]
    found = {
        "experiment": "em_survey",
        "title": "Electromagnetic soundings at survey scale",
        "command": "python case_studies/em_survey/scaling.py",
        "page": "em_survey.md",
        "figure": "em_survey.png",
        "caption": "Resistivity of four layers from 10,000 soundings: truth, posterior mean, and standard deviation "
        "over the mean",
        "remark": MACHINE,
        "rows": sorted([*others, *cost.rows()], key=lambda row: int(row["setting"].split()[0].replace(",", ""))),
    }
    record(HERE, found)


if __name__ == "__main__":
    run(main)
