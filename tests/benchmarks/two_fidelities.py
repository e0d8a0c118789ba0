"""Fine runs of field models with and without a coarse model, at equal accuracy against chains on the fine model.

python tests/benchmarks/two_fidelities.py aquifer [--runs 16 32 48] [--plain 100 200] [--seeds 0 1] [--reference FILE]
python tests/benchmarks/two_fidelities.py tomography

The data are those of the case studies, whose run.sh makes them. Errors of the mean are root mean squares over the grid,
in standard deviations of the reference; spreads are medians over the grid, in those of the reference. The reference is
that of case_studies/compare_jacobians.py: Metropolis chains on the fine model. It is kept in FILE, if one is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from arviz_stats.base.array import array_stats

HERE = Path(__file__).resolve().parent
CASE_STUDIES = HERE.parents[1] / "case_studies"
sys.path.append(str(CASE_STUDIES))

from command_line import at_least, field_problem, run  # noqa: E402
from compare_jacobians import CHAINS, chains, moments  # noqa: E402

from invgp.core.backend import select_backend  # noqa: E402
from invgp.execution.simulator import Simulator  # noqa: E402
from invgp.inference.field_solution import field_moments  # noqa: E402
from invgp.inference.invert import coarse_simulator, strategy_of  # noqa: E402
from invgp.inference.runner import Runner  # noqa: E402
from invgp.latent_model.prior_field import field_of  # noqa: E402
from invgp.problem import Problem  # noqa: E402

# Configurations with a coarse model, of the fine model alone, and with derivatives for the proposals of the chains.
CASES = {
    "aquifer": ("aquifer/aquifer_coarse.toml", "aquifer/aquifer_python.toml", "aquifer/aquifer_jacobian.toml"),
    "tomography": ("tomography/small_coarse.toml", "tomography/small.toml", "tomography/small_jacobian.toml"),
}
Floats = np.ndarray


def reference(plain: Problem, derived: Problem, directory: Path, steps: int) -> tuple[Floats, Floats]:
    """Return mean and standard deviation (G,) of the latent on the grid, from chains on the fine model."""
    mean, covariance, _ = moments(derived, directory, 50, 100)
    w = chains(plain, directory, mean, 1.1 * covariance, steps)
    field = field_of(plain, select_backend("cpu"))
    exact = field.latents(w.reshape(-1, w.shape[-1])).reshape(*w.shape[:2], -1)
    r_hat, ess = (
        [diagnostic(exact[..., node], chain_axis=1, draw_axis=0) for node in range(exact.shape[-1])]
        for diagnostic in (array_stats.rhat, array_stats.ess)
    )
    print(f"{CHAINS} chains: R-hat at most {max(r_hat):.3f}, effective sample size at least {min(ess):,.0f}\n")
    return exact.mean(axis=(0, 1)), exact.std(axis=(0, 1))


def invert(problem: Problem, directory: Path, runs: int, seed: int) -> tuple[Floats, Floats, int, int]:
    """Return mean and standard deviation (G,) of the latent on the grid, and the numbers of fine and coarse runs."""
    problem = problem.with_inference(max_runs=runs)
    simulator = Simulator(problem, directory, budget=runs)
    runner = Runner(simulator, coarse_simulator(simulator, {}))
    strategy = strategy_of(problem)
    search, state = strategy.prepare(problem, select_backend("cpu"), runner, seed)
    state = strategy.search(search, runner, runner.keep(state))
    q, field = field_moments(search, state), state.model.field
    variance = np.diagonal(field.covariance(np.asarray(q.covariance)), axis1=1, axis2=2)
    coarse = 0 if runner.coarse is None else runner.coarse.runs
    return field.latents(np.asarray(q.mean)[None])[0].ravel(), np.sqrt(variance).ravel(), simulator.runs, coarse


def main(arguments: Sequence[str] | None = None) -> list[tuple[float, float]]:
    """Print the table; return error and spread of each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--runs", type=at_least(8), nargs="*", default=[16, 32, 48], help="with the coarse model")
    parser.add_argument("--plain", type=at_least(8), nargs="*", default=[100, 200], help="without it")
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=at_least(20), default=400, help=f"steps of each of the {CHAINS} chains")
    parser.add_argument("--reference", type=Path, help="file of the moments of the chains, .npz")
    chosen = parser.parse_args(arguments)
    both, plain, derived = (field_problem(CASE_STUDIES / config) for config in CASES[chosen.case])
    found = []
    with TemporaryDirectory() as scratch:
        directory = Path(scratch)
        if chosen.reference is not None and chosen.reference.exists():
            with np.load(chosen.reference) as known:
                centre, spread = known["centre"], known["spread"]
        else:
            centre, spread = reference(plain, derived, directory, chosen.steps)
            if chosen.reference is not None:
                np.savez(chosen.reference, centre=centre, spread=spread)
        print(
            "| fine runs | coarse runs | seed | error of mean | spread |\n| --- | --- | --- | --- | --- |", flush=True
        )
        for problem, counts in ((both, chosen.runs), (plain, chosen.plain)):
            for runs in counts:
                for seed in chosen.seeds:
                    mean, std, fine, coarse = invert(problem, directory, runs, seed)
                    row = float(np.sqrt(np.mean(((mean - centre) / spread) ** 2))), float(np.median(std / spread))
                    print(f"| {fine} | {coarse or ''} | {seed} | {row[0]:.3f} | {row[1]:.3f} |", flush=True)
                    found.append(row)
    return found


if __name__ == "__main__":
    run(main)
