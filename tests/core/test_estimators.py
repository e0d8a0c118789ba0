import math
import tracemalloc

import numpy as np
import pytest

from invgp.core import hermite
from invgp.core.backend import select_backend, to_numpy
from invgp.core.estimators import (
    degree,
    expectation,
    features_needed,
    fewest_samples,
    quadratic_fit,
    score,
)
from invgp.core.hermite import coefficients, hermite_features, mean_squares
from invgp.core.memory import BATCH_BUDGET
from invgp.core.point_sets import Points

N, Q = 3, 2


def quadratic_problem(rng):
    """A log density quadratic in f, with the exact expectation and derivatives under N(mean, scale^2)."""
    mean, scale = rng.standard_normal((N, Q)), 0.2 + rng.random((N, Q))
    slope, curvature = rng.standard_normal((N, Q)), rng.standard_normal((N, Q, Q))
    curvature = curvature + curvature.transpose(0, 2, 1)

    def log_density(f):
        return 3.0 + np.sum(slope * f, -1) + 0.5 * np.einsum("snq,nqr,snr->sn", f, curvature, f)

    value = 3.0 + np.sum(slope * mean, -1) + 0.5 * np.einsum("nq,nqr,nr->n", mean, curvature, mean)
    value += 0.5 * np.einsum("nqq,nq->n", curvature, scale**2)
    gradient = slope + np.einsum("nqr,nr->nq", curvature, mean)
    return mean, scale, log_density, value, gradient, curvature


def points_of_one_latent(z):
    """Points z (S,) at a single site."""
    return Points(z[:, None], np.ones((1, 1, 1)))


@pytest.mark.parametrize("share_valid", [1.0, 0.8])
def test_that_quadratic_log_densities_are_estimated_exactly(share_valid, backend, tolerance, rng):
    mean, scale, log_density, value, gradient, curvature = quadratic_problem(rng)
    points = Points.draw(rng, 32, N, Q, backend)
    valid = rng.random((32, N)) < share_valid
    densities = np.where(valid, log_density(mean + scale * to_numpy(points.normals())), 1e9)
    mask = None if valid.all() else backend.asmask(valid)
    terms = score(points, backend.asarray(scale), backend.asarray(densities), mask)
    np.testing.assert_allclose(to_numpy(terms.value), value, rtol=tolerance(backend, 1e-10))
    np.testing.assert_allclose(to_numpy(terms.gradient), gradient, rtol=tolerance(backend, 1e-10, 1e-3))
    each = np.diagonal(curvature, axis1=1, axis2=2)
    np.testing.assert_allclose(to_numpy(terms.curvature), each, rtol=tolerance(backend, 1e-10, 1e-3))
    fit = quadratic_fit(points, backend.asarray(densities), mask)
    whole = scale[:, :, None] * curvature * scale[:, None, :]
    np.testing.assert_allclose(to_numpy(fit.curvature), whole, atol=tolerance(backend, 1e-10, 1e-4))


@pytest.mark.parametrize(("latents", "samples"), [(1, 7), (1, 64), (2, 12), (3, 40), (3, 15)])
def test_that_one_regression_for_all_sites_equals_one_regression_per_site(latents, samples, backend, tolerance, rng):
    points = Points.draw(rng, samples, 20, latents, backend)
    densities = backend.asarray(np.exp(rng.standard_normal((samples, 20))))
    slopes = backend.asarray(rng.standard_normal((samples, 20, 2)))
    z, close = to_numpy(points.normals()), {"rtol": 0.0, "atol": tolerance(backend, 1e-10, 1e-3)}
    fit, mean = quadratic_fit(points, densities), expectation(points, slopes)
    assert fit.value.dtype == mean.dtype == densities.dtype
    highest = degree(latents, samples)
    for n in range(20):
        features = hermite_features(z[:, n, :], cross_terms=highest > 0, degree=highest or 2)
        one, of_slopes = (np.linalg.lstsq(features, to_numpy(v)[:, n], rcond=None)[0] for v in (densities, slopes))
        np.testing.assert_allclose(to_numpy(fit.value)[n], one[0], **close)
        np.testing.assert_allclose(to_numpy(fit.gradient)[n], one[1 : 1 + latents], **close)
        squares = np.diagonal(to_numpy(fit.curvature)[n])
        np.testing.assert_allclose(squares, 2.0 * one[1 + latents : 1 + 2 * latents], **close)
        np.testing.assert_allclose(to_numpy(mean)[n], of_slopes[0], **close)


def test_that_mean_squares_are_those_of_the_features():
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    z = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    weights = np.outer(weights, weights).ravel() / weights.sum() ** 2
    expected = weights @ hermite_features(z, cross_terms=True, degree=4) ** 2
    np.testing.assert_allclose(mean_squares(2, 4), expected, rtol=1e-12)


@pytest.mark.parametrize("budget", [BATCH_BUDGET, 1], ids=["at once", "one by one"])
def test_that_a_site_is_fitted_to_what_it_has(budget, backend, tolerance, rng, monkeypatch):
    monkeypatch.setattr(hermite, "BATCH_BUDGET", budget)
    features, values = rng.standard_normal((30, 4)), rng.standard_normal((30, 6, 2))
    valid = rng.random((30, 6)) < 0.7
    valid[:, [1, 4]] = True
    found = coefficients(backend.asarray(features), backend.asarray(values), backend.asmask(valid))
    for n, has in enumerate(valid.T):
        expected = np.linalg.lstsq(features[has], values[has, n], rcond=None)[0].T
        np.testing.assert_allclose(to_numpy(found)[n], expected, atol=tolerance(backend, 1e-10, 1e-4))


@pytest.mark.slow
def test_that_fits_with_missing_runs_keep_to_the_memory_budget(rng):
    latents, sites = 8, 24
    samples = 6 * math.comb(latents + 4, 4)
    points = Points.draw(rng, samples, sites, latents, select_backend("cpu"))
    assert features_needed(latents, samples) == 495
    densities = rng.standard_normal((samples, sites))
    valid = rng.random((samples, sites)) < 0.99
    tracemalloc.start()
    quadratic_fit(points, densities, valid)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * BATCH_BUDGET


def exact_terms(log_density, mean, scale):
    """Derivatives of the Gauss-Hermite expectation by finite differences, for one latent."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()

    def expectation(b, variance):
        return weights @ log_density(b + np.sqrt(variance) * nodes)

    step, variance = 1e-4, scale**2
    gradient = (expectation(mean + step, variance) - expectation(mean - step, variance)) / (2 * step)
    slope = (expectation(mean, variance + step) - expectation(mean, variance - step)) / (2 * step)
    return expectation(mean, variance), gradient, 2.0 * slope


def test_that_the_estimates_agree_with_quadrature_within_their_standard_error(numpy_backend):
    def log_density(f):
        return -np.logaddexp(0.0, -3.0 * f) - np.exp(0.3 * f)

    mean, scale = 0.4, 0.7
    exact = exact_terms(log_density, mean, scale)
    estimates = []
    for seed in range(60):
        z = np.random.default_rng(seed).standard_normal(16_384)
        densities = log_density(mean + scale * z)
        terms = score(points_of_one_latent(z), np.full((1, 1), scale), densities[:, None])
        estimates.append([terms.value[0], terms.gradient[0, 0], terms.curvature[0, 0]])
    estimates = np.asarray(estimates)
    # In-sample regression has a bias of order 1/S, which many samples make small beside the spread.
    error = np.abs(estimates.mean(axis=0) - exact)
    assert np.all(error < 4 * estimates.std(axis=0) / np.sqrt(60)), error


def test_that_the_control_variates_reduce_the_variance():
    def log_density(f):
        return -0.5 * (1.5 - np.exp(0.5 * f)) ** 2 / 0.3**2

    mean, scale = 0.4, 0.7
    plain, controlled = [], []
    for seed in range(100):
        z = np.random.default_rng(seed).standard_normal(64)
        densities = log_density(mean + scale * z)
        terms = score(points_of_one_latent(z), np.full((1, 1), scale), densities[:, None])
        controlled.append([terms.gradient[0, 0], terms.curvature[0, 0]])
        scores = np.stack([z / scale, (z**2 - 1) / scale**2], axis=-1)
        plain.append(np.mean(scores * densities[:, None], axis=0))
    ratio = np.var(controlled, axis=0) / np.var(plain, axis=0)
    assert np.all(ratio < 0.3), ratio


@pytest.mark.parametrize("latents", [1, 2])
def test_that_log_densities_of_the_fourth_degree_are_estimated_exactly(latents, backend, tolerance, rng):
    """E[f^4], with its derivatives by mean and variance."""
    mean, scale = 0.5 * rng.standard_normal((N, latents)), 0.2 + 0.3 * rng.random((N, latents))
    points = Points.draw(rng, 96, N, latents, backend)
    f = mean + scale * to_numpy(points.normals())
    terms = score(points, backend.asarray(scale), backend.asarray(np.sum(f**4, axis=-1)))
    value = np.sum(mean**4 + 6 * mean**2 * scale**2 + 3 * scale**4, axis=-1)
    close = {"rtol": tolerance(backend, 1e-9, 1e-3), "atol": tolerance(backend, 1e-10, 1e-3)}
    np.testing.assert_allclose(to_numpy(terms.value), value, **close)
    np.testing.assert_allclose(to_numpy(terms.gradient), 4 * mean**3 + 12 * mean * scale**2, **close)
    np.testing.assert_allclose(to_numpy(terms.curvature), 12 * (mean**2 + scale**2), **close)


def test_that_the_features_are_orthogonal_under_the_normal_distribution():
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes)], axis=-1)
    weight = np.outer(weights, weights).ravel() / weights.sum() ** 2
    features = hermite_features(grid, cross_terms=True, degree=4)
    gram = features.T @ (weight[:, None] * features)
    assert features.shape[1] == features_needed(2, 90) == 15
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-10)


def test_that_cross_terms_are_used_when_there_are_samples_enough(backend, rng):
    z = backend.asarray(rng.standard_normal((5, 3)))
    assert hermite_features(z, cross_terms=False).shape == (5, 7)
    every = to_numpy(hermite_features(z, cross_terms=True))
    assert every.shape == (5, 10)
    np.testing.assert_allclose(every[:, 9], to_numpy(z)[:, 1] * to_numpy(z)[:, 2], rtol=1e-6)
    assert features_needed(3, 120) == 20
    assert features_needed(3, 119) == features_needed(3, 20) == 10
    assert features_needed(3, 19) == 7
    assert fewest_samples(3) == 14


@pytest.mark.parametrize("samples", [fewest_samples(Q), 40])
def test_that_a_site_without_valid_runs_gives_finite_terms(samples, rng):
    points = Points.draw(rng, samples, N, Q, select_backend("cpu"))
    valid = np.ones((samples, N), dtype=bool)
    valid[:, 1] = False
    densities = np.where(valid, points.normals().sum(axis=-1), np.nan)
    terms = score(points, np.ones((N, Q)), densities, valid)
    assert all(np.all(np.isfinite(t)) for t in terms)
    np.testing.assert_allclose(terms.gradient[[0, 2]], 1.0, atol=1e-9)
    np.testing.assert_array_equal(terms.gradient[1], 0.0)
