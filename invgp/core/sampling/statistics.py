"""Convergence statistics of draws for many variables at once, and the evidence by bridge sampling.

The definitions are those of ArviZ, which computes one variable at a time.

References
----------
Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), for R-hat and the effective sample sizes; Vehtari et al. (2024),
for the Pareto k of importance weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, ndtri
from scipy.stats import rankdata

Floats = NDArray[np.float64]
TAILS = (0.05, 0.95)  # quantiles of the tail effective sample size
VARIABLES_AT_ONCE = 512  # to limit memory


def split_r_hat(draws: Floats) -> Floats:
    """Compute the rank-normalised split R-hat.

    Parameters
    ----------
    draws : array, shape (C, n, V)
        n draws of V variables in each of C chains.

    Returns
    -------
    array, shape (V,)
        The larger of the values for location and for spread; 1 for a variable that is constant.
    """
    return _in_blocks(_r_hat_of_block, draws)


def effective_sample_size(draws: Floats) -> Floats:
    """Compute the smaller of the bulk and tail effective sample sizes.

    Parameters
    ----------
    draws : array, shape (C, n, V)

    Returns
    -------
    array, shape (V,)
    """
    return _in_blocks(_effective_of_block, draws)


def _in_blocks(function: Callable[[Floats], Floats], draws: Floats) -> Floats:
    parts = [function(draws[..., i : i + VARIABLES_AT_ONCE]) for i in range(0, draws.shape[-1], VARIABLES_AT_ONCE)]
    return np.concatenate(parts)


def _r_hat_of_block(draws: Floats) -> Floats:
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_r_hat(_rank_normalise(halves)), _r_hat(_rank_normalise(folded)))


def _effective_of_block(draws: Floats) -> Floats:
    halves = _split(draws)
    bulk = _effective_size(_rank_normalise(halves))
    tails = [_effective_size((halves <= np.quantile(halves, q, axis=(0, 1))).astype(np.float64)) for q in TAILS]
    return np.asarray(np.minimum.reduce([bulk, *tails]))


def _split(draws: Floats) -> Floats:
    """Split each chain (C, n, V) into its first and second half, (2 C, n // 2, V)."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _rank_normalise(draws: Floats) -> Floats:
    C, n, V = draws.shape
    ranks = rankdata(draws.reshape(C * n, V), axis=0)
    return np.asarray(ndtri((ranks - 0.375) / (C * n + 0.25))).reshape(C, n, V)


def _variances(draws: Floats) -> tuple[Floats, Floats]:
    """Return the mean variance within chains, and the variance estimate that includes their differences, (V,) each."""
    n = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1) if len(draws) > 1 else np.zeros_like(within)
    return within, within * (n - 1) / n + between


def _r_hat(draws: Floats) -> Floats:
    within, total = _variances(draws)
    return np.sqrt(np.divide(total, within, out=np.ones_like(total), where=within > 0.0))


def _effective_size(draws: Floats) -> Floats:
    """Compute the effective sample size (V,) by Geyer's initial monotone sequence."""
    C, n, V = draws.shape
    within, total = _variances(draws)
    offset = draws - draws.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(offset, n=2 * n, axis=1)
    autocovariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0) / n
    constant = ~(total > 0.0)
    scale = np.where(constant, 1.0, total)
    correlation = 1.0 - (within - autocovariance * n / (n - 1)) / scale
    correlation[0] = 1.0
    pairs = correlation[0 : n - n % 2].reshape(-1, 2, V).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0.0, axis=0)
    sums = np.where(positive, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    length = np.maximum(-1.0 + 2.0 * sums, 1.0 / np.log10(max(C * n, 10)))
    return np.where(constant, float(C * n), C * n / length)


MOST_ITERATIONS, CONVERGED = 200, 1e-8  # of the fixed point; nats


class Evidence(NamedTuple):
    """Logarithm of an evidence and its standard error, in nats."""

    log: float
    error: float


def bridge_evidence(posterior: Floats, proposal: Floats, effective: float | None = None) -> Evidence:
    """Estimate the evidence with the optimal bridge.

    Parameters
    ----------
    posterior : array, shape (R,)
        Logarithm of the posterior density, up to the evidence, over the density of the proposal, at draws from the
        posterior.
    proposal : array, shape (S,)
        The same at draws from the proposal; -inf where the posterior density is 0.
    effective : float, optional
        Effective number of the posterior draws, if they are correlated; by default R.

    Returns
    -------
    Evidence
        The error is that of Frühwirth-Schnatter (Econometrics Journal 7, 2004); both are NaN if no draw of the proposal
        has a posterior density.
    """
    finite = posterior[np.isfinite(posterior)]
    if not np.isfinite(proposal).any() or not finite.size:
        return Evidence(math.nan, math.nan)
    own = len(finite) if effective is None else min(effective, len(finite))
    shares = math.log(own / (own + len(proposal))), math.log(len(proposal) / (own + len(proposal)))
    found = float(np.median(finite))
    for _ in range(MOST_ITERATIONS):
        above = logsumexp(proposal - np.logaddexp(shares[0] + proposal, shares[1] + found)) - math.log(len(proposal))
        below = logsumexp(-np.logaddexp(shares[0] + finite, shares[1] + found)) - math.log(len(finite))
        before, found = found, float(above - below)
        if abs(found - before) < CONVERGED:
            break
    # Each relative to the mixture of both densities, in which they have their shares.
    of_posterior = expit(shares[0] - shares[1] + proposal - found)
    of_proposal = expit(shares[1] - shares[0] + found - finite)
    variance = _relative_variance(of_posterior) / len(proposal) + _relative_variance(of_proposal) / own
    return Evidence(found, math.sqrt(variance))


def _relative_variance(values: Floats) -> float:
    mean = float(values.mean())
    return float(values.var()) / mean**2 if mean > 0.0 else math.inf
