"""The posterior of the latents at any inputs."""

from __future__ import annotations

from invgp.core.backend import Array, array_namespace, cholesky
from invgp.core.bound import Frame
from invgp.core.geometry import Geometry, sparse_geometry


def latent_moments(frame: Frame, X: Array) -> tuple[Array, Array]:
    """Means and variances (K, B, Q) of the latents at inputs X (B, D), for each component of the posterior."""
    mean, variance = frame.family.marginals(frame.q, _geometry(frame, X))
    return mean + frame.bound.prior_mean[:, None].T, variance


def latent_covariance(frame: Frame, X: Array, component: int = 0) -> Array:
    """Joint covariance (Q, B, B) of each latent at inputs X (B, D), under one component of the posterior."""
    xp = array_namespace(X)
    geometry = _geometry(frame, X)
    prior = xp.stack([kernel(X, X) for kernel in frame.kernels])
    explained = xp.matrix_transpose(geometry.projection) @ geometry.projection
    return prior - explained + frame.family.covariance(frame.q, geometry, component)


def latent_draws(frame: Frame, X: Array, normals: Array, components: Array) -> Array:
    """Joint draws (R, B, Q) of the latents at inputs X, from normals (R, B, Q) and component numbers, R of them."""
    xp = array_namespace(X)
    mean, _ = latent_moments(frame, X)
    factors = [cholesky(latent_covariance(frame, X, k)) for k in range(frame.family.components)]
    draws = []
    for r, k in enumerate(components):
        noise = factors[k] @ xp.permute_dims(normals[r, ...], (1, 0))[..., None]
        draws.append(mean[k, ...] + noise[..., 0].T)
    return xp.stack(draws)


def _geometry(frame: Frame, X: Array) -> Geometry:
    return sparse_geometry(frame.kernels, frame.ground.inducing, frame.factor, X)
