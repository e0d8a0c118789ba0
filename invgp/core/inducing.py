"""Initial positions of the inducing inputs, computed on the host."""

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
)  # larger sets are subsampled before k-means


def nested_subset(X: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Select `count` of the inputs X (N, D); for the same generator, a larger subset contains every smaller one.

    Parameters
    ----------
    X : array, shape (N, D)
        Inputs.
    count : int
        Number of inputs to select, M.
    rng : numpy.random.Generator
        Random numbers.

    Returns
    -------
    array, shape (M, D)
    """
    return X[rng.permutation(len(X))[:count]]


def cluster_centres(X: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Compute centres (count, D) of a k-means clustering of the inputs, or of a random subset of very many inputs.

    If there are at most `count` different inputs, these are the centres, and there may be fewer than `count`.

    Parameters
    ----------
    X : array, shape (N, D)
        Inputs.
    count : int
        Number of centres, M.
    rng : numpy.random.Generator
        Random numbers.

    Returns
    -------
    array, shape (M, D)
    """
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    most = max(MAX_CLUSTERED, MAX_CLUSTERED_PER_CENTRE * count)
    some = X if len(X) <= most else X[np.sort(rng.choice(len(X), most, replace=False))]
    scaled = some / spread
    first = _kmeans_plus_plus(scaled, count, rng)
    with warnings.catch_warnings():
        # An empty cluster keeps its centre.
        warnings.filterwarnings("ignore", "One of the clusters is empty")
        centres, _ = kmeans2(scaled, first, minit="matrix")
    return np.asarray(centres * spread)


def _kmeans_plus_plus(X: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Draw initial centres one by one, with probability proportional to the squared distance from the nearest one.

    This is k-means++ (Arthur and Vassilvitskii, 2007). The version of SciPy recomputes all distances for each centre.
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
    """Build a regular grid (product of shape, D) over the extent of the inputs.

    Parameters
    ----------
    X : array, shape (N, D)
        Inputs.
    shape : tuple of int, length D
        Number of points along each dimension.

    Returns
    -------
    array, shape (M, D)
    """
    axes = [np.linspace(low, high, n) for low, high, n in zip(X.min(axis=0), X.max(axis=0), shape, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)
