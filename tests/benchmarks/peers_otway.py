"""What it takes others to find the posterior of the Otway line: simulator runs and seconds to a given accuracy.

    python tests/benchmarks/peers_otway.py

The synthetic line of the case study: 113 sites, 8 latents, 904 unknowns. The reference is `invgp compare`'s: converged
chains. Accuracy is reached when the error of the mean is below 0.1 standard deviations (root mean square) and the
spread within 10% (median). Each method works harder and harder until then, or until its seconds are over; seconds are
those of processors.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import environments
import numpy as np

import invgp
from invgp.inference.monitor import Silent
from invgp.inference.pools import Loop
from invgp.inference.reference import Direct, reference
from invgp.inference.target import WhitenedPrior
from invgp.problem import Problem

OTWAY = Path(__file__).resolve().parents[2] / "case_studies" / "otway"
REQUIREMENTS = ("iterative_ensemble_smoother", "emcee", "pymc")
MODULES = ("iterative_ensemble_smoother", "emcee", "pymc")
METHODS = {
    "ES-MDA": "ES-MDA",
    "emcee": "emcee",
    "ESS": "elliptical slice sampling",
    "ADVI": "PyMC ADVI",
    "full-rank ADVI": "PyMC full-rank ADVI",
}
LARGEST_ERROR, SPREADS = 0.1, (0.9, 1.1)


class Moments(NamedTuple):
    """Of the latents at the sites, (N, Q)."""

    mean: np.ndarray
    std: np.ndarray


@dataclass(frozen=True)
class Attempt:
    """What a method had reached, and what it took."""

    effort: str
    runs: float  # a site
    seconds: float  # of processors
    error: float
    ratio: float

    @property
    def reached(self) -> bool:
        """Whether it is as accurate as it should be."""
        return self.error < LARGEST_ERROR and SPREADS[0] < self.ratio < SPREADS[1]


def synthetic_line(folder: Path, sites: int | None = None) -> Problem:
    """The case study's, or some of its sites."""
    survey = folder / "line.csv"
    make = [sys.executable, str(OTWAY / "make_survey.py"), "--output", str(survey)]
    subprocess.run([*make, *([] if sites is None else ["--sites", str(sites)])], check=True, capture_output=True)
    return invgp.load(OTWAY / "otway.toml", data=survey)


def exact(problem: Problem, folder: Path, draws: int) -> Moments:
    """By chains around a fitted Gaussian."""
    chains = reference(problem, Direct.of(problem, folder, Loop(), Silent()), draws=draws)
    pooled = chains.draws.reshape(-1, *chains.draws.shape[2:])
    return Moments(pooled.mean(axis=0), pooled.std(axis=0, ddof=1))


def attempt(problem: Problem, wanted: Moments, found: Moments, effort: str, runs: int, seconds: float) -> Attempt:
    """Beside the reference."""
    error = np.sqrt(np.mean(((found.mean - wanted.mean) / wanted.std) ** 2))
    return Attempt(effort, runs / problem.survey.size, seconds, float(error), float(np.median(found.std / wanted.std)))


def ours(problem: Problem, wanted: Moments) -> Attempt:
    """As `invgp run` finds it."""
    start = time.process_time()
    posterior = invgp.invert(problem)
    seconds = time.process_time() - start
    found = Moments(
        *(np.hstack([posterior[f"{n}{end}"].values for n in ("depth", "velocity")]) for end in ("", "_std"))
    )
    return attempt(problem, wanted, found, "as it comes", int(posterior.attrs["invgp_runs"]), seconds)


def theirs(
    python: Path, method: str, problem: Problem, wanted: Moments, seconds: float, versions: dict[str, str]
) -> Iterator[Attempt]:
    """What a method reached at each stage; `versions` is told those of its packages."""
    with tempfile.TemporaryDirectory() as folder:
        stored, prior = Path(folder) / "problem.npz", WhitenedPrior(problem)
        arrays = {"factor": prior.factor, "mean": prior.mean, "data": problem.survey.Y, "noise": problem.noise_std}
        np.savez(stored, **arrays)
        side = Path(__file__).with_name("_otway_side.py")
        command = [python, side, method, stored, folder, str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                versions |= json.loads(process.stdout.readline() or '{"versions": {}}')["versions"]
                for line in process.stdout:
                    told = json.loads(line)
                    with np.load(told["file"]) as moments:
                        found = Moments(moments["mean"], moments["std"])
                    yield attempt(problem, wanted, found, told["effort"], told["runs"], told["seconds"])
            finally:
                process.terminate()
        if process.returncode > 0:
            raise SystemExit(f"{method} ended with exit code {process.returncode}; its messages are above")


def until_reached(attempts: Iterator[Attempt]) -> Attempt:
    """The first that is accurate enough, or the one with the most effort."""
    for one in attempts:
        last = one
        if one.reached:
            break
    attempts.close()
    return last


def print_table(found: Mapping[str, Attempt]) -> None:
    """A row a method, with ratios to ours."""
    base = found["invgp"]
    head = f"{'runs a site':>12}{'ratio':>12}{'CPU s':>9}{'ratio':>7}{'error of mean':>15}{'spread':>8}  accuracy"
    print(f"{'to the posterior of the Otway line':36}{head}")
    for name, one in found.items():
        runs, seconds = one.runs / base.runs, one.seconds / base.seconds
        reached = "reached" if one.reached else "not reached"
        print(
            f"{name:36}{one.runs:12,.0f}{runs:12,.1f}{one.seconds:9.1f}{seconds:7.1f}{one.error:15.3f}{one.ratio:8.2f}"
            f"  {reached}: {one.effort}"
        )


def main(arguments: Sequence[str] | None = None) -> dict[str, Attempt]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", type=Path, default=environments.cache_folder("samplers"))
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of processors, for each other method (default: 60)"
    )
    parser.add_argument(
        "--draws", type=int, default=1000, help="of each of the reference's four chains (default: 1000)"
    )
    parser.add_argument("--sites", type=int, help="of the line (default: all 113)")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    chosen = parser.parse_args(arguments)
    versions = {"invgp": invgp.__version__, "numpy": np.__version__}
    python = (
        environments.environment(chosen.environment, [REQUIREMENTS], MODULES, "The samplers")
        if chosen.methods
        else None
    )
    with tempfile.TemporaryDirectory() as name:
        problem = synthetic_line(Path(name), chosen.sites)
        wanted = exact(problem, Path(name), chosen.draws)
        found = {"invgp": ours(problem, wanted)}
        for method in chosen.methods:
            stages = theirs(python, method, problem, wanted, chosen.seconds, versions)
            found[METHODS[method]] = until_reached(stages)
    print_table(found)
    print("with " + ", ".join(f"{package} {number}" for package, number in versions.items()))
    return found


if __name__ == "__main__":
    main()
