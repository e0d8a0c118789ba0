"""Set the posterior of a field model beside converged slice sampling, and beside ES-MDA with as many runs.

python case_studies/compare_smoothers.py CONFIG [--runs 100 200 500 1000] [--seeds 2] [--record]

Errors of the mean are root mean squares over the grid, in standard deviations of the reference; spreads are medians
over the grid, in those of the reference. ES-MDA, with four assimilations, is that of iterative_ensemble_smoother.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from iterative_ensemble_smoother import ESMDA
from recording import record

import invgp
from invgp.core.backend import place
from invgp.core.field.gaussian import Gaussian
from invgp.core.field.slices import slice_chains
from invgp.inference.field import FieldInversion, Whitening
from invgp.inference.grid_modes import field_of
from invgp.inference.simulator import Simulator
from invgp.problem import Problem

ASSIMILATIONS = 4
CHAINS = 64
Floats = np.ndarray


class Target:
    """The problem in whitened variables: outputs in units of the noise."""

    def __init__(self, problem: Problem, directory: Path) -> None:
        self.problem, self.directory = problem, directory
        self.field = field_of(problem, place("cpu"))
        self.whitened = Whitening(problem)
        self.size = sum(basis.size for basis in self.field.bases)

    def outputs(self, w: Floats) -> Floats:
        """(S, D), at w (S, R)."""
        outputs, valid = Simulator(self.problem, self.directory).run_fields(self.field.latents(w), "reference")
        return np.where(valid[:, None], self.whitened(np.where(valid[:, None, None], outputs, 0.0)), np.inf)

    def log_density(self, w: Floats) -> Floats:
        """Of w and Gaussian data."""
        return -0.5 * np.sum((self.whitened.data - self.outputs(w)) ** 2, axis=1) - 0.5 * np.sum(w**2, axis=1)

    def summary(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the processes on the grid, without what the modes leave open."""
        spread = np.sqrt(np.diagonal(self.field.covariance(covariance), axis1=1, axis2=2))
        return self.field.latents(mean[None])[0], spread


def inverted(target: Target, runs: int, seed: int) -> tuple[Gaussian, int]:
    """Ours, with the runs that it took."""
    problem = target.problem
    simulator = Simulator(problem, target.directory, budget=runs)
    settings = replace(problem.inference, max_runs=runs)
    inversion = FieldInversion(replace(problem, inference=settings), place("cpu"), simulator, seed)
    inversion.run()
    return inversion.refined().q, simulator.runs


def smoothed(target: Target, runs: int, seed: int) -> tuple[Floats, Floats]:
    """Mean and covariance of the ensemble of ES-MDA."""
    members = runs // ASSIMILATIONS
    w = np.random.default_rng(seed).standard_normal((target.size, members))
    data = target.whitened.data
    smoother = ESMDA(covariance=np.ones(data.size), observations=data, alpha=ASSIMILATIONS, seed=seed)
    for _ in range(smoother.num_assimilations()):
        smoother.prepare_assimilation(Y=target.outputs(w.T).T)
        w = smoother.assimilate_batch(X=w)
    return w.mean(axis=1), np.cov(w)


class Reference(NamedTuple):
    """Mean and standard deviation of the processes on the grid, and what the chains behind them are worth."""

    mean: Floats
    std: Floats
    r_hat: float
    ess: float


def reference(target: Target, near: Gaussian, steps: int) -> Reference:
    """The posterior by slice sampling of the simulator itself, from chains that start about a Gaussian near it."""
    chains = slice_chains(target.log_density, near, np.random.default_rng(7), CHAINS, steps)[steps // 4 :]
    w = chains.reshape(-1, target.size) @ np.asarray(near.factor).T + np.asarray(near.mean)
    latents = target.field.latents(w).reshape(-1, CHAINS, *target.field.latents(w[:1]).shape[1:])
    r_hat, ess = (diagnostic(latents, chain_axis=1, draw_axis=0) for diagnostic in (array_stats.rhat, array_stats.ess))
    return Reference(*target.summary(w.mean(axis=0), np.cov(w.T)), float(np.max(r_hat)), float(np.min(ess)))


class Score(NamedTuple):
    """How far a posterior is from the reference."""

    error: float
    spread: float

    @property
    def cell(self) -> str:
        """In a row of the table."""
        return f"{self.error:.3f} | {self.spread:.3f}"


def score(target: Target, exact: Reference, mean: Floats, covariance: Floats) -> Score:
    """Error of the mean and ratio of the spreads."""
    centre, spread = target.summary(mean, covariance)
    error = np.sqrt(np.mean(((centre - exact.mean) / exact.std) ** 2))
    return Score(float(error), float(np.median(spread / exact.std)))


def recorded(runs: int, ours: list[Score], theirs: list[Score]) -> list[dict[str, Any]]:
    """Rows of results.json for one number of runs, averaged over the seeds."""
    measures = {
        "error of the mean, in exact standard deviations": lambda found: found.error,
        "distance of the ratio of spreads from 1": lambda found: abs(found.spread - 1.0),
    }
    return [
        {
            "measure": measure,
            "setting": f"{runs:,} runs",
            "ours": round(float(np.mean([of(found) for found in ours])), 3),
            "reference": round(float(np.mean([of(found) for found in theirs])), 3),
            "source": "ES-MDA",
            "better": "lower",
        }
        for measure, of in measures.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 200, 500, 1000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="of each of the 64 chains of the reference")
    parser.add_argument("--record", action="store_true", help="write the means over the seeds to results.json too")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as scratch:
        target = Target(invgp.load(arguments.config), Path(scratch))
        near, _ = inverted(target, max(arguments.runs), 100)
        exact = reference(target, near, arguments.steps)
        data = target.whitened.data.size
        print(f"{target.problem.title}: {target.size} modes, {data} data")
        chains = f"{CHAINS} chains: R-hat at most {exact.r_hat:.3f}, effective sample size at least {exact.ess:,.0f}"
        print(f"{chains}\n", flush=True)
        print("| runs | seed | invgp: runs used | error of mean | spread | ES-MDA: error of mean | spread |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for runs in arguments.runs:
            ours, theirs = [], []
            for seed in range(arguments.seeds):
                q, used = inverted(target, runs, seed)
                ours.append(score(target, exact, np.asarray(q.mean), np.asarray(q.covariance)))
                theirs.append(score(target, exact, *smoothed(target, runs, seed)))
                print(f"| {runs} | {seed} | {used} | {ours[-1].cell} | {theirs[-1].cell} |", flush=True)
            rows += recorded(runs, ours, theirs)
    if arguments.record:
        folder = arguments.config.resolve().parent.name
        record(
            arguments.config.resolve().parent,
            {
                "experiment": f"{folder}-smoothers",
                "title": f"{target.problem.title}: beside an ensemble smoother",
                "command": f"bash case_studies/{folder}/run.sh compare",
                "page": f"{folder}.md",
                "remark": f"Against slice sampling, {chains}. Means over {arguments.seeds} seeds.",
                "rows": rows,
            },
        )


if __name__ == "__main__":
    main()
