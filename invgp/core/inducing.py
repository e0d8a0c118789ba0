"""Where the inducing inputs start, chosen on the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

Floats = NDArray[np.float64]


def nested_subset(X: Floats, count: int, rng: np.random.Generator) -> Floats:
    """`count` of the inputs X (N, D); with the same generator a larger subset holds every smaller one."""
    return X[rng.permutation(len(X))[:count]]


def cluster_centres(X: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Centres (count, D) of a k-means clustering of the inputs."""
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    centres, _ = kmeans2(X / spread, count, minit="++", rng=rng)
    return centres * spread


def regular_grid(X: Floats, shape: tuple[int, ...]) -> Floats:
    """A regular grid (product of shape, D) over the extent of the inputs."""
    axes = [np.linspace(low, high, n) for low, high, n in zip(X.min(axis=0), X.max(axis=0), shape, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)
