"""Expectations of a density under several independent normals, by adaptive importance sampling.

The proposal is a Gaussian that moves from the normals to their product with the density. In each stage, the density is
raised to a power such that enough samples keep weight, and the Gaussian is fitted to the weighted samples. The final
sample is drawn from this Gaussian, and an eighth of it from the normals themselves, so that the weights are bounded.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, backend_of, to_numpy

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ImportanceOptions:
    """Tuning of the adaptive importance sampling.

    Attributes
    ----------
    max_stages : int
        Stages of the proposal.
    bisections : int
        Steps of the search for the power of the density in each stage.
    min_effective_fraction : float
        Effective sample size of a stage, relative to the number of samples.
    proposal_inflation : float
        Standard deviations of the proposal relative to the fitted ones, against light tails.
    warn_standard_error : float
        Standard error of a log density above which there is a warning.
    """

    max_stages: int = 60
    bisections: int = 30
    min_effective_fraction: float = 0.25
    proposal_inflation: float = 1.15
    warn_standard_error: float = 0.1


def log_expectation(
    log_density: Callable[[Array], Array],
    mean: Array,
    scale: Array,
    normals: Floats,
    options: ImportanceOptions = ImportanceOptions(),
) -> Floats:
    """Estimate log E[exp(log_density(f))] for normal f.

    Parameters
    ----------
    log_density : callable
        (S, N, Q) -> (S, N).
    mean, scale : array, shape (N, Q)
        Mean and standard deviation of f.
    normals : array, shape (S, Q)
        Standard normal points, such as transformed Sobol points.
    options : ImportanceOptions

    Returns
    -------
    array, shape (N,)

    Warns
    -----
    UserWarning
        The estimated standard error of a site is large.
    """
    backend, location, width = backend_of(mean), to_numpy(mean), to_numpy(scale)

    def density(z: Floats) -> Floats:
        f = backend.asarray(location[:, None, :] + width[:, None, :] * z)
        found = np.asarray(to_numpy(log_density(backend.namespace.permute_dims(f, (1, 0, 2)))), dtype=np.float64).T
        return np.where(np.isnan(found), -np.inf, found)

    centre, factor = _fit_proposal(density, normals, len(location), options)
    return _estimate_log_mean(density, normals, centre, factor, options.warn_standard_error)


def _fit_proposal(
    density: Callable[[Floats], Floats], normals: Floats, sites: int, options: ImportanceOptions
) -> tuple[Floats, Floats]:
    """Fit a Gaussian, mean (N, Q) and Cholesky factor (N, Q, Q), to the density times the standard normal."""
    Q = normals.shape[1]
    centre, factor = np.zeros((sites, Q)), np.repeat(np.eye(Q)[None], sites, axis=0)
    power = np.zeros(sites)
    for _ in range(options.max_stages):
        z = _transform(normals, centre, factor)
        found, prior = density(z), _standard_normal_log_density(z)
        base = prior - _gaussian_log_density(z, centre, factor)
        power = _next_power(found, base, power, options)
        weights = _normalise_weights(_temper(found, power) + base)
        centre = np.einsum("ns,nsq->nq", weights, z)
        away = z - centre[:, None, :]
        covariance = np.einsum("ns,nsq,nsr->nqr", weights, away, away)
        ridge = 1e-9 * np.trace(covariance, axis1=1, axis2=2) + 1e-300
        factor = np.linalg.cholesky(covariance + ridge[:, None, None] * np.eye(Q))
        if np.all(power >= 1.0):
            break
    return centre, options.proposal_inflation * factor


def _estimate_log_mean(
    density: Callable[[Floats], Floats], normals: Floats, centre: Floats, factor: Floats, warn_error: float
) -> Floats:
    S = len(normals)
    near = S - S // 8
    z = _transform(normals, centre, factor)
    z[:, near:, :] = normals[near:]
    prior = _standard_normal_log_density(z)
    proposal = np.logaddexp(
        math.log(near / S) + _gaussian_log_density(z, centre, factor), math.log(1.0 - near / S) + prior
    )
    logs = density(z) + prior - proposal
    total: Floats = np.logaddexp.reduce(logs, axis=1)
    error = np.sqrt(np.sum(np.square(_normalise_weights(logs)), axis=1))
    if np.any(error > warn_error):
        warnings.warn(
            f"the log predictive density of {np.sum(error > warn_error)} of {len(error)} sites has a standard "
            f"error above {warn_error}, up to {error.max():.1g}: more `samples` reduce it",
            stacklevel=3,
        )
    return total - math.log(S)


def _next_power(found: Floats, base: Floats, power: Floats, options: ImportanceOptions) -> Floats:
    """Find the largest power (N,) of the density, up to 1, for which enough samples keep weight."""
    enough = options.min_effective_fraction * found.shape[1]
    low, high = power, np.ones_like(power)
    whole = _effective_sample_size(_temper(found, high) + base) >= enough
    for _ in range(options.bisections):
        middle = 0.5 * (low + high)
        fine = _effective_sample_size(_temper(found, middle) + base) >= enough
        low, high = np.where(fine, middle, low), np.where(fine, high, middle)
    return np.where(whole, 1.0, low)


def _temper(found: Floats, power: Floats) -> Floats:
    """Multiply the log density by a power; the result is 0 for the power 0, also where the density is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(power[:, None] > 0.0, found * power[:, None], 0.0)


def _effective_sample_size(logs: Floats) -> Floats:
    return np.asarray(1.0 / np.sum(np.square(_normalise_weights(logs)), axis=1))


def _normalise_weights(logs: Floats) -> Floats:
    """Compute weights that add up to one over the samples; equal weights if all are zero."""
    largest = np.max(logs, axis=1, keepdims=True)
    weights = np.exp(np.where(largest > -np.inf, logs - np.where(largest > -np.inf, largest, 0.0), 0.0))
    return np.asarray(weights / np.sum(weights, axis=1, keepdims=True))


def _transform(normals: Floats, centre: Floats, factor: Floats) -> Floats:
    return centre[:, None, :] + normals @ np.swapaxes(factor, 1, 2)


def _standard_normal_log_density(z: Floats) -> Floats:
    return np.asarray(-0.5 * np.sum(z * z, axis=-1) - 0.5 * z.shape[-1] * math.log(2.0 * math.pi))


def _gaussian_log_density(z: Floats, centre: Floats, factor: Floats) -> Floats:
    whitened = np.linalg.solve(factor, np.swapaxes(z - centre[:, None, :], 1, 2))
    log_volume: Floats = np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=1)
    return _standard_normal_log_density(np.swapaxes(whitened, 1, 2)) - log_volume[:, None]
