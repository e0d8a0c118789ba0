"""Noise of the observations: log density and random samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from invgp.core.backend import Array, Backend, array_namespace
from invgp.core.coupled import GaussianNoise
from invgp.core.kernels import squared_distances
from invgp.latent_model.discrepancy import discrepancy_covariance
from invgp.latent_model.problem_prior import gaussian_noise, noise_covariance
from invgp.likelihoods import Laplace, StudentT
from invgp.problem import Floats, Problem


class LogDensity(Protocol):
    """Log density of the observations of each site given the simulator outputs."""

    def __call__(self, outputs: Array, sites: Array | None = None) -> Array:
        """Compute log densities (S, B) for outputs (S, B, P) at sites (B,); by default at all N sites."""


def noise_log_density(problem: Problem, backend: Backend) -> LogDensity:
    """Return the log density of the observations of a problem."""
    parts = _by_kind(problem)
    if len(parts) > 1:
        densities = [noise_log_density(part, backend) for part in parts]
        return lambda outputs, sites=None: sum((d(outputs, sites) for d in densities[1:]), densities[0](outputs, sites))
    problem = parts[0]
    if problem.noise.kind == "gaussian":
        gaussian = gaussian_noise(problem, backend)

        def of_gaussian(outputs: Array, sites: Array | None = None) -> Array:
            return (gaussian if sites is None else gaussian.take(sites)).log_density(outputs)

        return of_gaussian
    scale, y = backend.asarray(noise_scale(problem)), backend.asarray(problem.survey.Y)
    if problem.noise.kind == "student-t":
        likelihood: StudentT | Laplace = StudentT(scale, problem.noise.degrees, learn=False)
    else:
        likelihood = Laplace(scale, learn=False)

    def of_likelihood(outputs: Array, sites: Array | None = None) -> Array:
        if sites is None:
            return likelihood.log_density(y, outputs)
        return likelihood.at_sites(sites).log_density(array_namespace(y).take(y, sites, axis=0), outputs)

    return of_likelihood


def noise_log_density_gradient(problem: Problem, backend: Backend) -> Callable[[Array], tuple[Array, Array]]:
    """Return the log density of the observations and its gradient with respect to the outputs.

    Returns
    -------
    callable
        Outputs (S, N, P) of all sites -> log densities (S, N) and gradients (S, N, P).
    """
    parts = _by_kind(problem)
    if len(parts) > 1:
        densities = [noise_log_density_gradient(part, backend) for part in parts]

        def of_all(outputs: Array) -> tuple[Array, Array]:
            found = [density(outputs) for density in densities]
            return sum((v for v, _ in found[1:]), found[0][0]), sum((g for _, g in found[1:]), found[0][1])

        return of_all
    problem = parts[0]
    log_density = noise_log_density(problem, backend)
    if problem.noise.kind == "gaussian":
        gaussian = gaussian_noise(problem, backend)

        def of_gaussian(outputs: Array) -> tuple[Array, Array]:
            xp = array_namespace(outputs)
            residuals = gaussian.residuals(outputs)
            value = gaussian.log_normaliser - 0.5 * xp.sum(xp.square(residuals), axis=-1)
            transposed = xp.matrix_transpose(gaussian.whitening)
            return value, xp.permute_dims(transposed @ xp.permute_dims(residuals, (1, 2, 0)), (2, 0, 1))

        return of_gaussian
    observed = backend.asmask(~np.isnan(problem.survey.Y))
    scale, y = backend.asarray(noise_scale(problem)), backend.asarray(np.nan_to_num(problem.survey.Y))
    degrees = problem.noise.degrees

    def of_heavy_tails(outputs: Array) -> tuple[Array, Array]:
        xp = array_namespace(outputs)
        residuals = (y - outputs) / scale
        slopes = xp.sign(residuals)
        if problem.noise.kind == "student-t":
            slopes = (degrees + 1.0) * residuals / (degrees + xp.square(residuals))
        return log_density(outputs), xp.where(observed, slopes / scale, xp.zeros_like(slopes))

    return of_heavy_tails


def likelihood_of(problem: Problem, backend: Backend) -> GaussianNoise | LogDensity:
    """Return the likelihood for `CoupledSavigp`: Gaussian noise, or the log density of other noise."""
    return gaussian_noise(problem, backend) if problem.noise.is_gaussian else noise_log_density(problem, backend)


def _by_kind(problem: Problem) -> list[Problem]:
    """Split a problem by the kinds of its noise; the observations with noise of another kind become missing."""
    kinds = list(dict.fromkeys(problem.noise.kind_of(o.name) for o in problem.survey.observations))
    if not problem.noise.kinds:
        return [problem]

    def only(kind: str) -> Problem:
        observations = tuple(
            o if problem.noise.kind_of(o.name) == kind else replace(o, values=np.full_like(o.values, np.nan))
            for o in problem.survey.observations
        )
        survey = replace(problem.survey, observations=observations)
        return replace(problem, survey=survey, noise=replace(problem.noise, kind=kind, kinds={}))

    return [only(kind) for kind in kinds]


def draw_noise(problem: Problem, rng: np.random.Generator) -> Floats:
    """Draw noise (N, P) for one survey; NaN where the problem has no observation."""
    parts = _by_kind(problem)
    if len(parts) > 1:
        draws = [draw_noise(part, rng) for part in parts]
        return np.where(np.isnan(problem.survey.Y), np.nan, np.nansum(draws, axis=0))
    problem = parts[0]
    shape = problem.noise_std.shape
    if problem.noise.correlates_sites:
        observed = ~np.isnan(problem.survey.Y)
        noise = np.full(shape, np.nan)
        noise[observed] = np.linalg.cholesky(data_covariance(problem)) @ rng.standard_normal(int(observed.sum()))
    elif problem.noise.kind == "gaussian":
        noise = (np.linalg.cholesky(noise_covariance(problem)) @ rng.standard_normal((*shape, 1)))[..., 0]
    elif problem.noise.kind == "student-t":
        noise = noise_scale(problem) * rng.standard_t(problem.noise.degrees, shape)
    else:
        noise = rng.laplace(scale=noise_scale(problem))
    return np.where(np.isnan(problem.survey.Y), np.nan, noise)


def data_covariance(problem: Problem) -> Floats:
    """Return the covariance (D, D) of the Gaussian noise of all observed data, with discrepancies, ordered by site."""
    observed = ~np.isnan(problem.survey.Y)
    if problem.noise.covariance is not None:
        seen = np.flatnonzero(observed.ravel())
        return np.asarray(problem.noise.covariance[np.ix_(seen, seen)])
    sites, numbers = np.nonzero(observed)
    correlation = np.eye(observed.shape[1])
    for name, block in problem.noise.correlation.items():
        correlation[problem.observation_slices[name], problem.observation_slices[name]] = block
    whole = correlation[np.ix_(numbers, numbers)] * (sites[:, None] == sites)
    for name, length in problem.noise.correlation_length.items():
        columns = problem.observation_slices[name]
        own = np.flatnonzero((columns.start <= numbers) & (numbers < columns.stop))
        X = problem.survey.X[sites[own]] / length
        distance = np.sqrt(squared_distances(X, X))
        whole[np.ix_(own, own)] = np.exp(-distance) * correlation[np.ix_(numbers[own], numbers[own])]
    std = problem.noise_std[observed]
    found = np.asarray(std[:, None] * whole * std)
    if problem.noise.discrepancy:
        seen = np.flatnonzero(observed.ravel())
        found = found + discrepancy_covariance(problem)[np.ix_(seen, seen)]
    return found


def noise_scale(problem: Problem) -> Floats:
    """Return the scale (N, P) of Student-t or Laplace noise with the standard deviation of the problem."""
    # Where nothing was observed the standard deviation may be NaN, and the value has no effect.
    std = np.where(np.isnan(problem.survey.Y), 1.0, problem.noise_std)
    degrees = problem.noise.degrees
    return std * (math.sqrt((degrees - 2.0) / degrees) if problem.noise.kind == "student-t" else math.sqrt(0.5))
