"""Kernels of processes that are independent between zones."""

import numpy as np
import pytest
from matplotlib.path import Path

from invgp.core.backend import to_numpy
from invgp.core.kernels import Matern52, Zones, check_kernel, kernel_from_description
from invgp.maps.prior_functions import draw_functions

SQUARE = [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0], [0.0, 0.0]]
HOLE = [[0.5, 0.5], [0.5, 1.0], [1.0, 1.0], [1.0, 0.5], [0.5, 0.5]]
TRIANGLE = [[1.5, 1.5], [4.0, 1.5], [1.5, 4.0]]  # overlaps the square, which is first


def test_that_points_are_in_the_first_polygon_that_contains_them(rng):
    zones = Zones(polygons=((SQUARE, HOLE), (TRIANGLE,)))
    X = rng.uniform(-1.0, 5.0, (4000, 2))
    square, hole, triangle = (Path(np.asarray(ring)).contains_points(X) for ring in (SQUARE, HOLE, TRIANGLE))
    first = square & ~hole
    np.testing.assert_array_equal(zones.numbers(X), np.where(first, 1, np.where(triangle, 2, 0)))
    assert zones.count == 3


def test_that_the_kernel_obeys_the_protocol(backend, rng):
    line = Zones(positions=(-0.5, 0.4))
    check_kernel(line.on_backend(backend), backend.asarray(rng.standard_normal((8, 1))))
    plane = Zones(polygons=((SQUARE, HOLE), (TRIANGLE,))).on(0, 1)
    product = (Matern52(2.0, [0.7, 1.1]) * plane).on_backend(backend)
    check_kernel(product, backend.asarray(rng.uniform(-1.0, 5.0, (8, 2))))
    deep = (Matern52(2.0, [0.7, 1.1, 3.0]) * plane).on_backend(backend)
    check_kernel(deep, backend.asarray(rng.uniform(-1.0, 5.0, (8, 3))))


def test_that_the_covariance_is_that_of_the_other_kernel_within_a_zone_and_zero_between_zones(rng):
    X = rng.uniform(0.0, 10.0, (30, 1))
    inner, zones = Matern52(2.0, 3.0), Zones(positions=(2.5, 7.0))
    number = np.digitize(X[:, 0], [2.5, 7.0])
    expected = np.where(number[:, None] == number, inner(X, X), 0.0)
    kernel = kernel_from_description((inner * zones).describe())
    np.testing.assert_array_equal(to_numpy(kernel(X, X)), expected)


def test_that_permuted_coordinates_have_the_same_zones(rng):
    kernel = Matern52(1.0, [1.0, 2.0]) * Zones(polygons=((SQUARE,),)).on(0, 1)
    X = rng.uniform(-1.0, 3.0, (20, 2))
    turned = X[:, ::-1].copy()
    np.testing.assert_allclose(kernel.permute([1, 0])(turned, turned), kernel(X, X))


def test_that_draws_by_sums_of_waves_are_independent_between_zones(rng):
    kernel = Matern52(4.0, 3.0) * Zones(positions=(5.0,))
    X = np.asarray([[3.0], [4.9], [5.1], [7.0]])
    draws = sum(function(X) for function in draw_functions(kernel, X, 4000, rng))
    np.testing.assert_allclose(np.cov(draws, rowvar=False), kernel(X, X), atol=0.25)
    np.testing.assert_array_equal(sum(f(X[:0]) for f in draw_functions(kernel, X, 3, rng)).shape[-1], 0)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"positions": (2.0, 1.0)},
        {"positions": (1.0,), "polygons": ((SQUARE,),)},
        {"polygons": (([[0.0, 0.0], [1.0, 1.0]],),)},
        {"positions": ("a",)},
    ],
)
def test_that_other_zones_are_refused(given):
    with pytest.raises(ValueError, match="zones must be"):
        Zones(**given)


def test_that_inputs_must_have_the_dimensions_of_the_zones():
    with pytest.raises(ValueError, match="zones of 2 dimensions need as many inputs, had 1"):
        Zones(polygons=((SQUARE,),)).numbers(np.zeros((3, 1)))
