"""Natural-gradient steps of a single full Gaussian: convex combinations of natural parameters.

In whitened form the natural parameters are the precision P and P v. Where the bound is stationary,
P = I - sum_n h_n w_n w_n^T and P v = sum_n (g_n - h_n b_n) w_n, with g_n and h_n the gradient and curvature of the
expected log likelihoods of the sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, cholesky, identity, lower_inverse, solve_triangular
from invgp.core.bound import BoundState
from invgp.core.estimators import SiteTerms
from invgp.core.expectations import Expected
from invgp.core.geometry import Geometry
from invgp.core.posteriors import Mixture

MIN_RELATIVE_PRECISION = -0.5  # most negative precision of a site, relative to the precision of its posterior
SMALLEST_STEP = 1.0 / 1024.0  # relative to the requested step; shorter ones are not tried


class NaturalParameters(NamedTuple):
    """Whitened precision P, (Q, M, M), and P v, (Q, M)."""

    precision: Array
    shift: Array


def prior_parameters(bound_state: BoundState) -> NaturalParameters:
    """Return the natural parameters of the prior, to which site terms are added.

    Parameters
    ----------
    bound_state : BoundState
        Prior and kernels at the present parameters.

    Returns
    -------
    NaturalParameters
    """
    xp = array_namespace(bound_state.factor)
    precision = xp.broadcast_to(identity(bound_state.factor), bound_state.factor.shape)
    return NaturalParameters(precision, xp.zeros_like(bound_state.q.mean[0, ...]))


def limit_precision(precision: Array) -> Array:
    """Limit site precisions, relative to those of the sites' posteriors, to at least `MIN_RELATIVE_PRECISION`.

    A log density that is convex on average has a negative precision. The optimum may contain negative precisions, and a
    limit would move it. Use the limit only where a step fails without it.

    Parameters
    ----------
    precision : array
        Site precisions, relative to those of the posteriors of the sites.

    Returns
    -------
    array, shape of `precision`
    """
    return array_namespace(precision).maximum(
        precision, MIN_RELATIVE_PRECISION * array_namespace(precision).ones_like(precision)
    )


def add_sites(
    target: NaturalParameters, bound_state: BoundState, geometry: Geometry, terms: SiteTerms, limit: Array | None = None
) -> NaturalParameters:
    """Add the natural parameters of the site factors of a batch.

    Parameters
    ----------
    target : NaturalParameters
        The sum so far.
    bound_state : BoundState
        Where the site terms were estimated.
    geometry : Geometry
        Of the B sites.
    terms : SiteTerms
        Gradients and curvatures of the sites.
    limit : array, shape (B, Q), optional
        Variances of the latents at the sites, to limit negative precisions.
    """
    xp = array_namespace(bound_state.factor)
    weight, W = bound_state.bound.weight, geometry.projection
    site_precision = -terms.curvature if limit is None else limit_precision(-terms.curvature * limit) / limit
    precision = weight * site_precision.T
    centred = (xp.matrix_transpose(W) @ bound_state.q.mean[0, ..., None])[..., 0]
    pull = weight * terms.gradient.T + precision * centred
    return NaturalParameters(
        target.precision + (W * precision[:, None, :]) @ xp.matrix_transpose(W),
        target.shift + (W @ pull[..., None])[..., 0],
    )


def interpolate(q: Mixture, target: NaturalParameters, step: float) -> Mixture:
    """Interpolate linearly between the natural parameters of q (step 0) and a target (step 1).

    Raises
    ------
    numpy.linalg.LinAlgError
        The result has no positive definite precision.
    """
    xp = array_namespace(q.mean)
    inverse = lower_inverse(q.spread[0, ...])
    now = xp.matrix_transpose(inverse) @ inverse
    shift = (now @ q.mean[0, ..., None])[..., 0]
    P = (1.0 - step) * now + step * target.precision
    R = covariance_factor(P)
    Pv = (1.0 - step) * shift + step * target.shift
    mean = (R @ (xp.matrix_transpose(R) @ Pv[..., None]))[..., 0]
    return Mixture(q.weights, mean[None, ...], R[None, ...])


def natural_step(bound_state: BoundState, expected: Sequence[Expected], step: float) -> Mixture:
    """Take a natural-gradient step; shorten it if the result would not be a distribution.

    Parameters
    ----------
    bound_state : BoundState
        With a `Full` posterior of one component.
    expected : sequence of Expected
        Expected log densities of the batches of sites, from `Terms`.
    step : float
        Between 0 and 1. With 1, one step finds the optimum if the log density is quadratic.

    Returns
    -------
    Mixture
        The new posterior; the old one if no step is possible.
    """
    try:
        return interpolate(bound_state.q, _target(bound_state, expected, limited=False), step)
    except np.linalg.LinAlgError:
        target, smallest = _target(bound_state, expected, limited=True), SMALLEST_STEP * step
    while step >= smallest:
        try:
            return interpolate(bound_state.q, target, step)
        except np.linalg.LinAlgError:
            step *= 0.5
    return bound_state.q


def keep_site_factors(q: Mixture, old: Array, new: Array) -> Mixture:
    """Change the prior of a posterior, but not its site factors as functions of the inducing variables.

    With C = L^-T (P - I) L^-1 the precision of the site factors, the new whitened precision is I + L'^T C L'. After a
    step of the kernels this posterior is closer to the optimal one than q, so that the kernels are not held back.

    Parameters
    ----------
    q : Mixture
        A single full Gaussian, whitened with L.
    old, new : array, shape (Q, M, M)
        Cholesky factors L and L' of the prior covariances.

    Returns
    -------
    Mixture
        Whitened with L'; q itself if the result would not be a distribution.
    """
    xp = array_namespace(q.mean)
    inverse = lower_inverse(q.spread[0, ...])
    precision = xp.matrix_transpose(inverse) @ inverse
    shift = (precision @ q.mean[0, ..., None])[..., 0]
    T = solve_triangular(old, new)
    unit = identity(old)
    try:
        R = covariance_factor(unit + xp.matrix_transpose(T) @ (precision - unit) @ T)
    except np.linalg.LinAlgError:
        return q
    mean = (R @ (xp.matrix_transpose(R) @ (xp.matrix_transpose(T) @ shift[..., None])))[..., 0]
    return Mixture(q.weights, mean[None, ...], R[None, ...])


def _target(bound_state: BoundState, expected: Sequence[Expected], *, limited: bool) -> NaturalParameters:
    """Add the site factors of all batches to the prior, with or without a limit on negative precisions."""
    target = prior_parameters(bound_state)
    for sites, found in zip(bound_state.bound.batches(), expected, strict=True):
        geometry = bound_state.geometry(*sites)
        limit = bound_state.marginals(geometry)[1][0, ...] if limited else None
        target = add_sites(target, bound_state, geometry, found.of_component(0), limit)
    return target


def covariance_factor(P: Array) -> Array:
    """Compute the lower R with R R^T = P^-1, from the Cholesky factor of P with rows and columns reversed.

    Parameters
    ----------
    P : array, shape (..., M, M)
        Positive definite precisions.

    Returns
    -------
    array, shape (..., M, M)
    """
    xp = array_namespace(P)
    reverse = cholesky(xp.flip(xp.flip(P, axis=-1), axis=-2))
    inverse = lower_inverse(reverse)
    return xp.flip(xp.flip(xp.matrix_transpose(inverse), axis=-1), axis=-2)
