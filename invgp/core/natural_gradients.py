"""Natural-gradient steps of a single full Gaussian: convex combinations of natural parameters.

In whitened form the posterior has precision P and P v; where the bound is stationary, P = I - sum_n h_n w_n w_n^T and
P v = sum_n (g_n - h_n b_n) w_n, with g_n and h_n the gradient and curvature of the sites' expected log likelihoods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, cholesky, identity, lower_inverse
from invgp.core.bound import BoundState
from invgp.core.estimators import SiteTerms
from invgp.core.expectations import Expected
from invgp.core.geometry import Geometry
from invgp.core.posteriors import Mixture

MIN_RELATIVE_PRECISION = -0.5  # precision a site may take away, as a share of what its posterior has
SMALLEST_STEP = 1.0 / 1024.0  # of what was asked for


class NaturalParameters(NamedTuple):
    """Whitened precision P, (Q, M, M), and P v, (Q, M)."""

    precision: Array
    shift: Array


def prior_parameters(bound_state: BoundState) -> NaturalParameters:
    """Of the prior: what the sites' terms are added to."""
    xp = array_namespace(bound_state.factor)
    precision = xp.broadcast_to(identity(bound_state.factor), bound_state.factor.shape)
    return NaturalParameters(precision, xp.zeros_like(bound_state.q.mean[0, ...]))


def limit_precision(precision: Array) -> Array:
    """What sites add in terms of their own posteriors' precisions, none less than `MIN_RELATIVE_PRECISION`.

    A log density that curves upwards on average takes precision away. The optimum may need that: with it bounded, steps
    would lead elsewhere. So it is bounded only where a step would otherwise leave no distribution.
    """
    return array_namespace(precision).maximum(
        precision, MIN_RELATIVE_PRECISION * array_namespace(precision).ones_like(precision)
    )


def add_sites(
    target: NaturalParameters, bound_state: BoundState, geometry: Geometry, terms: SiteTerms, limit: Array | None = None
) -> NaturalParameters:
    """Add what sites with these terms want of the posterior.

    Parameters
    ----------
    limit : variances (B, Q) of the sites, where what they take away has to be bounded.
    """
    xp = array_namespace(bound_state.factor)
    weight, W = bound_state.bound.weight, geometry.projection
    said = -terms.curvature if limit is None else limit_precision(-terms.curvature * limit) / limit
    precision = weight * said.T
    centred = (xp.matrix_transpose(W) @ bound_state.q.mean[0, ..., None])[..., 0]
    pull = weight * terms.gradient.T + precision * centred
    return NaturalParameters(
        target.precision + (W * precision[:, None, :]) @ xp.matrix_transpose(W),
        target.shift + (W @ pull[..., None])[..., 0],
    )


def interpolate(q: Mixture, target: NaturalParameters, step: float) -> Mixture:
    """The posterior that lies a step, between 0 and 1, on the way from q to the target.

    Raises
    ------
    numpy.linalg.LinAlgError
        There is none.
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
    """The posterior after a natural-gradient step on the frame's sites; a shorter one where it has to be.

    Parameters
    ----------
    frame : with a `Full` posterior of one component.
    expected : what the bound's batches of sites expect there, of `Terms`.
    step : between 0 and 1; 1 is Newton's step for a likelihood whose curvature does not change.
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


def _target(bound_state: BoundState, expected: Sequence[Expected], *, limited: bool) -> NaturalParameters:
    """Where the sites would lead the posterior, with or without a limit to the precision that they take away."""
    target = prior_parameters(bound_state)
    for sites, found in zip(bound_state.bound.batches(), expected, strict=True):
        geometry = bound_state.geometry(*sites)
        limit = bound_state.marginals(geometry)[1][0, ...] if limited else None
        target = add_sites(target, bound_state, geometry, found.of_component(0), limit)
    return target


def covariance_factor(P: Array) -> Array:
    """Lower R with R R^T = P^-1: reversing rows and columns turns the upper factor of P^-1 into the lower one."""
    xp = array_namespace(P)
    reverse = cholesky(xp.flip(xp.flip(P, axis=-1), axis=-2))
    inverse = lower_inverse(reverse)
    return xp.flip(xp.flip(xp.matrix_transpose(inverse), axis=-1), axis=-2)
