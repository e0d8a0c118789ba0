"""Kernels whose inputs are intervals: averages of a process."""

import json

import numpy as np
import pytest
from scipy.integrate import dblquad, quad

from helpers.kernels import Sinc
from invgp.core.backend import to_numpy
from invgp.core.kernels import Averaged, averages_of, kernel_from_description
from invgp.kernels import (
    Constant,
    Exponential,
    Linear,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    check_kernel,
)

X1 = np.asarray([[0.3, 0.0], [1.1, 0.6], [-0.4, 0.25]])  # centres and half-widths
X2 = np.asarray([[0.1, 0.0], [0.9, 0.5]])
KERNELS = {
    "squared exponential": SquaredExponential(1.7, 0.8),
    "exponential": Exponential(1.7, 0.8),
    "matern 3/2": Matern32(1.7, 0.8),
    "matern 5/2": Matern52(1.7, 0.8),
    "rational quadratic": RationalQuadratic(1.7, 0.8, 1.2),
    "trend": Constant(0.5) + Linear(0.4, 1.5, 0.3) + Matern52(0.8, 0.7),
    "seasons": Matern52(1.0, 1.5) * Periodic(0.8, 1.2, 1.7),
    "own": Sinc(1.2, 0.9),
}


@pytest.mark.parametrize("kind", KERNELS)
def test_that_the_covariance_of_averages_is_the_average_covariance(kind):
    point = KERNELS[kind]
    kernel = Averaged(point, 1)

    def covariance(a, b):
        return float(point(np.asarray([[a]]), np.asarray([[b]]))[0, 0])

    found = kernel(X1, X2)
    np.testing.assert_allclose(found[0, 0], covariance(0.3, 0.1), rtol=1e-12)
    np.testing.assert_allclose(found[1, 0], quad(covariance, 0.5, 1.7, args=(0.1,))[0] / 1.2, rtol=1e-6)
    wanted = dblquad(covariance, 0.4, 1.4, 0.5, 1.7)[0] / 1.2
    # The kink of the exponential kernel at no distance is inside both intervals.
    np.testing.assert_allclose(found[1, 1], wanted, rtol=1e-3 if kind == "exponential" else 1e-5)
    np.testing.assert_allclose(kernel.diagonal(X1), np.diagonal(kernel(X1, X1)), rtol=1e-12)
    np.testing.assert_allclose(kernel.linearise(X1, X2).value, found, rtol=1e-12)


@pytest.mark.parametrize("kind", KERNELS)
def test_that_intervals_of_no_width_are_points(kind, backend, tolerance):
    flat = np.concatenate([X1[:, :1], np.zeros((3, 1))], axis=1)
    point = KERNELS[kind].on_backend(backend)
    np.testing.assert_allclose(
        to_numpy(Averaged(point, 1)(backend.asarray(flat), backend.asarray(X2[:, :1]))),
        to_numpy(point(backend.asarray(X1[:, :1]), backend.asarray(X2[:, :1]))),
        rtol=tolerance(backend, 1e-12),
    )


def test_that_the_average_over_a_box_is_that_of_both_coordinates(backend, tolerance):
    box, point = np.asarray([[0.2, -0.3, 0.4, 0.7]]), np.asarray([[0.5, 0.1]])
    kernel = Averaged(SquaredExponential(1.0, [0.8, 1.3]).on_backend(backend), 2)
    found = float(to_numpy(kernel(backend.asarray(box), backend.asarray(point)))[0, 0])
    wanted = np.prod(
        [
            quad(lambda x, a=a, s=s: np.exp(-0.5 * ((x - a) / s) ** 2), c - w, c + w)[0] / (2 * w)
            for a, c, w, s in ((0.5, 0.2, 0.4, 0.8), (0.1, -0.3, 0.7, 1.3))
        ]
    )
    assert found == pytest.approx(wanted, rel=tolerance(backend, 1e-9))


@pytest.mark.parametrize("kind", KERNELS)
def test_that_the_pull_back_through_averages_is_that_of_finite_differences(kind, rng):
    kernel, step = Averaged(KERNELS[kind], 1), 1e-5
    cotangent, weights = rng.standard_normal((3, 2)), rng.standard_normal(3)
    found = kernel.linearise(X1, X2).pull_back(cotangent.copy())
    diagonal = kernel.pull_back_diagonal(X1, weights)

    def scalars(parameters, at):
        there = kernel.with_parameters(parameters)
        return np.asarray([np.sum(cotangent * there(at, X2)), np.sum(weights * there.diagonal(at))])

    count = len(kernel.parameter_names)
    for k in range(count):
        up, down = (scalars(kernel.parameters + s * step * np.eye(count)[k], X1) for s in (1.0, -1.0))
        both = [found.parameters[k], diagonal.parameters[k]]
        np.testing.assert_allclose(both, (up - down) / (2 * step), rtol=1e-5, atol=1e-6)
    assert found.X1.shape == diagonal.X1.shape == X1.shape
    for n in range(3):
        shift = np.zeros_like(X1)
        shift[n, 0] = step
        up, down = (scalars(kernel.parameters, X1 + s * shift) for s in (1.0, -1.0))
        np.testing.assert_allclose([found.X1[n, 0], diagonal.X1[n, 0]], (up - down) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KERNELS)
def test_that_a_kernel_for_averages_is_a_kernel_of_points(kind, rng):
    kernel = Averaged(KERNELS[kind], 1)
    check_kernel(kernel, rng.standard_normal((6, 1)))
    rebuilt = kernel_from_description(json.loads(json.dumps(kernel.describe())))
    np.testing.assert_allclose(rebuilt(X1, X2), kernel(X1, X2), rtol=1e-12)


def test_that_inputs_without_intervals_need_no_points():
    assert averages_of(X1[:, :1], 1) is None
    assert averages_of(np.zeros((3, 2)), 1) is None
