"""Squared distances between inputs."""

from __future__ import annotations

from invgp.core.backend import Array, array_namespace, clip_negative, product

MAX_DIRECT_DIMENSIONS = 8  # in more dimensions, distances are computed by a matrix product


def squared_distances(X1: Array, X2: Array) -> Array:
    """Compute squared Euclidean distances (N, M): directly in few dimensions, by a matrix product in many."""
    xp = array_namespace(X1, X2)
    if X1.shape[1] <= MAX_DIRECT_DIMENSIONS:
        return sum(
            (xp.square(X1[:, None, d] - X2[None, :, d]) for d in range(1, X1.shape[1])),
            start=xp.square(X1[:, None, 0] - X2[None, :, 0]),
        )
    # A shift does not change distances, and avoids cancellation of large coordinates.
    centre = xp.mean(X2, axis=0)
    X1, X2 = X1 - centre, X2 - centre
    # |x1|^2 + |x2|^2 - 2 x1 x2 as one product, of (x1, |x1|^2, 1) and (-2 x2, 1, |x2|^2).
    norms1, norms2 = xp.vecdot(X1, X1)[:, None], xp.vecdot(X2, X2)[:, None]
    left = xp.concat([X1, norms1, xp.ones_like(norms1)], axis=1)
    right = xp.concat([-2.0 * X2, xp.ones_like(norms2), norms2], axis=1)
    return clip_negative(product(left, right.T))
