"""Trial of the simulators of a problem at draws from the prior: which runs fail, and whether batches are right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from invgp.adapters import CallableModel, ForwardModel
from invgp.adapters.protocol import Evaluations, RunContext
from invgp.execution.run_outcomes import FailedRuns
from invgp.execution.simulator import Simulator, TooManyFailures
from invgp.problem import Floats, Part, Problem
from invgp.validation.simulated_surveys import draw_prior

ROUNDING = 1e-6  # largest relative difference between a batch and single rows: sums in another order
ROWS_TRIED_SINGLY = 5


def try_prior(problem: Problem, runs: int, directory: Path) -> FailedRuns:
    """Run the simulators of a problem at draws from the prior.

    Parameters
    ----------
    problem : Problem
    runs : int
        Number of runs of each simulator.
    directory : Path
        Parent of the run directories.

    Returns
    -------
    FailedRuns
    """
    tolerant = replace(problem, inference=problem.inference.model_copy(update={"max_failed_share": 1.0}))
    simulator, rng = Simulator(tolerant, directory), np.random.default_rng(problem.inference.seed)
    try:
        if problem.grid is not None:
            simulator.run_fields(np.stack([draw_prior(problem, rng) for _ in range(runs)]), "prior")
        else:
            for part in simulator.simulators:
                sites = part.sites[_spread(len(part.sites), runs)]
                simulator.run(_draw_at(problem, sites, max(runs // len(sites), 1), rng), "prior", sites)
    except TooManyFailures:  # all runs failed
        pass
    return simulator.failed_runs


def _spread(size: int, count: int) -> np.ndarray:
    """Return at most `count` numbers below `size`, evenly spread."""
    return np.unique(np.linspace(0, size - 1, min(size, count)).astype(np.intp))


def _draw_at(problem: Problem, sites: np.ndarray, samples: int, rng: np.random.Generator) -> Floats:
    """Draw latents (S, B, Q) from the prior at sites (B,), each for itself."""
    _, std = problem.prior_moments()
    normals = rng.standard_normal((samples, len(sites), problem.latent_count))
    return np.asarray(problem.prior_mean[sites] + std * normals)


def find_batch_fault(part: Part, whole: Problem, directory: Path) -> str:
    """Compare a batch of rows of a vectorised function with the same rows one by one.

    Parameters
    ----------
    part : Part
        Source of the problem.
    whole : Problem
        The problem.
    directory : Path
        Parent of the run directories.

    Returns
    -------
    str
        A sentence about the first difference; empty if there is none, or if the simulator is no vectorised function.
    """
    problem, model = part.problem, part.problem.forward
    if not isinstance(model, CallableModel) or not model.vectorised:
        return ""
    rng = np.random.default_rng(problem.inference.seed)
    if problem.grid is None:
        sites = _spread(len(part.sites), ROWS_TRIED_SINGLY)
        samples = -(-ROWS_TRIED_SINGLY // len(sites))
        rows = problem.to_simulator(problem.to_physical(_draw_at(problem, sites, samples, rng)), sites)
    else:
        f = np.stack([draw_prior(whole, rng) for _ in range(2)])
        rows = problem.field_to_simulator(whole.to_physical(f)[:, whole.nodes_of(part)])
    together = _evaluate(model, rows, directory)
    again = _evaluate(model, rows, directory)
    alone = Evaluations.concatenate(_evaluate(model, rows[i : i + 1], directory) for i in range(len(rows)))
    columns = [(output, label) for output in model.outputs for label in output.labels or (None,)]
    for k, (output, label) in enumerate(columns):
        first, second, single = (found.outputs[:, k] for found in (together, again, alone))
        scale = ROUNDING * np.nanmax(np.abs(single), initial=0.0, where=np.isfinite(single))
        repeatable = np.isclose(first, second, rtol=ROUNDING, atol=scale, equal_nan=True)
        different = together.ok & alone.ok & repeatable & ~np.isclose(first, single, ROUNDING, scale, equal_nan=True)
        if different.any():
            i = int(np.flatnonzero(different)[0])
            name = output.name if label is None else f"{output.name}[{label}]"
            return (
                f"the function {model.name!r} computes other outputs for a batch of {len(rows)} rows than for the rows "
                f"one by one: {name} of row {i + 1} is {first[i]:.6g} in the batch and "
                f"{single[i]:.6g} alone. Each row of a batch must be computed from its own inputs; for a function that "
                "takes one row at a time, set forward.vectorised = false"
            )
    return ""


def _evaluate(model: ForwardModel, rows: Floats, directory: Path) -> Evaluations:
    return model.evaluate(rows, RunContext([f"row{i + 1}" for i in range(len(rows))], directory))
