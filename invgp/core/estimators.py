"""Estimators: log densities at sampled latents -> each site's expected log likelihood and its derivatives."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace, identity, product
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


class Quadratic(NamedTuple):
    """Least-squares fits of log densities to quadratic functions c + g^T z + (z^T H z - trace H) / 2 of the normals.

    Attributes
    ----------
    value : c, the expectation, (N,).
    gradient : g, (N, Q).
    curvature : H, (N, Q, Q), symmetric; diagonal where the samples are too few for cross terms.
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
    Q = points.base.shape[-1]
    if not _fits_base(points, valid):
        return _quadratic(hermite_coefficients(points.normals(), log_density[..., None], valid)[..., 0], Q)
    fit = _quadratic(product(_regression(points.base), log_density).T, Q)
    R = points.rotations
    return Quadratic(fit.value, (R @ fit.gradient[..., None])[..., 0], R @ fit.curvature @ xp.matrix_transpose(R))


def expectation(points: Points, values: Array, valid: Array | None = None) -> Array:
    """Expectations (N, T) of quantities known at the samples, values (S, N, T), with the same control variates."""
    xp = array_namespace(values)
    if not _fits_base(points, valid):
        return hermite_coefficients(points.normals(), values, valid)[:, 0, :]
    S, N, T = values.shape
    return xp.reshape(product(_regression(points.base)[:1, :], xp.reshape(values, (S, N * T))), (N, T))


def _fits_base(points: Points, valid: Array | None) -> bool:
    """Whether one regression on the base points serves all sites.

    All quadratic functions of the normals of a site are those of the base points, for these differ by a rotation.
    """
    S, Q = points.base.shape
    return valid is None and _has_cross_terms(Q, S)


def _has_cross_terms(latents: int, samples: int) -> bool:
    return features_needed(latents, samples) == _all_features(latents)


def _regression(base: Array) -> Array:
    """The matrix (F, S) that turns values at the base points (S, Q) into coefficients of the Hermite features."""
    xp = array_namespace(base)
    features = hermite_features(base.T, cross_terms=True, axis=0)
    return xp.linalg.solve(_regularised(features @ features.T, base.shape[0]), features)


def _quadratic(coefficients: Array, latents: int) -> Quadratic:
    """Quadratic functions from coefficients (N, F) of the Hermite features."""
    xp = array_namespace(coefficients)
    value, *each = xp.unstack(coefficients, axis=-1)
    gradient, squares, products = each[:latents], each[latents : 2 * latents], each[2 * latents :]
    entries = {(j, j): 2.0 * square for j, square in enumerate(squares)}
    entries |= dict(zip(combinations(range(latents), 2), products, strict=False))
    nothing = xp.zeros_like(value)
    rows = [[entries.get((min(i, j), max(i, j)), nothing) for j in range(latents)] for i in range(latents)]
    curvature = xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-1)
    return Quadratic(value, xp.stack(gradient, axis=-1), curvature)


def hermite_coefficients(normals: Array, values: Array, valid: Array | None = None) -> Array:
    """Least-squares fit (N, F, T) of values (S, N, T) to Hermite features of the normals (S, N, Q), site by site."""
    xp = array_namespace(normals, values)
    S, _, Q = normals.shape
    z = xp.permute_dims(normals, (1, 2, 0))
    features = hermite_features(z, cross_terms=_has_cross_terms(Q, S), axis=1)
    if valid is not None:
        features *= xp.astype(valid, z.dtype).T[:, None, :]
        values = xp.where(valid[..., None], values, xp.zeros_like(values))
    targets = xp.permute_dims(values, (1, 2, 0))
    products = features @ xp.matrix_transpose(xp.concat([features, targets], axis=1))
    F = features.shape[1]
    return xp.linalg.solve(_regularised(products[..., :F], S), products[..., F:])


def _regularised(gram: Array, samples: int) -> Array:
    """Matrices (..., F, F) with a ridge, which only keeps a site whose runs nearly all failed from being singular."""
    rounding = samples * float(array_namespace(gram).finfo(gram.dtype).eps)
    return gram + rounding * identity(gram)


def hermite_features(z: Array, *, cross_terms: bool, axis: int = -1) -> Array:
    """1, z_j, z_j^2 - 1 and optionally z_i z_j with i < j, along the axis of z that counts the Q latents."""
    xp = array_namespace(z)
    each = xp.unstack(z, axis=axis)
    features = [xp.ones_like(each[0]), *each, *(xp.square(one) - 1.0 for one in each)]
    if cross_terms:
        features += [one * other for one, other in combinations(each, 2)]
    return xp.stack(features, axis=axis)
