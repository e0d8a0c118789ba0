"""Draws for the influence of data, and posteriors without sources, for site and field models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.answers.cross_validation import draws_of
from invgp.answers.emulated_problem import EmulatedProblem, emulate, hide_data
from invgp.answers.influence import (
    DataGroup,
    DataMoments,
    DatumInfluence,
    choose_places,
    data_groups,
    datum_influence,
    group_reductions,
    largest_leverage,
    moments_of_draws,
)
from invgp.answers.known_field import draw_data, invert_known_runs
from invgp.core.backend import to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.inference.emulated_posterior import SamplingOptions
from invgp.latent_model.problem_prior import noise_covariance
from invgp.problem import Floats, Problem

MOST_DRAWS, FEWEST_DRAWS = 4000, 500
MOST_NUMBERS = 4e7  # of the draws of all latents or outputs, to limit memory

Influence = tuple[DatumInfluence, list[DataGroup], dict[str, Floats]]


def site_influence(posterior: xr.Dataset, emulated: EmulatedProblem) -> Influence:
    """Return the influence of each datum of a site model, its groups of data, and what these contribute."""
    problem = emulated.problem
    numbers = problem.survey.size * max(problem.latent_count, problem.noise_std.shape[1])
    latents = draws_of(posterior, emulated, min(MOST_DRAWS, max(int(MOST_NUMBERS / numbers), FEWEST_DRAWS)))
    outputs = emulated.predict(latents)
    close = float(posterior.attrs.get("invgp_gaussian_k_hat", 0.0)) <= SamplingOptions().largest_k_hat
    noise = noise_covariance(emulated.noisy_problem)
    if close:
        moments = _gaussian_moments(emulated, latents, outputs, noise)
    else:
        moments = moments_of_draws(problem.mix(latents), outputs)
    found = datum_influence(moments, problem.survey.Y, noise)
    groups = data_groups(problem)

    def std_without(group: DataGroup) -> dict[str, Floats]:
        hidden = hide_data(problem, group.mask)
        return _stds(emulate(hidden, emulated.state.runs, emulated.model.seed, emulated.gaussian.sites))

    return found, groups, group_reductions(groups, _stds(emulated), std_without)


def _gaussian_moments(emulated: EmulatedProblem, latents: Floats, outputs: Floats, noise: Floats) -> DataMoments:
    """Return the moments of the Gaussian approximation, with outputs that are linear in the latents of their site.

    Parameters
    ----------
    emulated : EmulatedProblem
    latents : array, shape (R, N, Q)
        Draws, only for the slopes of the outputs.
    outputs : array, shape (R, N, P)
    noise : array, shape (N, P, P)
        Covariance of the noise.
    """
    problem, gaussian = emulated.problem, emulated.gaussian
    mean, covariance = (to_numpy(part) for part in gaussian.marginals)
    centre, middle = latents.mean(axis=0), outputs.mean(axis=0)
    known = np.isfinite(middle)
    g = np.where(known, outputs - middle, 0.0).swapaxes(0, 1)
    z = (latents - centre).swapaxes(0, 1)
    slopes = np.linalg.pinv(z) @ g
    rest = np.mean((g - z @ slopes) ** 2, axis=1)
    places = choose_places(len(mean))
    roots = _covariance_roots(gaussian, places)

    def cross(n: int) -> Floats:
        [root] = _covariance_roots(gaussian, np.asarray([n]))
        return np.asarray(problem.mix(np.einsum("bkq,kp->bpq", roots, root @ slopes[n])).swapaxes(1, 2))

    M = np.eye(problem.latent_count) if problem.mixing is None else problem.mixing
    variance = np.einsum("ij,bjk,ik->bi", M, covariance[places], M)
    return DataMoments(
        middle + np.einsum("nq,nqp->np", mean - centre, slopes),
        np.asarray(slopes.swapaxes(1, 2) @ covariance @ slopes),
        places,
        np.sqrt(variance),
        cross,
        largest_leverage(rest / np.diagonal(noise, axis1=1, axis2=2)),
    )


def _covariance_roots(gaussian: GaussianPosterior, sites: NDArray[np.intp]) -> Floats:
    """Return A (B, K, Q) of B sites: the posterior covariance of the latents at sites b and c is A_b^T A_c.

    For inducing points, the covariance of the latents given these is left out.
    """
    projection, root = to_numpy(gaussian.prior.geometry_at(sites).projection), to_numpy(gaussian.q.root)
    size = projection.shape[1]
    return np.stack([root[:, j * size : (j + 1) * size] @ W for j, W in enumerate(projection)]).transpose(2, 1, 0)


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
    noise = noise_covariance(problem)
    largest = largest_leverage(draws.curvature / np.diagonal(noise, axis1=1, axis2=2))
    moments = moments_of_draws(problem.mix(draws.latents), draws.outputs, largest)
    found = datum_influence(moments, problem.survey.Y, noise)
    groups = data_groups(problem)

    def stds(dataset: xr.Dataset) -> dict[str, Floats]:
        return {
            latent.name: np.asarray(dataset[f"{latent.name}_std"].transpose("node", ..., missing_dims="ignore").values)
            for latent in problem.latents
        }

    def std_without(group: DataGroup) -> dict[str, Floats]:
        without = hide_data(problem, group.mask) if group.mask.any() else problem.without(group.name)
        return stds(invert_known_runs(without, ledger, seed))

    return found, groups, group_reductions(groups, stds(posterior), std_without)
