"""Outputs at latent values from the simulator, the emulator or both, and the errors of the emulator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from invgp.core.backend import to_numpy
from invgp.core.coupled.coupled_savigp import CoupledSavigp, State
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Surrogate
from invgp.emulation.run_schedule import simulated_parts
from invgp.execution.simulator import Batch
from invgp.inference.optimisation import Evaluate, Stop
from invgp.inference.runner import Runner
from invgp.inference.search_state import Candidate, SearchState
from invgp.inference.site_model import SiteModel
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.problem import Floats


def evaluator(runner: Runner, state: SearchState) -> Evaluate:
    """Return the function that evaluates latent values: the simulator, the emulator, or both."""
    emulator, direct = state.emulator, state.direct
    if emulator is None:
        return runner.evaluate
    emulate = emulator_evaluator(emulator)
    if not direct.any():
        return emulate

    def evaluate(latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:
        batch, simulated = emulate(latents, label, sites), np.flatnonzero(direct[sites])
        if simulated.size:
            real = runner.evaluate(latents[:, simulated], label, sites[simulated])
            batch.outputs[:, simulated], batch.valid[:, simulated] = real
        return batch

    return evaluate


def emulator_evaluator(emulator: Surrogate) -> Evaluate:
    """Return the function that evaluates an emulator at latent values (S, B, Q) of sites (B,)."""

    def evaluate(latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:  # noqa: ARG001 - as for the simulator
        return Batch(emulator.predict(latents, sites), np.ones(latents.shape[:2], dtype=bool))

    return evaluate


def optimise(
    model: SiteModel,
    runner: Runner,
    state: SearchState,
    algorithm: CoupledSavigp,
    start: State,
    evaluate: Evaluate,
    stop: Stop | None = None,
) -> SearchState:
    """Optimise the posterior from a start, and return the state with the best posterior and the outcome."""
    runner.keep(state)

    def report(elbo: float, candidate: Candidate | None) -> None:
        if candidate is not None:
            runner.keep(replace(state, candidate=candidate))
        runner.record(elbo, accepted=candidate is not None)

    result, candidate = model.optimiser(algorithm, start, evaluate, report, stop)
    return runner.keep(replace(state, candidate=candidate or state.candidate, result=result))


def draw_for_runs(
    model: SiteModel, posterior: GaussianPosterior, runs: Sequence[int], widened: float
) -> list[tuple[Floats, NDArray[np.intp]]]:
    """Draw latent values (S, B, Q) from a posterior for new runs, and select their sites (B,).

    Parameters
    ----------
    model : SiteModel
    posterior : GaussianPosterior
    runs : sequence of int
        Number of runs of each simulator.
    widened : float
        Factor on the spread of the posterior.

    Returns
    -------
    list of (latents, sites)
        One for each simulator that makes runs.
    """
    parts = simulated_parts(model.problem)
    return [
        _draw_for_part(model, posterior, part.sites, count, widened)
        for part, count in zip(parts, runs, strict=True)
        if count
    ]


def _draw_for_part(
    model: SiteModel, posterior: GaussianPosterior, sites: NDArray[np.intp], runs: int, widened: float
) -> tuple[Floats, NDArray[np.intp]]:
    some = sites if runs >= len(sites) else np.sort(model.streams.design.choice(sites, runs, replace=False))
    return draw_at(model, posterior, some, runs // len(some), widened), some


def draw_at(
    model: SiteModel, posterior: GaussianPosterior, sites: NDArray[np.intp], samples: int, widened: float = 1.0
) -> Floats:
    """Draw latent values (S, B, Q) from a posterior at sites (B,), evenly distributed over all sites together.

    Parameters
    ----------
    model : SiteModel
    posterior : GaussianPosterior
    sites : array of int, shape (B,)
    samples : int
        Draws per site, S.
    widened : float
        Factor on the spread of the posterior.

    Returns
    -------
    array, shape (S, B, Q)
    """
    Q, rng, count = model.problem.latent_count, model.streams.design, samples * len(sites)
    points = qmc.Sobol(Q, rng=rng).random_base2(math.ceil(math.log2(count)))[:count]
    normals = ndtri(np.clip(points, 1e-6, 1.0 - 1e-6))
    normals = normals[rng.permutation(count)].reshape(-1, len(sites), Q, 1)
    factor, mean = to_numpy(posterior.factor)[sites], to_numpy(posterior.marginals.mean)[sites]
    return mean + widened * (factor @ normals)[..., 0]


def run_errors(model: SiteModel, state: SearchState, batch: Batch, latents: Floats, sites: NDArray[np.intp]) -> Floats:
    """Compute the root mean square error (S, B) of the emulator at each run, in standard deviations of the noise.

    Numerical noise of the simulator is subtracted.

    Parameters
    ----------
    model : SiteModel
    state : SearchState
        State with an emulator; its candidate gives learnt noise.
    batch : Batch
        Runs.
    latents : array, shape (S, B, Q)
        Latents of the runs.
    sites : array of int, shape (B,)
        Their sites.

    Returns
    -------
    array, shape (S, B)
        The error over the observed outputs; NaN where a run failed.
    """
    return _errors(model, state, batch, latents, sites, axis=2)


def site_errors(model: SiteModel, state: SearchState, batch: Batch, latents: Floats, sites: NDArray[np.intp]) -> Floats:
    """Compute the root mean square error (B,) over all runs of each site, as `run_errors`."""
    return _errors(model, state, batch, latents, sites, axis=(0, 2))


def _errors(
    model: SiteModel,
    state: SearchState,
    batch: Batch,
    latents: Floats,
    sites: NDArray[np.intp],
    axis: int | tuple[int, int],
) -> Floats:
    if state.emulator is None:
        raise ValueError("there is no emulator yet")
    noise_std = with_learned_hyperparameters(model.problem, state.posterior).noise_std[sites]
    errors = (batch.outputs - state.emulator.predict(latents, sites)) / noise_std
    observed = batch.valid[..., None] & np.isfinite(model.problem.survey.Y[sites]) & np.isfinite(errors)
    squares = errors**2 - (state.emulator.solver_noise / noise_std) ** 2
    counts = observed.sum(axis=axis)
    mean = np.sum(np.where(observed, squares, 0.0), axis=axis) / np.maximum(counts, 1)
    return np.where(counts > 0, np.sqrt(np.maximum(mean, 0.0)), np.nan)
