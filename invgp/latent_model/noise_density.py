"""Noise of the observations: log density, random samples, whitening, and discrepancies of field models.

The latents of a field model are on a grid, and a discrepancy is a process along the coordinates of the survey. Since it
is added to the outputs, and all of its distributions are Gaussian, it is a part of the covariance of the noise until
the posterior is known. Afterwards it is drawn given the data and the outputs of the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from invgp.core.backend import Array, Backend, array_namespace
from invgp.core.coupled import GaussianNoise
from invgp.core.kernels import squared_distances
from invgp.latent_model.problem_prior import gaussian_noise, noise_covariance
from invgp.likelihoods import Laplace, StudentT
from invgp.problem import Floats, Problem


class LogDensity(Protocol):
    """Log density of the observations of each site given the simulator outputs."""

    def __call__(self, outputs: Array, sites: Array | None = None) -> Array:
        """Compute log densities (S, B) for outputs (S, B, P) at sites (B,); by default at all N sites."""


def noise_log_density(problem: Problem, backend: Backend) -> LogDensity:
    """Return the log density of the observations of a problem.

    Parameters
    ----------
    problem : Problem
    backend : Backend
        Where the arrays are.

    Returns
    -------
    callable
        Outputs (S, N, P), and optionally the numbers of some sites (B,) -> log densities (S, N), or (S, B), in nats.
    """
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

    Parameters
    ----------
    problem : Problem
    backend : Backend
        Where the arrays are.

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
    """Return the likelihood for `CoupledSavigp`: Gaussian noise, or the log density of other noise.

    Parameters
    ----------
    problem : Problem
    backend : Backend
        Where the arrays are.

    Returns
    -------
    GaussianNoise or callable
    """
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
    """Draw noise (N, P) for one survey; NaN where the problem has no observation.

    Parameters
    ----------
    problem : Problem
    rng : numpy.random.Generator

    Returns
    -------
    array, shape (N, P), in the units of the observations
    """
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
    """Return the covariance (D, D) of the Gaussian noise of all observed data, with discrepancies, ordered by site.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    array, shape (D, D), in the units of the observations
    """
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
    """Return the scale (N, P) of Student-t or Laplace noise with the standard deviation of the problem.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    array, shape (N, P), in the units of the observations
    """
    # Where nothing was observed the standard deviation may be NaN, and the value has no effect.
    std = np.where(np.isnan(problem.survey.Y), 1.0, problem.noise_std)
    degrees = problem.noise.degrees
    return std * (math.sqrt((degrees - 2.0) / degrees) if problem.noise.kind == "student-t" else math.sqrt(0.5))


SMALLEST_EIGENVALUE = 1e-12  # of the conditional covariance, relative to the largest; smaller ones are rounding


def discrepancy_covariance(problem: Problem) -> Floats:
    """Return the prior covariance (N P, N P) of the discrepancies of all outputs, ordered by site.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    array, shape (N P, N P), in the units of the observations
    """
    (N, P), X = problem.noise_std.shape, problem.survey.X
    found = np.zeros((N, P, N, P))
    for name, latent in problem.noise.discrepancy.items():
        columns = problem.observation_slices[name]
        labels = np.eye(latent.size) if latent.label_correlation is None else latent.label_correlation
        scaled = latent.std[:, None] * labels * latent.std
        found[:, columns, :, columns] = latent.kernel(X, X)[:, None, :, None] * scaled[None, :, None, :]
    return found.reshape(N * P, N * P)


def draw_discrepancy(problem: Problem, outputs: Floats, covariance: Floats, rng: np.random.Generator) -> Floats:
    """Draw the discrepancies given the data, one for each of several outputs of the simulator.

    Parameters
    ----------
    problem : Problem
    outputs : array, shape (S, N, P), in the units of the observations
        Outputs of the simulator without discrepancies.
    covariance : array, shape (D, D)
        Covariance of the observed data given the latents: of the noise and the discrepancies.
    rng : numpy.random.Generator

    Returns
    -------
    array, shape (S, N, P), in the units of the observations
    """
    observed = np.flatnonzero(~np.isnan(problem.survey.Y.ravel()))
    prior = discrepancy_covariance(problem)
    gain = np.linalg.solve(covariance, prior[observed]).T
    residuals = problem.survey.Y.ravel()[observed] - outputs.reshape(len(outputs), -1)[:, observed]
    values, vectors = np.linalg.eigh(prior - gain @ prior[observed])
    root = vectors * np.sqrt(np.where(values > SMALLEST_EIGENVALUE * values[-1], values, 0.0))
    offsets = rng.standard_normal((len(outputs), len(values))) @ root.T
    offsets -= offsets.mean(axis=0)  # which is known to be 0
    return np.asarray((residuals @ gain.T + offsets).reshape(outputs.shape))


class Whitening:
    """Transformation of data and outputs to independent noise with standard deviation 1.

    Missing data are left out.

    Parameters
    ----------
    problem : Problem
    missing_counts : array of int, shape (N, P), optional
        Number of runs without each output; None if no run lacks an observed output.

    Attributes
    ----------
    observed : array of bool, shape (N, P)
    data : array, shape (D,)
        Whitened data.
    unmixing : array, shape (D, D), or None
        Removes the correlations of the scaled outputs; None if scaled outputs are independent.
    degrees : float or None
        Degrees of freedom of Student-t noise; None for Gaussian noise.
    log_scale : float
        Log density of the data minus that of the whitened data.
    """

    def __init__(self, problem: Problem, missing_counts: NDArray[np.intp] | None = None) -> None:
        y = problem.survey.Y
        self.observed: NDArray[np.bool_] = ~np.isnan(y)
        self.degrees = problem.noise.degrees if problem.noise.kind == "student-t" else None
        self.unmixing: Floats | None = None
        if problem.noise.correlates_sites or (missing_counts is not None and problem.noise.correlation):
            covariance = data_covariance(problem)
            self.std = np.sqrt(np.diagonal(covariance))
            # Each datum is whitened given the data before it, so outputs that runs lack must come last.
            order = (
                np.arange(len(self.std))
                if missing_counts is None
                else np.argsort(missing_counts[self.observed], kind="stable")
            )
            within = np.ix_(order, order)
            factor = np.linalg.cholesky((covariance / np.outer(self.std, self.std))[within])
            self.unmixing = np.empty_like(factor)
            self.unmixing[within] = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
            self.log_scale = -float(np.sum(np.log(self.std)) + np.sum(np.log(np.diagonal(factor))))
        elif self.degrees is None:
            noise = gaussian_noise(problem, Backend(np, "cpu"))
            self.matrices = np.asarray(noise.whitening)
            self.log_scale = float(np.sum(noise.log_normaliser)) + 0.5 * math.log(2.0 * math.pi) * self.observed.sum()
        else:
            scale = noise_scale(problem)
            self.matrices = np.eye(y.shape[1]) / scale[:, None, :]
            self.log_scale = -float(np.sum(np.log(scale[self.observed])))
        self.data = self(y[None])[0]
        if self.unmixing is not None:
            self.data = self.unmixing @ self.data

    def __call__(self, outputs: Floats) -> Floats:
        """Scale outputs, and whiten them unless `unmixing` is to be applied later.

        Parameters
        ----------
        outputs : array, shape (S, N, P)
            NaN where missing.

        Returns
        -------
        array, shape (S, D)
            NaN where a missing output contributes.
        """
        if self.unmixing is not None:
            return np.asarray(outputs[:, self.observed] / self.std)
        missing = np.isnan(outputs) & self.observed
        values = np.where(self.observed & ~missing, outputs, 0.0)
        whitened = (self.matrices @ values[..., None])[..., 0]
        if missing.any():
            whitened[((self.matrices != 0.0) @ missing[..., None])[..., 0]] = np.nan
        return np.asarray(whitened[:, self.observed])
