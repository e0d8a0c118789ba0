"""Posterior of the latents at any inputs, and predictive distribution of observations there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from invgp.core import importance, quadrature
from invgp.core.backend import Array, array_namespace, backend_of, cholesky, to_numpy
from invgp.core.bound import BoundState
from invgp.core.geometry import Geometry, sparse_geometry
from invgp.core.point_sets import Points

QUADRATURE_NODES = 40  # of Gauss-Hermite quadrature for one latent


class Nodes(NamedTuple):
    """Points z (S, Q) and weights (S,) that turn expectations under the standard normal into weighted sums."""

    points: Array
    weights: Array


def expectation_nodes(bound_state: BoundState, samples: int, rng: np.random.Generator) -> Nodes:
    """Return nodes of Gauss-Hermite quadrature for one latent, and Sobol points for several."""
    backend = backend_of(bound_state.factor)
    latents = len(bound_state.kernels)
    if latents == 1:
        points, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        return Nodes(backend.asarray(points[:, None]), backend.asarray(weights / weights.sum()))
    base = Points.draw(rng, samples, 1, latents, backend).base
    return Nodes(base, backend.asarray(np.full(samples, 1.0 / samples)))


def latent_moments(bound_state: BoundState, X: Array) -> tuple[Array, Array]:
    """Compute means and variances (K, B, Q) of the latents at inputs X (B, D), for each component of the posterior."""
    mean, variance = bound_state.family.marginals(bound_state.q, _geometry(bound_state, X))
    return mean + bound_state.parameters.prior_mean, variance


def mixture_moments(weights: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Compute mean and variance (B, Q) of a mixture from those of its K components (K, B, Q)."""
    xp = array_namespace(mean)
    weights = weights[:, None, None]
    centre = xp.sum(weights * mean, axis=0)
    return centre, xp.sum(weights * (variance + xp.square(mean - centre)), axis=0)


def latent_covariance(bound_state: BoundState, X: Array, component: int = 0) -> Array:
    """Compute the joint covariance (Q, B, B) of each latent at inputs X (B, D), under one component."""
    xp = array_namespace(X)
    geometry = _geometry(bound_state, X)
    prior = xp.stack([kernel(X, X) for kernel in bound_state.kernels])
    explained = xp.matrix_transpose(geometry.projection) @ geometry.projection
    return prior - explained + bound_state.family.covariance(bound_state.q, geometry, component)


def latent_draws(bound_state: BoundState, X: Array, normals: Array, components: Sequence[int]) -> Array:
    """Transform normals (R, B, Q) to joint samples of the latents at inputs X, each from its component."""
    xp = array_namespace(X)
    mean, _ = latent_moments(bound_state, X)
    draws: list[Array] = [None] * len(components)
    for k in set(components):
        chosen = [r for r, component in enumerate(components) if component == k]
        normal = xp.stack([normals[r, ...] for r in chosen], axis=-1)
        moved = cholesky(latent_covariance(bound_state, X, k)) @ xp.permute_dims(normal, (1, 0, 2))
        for i, r in enumerate(chosen):
            draws[r] = mean[k, ...] + moved[..., i].T
    return xp.stack(draws)


def output_moments(
    bound_state: BoundState, X: Array, moments: Callable[[Array], tuple[Array, Array]], at: Nodes
) -> tuple[Array, Array]:
    """Compute mean and variance (B, P) of new observations, from the moments of the likelihood given the latents."""
    xp = array_namespace(X)
    means, variances = [], []
    for f in _samples(bound_state, X, at):
        mean, variance = moments(f)
        weights = at.weights[:, None, None]
        centre = xp.sum(weights * mean, axis=0)
        means.append(centre)
        variances.append(xp.sum(weights * (variance + xp.square(mean - centre)), axis=0))
    return mixture_moments(bound_state.q.weights, xp.stack(means), xp.stack(variances))


def closed_form_output_moments(
    bound_state: BoundState, X: Array, moments: Callable[[Array, Array], tuple[Array, Array]]
) -> tuple[Array, Array]:
    """Compute mean and variance (B, P) of new observations from closed-form moments for normal latents (..., Q)."""
    mean, variance = latent_moments(bound_state, X)
    nothing = array_namespace(X).zeros_like(variance)
    return mixture_moments(bound_state.q.weights, *moments(mean, array_namespace(X).maximum(variance, nothing)))


def log_predictive_density(
    bound_state: BoundState,
    X: Array,
    log_density: Callable[[Array], Array],
    at: Nodes,
    expected: Callable[[Array, Array], Array] | None = None,
) -> Array:
    """Compute the log predictive density of observations.

    Parameters
    ----------
    bound_state : BoundState
        The fitted posterior.
    X : array, shape (B, D)
        Inputs of the observations.
    log_density : callable
        Log density of the observations given latents, (S, B, Q) -> (S, B).
    at : Nodes
        Sobol points, which importance sampling transforms; not used for one latent.
    expected : callable, optional
        Closed form of log E[p(y_n | f_n)] (B,) for independent normal latents, from means and variances (B, Q).

    Returns
    -------
    array, shape (B,)

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), eq. (36).
    """
    xp, backend = array_namespace(X), backend_of(X)
    mean, variance = latent_moments(bound_state, X)
    variance = xp.maximum(variance, xp.zeros_like(variance))
    parts = []
    for k in range(mean.shape[0]):
        here, scale = mean[k, ...], xp.sqrt(variance[k, ...])
        if expected is not None:
            found = expected(here, variance[k, ...])
        elif mean.shape[-1] == 1:
            found = backend.asarray(quadrature.log_expectation(log_density, here, scale))
        else:
            found = backend.asarray(importance.log_expectation(log_density, here, scale, to_numpy(at.points)))
        parts.append(found + xp.log(bound_state.q.weights[k]))
    terms = xp.stack(parts)
    largest = xp.max(terms, axis=0)
    largest = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
    return largest + xp.log(xp.sum(xp.exp(terms - largest), axis=0))


def _samples(bound_state: BoundState, X: Array, at: Nodes) -> Iterator[Array]:
    """Yield the latents (S, B, Q) at the nodes, for each component."""
    xp = array_namespace(X)
    mean, variance = latent_moments(bound_state, X)
    scale = xp.sqrt(xp.maximum(variance, xp.zeros_like(variance)))
    for k in range(mean.shape[0]):
        yield mean[k, ...] + scale[k, ...] * at.points[:, None, :]


def _geometry(bound_state: BoundState, X: Array) -> Geometry:
    return sparse_geometry(bound_state.kernels, bound_state.kernel_cache.inducing, bound_state.factor, X)
