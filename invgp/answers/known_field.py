"""Field models on the runs in their ledger: posteriors and predictions without new runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.core.backend import select_backend, to_numpy
from invgp.core.field.field_sampling import FieldDraws
from invgp.core.sampling.statistics import Evidence
from invgp.errors import ArgumentError
from invgp.execution.simulator import Simulator
from invgp.inference.field import prepare_field
from invgp.inference.field_draws import (
    DRAWS,
    Node,
    draw_variables,
    evidence_constant,
    gaussian_weights,
    node_evidence,
)
from invgp.inference.field_solution import refine
from invgp.inference.field_state import FieldOptions, FieldSearch, FieldSearchState
from invgp.inference.importance_draws import smooth_weights
from invgp.inference.invert import coarse_simulator, invert, open_recorders
from invgp.inference.known_runs import search_known_runs
from invgp.inference.runner import Runner
from invgp.posterior.attributes import has_converged
from invgp.problem import Floats, Problem

GAUSSIAN_DRAWS = 4000
MOST_DRAWS = 2000
RELIABLE = 0.7  # largest Pareto k of reliable weights


class FieldDrawsAndData(NamedTuple):
    """Draws of a field model with the outputs that its regression predicts for them.

    Attributes
    ----------
    latents : array, shape (R, G, Q)
        Processes at the nodes.
    outputs : array, shape (R, N, P)
        In the units of the observations.
    curvature : array, shape (N, P)
        Variance of the outputs that is not linear in the modes of the field; infinite unless the moments of the modes
        are exact.
    is_gaussian : bool
        Whether the posterior of the modes is Gaussian.
    """

    latents: Floats
    outputs: Floats
    curvature: Floats
    is_gaussian: bool


def check_ledger(ledger: Path | None) -> Path:
    """Return the ledger of a field model.

    Raises
    ------
    ArgumentError
        There is none: the runs of a field model are not in its posterior file.
    """
    if ledger is None or not ledger.is_file():
        where = "" if ledger is None else f", {str(ledger)!r}"
        raise ArgumentError(
            f"posterior: must be a file beside the ledger of its runs{where}, since it is a field model; repeat the "
            "inversion with ledger = true in [output]"
        )
    return ledger


def invert_known_runs(problem: Problem, ledger: Path, seed: int) -> xr.Dataset:
    """Compute the posterior of a field model from the runs in a ledger."""
    return invert(problem, ledger=ledger, new_runs=False, seed=seed, workers=1)


def revise_field(problem: Problem, ledger: Path, seed: int, learnt: str = "") -> xr.Dataset:
    """Compute the posterior of a revised field model from the runs in a ledger; see `invgp.revise`.

    Parameters
    ----------
    problem : Problem
        The revised problem.
    ledger : Path
    seed : int
    learnt : str
        Hyperparameters that were learnt by the inversion, as in its file.
    """
    found = invert_known_runs(problem, ledger, seed)
    if "invgp_log_evidence" not in found.attrs:  # the posterior is Gaussian
        evidence = field_evidence(problem, ledger, seed)
        found.attrs |= {"invgp_log_evidence": evidence.log, "invgp_log_evidence_error": evidence.error}
    if learnt:
        found.attrs["invgp_learnt"] = learnt
    reliable = has_converged(found)
    return found.assign_attrs(
        invgp_revision_method="regression on the runs in the ledger",
        invgp_revision_k_hat=math.nan,
        invgp_revision_doubtful_sites=0 if reliable else problem.survey.size,
        invgp_revision_runs_needed=0 if reliable else FieldOptions().next_batch(int(found.attrs["invgp_runs"])),
    )


def draw_without_data(problem: Problem, ledger: Path, seed: int) -> Floats:
    """Draw physical values (R, G, L) at the nodes from the prior given the direct data, without data of simulators."""
    _, state = _search(problem, ledger, seed, use_runs=False)
    normals = balanced_normals(np.random.default_rng(seed), GAUSSIAN_DRAWS, state.model.variables)
    return np.asarray(problem.to_physical(state.model.field.latents(normals)))


def _search(
    problem: Problem, ledger: Path, seed: int, *, use_runs: bool = True
) -> tuple[FieldSearch, FieldSearchState]:
    """Find the posterior of a field model on the runs in its ledger; without them, return the first state."""
    with open_recorders(problem, ledger) as recorders:
        first, *others = [part.name for part in problem.parts if not part.direct]
        sources = {name: recorders[name] for name in others if name in recorders}
        simulator = Simulator(problem, Path(), budget=0, recorder=recorders.get(first), source_recorders=sources)
        runner = Runner(simulator, coarse_simulator(simulator, recorders, new_runs=False))
        search, state = prepare_field(problem, select_backend("cpu"), runner, seed)
        if use_runs:
            state = search_known_runs(search, runner, state)
    if not isinstance(search, FieldSearch) or not isinstance(state, FieldSearchState):
        raise TypeError("the problem is no field model")
    return search, state


def _draw(search: FieldSearch, state: FieldSearchState, rng: np.random.Generator) -> FieldDraws | None:
    """Draw the modes of the field; None if their posterior is Gaussian."""
    if not search.samples_exactly or state.model.is_gaussian(state.inference):
        return None
    return draw_variables(state.model, state.inference, rng, DRAWS.long)


def draw_data(problem: Problem, ledger: Path, seed: int) -> FieldDrawsAndData:
    """Draw from the posterior of a field model on the runs in its ledger, with the outputs of each draw."""
    search, state = _search(problem, ledger, seed)
    rng, model = np.random.default_rng(seed), state.model
    draws = _draw(search, state, rng)
    if draws is None:
        normals = balanced_normals(rng, GAUSSIAN_DRAWS, model.variables)
        w = to_numpy(refine(search, state).samples(model.backend.asarray(normals)))
    else:
        w = draws.w.reshape(-1, draws.w.shape[-1])
        w = w[:: -(-len(w) // MOST_DRAWS)]
    outputs = model.predict(state.inference, w, state.known)
    if draws is None and len(normals) > model.variables:
        centred = outputs - outputs.mean(axis=0)
        linear = np.tensordot(normals.T, centred, axes=1) / len(normals)
        curvature = np.mean((centred - np.tensordot(normals, linear, axes=1)) ** 2, axis=0)
    else:
        curvature = np.full(outputs.shape[1:], np.inf)
    count = None if problem.grid is None else problem.grid.size  # without the sites of site models
    return FieldDrawsAndData(model.field.latents(w)[:, :count], outputs, curvature, draws is None)


def field_evidence(problem: Problem, ledger: Path, seed: int) -> Evidence:
    """Compute the evidence of a field model on the runs in its ledger.

    It is that of the regression: as of an inversion, or by importance sampling if the posterior is Gaussian.

    Parameters
    ----------
    problem : Problem
    ledger : Path
    seed : int
    """
    search, state = _search(problem, ledger, seed)
    rng, model = np.random.default_rng(seed), state.model
    draws = _draw(search, state, rng)
    if draws is not None:
        return node_evidence(Node(model, state.inference, draws), rng)
    weights = gaussian_weights(model, state.inference, rng.standard_normal((GAUSSIAN_DRAWS, model.variables)))
    smoothed, k_hat = smooth_weights(weights)
    shares = np.exp(smoothed - smoothed.max())
    error = float(shares.std() / shares.mean()) / math.sqrt(len(shares))
    found = math.log(float(shares.mean())) + float(smoothed.max()) + evidence_constant(model, state.inference)
    return Evidence(found, error if k_hat <= RELIABLE else math.nan)


def balanced_normals(rng: np.random.Generator, count: int, size: int) -> Floats:
    """Draw standard normal numbers (count, size) with exactly the mean 0 and, if count > size, the covariance I."""
    normals = rng.standard_normal((count, size))
    normals -= normals.mean(axis=0)
    if count <= size:
        return normals
    left, _, right = np.linalg.svd(normals, full_matrices=False)
    return np.asarray(math.sqrt(count) * (left @ right))
