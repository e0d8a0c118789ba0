"""The exact posterior of a log Gaussian Cox process, by elliptical slice sampling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from disasters import LENGTH_SCALE, Counts, Floats

from invgp.core.field.elliptical_slices import run_slice_chains
from invgp.core.field.field_gaussian import Gaussian
from invgp.core.kernels import SquaredExponential

NEGLIGIBLE = 1e-12  # relative to the largest eigenvalue of the prior covariance: smaller ones are omitted
BURN_IN = 0.25  # share of the draws that is discarded


class Draws(NamedTuple):
    """Summaries of the chains, for the log intensity minus the offset at N bins.

    Attributes
    ----------
    mean, std : (N,).
    quantiles : (2, N), at 2.5% and 97.5%.
    error : (N,), Monte Carlo standard error of the mean.
    r_hat : the largest over the bins.
    evaluations : of the likelihood, at all bins.
    """

    mean: Floats
    std: Floats
    quantiles: Floats
    error: Floats
    r_hat: float
    evaluations: int


def sample(counts: Counts, chains: int, draws: int, seed: int = 0) -> Draws:
    """Draw from the posterior by elliptical slice sampling around a Gaussian at its mode."""
    kernel = SquaredExponential(np.asarray(1.0), np.asarray([LENGTH_SCALE]))
    values, vectors = np.linalg.eigh(kernel(counts.day, counts.day))
    seen = values > NEGLIGIBLE * values[-1]
    root = vectors[:, seen] * np.sqrt(values[seen])  # f = root w, with w standard normal
    evaluations = 0

    def log_density(w: Floats) -> Floats:
        nonlocal evaluations
        evaluations += len(w)
        f = w @ root.T
        return np.asarray(f @ counts.count - np.exp(f + counts.offset).sum(axis=1) - 0.5 * np.sum(w**2, axis=1))

    near = _at_the_mode(counts, root)
    visited = run_slice_chains(log_density, near, np.random.default_rng(seed), chains, draws)
    kept = near.samples(visited[round(BURN_IN * draws) :].reshape(-1, root.shape[1])) @ root.T
    by_chain = kept.reshape(-1, chains, len(root)).transpose(1, 0, 2)
    r_hat = array_stats.rhat(by_chain, chain_axis=0, draw_axis=1)
    error = array_stats.mcse(by_chain, chain_axis=0, draw_axis=1)
    quantiles = np.quantile(kept, [0.025, 0.975], axis=0)
    return Draws(kept.mean(axis=0), kept.std(axis=0), quantiles, error, float(np.max(r_hat)), evaluations)


def _at_the_mode(counts: Counts, root: Floats) -> Gaussian:
    """Compute the Laplace approximation in w by Newton's method."""
    w = np.zeros(root.shape[1])
    for _ in range(50):
        rate = np.exp(root @ w + counts.offset)
        precision = np.eye(len(w)) + root.T @ (rate[:, None] * root)
        step = np.linalg.solve(precision, root.T @ (counts.count - rate) - w)
        w = w + step
        if np.abs(step).max() < 1e-9:
            break
    covariance = np.linalg.inv(precision)
    return Gaussian(w, covariance, np.linalg.cholesky(covariance))
