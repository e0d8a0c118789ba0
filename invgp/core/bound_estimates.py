"""Estimates of the bound on sample points that the fit has not used, with their standard errors.

A search with common random numbers fits the posterior to the points as well as to the data, so the bound that it
maximises is too high. Here the bound is estimated on several independent sets of points. The control variates of each
set have the coefficients of a fit to the previous set, which is independent of it. The estimate of each set is
therefore unbiased, and the estimates of different sets are uncorrelated. Their spread gives the standard error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of, to_numpy
from invgp.core.bound import BoundState
from invgp.core.estimators import degree
from invgp.core.expectations import LogDensity, closed_form_expectations, sample_batches
from invgp.core.hermite import fit_matrix, hermite_features
from invgp.core.point_sets import Points
from invgp.core.posteriors import Sites
from invgp.core.posteriors.entropy import EntropyEstimate, estimate_entropy

SETS = 16  # independent sets of points
ENTROPY_SAMPLES = 4096  # per component of a mixture


class BoundEstimate(NamedTuple):
    """An estimate of the bound.

    Attributes
    ----------
    elbo : float, in nats
        The bound of the paper; for a mixture, with the lower bound of its entropy, eq. (18).
    expected_log_likelihood, kl : float, in nats
        Its two terms: elbo = expected_log_likelihood - kl.
    standard_error : float, in nats
        Of `expected_log_likelihood`.
    mixture_elbo, mixture_standard_error : float, in nats
        The bound with a Monte Carlo estimate of the entropy instead, and its standard error; for a single Gaussian,
        the same as `elbo` and `standard_error`.
    """

    elbo: float
    expected_log_likelihood: float
    kl: float
    standard_error: float
    mixture_elbo: float
    mixture_standard_error: float


def estimate_bound(
    bound_state: BoundState, log_density: LogDensity, samples: int, rng: np.random.Generator
) -> BoundEstimate:
    """Estimate the bound on new points.

    Parameters
    ----------
    bound_state : BoundState
        The model and its posterior. If its weight of a site is not 1, its sites count as a random subset of all sites,
        and the standard error includes the variation between sites.
    log_density : LogDensity
        Log density of the observations at samples of the latents.
    samples : int
        Samples per site and set of points.
    rng : numpy.random.Generator
        Random generator.

    Returns
    -------
    BoundEstimate
    """
    totals, site_means = _expected_log_likelihoods(bound_state, log_density, samples, rng)
    weight = bound_state.bound.weight
    expected = weight * float(np.mean(totals))
    variance = weight**2 * float(np.var(totals, ddof=1)) / SETS
    if weight > 1.0 and len(site_means) > 1:
        variance += weight**2 * (1.0 - 1.0 / weight) * len(site_means) * float(np.var(site_means, ddof=1))
    error = math.sqrt(variance)
    kl = -float(bound_state.family.negative_kl(bound_state.q, bound_state.factor))
    gain = estimate_entropy_gain(bound_state, rng)
    elbo = expected - kl
    return BoundEstimate(elbo, expected, kl, error, elbo + gain.value, math.hypot(error, gain.standard_error))


def estimate_entropy_gain(bound_state: BoundState, rng: np.random.Generator) -> EntropyEstimate:
    """Estimate the entropy of a mixture minus its lower bound by Jensen's inequality; 0 for a single Gaussian."""
    family, q, factor = bound_state.family, bound_state.q, bound_state.factor
    if isinstance(family, Sites) or family.components == 1:
        return EntropyEstimate(0.0, 0.0)
    entropy = estimate_entropy(q, factor, ENTROPY_SAMPLES, rng)
    return EntropyEstimate(entropy.value - float(family.entropy_bound(q, factor)), entropy.standard_error)


def _expected_log_likelihoods(
    bound_state: BoundState, log_density: LogDensity, samples: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the expected log likelihood with each set of points (SETS,), and its mean at each site (N,)."""
    xp, backend = array_namespace(bound_state.factor), backend_of(bound_state.factor)
    N, Q = bound_state.bound.X.shape[0], len(bound_state.kernels)
    first = Points.draw(rng, samples, N, Q, backend)
    bases = [first.base, *(Points.draw(rng, samples, 1, Q, backend).base for _ in range(SETS))]
    highest = degree(Q, samples)
    features = [hermite_features(base, cross_terms=True, degree=highest) if highest else None for base in bases]
    fits = [None if one is None else fit_matrix(one) for one in features]
    closed_form = getattr(log_density, "expected", None)
    weights = [float(weight) for weight in to_numpy(bound_state.q.weights)]
    totals, site_means = np.zeros(SETS), np.zeros(N)
    for start, stop in bound_state.bound.batches():
        mean, variance = bound_state.marginals(bound_state.geometry(start, stop))
        scale = xp.sqrt(variance)
        if closed_form is not None:
            values = closed_form_expectations(closed_form, mean, scale, start, strict=False).value
            found = to_numpy(xp.sum(bound_state.q.weights[:, None] * values, axis=0))
            totals, site_means[start:stop] = totals + found.sum(), found
            continue
        for rows in sample_batches(first, stop - start):
            points = first.at(start + rows.start, start + rows.stop)
            sites = slice(start + rows.start, start + rows.stop)
            for k, weight in enumerate(weights):
                coefficients: Array | None = None
                for i, base in enumerate(bases):
                    f = Points(base, points.rotations).samples(mean[k, rows, :], scale[k, rows, :])
                    values = log_density(f, sites.start, sites.stop)[0]
                    if i > 0:
                        if coefficients is None:
                            found = xp.mean(values, axis=0)
                        else:
                            # The expectation of every feature except the constant one is 0.
                            means = xp.mean(features[i], axis=0)
                            found = xp.mean(values, axis=0) - means[1:] @ coefficients[1:, :]
                        found = weight * to_numpy(found)
                        totals[i - 1] += found.sum()
                        site_means[sites] += found / SETS
                    if fits[i] is not None:
                        coefficients = fits[i] @ values
    return totals, site_means
