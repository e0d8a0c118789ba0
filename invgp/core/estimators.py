"""Estimators: log densities at sampled latents -> each site's expected log likelihood and its derivatives."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace, device_of


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
    everything = (latents + 1) * (latents + 2) // 2
    return everything if samples >= 2 * everything else 2 * latents + 1


def fewest_samples(latents: int) -> int:
    """Fewest samples a site with which `score` is well posed."""
    return 2 * (2 * latents + 1)


def score(normals: Array, scale: Array, log_density: Array, valid: Array) -> SiteTerms:
    """The paper's score-function estimator, with control variates.

    With f = mean + scale z, the derivatives are E[z log p] / scale and E[(z^2 - 1) log p] / scale^2: they need
    log densities only. The control variates are z, z^2 - 1 and, where there are samples enough, the cross terms
    z_i z_j. These functions are orthogonal under the normal distribution, so the estimates with optimal
    coefficients are the coefficients of the least-squares fit of log p to them. The estimates are exact for a
    log density that is quadratic in f.

    Parameters
    ----------
    normals : z, (S, N, Q).
    scale : posterior standard deviation of each latent at each site, (N, Q).
    log_density : (S, N); ignored where not valid.
    valid : (S, N), False where the run failed.
    """
    xp = array_namespace(normals, scale)
    Q = normals.shape[-1]
    coefficients = hermite_coefficients(normals, log_density[..., None], valid)[..., 0]
    return SiteTerms(
        value=coefficients[:, 0],
        gradient=coefficients[:, 1 : Q + 1] / scale,
        curvature=2.0 * coefficients[:, Q + 1 : 2 * Q + 1] / xp.square(scale),
    )


def expectation(normals: Array, values: Array, valid: Array) -> Array:
    """Expectations (N, T) of quantities known at the samples, values (S, N, T), with the same control variates."""
    return hermite_coefficients(normals, values, valid)[:, 0, :]


def hermite_coefficients(normals: Array, values: Array, valid: Array) -> Array:
    """Least-squares fit (N, F, T) of values (S, N, T) to Hermite features of the normals (S, N, Q), site by site."""
    xp = array_namespace(normals, values, valid)
    S, _, Q = normals.shape
    z = xp.permute_dims(normals, (1, 2, 0))
    features = hermite_features(z, cross_terms=features_needed(Q, S) > 2 * Q + 1, axis=1)
    features *= xp.astype(valid, z.dtype).T[:, None, :]
    targets = xp.permute_dims(xp.where(valid[..., None], values, xp.zeros_like(values)), (1, 2, 0))
    products = features @ xp.matrix_transpose(xp.concat([features, targets], axis=1))
    F = features.shape[1]
    # The ridge only keeps a site whose runs have nearly all failed from being singular.
    rounding = S * float(xp.finfo(z.dtype).eps)
    ridge = rounding * xp.eye(F, dtype=z.dtype, device=device_of(z))
    return xp.linalg.solve(products[..., :F] + ridge, products[..., F:])


def hermite_features(z: Array, *, cross_terms: bool, axis: int = -1) -> Array:
    """1, z_j, z_j^2 - 1 and optionally z_i z_j with i < j, along the axis of z that counts the Q latents."""
    xp = array_namespace(z)
    each = xp.unstack(z, axis=axis)
    features = [xp.ones_like(each[0]), *each, *(xp.square(one) - 1.0 for one in each)]
    if cross_terms:
        features += [one * other for one, other in combinations(each, 2)]
    return xp.stack(features, axis=axis)
