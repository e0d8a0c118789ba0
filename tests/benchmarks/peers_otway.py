"""What it takes others to find the posterior of the Otway line: simulator runs and seconds to a given accuracy.

    python tests/benchmarks/peers_otway.py

The synthetic line of the case study: 113 sites, 8 latents, 904 unknowns. The reference is `invgp compare`'s: converged
chains. Accuracy is reached when the error of the mean is below 0.1 standard deviations (root mean square) and the
spread within 10% (median). Each method works harder and harder until then, or until its seconds are over; seconds are
those of processors. What another package prints is shown only if it fails.
"""

from __future__ import annotations

import argparse
import json
import signal
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
from tables import Table, tell

import invgp
from invgp.execution.pools import Loop
from invgp.problem import Problem
from invgp.progress import SilentMonitor
from invgp.sampling.simulated_sites import WhitenedPrior
from invgp.sampling.tolerant_simulator import TolerantSimulator
from invgp.validation.reference_chains import reference

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
        return not self.lacking

    @property
    def lacking(self) -> list[str]:
        """What is not accurate enough, in words."""
        lacking = []
        if not self.error < LARGEST_ERROR:
            lacking.append(f"its mean was {self.error:.2f} standard deviations off")
        if not SPREADS[0] < self.ratio < SPREADS[1]:
            lacking.append(f"its standard deviations were {self.ratio:.2f} times those of the chains")
        return lacking


def synthetic_line(folder: Path, sites: int | None = None) -> Problem:
    """The case study's, or some of its sites."""
    survey = folder / "line.csv"
    make = [sys.executable, str(OTWAY / "make_survey.py"), "--output", str(survey)]
    subprocess.run([*make, *([] if sites is None else ["--sites", str(sites)])], check=True, capture_output=True)
    return invgp.load(OTWAY / "otway.toml", data=survey)


def exact_by_chains(problem: Problem, folder: Path, effective: int) -> Moments:
    """By tempered chains on the simulator."""
    simulator = TolerantSimulator.of(problem, folder, Loop(), SilentMonitor())
    chains = reference(problem, simulator, runs=10**8, effective=effective)
    pooled = chains.draws.reshape(-1, *chains.draws.shape[3:])
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
    return attempt(problem, wanted, found, "default settings", int(posterior.attrs["invgp_runs"]), seconds)


def theirs(
    python: Path, method: str, problem: Problem, wanted: Moments, seconds: float, versions: dict[str, str]
) -> Iterator[Attempt]:
    """The accuracy of a method at each stage; the versions of its packages are added to `versions`."""
    with tempfile.TemporaryDirectory() as folder:
        stored, prior = Path(folder) / "problem.npz", WhitenedPrior(problem)
        arrays = {"factor": prior.factor, "mean": prior.mean[0], "data": problem.survey.Y, "noise": problem.noise_std}
        np.savez(stored, **arrays)
        side = Path(__file__).with_name("_otway_side.py")
        command = [python, side, method, stored, folder, str(seconds)]
        printed = Path(folder) / "printed.txt"
        with (
            printed.open("w", encoding="utf-8") as messages,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=messages, text=True) as process,
        ):
            try:
                versions |= json.loads(process.stdout.readline() or '{"versions": {}}')["versions"]
                for line in process.stdout:
                    reported = json.loads(line)
                    with np.load(reported["file"]) as moments:
                        found = Moments(moments["mean"], moments["std"])
                    yield attempt(problem, wanted, found, reported["effort"], reported["runs"], reported["seconds"])
            finally:
                process.terminate()
        if process.returncode not in (0, -signal.SIGTERM):
            raise environments.process_error(method, process.returncode, printed)


def until_reached(attempts: Iterator[Attempt]) -> Attempt:
    """The first that is accurate enough, or the one with the most effort."""
    for one in attempts:
        last = one
        if one.reached:
            break
    attempts.close()
    return last


def table(found: Mapping[str, Attempt], allowed: float, sites: int, versions: Mapping[str, str]) -> Table:
    """A row a method, with ratios to ours; they are bounds from below for those that did not get there."""
    base = found["invgp"]

    def row(name: str, one: Attempt) -> tuple[str, ...]:
        least = "" if one.reached else "> "
        ratios = f"{least}{one.runs / base.runs:,.0f}", f"{least}{one.seconds / base.seconds:,.1f}"
        reached = "reached" if one.reached else "not reached"
        accuracy = f"{one.error:.3f}", f"{one.ratio:.2f}"
        return name, f"{one.runs:,.0f}", ratios[0], f"{one.seconds:.1f}", ratios[1], *accuracy, reached, one.effort

    short = [
        f"{name} did not reach the accuracy: after {one.effort} {' and '.join(one.lacking)}."
        for name, one in found.items()
        if not one.reached
    ]
    return Table(
        "Cost of an accurate posterior for the Otway line",
        f"Simulator runs per site and CPU seconds until the posterior of the synthetic line ({sites} sites, 8 latents "
        f"each) is accurate. Accurate means that the mean is within {LARGEST_ERROR:g} standard deviations of that of "
        f"converged chains (root mean square) and that the standard deviations are {SPREADS[0]:g} to {SPREADS[1]:g} "
        "times those of the chains (median). invgp runs once with default settings. The effort of the other methods "
        f"increases until they are accurate or have used {allowed:g} s; > marks a method that did not become accurate. "
        "The time of the simulator is negligible, so the seconds are those of the methods. All methods use the "
        "whitened fields as unknowns and no gradient of the simulator. ES-MDA makes four assimilations without "
        "localisation. emcee uses stretch moves, which suit tens rather than hundreds of unknowns, with walkers that "
        "start from the prior. Slice sampling is one chain that starts from the prior. Both discard the first half of "
        "their steps. The reference is tempered Hamiltonian Monte Carlo on the simulator (`invgp compare`). PyMC uses "
        "Adam with a learning rate of 0.01 and gradients by finite differences, which take nine runs per site each.",
        (
            *("method", "runs per site", "ratio to invgp", "CPU s", "ratio to invgp"),
            *("error of mean", "spread", "accuracy", "effort"),
        ),
        tuple(row(name, one) for name, one in found.items()),
        versions,
        tuple(short),
    )


def main(arguments: Sequence[str] | None = None) -> Table:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", type=Path, default=environments.cache_folder("samplers"))
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of processors, for each other method (default: 60)"
    )
    parser.add_argument("--effective", type=int, default=1000, help="effective draws of the reference (default: 1000)")
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
        tell("converged chains of the Otway line")
        wanted = exact_by_chains(problem, Path(name), chosen.effective)
        found = {"invgp": ours(problem, wanted)}
        for method in chosen.methods:
            tell(METHODS[method])
            stages = theirs(python, method, problem, wanted, chosen.seconds, versions)
            found[METHODS[method]] = until_reached(stages)
    reported = table(found, chosen.seconds, problem.survey.size, versions)
    print(reported)
    return reported


if __name__ == "__main__":
    main()
