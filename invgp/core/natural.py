"""Natural-gradient steps of a single full Gaussian: convex combinations of natural parameters.

In whitened form the posterior has precision P and P v; where the bound is stationary, P = I - sum_n h_n w_n w_n^T and
P v = sum_n (g_n - h_n b_n) w_n, with g_n and h_n the gradient and curvature of the sites' expected log likelihoods.
"""

from __future__ import annotations

from invgp.core.backend import Array, array_namespace, cholesky, device_of, solve_triangular
from invgp.core.bound import Frame, LogDensity, Normals, Sum
from invgp.core.estimators import score
from invgp.core.posteriors import Mixture


def natural_step(frame: Frame, log_density: LogDensity, normals: Normals, step: float) -> tuple[Mixture, Array]:
    """The posterior after a natural-gradient step, and the expected log likelihood before it.

    Parameters
    ----------
    frame : with a `Full` posterior of one component.
    step : between 0 and 1; 1 is Newton's step for a likelihood whose curvature does not change.
    """
    xp = array_namespace(frame.factor)
    q = frame.q
    size = frame.factor.shape[-1]
    eye = xp.eye(size, dtype=frame.factor.dtype, device=device_of(frame.factor))
    target, target_mean = xp.broadcast_to(eye, frame.factor.shape), xp.zeros_like(q.mean[0, ...])
    expected = Sum.nothing(frame).value
    for start, stop in frame.bound.batches():
        geometry, z = frame.geometry(start, stop), normals(start, stop)
        mean, variance = frame.marginals(geometry, start, stop)
        scale = xp.sqrt(variance[0, ...])
        densities, _ = log_density(mean[0, ...] + scale * z, start, stop)
        terms = score(z, scale, densities, xp.isfinite(densities))
        expected = expected + frame.bound.weight * xp.sum(terms.value)
        # A site where the log density curves upwards would take precision away: it keeps its gradient only.
        precision = frame.bound.weight * xp.maximum(-terms.curvature, xp.zeros_like(terms.curvature)).T
        W = geometry.projection
        target = target + (W * precision[:, None, :]) @ xp.matrix_transpose(W)
        centred = (xp.matrix_transpose(W) @ q.mean[0, ..., None])[..., 0]
        pull = frame.bound.weight * terms.gradient.T + precision * centred
        target_mean = target_mean + (W @ pull[..., None])[..., 0]
    inverse = solve_triangular(q.spread[0, ...], xp.broadcast_to(eye, frame.factor.shape))
    precision_now = xp.matrix_transpose(inverse) @ inverse
    mean_now = (precision_now @ q.mean[0, ..., None])[..., 0]
    P = (1.0 - step) * precision_now + step * target
    return _from_natural(P, (1.0 - step) * mean_now + step * target_mean, q), expected


def _from_natural(P: Array, Pv: Array, like: Mixture) -> Mixture:
    xp = array_namespace(P)
    size = P.shape[-1]
    eye = xp.broadcast_to(xp.eye(size, dtype=P.dtype, device=device_of(P)), P.shape)
    # The covariance's own lower factor: reversing rows and columns turns the upper factor of P^-1 into it.
    reverse = cholesky(xp.flip(xp.flip(P, axis=-1), axis=-2))
    R = xp.flip(xp.flip(xp.matrix_transpose(solve_triangular(reverse, eye)), axis=-1), axis=-2)
    mean = (R @ (xp.matrix_transpose(R) @ Pv[..., None]))[..., 0]
    return Mixture(like.weights, mean[None, ...], R[None, ...])
