"""The evidence by bridge sampling, from draws of the posterior and of a normalised proposal.

Importance sampling needs a proposal with heavier tails than the posterior. Bridge sampling (Meng and Wong, Statistica
Sinica 6, 1996) needs only that the two overlap, because it uses draws from both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

Floats = NDArray[np.float64]
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
