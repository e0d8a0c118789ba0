"""Monte Carlo estimate of the entropy of a mixture."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of, solve_triangular, to_numpy
from invgp.core.posteriors.mixture import LOG_2PI, Mixture

MAX_NUMBERS = 2**22  # in an array of samples


class EntropyEstimate(NamedTuple):
    """An estimate, in nats, with its standard error."""

    value: float
    standard_error: float


def estimate_entropy(q: Mixture, factor: Array, samples: int, rng: np.random.Generator) -> EntropyEstimate:
    """Estimate the entropy of a mixture: of whitened variables if its spread is factors, otherwise of u.

    Parameters
    ----------
    q : Mixture
        Of K components.
    factor : array, shape (Q, M, M)
        Cholesky factor of the prior covariance, which is used if the spread of the mixture is variances.
    samples : int
        Samples per component.
    rng : numpy.random.Generator
        Random generator.

    Returns
    -------
    EntropyEstimate
    """
    xp, backend = array_namespace(q.mean), backend_of(q.mean)
    K, Q, M = q.mean.shape
    full = q.spread.ndim == 4
    means = q.mean if full else (factor @ q.mean[..., None])[..., 0]
    value = variance = 0.0
    weights = np.asarray(to_numpy(q.weights), dtype=np.float64)
    step = max(1, min(samples, MAX_NUMBERS // (Q * M)))
    for k in range(K):
        found = []
        for start in range(0, samples, step):
            z = backend.asarray(rng.standard_normal((min(step, samples - start), Q, M)))
            spread = q.spread[k, ...]
            moved = xp.permute_dims(spread @ xp.permute_dims(z, (1, 2, 0)), (2, 0, 1)) if full else xp.sqrt(spread) * z
            found.append(to_numpy(_log_density(q, means, means[k, ...] + moved)))
        logs = np.concatenate(found)
        value -= weights[k] * float(np.mean(logs))
        variance += weights[k] ** 2 * float(np.var(logs, ddof=1)) / len(logs)
    return EntropyEstimate(value, math.sqrt(variance))


def _log_density(q: Mixture, means: Array, values: Array) -> Array:
    """Compute the log density (S,) of the mixture at values (S, Q, M)."""
    xp = array_namespace(values)
    logs = []
    for k in range(means.shape[0]):
        apart, spread = values - means[k, ...], q.spread[k, ...]
        if q.spread.ndim == 4:
            whitened = solve_triangular(spread, xp.permute_dims(apart, (1, 2, 0)))
            distance = xp.sum(xp.square(whitened), axis=(0, 1))
            log_det = 2.0 * xp.sum(xp.log(xp.abs(xp.linalg.diagonal(spread))))
        else:
            distance = xp.sum(xp.square(apart) / spread, axis=(1, 2))
            log_det = xp.sum(xp.log(spread))
        size = values.shape[1] * values.shape[2]
        logs.append(-0.5 * (size * LOG_2PI + log_det + distance) + xp.log(q.weights[k]))
    terms = xp.stack(logs)
    largest = xp.max(terms, axis=0)
    return largest + xp.log(xp.sum(xp.exp(terms - largest), axis=0))
