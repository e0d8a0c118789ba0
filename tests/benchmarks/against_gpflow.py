"""One bound and gradient here and in GPflow, measured in turns in the same run.

GPflow and TensorFlow go into a virtual environment of their own, made once in the user's cache folder (or in
`--environment`), never in the repository.

    python tests/benchmarks/against_gpflow.py
    python tests/benchmarks/against_gpflow.py --large --environment /tmp/gpflow
    OPENBLAS_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 python tests/benchmarks/against_gpflow.py

The last one is for a machine with other work on its cores: threads of OpenBLAS that wait for one that is not running
wait actively, which costs several times what is measured.

Both evaluate a full Gaussian, whitened, with a logistic likelihood: here with 100 samples a site, in GPflow with its
quadrature of 20 points. Where the inducing inputs are the sites, GPflow's VGP; otherwise its SVGP.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import environments
import numpy as np
from workload import ALL_BLOCKS, POSTERIOR, Problem, Size, data, length_scale, problem, seconds

import invgp

REQUIREMENTS = ("gpflow>=2.9", "tensorflow-cpu", "tf-keras")
SIZES = (Size(10_000, 20, 200), Size(1_000, 1, 1_000))
LARGE = Size(60_000, 784, 2_400)
PAUSE = 0.3  # seconds between turns, for the idle threads of either side to stop waiting for work
LEARNT = {"posterior": POSTERIOR, "all": ALL_BLOCKS}


def environment(folder: Path) -> Path:
    """The interpreter of an environment with GPflow, made if it is not there; `SystemExit` if it cannot be."""
    return environments.environment(folder, [REQUIREMENTS], ["gpflow"], "GPflow")


class Side:
    """A process that evaluates the bound of another package on request."""

    def __init__(self, process: subprocess.Popen[str], printed: Path) -> None:
        self.process, self.printed = process, printed
        self.versions = self._answer()

    def seconds(self, learnt: str) -> float:
        """Time of one bound and gradient."""
        print(learnt, file=self.process.stdin, flush=True)
        return self._answer()["seconds"]

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise environments.process_error("the other package's process", self.process.wait(), self.printed)
        return json.loads(line)


@contextmanager
def side(python: Path, size: Size, script: str = "_gpflow_side.py") -> Iterator[Side]:
    """Another package's model of a size, in its environment."""
    with tempfile.TemporaryDirectory() as folder:
        files = {"length_scale": float(length_scale(size))}
        for name, array in zip(("X", "Z", "labels"), data(size), strict=True):
            files[name] = str(Path(folder) / f"{name}.npy")
            np.save(files[name], array)
        command = [python, Path(__file__).parent / script, json.dumps(files)]
        printed = Path(folder) / "printed.txt"
        with printed.open("w", encoding="utf-8") as messages:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, text=True
            )
        try:
            yield Side(process, printed)
        finally:
            process.stdin.close()
            process.wait()


def compare(ours: Problem, theirs: Side, learnt: str, repeats: int) -> tuple[float, float]:
    """Median seconds here and there, taken in turns; the first turn is discarded."""
    here, there = [], []
    for _ in range(repeats + 1):
        here.append(seconds(lambda: ours.evaluate(LEARNT[learnt])))
        time.sleep(PAUSE)
        there.append(theirs.seconds(learnt))
        time.sleep(PAUSE)
    return statistics.median(here[1:]), statistics.median(there[1:])


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Measure and print; the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--environment", type=Path, default=environments.cache_folder("gpflow"), help="(default: %(default)s)"
    )
    parser.add_argument("--large", action="store_true", help=f"also {LARGE}: minutes, and 16 GiB of memory")
    parser.add_argument(
        "--repeats", type=int, default=11, help="measurements; the median counts (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    python = environment(chosen.environment)
    ratios, versions = [], {}
    print(f"{'size':52s} {'learnt':10s} {'invgp':>9s} {'GPflow':>9s}   ratio")
    for size in (*SIZES, *((LARGE,) if chosen.large else ())):
        repeats = 1 if size == LARGE else chosen.repeats
        ours = problem(size)
        with side(python, size) as theirs:
            versions = theirs.versions
            for learnt in LEARNT:
                here, there = compare(ours, theirs, learnt, repeats)
                ratios.append(here / there)
                print(f"{size!s:52s} {learnt:10s} {here:7.3f} s {there:7.3f} s   {here / there:.2f}", flush=True)
    found = {"invgp": invgp.__version__, "numpy": np.__version__, **versions, "python": sys.version.split()[0]}
    print("with " + ", ".join(f"{name} {version}" for name, version in found.items()))
    return ratios


if __name__ == "__main__":
    main()
