"""Kernels in few and in many dimensions: distances, values and derivatives."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from invgp.core.backend import to_numpy
from invgp.core.kernels import MAX_DIRECT_DIMENSIONS, STATIONARY, squared_distances

FEW, MANY = 2, 12


def inputs(rng, dimensions):
    """Two sets of inputs that share a point, and length-scales about their distances."""
    X1, X2 = rng.standard_normal((6, dimensions)), rng.standard_normal((5, dimensions))
    X2[0] = X1[0]
    return X1, X2, np.sqrt(dimensions) * rng.uniform(0.5, 1.5, dimensions)


def test_that_the_dimensions_tested_take_both_ways():
    assert FEW <= MAX_DIRECT_DIMENSIONS < MANY


@pytest.mark.parametrize("dimensions", [1, FEW, MAX_DIRECT_DIMENSIONS, MAX_DIRECT_DIMENSIONS + 1, MANY])
def test_that_squared_distances_are_euclidean(dimensions, backend, tolerance, rng):
    X1, X2, _ = inputs(rng, dimensions)
    found = to_numpy(squared_distances(backend.asarray(X1), backend.asarray(X2)))
    np.testing.assert_allclose(
        found, cdist(X1, X2) ** 2, rtol=tolerance(backend, 1e-12), atol=tolerance(backend, 1e-13)
    )
    assert found.min() >= 0.0


@pytest.mark.parametrize("kind", STATIONARY)
def test_that_more_dimensions_of_no_extent_change_nothing(kind, backend, tolerance, rng):
    X1, X2, scales = inputs(rng, FEW)
    few, many = (
        STATIONARY[kind](backend.asarray(1.7), backend.asarray(np.resize(scales, dimensions)))(
            *(backend.asarray(np.pad(X, ((0, 0), (0, dimensions - FEW)))) for X in (X1, X2))
        )
        for dimensions in (FEW, MANY)
    )
    np.testing.assert_allclose(to_numpy(many), to_numpy(few), rtol=tolerance(backend, 1e-7, 1e-3))


@pytest.mark.parametrize("kind", STATIONARY)
@pytest.mark.parametrize("dimensions", [FEW, MANY])
@pytest.mark.parametrize("ard", [True, False])
def test_that_the_pull_back_is_that_of_finite_differences(kind, dimensions, ard, rng):
    X1, X2, scales = inputs(rng, dimensions)
    scales = scales if ard else scales[:1]
    X2[0] += 0.3  # where two inputs meet, a Matern kernel has no derivative that finite differences can tell
    kernel = STATIONARY[kind](np.asarray(1.7), scales)
    cotangent = rng.standard_normal((6, 5))
    found, step = kernel.linearise(X1, X2).pull_back(cotangent.copy()), 1e-5

    def scalar(parameters, at):
        return float(np.sum(cotangent * kernel.with_parameters(parameters)(at, X2)))

    def slope(function, x):
        by_entry = np.zeros_like(x)
        for index in np.ndindex(x.shape):
            change = np.zeros_like(x)
            change[index] = step
            by_entry[index] = (function(x + change) - function(x - change)) / (2 * step)
        return by_entry

    by_parameters = slope(lambda p: scalar(p, X1), kernel.parameters)
    close = {"rtol": 1e-6, "atol": 1e-8}
    np.testing.assert_allclose(found.parameters, by_parameters, **close)
    np.testing.assert_allclose(found.X1, slope(lambda at: scalar(kernel.parameters, at), X1), **close)


@pytest.mark.parametrize("kind", STATIONARY)
@pytest.mark.parametrize("dimensions", [FEW, MANY])
@pytest.mark.parametrize("ard", [True, False])
def test_that_the_pull_back_is_the_same_on_every_backend(kind, dimensions, ard, backend, tolerance, numpy_backend):
    found = []
    for there in (backend, numpy_backend):
        rng = np.random.default_rng(3)
        X1, X2, scales = inputs(rng, dimensions)
        kernel = STATIONARY[kind](there.asarray(1.7), there.asarray(scales if ard else scales[:1]))
        cotangent = there.asarray(rng.standard_normal((6, 5)))
        at = there.asarray(X1), there.asarray(X2)
        found.append(kernel.linearise(*at).pull_back(cotangent))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=tolerance(backend, 1e-9, 1e-2), atol=1e-4)


@pytest.mark.parametrize("kind", STATIONARY)
@pytest.mark.parametrize("dimensions", [FEW, MANY])
def test_that_inputs_far_from_the_origin_have_the_gradients_of_those_near_it(kind, dimensions, rng):
    X1, X2, scales = (np.round(64 * array) / 64 for array in inputs(rng, dimensions))  # so that a shift is exact
    kernel, cotangent = STATIONARY[kind](np.asarray(1.7), scales), rng.standard_normal((6, 5))
    near, far = (kernel.linearise(X1 + shift, X2 + shift).pull_back(cotangent.copy()) for shift in (0.0, 2.0**30))
    for one, other in zip(far, near, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
