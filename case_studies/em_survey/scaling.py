"""What the inversion costs as the survey grows: seconds, seconds of processors, and memory at its peak."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import xarray as xr
from accuracy import covered

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Print a row a survey, as each is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--soundings", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000], metavar="N", help="sizes of surveys"
    )
    print(f"{'soundings':>10}{'seconds':>10}{'CPU s':>8}{'peak MiB':>10}{'runs':>8}{'inside 95%':>12}")
    for count in parser.parse_args().soundings:
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
            runs, inside = found.attrs["invgp_runs"], covered(found, truth).mean()
        processors, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        print(f"{count:10,}{seconds:10.0f}{processors:8.0f}{peak:10.0f}{runs:8,}{inside:12.1%}", flush=True)


if __name__ == "__main__":
    main()
