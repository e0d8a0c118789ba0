"""Expected densities, however narrow the density is against the normal: closed forms, and SciPy's quadrature."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, poisson, t

from invgp.core import importance, quadrature
from invgp.core.backend import to_numpy
from invgp.core.point_sets import Points

MEAN, SCALE = np.asarray([0.0, 0.0, 0.0, 0.0, 1.0, 2.0]), np.asarray([1.0, 1.0, 1.0, 1e-3, 0.5, 1.0])
Y = np.asarray([0.3, 3.0, 8.0, 0.5, -30.0, 700.0])


def by_scipy(log_density, mean, scale, peak, width):
    """Log of the expectation, panel by panel around a peak."""
    edges = np.unique(
        [*(mean + scale * np.arange(-30.0, 31.0, 2.0)), *(peak + width * np.asarray([-20, -2, 0, 2, 20]))]
    )

    def integrand(f):
        return np.exp(log_density(f) + norm.logpdf(f, mean, scale) + 100.0)

    parts = [quad(integrand, *ends, limit=200, epsabs=0)[0] for ends in pairwise(edges)]
    return np.log(sum(parts)) - 100.0


@pytest.mark.parametrize("std", [1.0, 0.01, 1e-4])
def test_that_gaussian_noise_has_its_closed_form(std):
    found = quadrature.log_expectation(lambda f: norm.logpdf(Y, f[..., 0], std), MEAN[:, None], SCALE[:, None])
    np.testing.assert_allclose(found, norm.logpdf(Y, MEAN, np.hypot(SCALE, std)), rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.3, 0.01])
def test_that_heavy_tails_are_those_of_scipy(scale):
    found = quadrature.log_expectation(lambda f: t.logpdf(Y, 4, f[..., 0], scale), MEAN[:, None], SCALE[:, None])
    for n, (y, mean, width) in enumerate(zip(Y, MEAN, SCALE, strict=True)):
        expected = by_scipy(lambda f, y=y: t.logpdf(y, 4, f, scale), mean, width, y, scale)
        assert found[n] == pytest.approx(expected, abs=1e-6)


def test_that_large_counts_are_those_of_scipy():
    counts = np.asarray([0.0, 3.0, 40.0, 1000.0])
    ones = np.ones((4, 1))
    found = quadrature.log_expectation(lambda f: poisson.logpmf(counts, np.exp(np.minimum(f[..., 0], 700))), ones, ones)
    for n, count in enumerate(counts):
        expected = by_scipy(
            lambda f, count=count: poisson.logpmf(count, np.exp(f)), 1.0, 1.0, np.log(count + 0.5), (count + 1) ** -0.5
        )
        assert found[n] == pytest.approx(expected, abs=1e-6)


def test_that_what_is_no_number_weighs_nothing_and_a_density_of_nothing_is_nothing():
    def half(f):
        return np.where(f[..., 0] > 0, np.nan, 0.0)

    assert quadrature.log_expectation(half, np.zeros((1, 1)), np.ones((1, 1)))[0] == pytest.approx(-np.log(2), abs=1e-6)
    nothing = quadrature.log_expectation(lambda f: np.full(f.shape[:2], -np.inf), np.zeros((2, 1)), np.ones((2, 1)))
    np.testing.assert_array_equal(nothing, -np.inf)


def test_that_quadrature_works_on_every_backend(backend, tolerance):
    y, xp = backend.asarray([0.3, 3.0]), backend.namespace
    found = quadrature.log_expectation(
        lambda f: -0.5 * xp.square((y - f[..., 0]) / 0.1),
        backend.asarray([[0.0], [0.0]]),
        backend.asarray([[1.0], [1.0]]),
    )
    expected = norm.logpdf(to_numpy(y), 0.0, np.hypot(1.0, 0.1)) + 0.5 * np.log(2 * np.pi) + np.log(0.1)
    np.testing.assert_allclose(found, expected, atol=tolerance(backend, 1e-7, 1e-2))


@pytest.mark.parametrize("std", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("latents", [2, 3, 6])
def test_that_several_latents_come_near_the_closed_form(latents, std, numpy_backend, rng):
    y = 2.0 * rng.standard_normal((20, latents))
    normals = Points.draw(rng, 1024, 1, latents, numpy_backend).base
    ones = np.ones((20, latents))
    found = importance.log_expectation(lambda f: norm.logpdf(y, f, std).sum(-1), 0.0 * ones, ones, normals)
    np.testing.assert_allclose(found, norm.logpdf(y, 0.0, np.hypot(1.0, std)).sum(-1), atol=0.01)


def test_that_latents_that_a_narrow_density_couples_come_near_the_closed_form(numpy_backend, rng):
    y = np.linspace(-4.0, 4.0, 9)
    normals = Points.draw(rng, 1024, 1, 3, numpy_backend).base
    ones = np.ones((9, 3))
    found = importance.log_expectation(lambda f: norm.logpdf(y, f.sum(-1), 0.01), 0.0 * ones, ones, normals)
    np.testing.assert_allclose(found, norm.logpdf(y, 0.0, np.hypot(np.sqrt(3), 0.01)), atol=0.02)


def test_that_too_few_samples_are_reported(numpy_backend, rng):
    normals = Points.draw(rng, 32, 1, 6, numpy_backend).base
    ones = np.ones((2, 6))
    with pytest.warns(UserWarning, match="of 2 sites has a standard error above"):
        importance.log_expectation(lambda f: -1e4 * np.square(np.sin(3 * f.sum(-1))), 0.0 * ones, ones, normals)
