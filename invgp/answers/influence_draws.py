"""Draws for the influence of data, and posteriors without sources, for site and field models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from invgp.answers.cross_validation import draws_of
from invgp.answers.emulated_problem import EmulatedProblem, emulate, hide_data
from invgp.answers.influence import (
    DataGroup,
    DatumInfluence,
    data_groups,
    datum_influence,
    group_reductions,
)
from invgp.answers.known_field import draw_data, invert_known_runs
from invgp.core.backend import to_numpy
from invgp.latent_model.problem_prior import noise_covariance
from invgp.problem import Floats, Problem

Influence = tuple[DatumInfluence, list[DataGroup], dict[str, Floats]]


def site_influence(posterior: xr.Dataset, emulated: EmulatedProblem) -> Influence:
    """Return the influence of each datum of a site model, its groups of data, and what these contribute."""
    problem, latents = emulated.problem, draws_of(posterior, emulated)
    noise = noise_covariance(emulated.noisy_problem)
    outputs = emulated.predict(latents)
    covariance = _output_covariance(latents, outputs, to_numpy(emulated.gaussian.marginals.covariance))
    found = datum_influence(problem.mix(latents), outputs, problem.survey.Y, noise, covariance)
    groups = data_groups(problem)

    def std_without(group: DataGroup) -> dict[str, Floats]:
        hidden = hide_data(problem, group.mask)
        return _stds(emulate(hidden, emulated.state.runs, emulated.model.seed, emulated.gaussian.sites))

    return found, groups, group_reductions(groups, _stds(emulated), std_without)


def _output_covariance(latents: Floats, outputs: Floats, covariance: Floats) -> Floats:
    """Return the covariance (N, P, P) of the outputs of each site: that of the latents times slopes over the draws.

    Parameters
    ----------
    latents : array, shape (R, N, Q)
    outputs : array, shape (R, N, P)
    covariance : array, shape (N, Q, Q)
        Covariance of the latents at each site; it has no error from the number of draws.
    """
    f = (latents - latents.mean(axis=0)).swapaxes(0, 1)
    g = (outputs - outputs.mean(axis=0)).swapaxes(0, 1)
    known = np.isfinite(g).all(axis=1)
    slopes = np.linalg.pinv(f) @ np.where(known[:, None], g, 0.0)
    return np.asarray(slopes.swapaxes(1, 2) @ covariance @ slopes)


def _stds(emulated: EmulatedProblem) -> dict[str, Floats]:
    """Return the standard deviation (N, L) of the processes of each latent, of the Gaussian approximation."""
    problem, covariance = emulated.problem, to_numpy(emulated.gaussian.marginals.covariance)
    if problem.mixing is not None:
        covariance = problem.mixing @ covariance @ problem.mixing.T
    std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    return {
        latent.name: std[:1, problem.latent_slices[latent.name]]
        if latent.is_scalar
        else std[:, problem.latent_slices[latent.name]]
        for latent in problem.latents
    }


def field_influence(posterior: xr.Dataset, problem: Problem, ledger: Path) -> Influence:
    """Return the influence of each datum of a field model, its groups of data, and what these contribute."""
    seed = int(posterior.attrs["invgp_seed"])
    draws = draw_data(problem, ledger, seed)
    found = datum_influence(problem.mix(draws.latents), draws.outputs, problem.survey.Y, noise_covariance(problem))
    groups = data_groups(problem)

    def stds(dataset: xr.Dataset) -> dict[str, Floats]:
        return {
            latent.name: np.asarray(dataset[f"{latent.name}_std"].transpose("node", ..., missing_dims="ignore").values)
            for latent in problem.latents
        }

    def std_without(group: DataGroup) -> dict[str, Floats]:
        return stds(invert_known_runs(hide_data(problem, group.mask), ledger, seed))

    return found, groups, group_reductions(groups, stds(posterior), std_without)
