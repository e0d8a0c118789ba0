"""Natural-gradient steps of a single full Gaussian: convex combinations of natural parameters.

In whitened form the posterior has precision P and P v; where the bound is stationary, P = I - sum_n h_n w_n w_n^T and
P v = sum_n (g_n - h_n b_n) w_n, with g_n and h_n the gradient and curvature of the sites' expected log likelihoods.
"""

from __future__ import annotations

from typing import NamedTuple

from invgp.core.backend import Array, array_namespace, cholesky, identity, solve_triangular
from invgp.core.bound import Frame, LogDensity, all_finite
from invgp.core.estimators import SiteTerms, score
from invgp.core.geometry import Geometry
from invgp.core.posteriors import Mixture
from invgp.core.sampling import Points


class NaturalParameters(NamedTuple):
    """Whitened precision P, (Q, M, M), and P v, (Q, M)."""

    precision: Array
    shift: Array


def prior_parameters(frame: Frame) -> NaturalParameters:
    """Of the prior: what the sites' terms are added to."""
    xp = array_namespace(frame.factor)
    precision = xp.broadcast_to(identity(frame.factor), frame.factor.shape)
    return NaturalParameters(precision, xp.zeros_like(frame.q.mean[0, ...]))


def add_sites(target: NaturalParameters, frame: Frame, geometry: Geometry, terms: SiteTerms) -> NaturalParameters:
    """Add what sites with these terms want of the posterior."""
    xp = array_namespace(frame.factor)
    weight, W = frame.bound.weight, geometry.projection
    # A site where the log density curves upwards would take precision away: it keeps its gradient only.
    precision = weight * xp.maximum(-terms.curvature, xp.zeros_like(terms.curvature)).T
    centred = (xp.matrix_transpose(W) @ frame.q.mean[0, ..., None])[..., 0]
    pull = weight * terms.gradient.T + precision * centred
    return NaturalParameters(
        target.precision + (W * precision[:, None, :]) @ xp.matrix_transpose(W),
        target.shift + (W @ pull[..., None])[..., 0],
    )


def moved(q: Mixture, target: NaturalParameters, step: float) -> Mixture:
    """The posterior that lies a step, between 0 and 1, on the way from q to the target."""
    xp = array_namespace(q.mean)
    inverse = solve_triangular(q.spread[0, ...], xp.broadcast_to(identity(q.spread), q.spread.shape[1:]))
    now = xp.matrix_transpose(inverse) @ inverse
    shift = (now @ q.mean[0, ..., None])[..., 0]
    P = (1.0 - step) * now + step * target.precision
    R = covariance_factor(P)
    Pv = (1.0 - step) * shift + step * target.shift
    mean = (R @ (xp.matrix_transpose(R) @ Pv[..., None]))[..., 0]
    return Mixture(q.weights, mean[None, ...], R[None, ...])


def natural_step(frame: Frame, log_density: LogDensity, points: Points, step: float) -> Mixture:
    """The posterior after a natural-gradient step on the frame's sites.

    Parameters
    ----------
    frame : with a `Full` posterior of one component.
    step : between 0 and 1; 1 is Newton's step for a likelihood whose curvature does not change.
    """
    xp = array_namespace(frame.factor)
    target = prior_parameters(frame)
    for start, stop in frame.bound.batches(points.base.shape[0]):
        geometry, here = frame.geometry(start, stop), points.at(start, stop)
        mean, variance = frame.marginals(geometry)
        scale = xp.sqrt(variance[0, ...])
        densities, _ = log_density(here.samples(mean[0, ...], scale), start, stop)
        valid = None if all_finite(densities) else xp.isfinite(densities)
        target = add_sites(target, frame, geometry, score(here, scale, densities, valid))
    return moved(frame.q, target, step)


def covariance_factor(P: Array) -> Array:
    """Lower R with R R^T = P^-1: reversing rows and columns turns the upper factor of P^-1 into the lower one."""
    xp = array_namespace(P)
    reverse = cholesky(xp.flip(xp.flip(P, axis=-1), axis=-2))
    inverse = solve_triangular(reverse, xp.broadcast_to(identity(P), P.shape))
    return xp.flip(xp.flip(xp.matrix_transpose(inverse), axis=-1), axis=-2)
