"""Where the inducing inputs start, chosen on the host."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

Floats = NDArray[np.float64]
MAX_CLUSTERED, MAX_CLUSTERED_PER_CENTRE = (
    20_000,
    20,
)  # inputs that are clustered at the most: this many, or so many for each centre


def nested_subset(X: Floats, count: int, rng: np.random.Generator) -> Floats:
    """`count` of the inputs X (N, D); with the same generator a larger subset holds every smaller one."""
    return X[rng.permutation(len(X))[:count]]


def cluster_centres(X: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Centres (count, D) of a k-means clustering of the inputs; of many inputs some, at random, stand for all.

    Where there are no more than `count` inputs that differ, these are the centres.
    """
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    most = max(MAX_CLUSTERED, MAX_CLUSTERED_PER_CENTRE * count)
    some = X if len(X) <= most else X[np.sort(rng.choice(len(X), most, replace=False))]
    scaled = some / spread
    first = _kmeans_plus_plus(scaled, count, rng)
    with warnings.catch_warnings():
        # Such a cluster keeps its centre.
        warnings.filterwarnings("ignore", "One of the clusters is empty")
        centres, _ = kmeans2(scaled, first, minit="matrix")
    return np.asarray(centres * spread)


def _kmeans_plus_plus(X: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Inputs drawn one by one with a probability in proportion to the squared distance from those drawn before.

    The seeds of k-means++ (Arthur and Vassilvitskii, 2007). SciPy's own finds all distances again for each of them.
    """
    drawn = [int(rng.integers(len(X)))]
    nearest = np.full(len(X), np.inf)
    while len(drawn) < count:
        nearest = np.minimum(nearest, cdist(X[drawn[-1:]], X, metric="sqeuclidean")[0])
        total = nearest.sum()
        if not total > 0.0:
            break
        drawn.append(min(int(np.searchsorted(np.cumsum(nearest / total), rng.uniform())), len(X) - 1))
    return X[drawn]


def regular_grid(X: Floats, shape: tuple[int, ...]) -> Floats:
    """A regular grid (product of shape, D) over the extent of the inputs."""
    axes = [np.linspace(low, high, n) for low, high, n in zip(X.min(axis=0), X.max(axis=0), shape, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)
