"""Compare the posterior of a field model with and without Jacobians with converged chains on its simulator.

python case_studies/compare_jacobians.py CONFIG JACOBIAN_CONFIG [--runs 16 32 50] [--plain 50 200] [--seeds 2]

CONFIG has the simulator without derivatives, and JACOBIAN_CONFIG the same one with them. Errors of the mean are root
mean squares over the grid, in standard deviations of the reference; spreads are medians over the grid, in those of the
reference. The chains are Metropolis chains on the simulator without derivatives, whose proposals come from the Gaussian
posterior with the most runs and Jacobians (preconditioned Crank-Nicolson steps around it).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from arviz_stats.base.array import array_stats
from command_line import at_least, field_problem, run

from invgp.core.backend import select_backend
from invgp.execution.simulator import Simulator
from invgp.inference.field import prepare_field, search_field
from invgp.inference.field_solution import field_moments
from invgp.inference.runner import Runner
from invgp.latent_model.noise_density import Whitening
from invgp.latent_model.prior_field import field_of
from invgp.problem import Problem

CHAINS = 64
LENGTH = 0.7  # of the steps of a chain: 1 forgets where it was
Floats = np.ndarray


def moments(problem: Problem, directory: Path, runs: int, seed: int) -> tuple[Floats, Floats, int]:
    """Return mean and covariance of the variables with at most this number of runs, and the number of runs."""
    runner = Runner(Simulator(problem, directory, budget=runs))
    limited = replace(problem, inference=problem.inference.replace(max_runs=runs))
    search, state = prepare_field(limited, select_backend("cpu"), runner, seed)
    q = field_moments(search, search_field(search, runner, state))
    return np.asarray(q.mean), np.asarray(q.covariance), runner.simulator.runs


def chains(problem: Problem, directory: Path, mean: Floats, covariance: Floats, steps: int) -> Floats:
    """Draw variables (steps, CHAINS, R) from the exact posterior, without the first quarter of the steps."""
    rng, field, whitening = np.random.default_rng(7), field_of(problem, select_backend("cpu")), Whitening(problem)
    factor, simulator = np.linalg.cholesky(covariance), Simulator(problem, directory)

    def excess(z: Floats) -> Floats:
        """Log density of the posterior minus that of the Gaussian, at w = mean + factor z."""
        w = mean + z @ factor.T
        outputs, valid, _ = simulator.run_fields(field.latents(w), "reference")
        misfit = np.sum((whitening.data - whitening(np.where(valid[:, None, None], outputs, 0.0))) ** 2, axis=1)
        return np.where(valid, 0.5 * (np.sum(z**2, axis=1) - np.sum(w**2, axis=1) - misfit), -np.inf)

    z = rng.standard_normal((CHAINS, len(mean)))
    here, visited = excess(z), []
    for _ in range(steps):
        proposed = np.sqrt(1.0 - LENGTH**2) * z + LENGTH * rng.standard_normal(z.shape)
        there = excess(proposed)
        accepted = np.log(rng.random(CHAINS)) < there - here
        z, here = np.where(accepted[:, None], proposed, z), np.where(accepted, there, here)
        visited.append(mean + z @ factor.T)
    return np.stack(visited[steps // 4 :])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("jacobian_config", type=Path)
    parser.add_argument("--runs", type=at_least(8), nargs="+", default=[16, 32, 50], help="runs with Jacobians")
    parser.add_argument("--plain", type=at_least(8), nargs="*", default=[50, 200], help="runs without Jacobians")
    parser.add_argument("--seeds", type=at_least(1), default=2)
    parser.add_argument("--steps", type=at_least(20), default=400, help=f"steps of each of the {CHAINS} chains")
    chosen = parser.parse_args()
    plain, derived = (field_problem(config) for config in (chosen.config, chosen.jacobian_config))
    with TemporaryDirectory() as scratch:
        directory, field = Path(scratch), field_of(plain, select_backend("cpu"))
        mean, covariance, _ = moments(derived, directory, max(chosen.runs), 100)
        w = chains(plain, directory, mean, 1.1 * covariance, chosen.steps)
        exact = field.latents(w.reshape(-1, w.shape[-1])).reshape(*w.shape[:2], -1)
        r_hat, ess = (
            [diagnostic(exact[..., node], chain_axis=1, draw_axis=0) for node in range(exact.shape[-1])]
            for diagnostic in (array_stats.rhat, array_stats.ess)
        )
        print(f"{plain.title}: {w.shape[-1]} modes, {int(np.isfinite(plain.survey.Y).sum())} data")
        print(f"{CHAINS} chains: R-hat at most {max(r_hat):.3f}, effective sample size at least {min(ess):,.0f}\n")
        print("| Jacobians | runs | seed | error of mean | spread |\n| --- | --- | --- | --- | --- |", flush=True)
        centre, spread = exact.mean(axis=(0, 1)), exact.std(axis=(0, 1))
        for problem, name, counts in ((derived, "yes", chosen.runs), (plain, "no", chosen.plain)):
            for runs in counts:
                for seed in range(chosen.seeds):
                    mean, covariance, used = moments(problem, directory, runs, seed)
                    variance = np.diagonal(field.covariance(covariance), axis1=1, axis2=2)
                    off = (field.latents(mean[None])[0].ravel() - centre) / spread
                    ratio = np.median(np.sqrt(variance).ravel() / spread)
                    error = np.sqrt(np.mean(off**2))
                    print(f"| {name} | {used} | {seed} | {error:.3f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    run(main)
