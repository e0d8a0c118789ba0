"""Estimators: log densities at sampled latents -> each site's expected log likelihood and its derivatives."""

from __future__ import annotations

import math
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace
from invgp.core.hermite import (
    Quadratic,
    coefficients,
    coefficients_by_site,
    fit_matrix,
    hermite_features,
    mean_squares,
    quadratic,
    unbiased_fit_matrix,
)
from invgp.core.point_sets import Points


class SiteTerms(NamedTuple):
    """What one site adds to the bound, with l_n = E_q[log p(y_n | f_n)].

    Attributes
    ----------
    value : l_n, (N,).
    gradient : d l_n / d mean, (N, Q).
    curvature : 2 d l_n / d variance, (N, Q).
    """

    value: Array
    gradient: Array
    curvature: Array


def features_needed(latents: int, samples: int) -> int:
    """Number of regression features that `score` uses for this many latents and samples."""
    highest = degree(latents, samples)
    return math.comb(latents + highest, highest) if highest else 2 * latents + 1


def degree(latents: int, samples: int) -> int:
    """Highest degree whose polynomials are all used; 0 if there are samples for some of the second degree only."""
    enough = {4: 6, 3: 6, 2: 2}  # samples a polynomial
    return next((d for d, each in enough.items() if samples >= each * math.comb(latents + d, d)), 0)


def fewest_unbiased_samples(latents: int) -> int:
    """Fewest samples a site with which estimates from independent points have no bias."""
    return 2 * math.comb(latents + 2, 2)


def fewest_samples(latents: int) -> int:
    """Fewest samples a site with which `score` is well posed."""
    return 2 * (2 * latents + 1)


def score(points: Points, scale: Array, log_density: Array, valid: Array | None = None) -> SiteTerms:
    """The paper's score-function estimator, with control variates.

    With f = mean + scale z, the derivatives are E[z log p] / scale and E[(z^2 - 1) log p] / scale^2: they need
    log densities only. The control variates are z, z^2 - 1 and, where there are samples enough, the cross terms
    z_i z_j and Hermite polynomials up to the fourth degree. These functions are orthogonal under the normal
    distribution, so the estimates with optimal coefficients are the coefficients of the least-squares fit of log p to
    them. The estimates are exact for a log density that is such a polynomial in f; the higher degrees also take away
    most of the error that all sites have in common, for their points differ by a rotation only.

    A fit to its own samples has a bias of order 1/S, of about the size of what one estimate still varies by.
    Independent points get coefficients from all other samples instead: no bias, but some two to three times the error.

    Parameters
    ----------
    points : the normals z of N sites.
    scale : posterior standard deviation of each latent at each site, (N, Q).
    log_density : (S, N); ignored where not valid.
    valid : (S, N), False where the run failed; None if none did, when one regression may serve all sites.
    """
    xp = array_namespace(scale)
    fit = quadratic_fit(points, log_density, valid)
    return SiteTerms(fit.value, fit.gradient / scale, xp.linalg.diagonal(fit.curvature) / xp.square(scale))


def quadratic_fit(points: Points, log_density: Array, valid: Array | None = None) -> Quadratic:
    """The least-squares fits behind `score`, as functions of the normals of each site; arguments as there."""
    xp = array_namespace(log_density)
    fit = quadratic(_coefficients(points, log_density[..., None], valid)[:, 0, :], points.base.shape[1])
    if not _degree(points):
        return fit
    R = points.rotations
    return Quadratic(fit.value, (R @ fit.gradient[..., None])[..., 0], R @ fit.curvature @ xp.matrix_transpose(R))


def expectation(points: Points, values: Array, valid: Array | None = None) -> Array:
    """Expectations (N, T) of quantities known at the samples, values (S, N, T), with the same control variates."""
    return _coefficients(points, values, valid)[..., 0]


def _coefficients(points: Points, values: Array, valid: Array | None) -> Array:
    """Hermite coefficients (N, T, F) of values (S, N, T): in the base points, or without cross terms in the normals.

    All polynomials of a degree in the normals of a site are those in the base points, for these differ by a rotation.
    """
    xp = array_namespace(values)
    highest = _degree(points)
    if highest:
        features, fit = _shared_fit(points, highest)
        return coefficients(features, values, valid, fit)
    z = xp.permute_dims(points.normals(), (1, 2, 0))
    return coefficients_by_site(hermite_features(z, cross_terms=False, axis=1), values, valid)


def _shared_fit(points: Points, highest: int) -> tuple[Array, Array]:
    """Features (S, F) of the base points, and what turns values there into coefficients (F, S); found once."""
    cache = points.cache
    if not cache:
        cache["features"] = hermite_features(points.base, cross_terms=True, degree=highest)
        squares = mean_squares(points.base.shape[1], highest)
        independent = points.independent
        cache["fit"] = unbiased_fit_matrix(cache["features"], squares) if independent else fit_matrix(cache["features"])
    return cache["features"], cache["fit"]


def _degree(points: Points) -> int:
    samples, latents = points.base.shape
    return degree(latents, samples)
