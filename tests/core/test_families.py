import numpy as np
import pytest

from invgp.core import elbo
from invgp.core.backend import device_of, to_numpy
from invgp.core.families import FullGaussian

Q, N = 2, 4


@pytest.fixture
def parts(rng):
    half = rng.standard_normal((Q, N, N))
    prior = half @ half.transpose(0, 2, 1) + np.eye(N)
    mean = rng.standard_normal((Q, N))
    raw = 0.3 * np.tril(rng.standard_normal((Q, N, N)))
    parameters = np.concatenate([rng.standard_normal(Q * N), raw.ravel()])
    return mean, prior, parameters


def family_at(where, mean, prior):
    return FullGaussian(where.asarray(mean), where.asarray(np.linalg.cholesky(prior)))


def moments(family, parameters):
    factor = to_numpy(family.covariance_factor(parameters))
    return to_numpy(family.mean(parameters)), factor @ factor.transpose(0, 2, 1)


def gaussian_kl(mean, covariance, prior_mean, prior):
    shift = mean - prior_mean
    inverse = np.linalg.inv(prior)
    log_dets = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (np.trace(inverse @ covariance) + shift @ inverse @ shift - len(mean) + log_dets)


def test_that_the_kl_term_is_the_closed_form_between_gaussians(where, tolerance, parts):
    mean, prior, parameters = parts
    family = family_at(where, mean, prior)
    posterior_mean, covariance = moments(family, where.asarray(parameters))
    expected = sum(gaussian_kl(posterior_mean[j], covariance[j], mean[j], prior[j]) for j in range(Q))
    assert float(family.kl(where.asarray(parameters))) == pytest.approx(expected, rel=tolerance(where, 1e-12))


def test_that_the_posterior_starts_at_the_prior_with_a_share_of_its_variance(where, tolerance, parts):
    mean, prior, _ = parts
    family = family_at(where, mean, prior)
    start = family.initial(0.25)
    posterior_mean, covariance = moments(family, start)
    np.testing.assert_allclose(posterior_mean, mean, rtol=tolerance(where, 1e-12))
    np.testing.assert_allclose(covariance, 0.25 * prior, rtol=tolerance(where, 1e-12))
    assert float(family.kl(family.initial(1.0))) == pytest.approx(0.0, abs=tolerance(where, 1e-12))


def test_that_marginals_are_the_diagonal_of_the_joint(where, tolerance, parts):
    mean, prior, parameters = parts
    family = family_at(where, mean, prior)
    there = where.asarray(parameters)
    b, variance = family.marginals(there)
    assert device_of(b) == device_of(there)
    posterior_mean, covariance = moments(family, there)
    np.testing.assert_allclose(to_numpy(b), posterior_mean.T, rtol=tolerance(where, 1e-13))
    np.testing.assert_allclose(
        to_numpy(variance).T, np.diagonal(covariance, axis1=1, axis2=2), rtol=tolerance(where, 1e-13)
    )


def test_that_the_gradient_of_the_bound_is_that_of_finite_differences(where, tolerance, numpy_place, parts, rng):
    mean, prior, parameters = parts
    # A stand-in for the sites' terms that depends on both moments and has known derivatives.
    target, weight = rng.standard_normal((N, Q)), 1.0 + rng.random((N, Q))

    def bound(x):
        family = family_at(numpy_place, mean, prior)
        b, variance = family.marginals(x)
        return float(np.sum(-0.5 * weight * ((b - target) ** 2 + variance)) - family.kl(x))

    family = family_at(where, mean, prior)
    there = where.asarray(parameters)
    b, _ = family.marginals(there)
    gradient = family.gradient(there, where.asarray(-weight * (to_numpy(b) - target)), where.asarray(-weight))
    step = 1e-5 * np.eye(len(parameters))
    differences = [(bound(parameters + h) - bound(parameters - h)) / 2e-5 for h in step]
    np.testing.assert_allclose(to_numpy(gradient), differences, atol=tolerance(where, 1e-6, 1e-3))


def test_that_draws_have_the_joint_moments(where, parts, rng):
    mean, prior, parameters = parts
    family = family_at(where, mean, prior)
    there = where.asarray(parameters)
    draws = to_numpy(family.sample(there, where.asarray(rng.standard_normal((40_000, N, Q)))))
    posterior_mean, covariance = moments(family, there)
    for j in range(Q):
        scale = np.sqrt(np.diagonal(covariance[j]))
        np.testing.assert_allclose(draws[:, :, j].mean(axis=0), posterior_mean[j], atol=5 * scale.max() / 200)
        np.testing.assert_allclose(np.cov(draws[:, :, j].T), covariance[j], atol=0.05 * scale.max() ** 2)


def test_that_the_expected_log_likelihood_is_the_sum_over_sites(where):
    assert float(elbo.expected_log_likelihood(where.asarray([1.0, 2.0, -4.0]))) == -1.0
