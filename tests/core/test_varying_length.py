"""Kernels whose length-scales are multiplied by a map."""

import numpy as np
import pytest

from invgp.core.backend import to_numpy
from invgp.core.kernels import (
    Exponential,
    Linear,
    Matern32,
    Matern52,
    SquaredExponential,
    VaryingLength,
    White,
    check_kernel,
    kernel_from_description,
    vary_length,
)

AXES = (np.asarray([-2.0, 0.1, 1.2, 3.0]), np.asarray([-2.0, 0.55, 3.0]))
FACTORS = np.asarray([[0.5, 1.0, 2.0], [1.5, 0.7, 1.0], [2.0, 1.0, 0.4], [1.0, 3.0, 1.0]])


@pytest.mark.parametrize("kind", [SquaredExponential, Exponential, Matern32, Matern52])
@pytest.mark.parametrize("scales", [[0.8], [0.6, 1.3]])
def test_that_the_kernel_obeys_the_protocol_and_its_derivatives_are_those_of_differences(kind, scales, backend, rng):
    X = rng.uniform(-1.9, 2.9, (8, 2))
    kernel = VaryingLength(kind(1.7, scales), AXES, FACTORS, (0, 1))
    check_kernel(kernel.on_backend(backend), backend.asarray(X))
    along = VaryingLength(kind(1.7, scales), (AXES[1],), FACTORS[0], (1,))
    check_kernel(along.on_backend(backend), backend.asarray(X))


def test_that_a_constant_map_scales_the_length():
    X = np.random.default_rng(1).standard_normal((9, 2))
    kernel = VaryingLength(Matern52(2.0, [0.5, 1.0]), AXES, np.full((4, 3), 1.7), (0, 1))
    np.testing.assert_allclose(kernel(X, X), Matern52(2.0, [0.85, 1.7])(X, X), rtol=1e-12)


def test_that_the_squared_exponential_is_the_convolution_of_gaussians_of_varying_width():
    """The definition: a process of white noise, smoothed at each place with a Gaussian of the local width."""
    axis, factors, length = np.asarray([0.0, 4.0]), np.asarray([0.5, 2.0]), 0.8
    x = np.asarray([0.3, 1.1, 1.9, 3.4])
    width = length * np.interp(x, axis, factors) / np.sqrt(2.0)
    u = np.linspace(-15.0, 20.0, 20_001)
    waves = np.exp(-0.5 * ((x[:, None] - u) / width[:, None]) ** 2) / np.sqrt(width * np.sqrt(np.pi))[:, None]
    expected = np.trapezoid(waves[:, None] * waves[None], u, axis=-1)
    kernel = VaryingLength(SquaredExponential(1.0, length), (axis,), factors, (0,))
    np.testing.assert_allclose(kernel(x[:, None], x[:, None]), expected, atol=1e-9)


def test_that_the_covariance_of_many_points_is_positive_definite(rng):
    X = rng.uniform(-2.0, 3.0, (150, 2))
    for kind in (SquaredExponential, Exponential, Matern32, Matern52):
        values = np.linalg.eigvalsh(VaryingLength(kind(1.0, 0.7), AXES, FACTORS, (0, 1))(X, X))
        assert values[0] > -1e-10 * values[-1]


def test_that_parts_of_sums_and_products_vary_and_others_do_not(rng):
    inner = Matern52(1.0, 0.7) * Linear(1.0, 2.0, 0.0).on(0) + White(0.1)
    kernel = vary_length(inner, AXES, FACTORS, (0, 1))
    assert "of varying length" in kernel.formula
    X = rng.uniform(-2.0, 3.0, (6, 2))
    check_kernel(kernel, X)
    white = White(0.1)
    assert vary_length(white, AXES, FACTORS, (0, 1)) is white
    same = kernel_from_description(kernel.describe())
    np.testing.assert_array_equal(to_numpy(same(X, X)), to_numpy(kernel(X, X)))


def test_that_permuted_coordinates_have_the_same_map(rng):
    kernel = VaryingLength(Matern52(1.0, [0.6, 1.3]), AXES, FACTORS, (0, 1))
    X = rng.uniform(-2.0, 3.0, (7, 2))
    turned = X[:, ::-1].copy()
    np.testing.assert_allclose(kernel.permute([1, 0])(turned, turned), kernel(X, X))


@pytest.mark.parametrize(
    ("kernel", "values"), [(White(1.0), FACTORS), (Matern52(), -FACTORS), (Matern52(), FACTORS[:2]), (Matern52(), "a")]
)
def test_that_other_maps_and_kernels_are_refused(kernel, values):
    with pytest.raises(ValueError, match="must be"):
        VaryingLength(kernel, AXES, values, (0, 1))
