"""Where inducing inputs start."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2, vq

from invgp.core.inducing import cluster_centres, nested_subset, regular_grid
from invgp.core.memory import MEMORY_BUDGET


@pytest.mark.parametrize(("sites", "dimensions", "count"), [(300, 1, 20), (200, 3, 12), (50, 2, 1)])
def test_that_centres_are_those_of_k_means_with_careful_seeds(sites, dimensions, count, rng):
    X = rng.standard_normal((sites, dimensions)) * np.geomspace(0.1, 1000, dimensions)
    expected, _ = kmeans2(X / X.std(axis=0), count, minit="++", rng=np.random.default_rng(1))
    np.testing.assert_array_equal(cluster_centres(X, count, np.random.default_rng(1)), expected * X.std(axis=0))


def test_that_many_sites_are_clustered_in_bounded_memory_and_as_well(rng):
    X = rng.uniform(size=(300_000, 2))
    tracemalloc.start()
    centres = cluster_centres(X, 100, np.random.default_rng(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY_BUDGET / 4
    # A hexagonal lattice has the least mean square distance: 5 / (18 sqrt(3)) of the area of a cell.
    distances = vq(X[:20_000], centres)[1]
    assert np.mean(distances**2) < 1.15 * 5 / (18 * np.sqrt(3)) / 100


def test_that_centres_are_the_inputs_where_few_of_these_differ(rng):
    X = np.repeat(rng.standard_normal((4, 2)), 10, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        centres = cluster_centres(X, 9, rng)
    np.testing.assert_allclose(np.unique(centres, axis=0), np.unique(X, axis=0), rtol=1e-12)


def test_that_subsets_are_nested(rng):
    X = rng.standard_normal((30, 2))
    small, large = (nested_subset(X, count, np.random.default_rng(4)) for count in (7, 12))
    np.testing.assert_array_equal(large[:7], small)
    assert len(np.unique(large, axis=0)) == 12


def test_that_a_grid_spans_the_inputs():
    X = np.asarray([[0.0, 5.0], [4.0, 5.0], [1.0, 8.0]])
    np.testing.assert_array_equal(
        regular_grid(X, (3, 2)), [[0.0, 5.0], [0.0, 8.0], [2.0, 5.0], [2.0, 8.0], [4.0, 5.0], [4.0, 8.0]]
    )
