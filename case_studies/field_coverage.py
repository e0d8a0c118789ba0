"""Simulate surveys of a field model from its prior, invert them, and count how often the intervals contain the truth.

python case_studies/field_coverage.py CONFIG [--surveys 100] [--runs 200] [--record]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from command_line import at_least, field_problem, run
from recording import record

import invgp
from invgp.adapters.protocol import RunContext
from invgp.core.backend import select_backend
from invgp.latent_model.noise_density import draw_noise
from invgp.latent_model.prior_field import field_of
from invgp.problem import Problem

LEVELS = {"50%": (0.25, 0.75), "90%": (0.05, 0.95), "95%": (0.025, 0.975)}


def simulate_survey(problem: Problem, rng: np.random.Generator) -> tuple[Problem, np.ndarray]:
    """Draw a survey and its truth (G, Q) from the prior, including the modes that the inference omits."""
    field = field_of(problem, select_backend("cpu"))
    w = rng.standard_normal((1, sum(basis.size for basis in field.bases)))
    physical = problem.to_physical(field.latents(w) + field.draw_omitted(rng, 1))
    rows = problem.field_to_simulator(physical)
    outputs = problem.forward.evaluate(rows, RunContext(["truth"], Path())).outputs
    data = problem.field_from_simulator(outputs)[0] + draw_noise(problem, rng)
    observations = tuple(
        replace(o, values=data[:, problem.observation_slices[o.name]]) for o in problem.survey.observations
    )
    return replace(problem, survey=replace(problem.survey, observations=observations)), physical[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the coverage of each latent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--surveys", type=at_least(1), default=100)
    parser.add_argument("--runs", type=at_least(8), default=200)
    parser.add_argument("--record", action="store_true", help="also write the shares to results.json")
    chosen = parser.parse_args(arguments)
    problem = field_problem(chosen.config)
    levels = tuple(sorted({level for pair in LEVELS.values() for level in pair}))
    problem = replace(
        problem,
        inference=problem.inference.replace(max_runs=chosen.runs),
        output=problem.output.replace(quantiles=levels, realizations=0),
    )
    rng = np.random.default_rng(12)
    held: dict[tuple[str, str], list[float]] = {}
    runs = []
    for _ in range(chosen.surveys):
        survey, truth = simulate_survey(problem, rng)
        posterior = invgp.invert(survey)
        runs.append(posterior.attrs["invgp_runs"])
        for latent in problem.latents:
            found = posterior[f"{latent.name}_quantile"]
            wanted = truth[:, problem.latent_slices[latent.name]].reshape(found.shape[1:])
            for name, (low, high) in LEVELS.items():
                inside = (found.sel(quantile=low) <= wanted) & (wanted <= found.sel(quantile=high))
                held.setdefault((latent.name, name), []).append(float(inside.mean()))
    how = f"{chosen.surveys} surveys, {np.mean(runs):.0f} runs on average, at most {max(runs)}"
    print(f"{problem.title}: {how}")
    rows = []
    for (latent, name), shares in held.items():
        error = np.std(shares) / np.sqrt(len(shares))
        print(f"{latent}: the {name} intervals hold the truth at {np.mean(shares):.1%} of the nodes (± {error:.1%})")
        setting, wanted = f"{latent}, {name} intervals", float(name.rstrip("%"))
        rows.append(
            {
                "measure": "truths inside, %",
                "setting": setting,
                "ours": 100.0 * np.mean(shares),
                "spread": 200.0 * error,
                "reference": wanted,
                "source": "nominal",
                "better": "equal",
            }
        )
    if chosen.record:
        folder = chosen.config.resolve().parent
        record(
            folder,
            {
                "experiment": f"{folder.name}-coverage",
                "title": f"{problem.title}: coverage",
                "command": f"python case_studies/field_coverage.py case_studies/{folder.name}/{chosen.config.name}",
                "page": f"{folder.name}.md",
                "remark": f"{how}. The spread is two standard errors over the surveys.",
                "rows": rows,
            },
        )


if __name__ == "__main__":
    run(main)
