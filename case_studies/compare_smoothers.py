"""Compare the posterior of a field model with converged chains on its simulator, and with ES-MDA of as many runs.

python case_studies/compare_smoothers.py CONFIG [--runs 100 200 500 1000] [--seeds 2] [--record]

Errors of the mean are root mean squares over the grid, in standard deviations of the reference; spreads are medians
over the grid, in those of the reference. ES-MDA, with four assimilations, is that of iterative_ensemble_smoother.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from command_line import at_least, field_problem, run
from iterative_ensemble_smoother import ESMDA
from recording import record

from invgp.core.backend import select_backend
from invgp.core.field.elliptical_slices import Density, run_slice_chains
from invgp.execution.simulator import Simulator
from invgp.inference.field import prepare_field, search_field
from invgp.inference.field_solution import field_moments
from invgp.inference.field_state import FieldSearch, FieldSearchState
from invgp.inference.runner import Runner
from invgp.latent_model.noise_density import Whitening
from invgp.latent_model.prior_field import field_of
from invgp.problem import Problem

ASSIMILATIONS = 4
CHAINS = 64
REFINING = 1000  # steps of sampling the regression before the chains start
LEAST = 5  # fewest runs of each chain: a quarter is discarded, and R-hat needs four
BETWEEN = 10  # steps of sampling the regression between two runs of a chain
Floats = np.ndarray


class Target:
    """The problem in whitened variables: outputs in units of the noise."""

    def __init__(self, problem: Problem, directory: Path) -> None:
        self.problem, self.directory = problem, directory
        self.field = field_of(problem, select_backend("cpu"))
        self.whitened = Whitening(problem)
        self.size = sum(basis.size for basis in self.field.bases)
        self.nodes = sum(len(basis.omitted_variance) for basis in self.field.bases)

    def outputs(self, w: Floats) -> Floats:
        """Compute outputs (S, D) at w (S, R)."""
        outputs, valid, _ = Simulator(self.problem, self.directory).run_fields(self.field.latents(w), "reference")
        return np.where(valid[:, None], self.whitened(np.where(valid[:, None, None], outputs, 0.0)), np.inf)

    def log_density(self, w: Floats) -> Floats:
        """Compute the joint log density of w and Gaussian data."""
        return -0.5 * np.sum((self.whitened.data - self.outputs(w)) ** 2, axis=1) - 0.5 * np.sum(w**2, axis=1)

    def summary(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Compute mean and standard deviation of the processes on the grid, without variance that the modes omit."""
        spread = np.sqrt(np.diagonal(self.field.covariance(covariance), axis1=1, axis2=2))
        return self.field.latents(mean[None])[0], spread


def search_with(target: Target, runs: int, seed: int) -> tuple[FieldSearch, FieldSearchState, int]:
    """Search with at most this number of runs; return the search, its last state, and the number of runs."""
    problem = target.problem
    runner = Runner(Simulator(problem, target.directory, budget=runs))
    settings = problem.inference.replace(max_runs=runs)
    search, state = prepare_field(replace(problem, inference=settings), select_backend("cpu"), runner, seed)
    return search, search_field(search, runner, state), runner.simulator.runs


def run_smoother(target: Target, runs: int, seed: int) -> tuple[Floats, Floats]:
    """Compute mean and covariance of the ensemble of ES-MDA."""
    members = runs // ASSIMILATIONS
    w = np.random.default_rng(seed).standard_normal((target.size, members))
    data = target.whitened.data
    smoother = ESMDA(covariance=np.ones(data.size), observations=data, alpha=ASSIMILATIONS, seed=seed)
    for _ in range(smoother.num_assimilations()):
        smoother.prepare_assimilation(Y=target.outputs(w.T).T)
        w = smoother.assimilate_batch(X=w)
    return w.mean(axis=1), np.cov(w)


class Reference(NamedTuple):
    """Mean and standard deviation of the processes on the grid, with diagnostics of the chains."""

    mean: Floats
    std: Floats
    r_hat: float
    ess: float


def reference(target: Target, runs: int, steps: int) -> Reference:
    """Sample the exact posterior by chains on the simulator itself.

    Elliptical slice sampling of the regression that an inversion leaves proposes, and the simulator decides, so that
    its own density is sampled whatever the regression is worth (delayed acceptance, Christen and Fox 2005).
    """
    rng = np.random.default_rng(7)
    _, found, _ = search_with(target, runs, 100)
    algorithm, state = found.model.algorithm, found.inference
    near = algorithm.refine(state, rng, REFINING).q
    regression, weights = state.regression, algorithm.linearised_data(state).weights
    density = Density(
        regression.inner_products,
        lambda w, inner_products: algorithm.likelihood.log_density(regression, w, weights, inner_products),
    )

    def excess(z: Floats) -> Floats:
        w = near.samples(z)
        return target.log_density(w) - algorithm.likelihood.log_density(regression, w, weights)

    z = run_slice_chains(density, near, rng, CHAINS, REFINING)[-1]
    here, visited = excess(z), []
    for _ in range(steps):
        proposed = run_slice_chains(density, near, rng, CHAINS, BETWEEN, z)[-1]
        there = excess(proposed)
        accepted = np.log(rng.random(CHAINS)) < there - here
        z, here = np.where(accepted[:, None], proposed, z), np.where(accepted, there, here)
        visited.append(z)
    w = near.samples(np.stack(visited[steps // 4 :]).reshape(-1, target.size))
    nodes = target.field.latents(w).reshape(-1, CHAINS, target.nodes)
    r_hat, ess = (
        [diagnostic(nodes[..., node], chain_axis=1, draw_axis=0) for node in range(target.nodes)]
        for diagnostic in (array_stats.rhat, array_stats.ess)
    )
    return Reference(*target.summary(w.mean(axis=0), np.cov(w.T)), float(np.max(r_hat)), float(np.min(ess)))


class Score(NamedTuple):
    """Differences between a posterior and the reference."""

    error: float
    spread: float

    @property
    def cell(self) -> str:
        """Return the text for a cell of the table."""
        return f"{self.error:.3f} | {self.spread:.3f}"


def score(target: Target, exact: Reference, mean: Floats, covariance: Floats) -> Score:
    """Compute the error of the mean and the ratio of the spreads."""
    centre, spread = target.summary(mean, covariance)
    error = np.sqrt(np.mean(((centre - exact.mean) / exact.std) ** 2))
    return Score(float(error), float(np.median(spread / exact.std)))


def result_rows(runs: int, ours: list[Score], theirs: list[Score]) -> list[dict[str, Any]]:
    """Return the rows of results.json for one number of runs, averaged over the seeds."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--runs", type=at_least(2 * ASSIMILATIONS), nargs="+", default=[100, 200, 500, 1000])
    parser.add_argument("--seeds", type=at_least(1), default=2)
    parser.add_argument(
        "--steps", type=at_least(LEAST), default=600, help=f"number of steps of each of the {CHAINS} chains"
    )
    parser.add_argument("--record", action="store_true", help="also write the means over the seeds to results.json")
    chosen = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as scratch:
        target = Target(field_problem(chosen.config), Path(scratch))
        exact = reference(target, max(chosen.runs), chosen.steps)
        data = target.whitened.data.size
        print(f"{target.problem.title}: {target.size} modes, {data} data")
        chains = f"{CHAINS} chains: R-hat at most {exact.r_hat:.3f}, effective sample size at least {exact.ess:,.0f}"
        print(f"{chains}\n", flush=True)
        print("| runs | seed | invgp: runs used | error of mean | spread | ES-MDA: error of mean | spread |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for runs in chosen.runs:
            ours, theirs = [], []
            for seed in range(chosen.seeds):
                search, state, used = search_with(target, runs, seed)
                q = field_moments(search, state)
                ours.append(score(target, exact, np.asarray(q.mean), np.asarray(q.covariance)))
                theirs.append(score(target, exact, *run_smoother(target, runs, seed)))
                print(f"| {runs} | {seed} | {used} | {ours[-1].cell} | {theirs[-1].cell} |", flush=True)
            rows += result_rows(runs, ours, theirs)
    if chosen.record:
        folder = chosen.config.resolve().parent.name
        record(
            chosen.config.resolve().parent,
            {
                "experiment": f"{folder}-smoothers",
                "title": f"{target.problem.title}: comparison with an ensemble smoother",
                "command": f"bash case_studies/{folder}/run.sh compare",
                "page": f"{folder}.md",
                "remark": f"Reference: slice sampling of the simulator, {chains}. Means over {chosen.seeds} seeds.",
                "rows": rows,
            },
        )


if __name__ == "__main__":
    run(main)
