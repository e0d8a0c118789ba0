"""Estimators: log densities at sampled latents -> each site's expected log likelihood and its derivatives."""

from __future__ import annotations

from typing import NamedTuple

from invgp.core.backend import Array, array_namespace
from invgp.core.hermite import Quadratic, coefficients, coefficients_by_site, hermite_features, quadratic
from invgp.core.sampling import Points


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
    everything = _all_features(latents)
    return everything if samples >= 2 * everything else 2 * latents + 1


def _all_features(latents: int) -> int:
    return (latents + 1) * (latents + 2) // 2


def fewest_samples(latents: int) -> int:
    """Fewest samples a site with which `score` is well posed."""
    return 2 * (2 * latents + 1)


def score(points: Points, scale: Array, log_density: Array, valid: Array | None = None) -> SiteTerms:
    """The paper's score-function estimator, with control variates.

    With f = mean + scale z, the derivatives are E[z log p] / scale and E[(z^2 - 1) log p] / scale^2: they need
    log densities only. The control variates are z, z^2 - 1 and, where there are samples enough, the cross terms
    z_i z_j. These functions are orthogonal under the normal distribution, so the estimates with optimal
    coefficients are the coefficients of the least-squares fit of log p to them. The estimates are exact for a
    log density that is quadratic in f.

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
    if not _has_cross_terms(*points.base.shape):
        return fit
    R = points.rotations
    return Quadratic(fit.value, (R @ fit.gradient[..., None])[..., 0], R @ fit.curvature @ xp.matrix_transpose(R))


def expectation(points: Points, values: Array, valid: Array | None = None) -> Array:
    """Expectations (N, T) of quantities known at the samples, values (S, N, T), with the same control variates."""
    return _coefficients(points, values, valid)[..., 0]


def _coefficients(points: Points, values: Array, valid: Array | None) -> Array:
    """Hermite coefficients (N, T, F) of values (S, N, T): in the base points, or without cross terms in the normals.

    All quadratic functions of the normals of a site are those of the base points, for these differ by a rotation.
    """
    xp = array_namespace(values)
    if _has_cross_terms(*points.base.shape):
        return coefficients(hermite_features(points.base, cross_terms=True), values, valid)
    z = xp.permute_dims(points.normals(), (1, 2, 0))
    return coefficients_by_site(hermite_features(z, cross_terms=False, axis=1), values, valid)


def _has_cross_terms(samples: int, latents: int) -> bool:
    return features_needed(latents, samples) == _all_features(latents)
