import numpy as np
import pytest

from invgp.core.backend import place, to_numpy
from invgp.core.estimators import features_needed, fewest_samples, hermite_features, score
from invgp.core.sampling import Points

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
    return mean, scale, log_density, value, gradient, np.einsum("nqq->nq", curvature)


def test_that_quadratic_log_densities_are_estimated_exactly(where, tolerance, rng):
    mean, scale, log_density, value, gradient, curvature = quadratic_problem(rng)
    z = Points.draw(rng, 32, N, Q, place("cpu")).at(0, N)
    valid = rng.random((32, N)) > 0.2
    densities = np.where(valid, log_density(mean + scale * z), 1e9)
    terms = score(where.asarray(z), where.asarray(scale), where.asarray(densities), where.asmask(valid))
    np.testing.assert_allclose(to_numpy(terms.value), value, rtol=tolerance(where, 1e-10))
    np.testing.assert_allclose(to_numpy(terms.gradient), gradient, rtol=tolerance(where, 1e-10, 1e-3))
    np.testing.assert_allclose(to_numpy(terms.curvature), curvature, rtol=tolerance(where, 1e-10, 1e-3))


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


def test_that_the_estimates_agree_with_quadrature_within_their_standard_error(numpy_place):
    def log_density(f):
        return -np.logaddexp(0.0, -3.0 * f) - np.exp(0.3 * f)

    mean, scale = 0.4, 0.7
    exact = exact_terms(log_density, mean, scale)
    estimates = []
    for seed in range(60):
        z = np.random.default_rng(seed).standard_normal((1024, 1, 1))
        densities = log_density(mean + scale * z)[..., 0]
        terms = score(z, np.full((1, 1), scale), densities, np.ones((1024, 1), dtype=bool))
        estimates.append([terms.value[0], terms.gradient[0, 0], terms.curvature[0, 0]])
    estimates = np.asarray(estimates)
    # In-sample regression has a bias of order 1/S, which 1,024 samples make small beside the spread.
    error = np.abs(estimates.mean(axis=0) - exact)
    assert np.all(error < 4 * estimates.std(axis=0) / np.sqrt(60)), error


def test_that_the_control_variates_reduce_the_variance():
    def log_density(f):
        return -0.5 * (1.5 - np.exp(0.5 * f)) ** 2 / 0.3**2

    mean, scale = 0.4, 0.7
    plain, controlled = [], []
    for seed in range(100):
        z = np.random.default_rng(seed).standard_normal((64, 1, 1))
        densities = log_density(mean + scale * z)[..., 0]
        terms = score(z, np.full((1, 1), scale), densities, np.ones((64, 1), dtype=bool))
        controlled.append([terms.gradient[0, 0], terms.curvature[0, 0]])
        points = z[:, 0, 0]
        scores = np.stack([points / scale, (points**2 - 1) / scale**2], axis=-1)
        plain.append(np.mean(scores * densities, axis=0))
    ratio = np.var(controlled, axis=0) / np.var(plain, axis=0)
    assert np.all(ratio < 0.3), ratio


def test_that_cross_terms_are_used_when_there_are_samples_enough(where, rng):
    z = where.asarray(rng.standard_normal((5, 3)))
    assert hermite_features(z, cross_terms=False).shape == (5, 7)
    every = to_numpy(hermite_features(z, cross_terms=True))
    assert every.shape == (5, 10)
    np.testing.assert_allclose(every[:, 9], to_numpy(z)[:, 1] * to_numpy(z)[:, 2], rtol=1e-6)
    assert features_needed(3, 20) == 10
    assert features_needed(3, 19) == 7
    assert fewest_samples(3) == 14


@pytest.mark.parametrize("samples", [fewest_samples(Q), 40])
def test_that_a_site_without_valid_runs_gives_finite_terms(samples, rng):
    z = Points.draw(rng, samples, N, Q, place("cpu")).at(0, N)
    valid = np.ones((samples, N), dtype=bool)
    valid[:, 1] = False
    terms = score(z, np.ones((N, Q)), np.where(valid, z.sum(axis=-1), np.nan), valid)
    assert all(np.all(np.isfinite(t)) for t in terms)
    np.testing.assert_allclose(terms.gradient[[0, 2]], 1.0, atol=1e-9)
    np.testing.assert_array_equal(terms.gradient[1], 0.0)
