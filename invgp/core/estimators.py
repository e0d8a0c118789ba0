"""Estimators of the expected log likelihood of each site and its derivatives, from log densities at samples."""

from __future__ import annotations

import math
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace
from invgp.core.hermite import (
    Quadratic,
    build_quadratic,
    coefficients,
    coefficients_by_site,
    fit_matrix,
    hermite_features,
    mean_squares,
    unbiased_fit_matrix,
)
from invgp.core.point_sets import Points


class SiteTerms(NamedTuple):
    """Contributions of the sites to the bound, with l_n = E_q[log p(y_n | f_n)].

    Attributes
    ----------
    value : array, shape (N,)
        l_n.
    gradient : array, shape (N, Q)
        d l_n / d mean.
    curvature : array, shape (N, Q)
        2 d l_n / d variance.
    """

    value: Array
    gradient: Array
    curvature: Array


def features_needed(latents: int, samples: int) -> int:
    """Return the number of regression features that `score` uses for this many latents and samples.

    Parameters
    ----------
    latents : int
        Number of latents, Q.
    samples : int
        Number of samples per site, S.

    Returns
    -------
    int
    """
    highest = degree(latents, samples)
    return math.comb(latents + highest, highest) if highest else 2 * latents + 1


def degree(latents: int, samples: int) -> int:
    """Return the highest degree whose polynomials are all used; 0 if cross terms are not used.

    Parameters
    ----------
    latents : int
        Number of latents, Q.
    samples : int
        Number of samples per site, S.

    Returns
    -------
    int
    """
    enough = {4: 6, 3: 6, 2: 2}  # degree: fewest samples per polynomial
    return next((d for d, each in enough.items() if samples >= each * math.comb(latents + d, d)), 0)


def fewest_unbiased_samples(latents: int) -> int:
    """Return the fewest samples per site for unbiased estimates from independent points.

    Parameters
    ----------
    latents : int
        Number of latents, Q.

    Returns
    -------
    int
    """
    return 2 * math.comb(latents + 2, 2)


def fewest_samples(latents: int) -> int:
    """Return the fewest samples per site for which the regression of `score` is well posed.

    Parameters
    ----------
    latents : int
        Number of latents, Q.

    Returns
    -------
    int
    """
    return 2 * (2 * latents + 1)


def default_samples(latents: int) -> int:
    """Return the samples per site with which a fit on all data starts.

    The number grows with the latents, so that the regression of `score` contains all polynomials of degree four for up
    to four latents, and of degree two for many: a fit to fewer samples adapts the posterior to them.

    Parameters
    ----------
    latents : int
        Number of latents, Q.

    Returns
    -------
    int
    """
    wanted = min(6 * math.comb(latents + 4, 4), max(512, 4 * math.comb(latents + 2, 2)))
    return max(128, _next_power_of_two(wanted))


def default_batch_samples(latents: int) -> int:
    """Return the samples per site with which mini-batches are fitted; their points are new in each batch.

    Parameters
    ----------
    latents : int
        Number of latents, Q.

    Returns
    -------
    int
    """
    wanted = _next_power_of_two(2 * math.comb(latents + 2, 2))
    return max(64, min(256, wanted), fewest_samples(latents))


def _next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def score(points: Points, scale: Array, log_density: Array, valid: Array | None = None) -> SiteTerms:
    """Estimate the site terms by the score-function estimator of the paper, with control variates.

    With f = mean + scale z, the derivatives are E[z log p] / scale and E[(z^2 - 1) log p] / scale^2, so only log
    densities are needed. The control variates are z, z^2 - 1 and, with enough samples, the cross terms z_i z_j and
    Hermite polynomials up to degree four. These functions are orthogonal under the normal distribution. The estimates
    with optimal coefficients are therefore the coefficients of the least-squares fit of log p to them. They are exact
    for a log density that is such a polynomial in f. The higher degrees also remove most of the error that all sites
    share because their points differ only by a rotation.

    A fit to its own samples has a bias of order 1/S, similar in size to the random error. For independent points, the
    coefficients for each sample are fitted to all other samples: this is unbiased, with two to three times the error.

    Parameters
    ----------
    points : Points
        Standard normals z of N sites.
    scale : array, shape (N, Q)
        Posterior standard deviations of the latents.
    log_density : array, shape (S, N)
        Log densities at the samples; ignored where not valid.
    valid : array of bool, shape (S, N), optional
        False where the run failed. None if all runs are valid; then one regression serves all sites.

    Returns
    -------
    SiteTerms

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), eqs. (24) to (26) and (30); control variates: appendix "Control Variates".
    """
    xp = array_namespace(scale)
    fit = quadratic_fit(points, log_density, valid)
    return SiteTerms(fit.value, fit.gradient / scale, xp.linalg.diagonal(fit.curvature) / xp.square(scale))


def quadratic_fit(points: Points, log_density: Array, valid: Array | None = None) -> Quadratic:
    """Fit a quadratic function of the normals of each site to the log densities; parameters as in `score`.

    Parameters
    ----------
    points : Points
        Standard normal points of the samples.
    log_density : array, shape (S, N), in nats
        Log density of each sample.
    valid : array of bool, shape (S, N), optional
        Which samples are used; by default all.

    Returns
    -------
    Quadratic
    """
    xp = array_namespace(log_density)
    fit = build_quadratic(_coefficients(points, log_density[..., None], valid)[:, 0, :], points.base.shape[1])
    if not _degree(points):
        return fit
    R = points.rotations
    return Quadratic(fit.value, (R @ fit.gradient[..., None])[..., 0], R @ fit.curvature @ xp.matrix_transpose(R))


def expectation(points: Points, values: Array, valid: Array | None = None) -> Array:
    """Estimate expectations (N, T) of values (S, N, T) at the samples, with the control variates of `score`.

    Parameters
    ----------
    points : Points
        Standard normal points of the samples.
    values : array, shape (S, N, T)
        Values at the samples.
    valid : array of bool, shape (S, N), optional
        Which samples are used; by default all.

    Returns
    -------
    array, shape (N, T)
    """
    return _coefficients(points, values, valid)[..., 0]


def _coefficients(points: Points, values: Array, valid: Array | None) -> Array:
    """Fit Hermite coefficients (N, T, F) to values (S, N, T).

    With all polynomials up to a degree, the features are functions of the base points: the normals of a site are
    rotated base points, and a rotation maps the polynomials of each degree to themselves. Without cross terms, the
    features are functions of the normals of each site.
    """
    xp = array_namespace(values)
    highest = _degree(points)
    if highest:
        features, fit = _shared_fit(points, highest)
        return coefficients(features, values, valid, fit)
    z = xp.permute_dims(points.normals(), (1, 2, 0))
    return coefficients_by_site(hermite_features(z, cross_terms=False, axis=1), values, valid)


def _shared_fit(points: Points, highest: int) -> tuple[Array, Array]:
    """Compute and cache the features (S, F) of the base points and the matrix (F, S) from values to coefficients."""
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
