"""Set the posterior of a field model beside converged slice sampling, and beside ES-MDA with as many runs.

python case_studies/compare_smoothers.py CONFIG [--runs 100 200 500 1000] [--seeds 2]

Errors of the mean are root mean squares over the grid, in standard deviations of the reference; spreads are medians
over the grid, in those of the reference. ES-MDA, with four assimilations, is that of iterative_ensemble_smoother.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from iterative_ensemble_smoother import ESMDA

import invgp
from invgp.core.backend import place
from invgp.core.field.gaussian import Gaussian
from invgp.core.field.slices import slice_chains
from invgp.inference.field import FieldInversion, Whitening
from invgp.inference.grid_modes import field_of
from invgp.inference.simulator import Simulator
from invgp.problem import Problem

ASSIMILATIONS = 4
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


def reference(target: Target, near: Gaussian, steps: int) -> tuple[Floats, Floats, float]:
    """Mean and covariance by slice sampling of the simulator itself, and the largest R-hat."""
    chains = slice_chains(target.log_density, near, np.random.default_rng(7), 64, steps)[steps // 4 :]
    flat = chains.reshape(-1, target.size)
    within, between = chains.var(axis=0).mean(axis=0), chains.mean(axis=0).var(axis=0)
    w = flat @ np.asarray(near.factor).T + np.asarray(near.mean)
    return w.mean(axis=0), np.cov(w.T), float(np.sqrt(1.0 + between / within).max())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 200, 500, 1000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="of each of the 64 chains of the reference")
    arguments = parser.parse_args()
    with TemporaryDirectory() as scratch:
        target = Target(invgp.load(arguments.config), Path(scratch))
        near, _ = inverted(target, max(arguments.runs), 100)
        mean, covariance, rhat = reference(target, near, arguments.steps)
        exact = target.summary(mean, covariance)
        print(f"{target.problem.title}: {target.size} modes, {target.whitened.data.size} data; R-hat {rhat:.3f}")
        print("| runs | seed | invgp: runs used | error of mean | spread | ES-MDA: error of mean | spread |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for runs in arguments.runs:
            for seed in range(arguments.seeds):
                ours, used = inverted(target, runs, seed)
                rows = [(np.asarray(ours.mean), np.asarray(ours.covariance)), smoothed(target, runs, seed)]
                cells = [cell(target, exact, *row) for row in rows]
                print(f"| {runs} | {seed} | {used} | {cells[0]} | {cells[1]} |", flush=True)


def cell(target: Target, exact: tuple[Floats, Floats], mean: Floats, covariance: Floats) -> str:
    """Error of the mean and ratio of the spreads."""
    centre, spread = target.summary(mean, covariance)
    error = np.sqrt(np.mean(((centre - exact[0]) / exact[1]) ** 2))
    return f"{error:.3f} | {np.median(spread / exact[1]):.3f}"


if __name__ == "__main__":
    main()
