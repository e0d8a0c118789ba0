"""Prediction from a mixture of two Gaussians, against closed forms."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from invgp.core.backend import to_numpy
from invgp.core.bound import Bound
from invgp.core.kernels import Matern52
from invgp.core.parameters import Parameters
from invgp.core.posteriors import Full, Mixture
from invgp.core.prediction import (
    Nodes,
    expectation_nodes,
    latent_covariance,
    latent_draws,
    latent_moments,
    log_predictive_density,
    mixture_moments,
    output_moments,
)

M, D, K, NEW = 3, 2, 2, 4
WEIGHTS = np.asarray([0.3, 0.7])
PRIOR_MEAN = np.asarray([0.5, -1.0])
NOISE_VARIANCE = 0.09


class TwoComponents:
    """A mixture whose components lie far apart, with the moments of each worked out in plain algebra."""

    def __init__(self, latents):
        rng = np.random.default_rng(4)
        self.latents = latents
        self.X, self.Z = rng.standard_normal((NEW, D)), rng.standard_normal((latents, M, D))
        self.numbers = 0.2 * rng.standard_normal((latents, 1 + D))
        self.v = 0.2 * rng.standard_normal((K, latents, M)) + np.asarray([-1.0, 1.0])[:, None, None]
        self.R = np.tril(0.2 * rng.standard_normal((K, latents, M, M)), -1) + 0.5 * np.eye(M)

    def bound_state(self, backend):
        like = Matern52(backend.asarray(1.0), backend.asarray(np.ones(D)))
        family = Full(self.latents, M, K)
        q = Mixture(*(backend.asarray(part) for part in (WEIGHTS, self.v, self.R)))
        others = (
            backend.asarray(part) for part in (self.numbers.ravel(), self.Z, np.zeros(0), PRIOR_MEAN[: self.latents])
        )
        return Bound(family, (like,) * self.latents, backend.asarray(self.X), dense=False).bound_state(
            Parameters(family.pack(q), *others)
        )

    def components(self):
        """Joint means (K, B, Q) and covariances (K, Q, B, B) at the new inputs."""
        like = Matern52(np.asarray(1.0), np.ones(D))
        mean, covariance = np.zeros((K, NEW, self.latents)), np.zeros((K, self.latents, NEW, NEW))
        for j in range(self.latents):
            kernel = like.with_parameters(self.numbers[j])
            Kzz, Kxz, Kxx = kernel(self.Z[j], self.Z[j]), kernel(self.X, self.Z[j]), kernel(self.X, self.X)
            A, L = Kxz @ np.linalg.inv(Kzz), np.linalg.cholesky(Kzz)
            for k in range(K):
                S = L @ self.R[k, j] @ self.R[k, j].T @ L.T
                mean[k, :, j] = PRIOR_MEAN[j] + A @ L @ self.v[k, j]
                covariance[k, j] = Kxx - A @ Kxz.T + A @ S @ A.T
        return mean, covariance

    def moments(self):
        """Means and variances (K, B, Q)."""
        mean, covariance = self.components()
        return mean, np.diagonal(covariance, axis1=-2, axis2=-1).swapaxes(1, 2)


def of_two(mean, variance):
    """A mixture of two: its variance has the distance of the two means in it."""
    apart = WEIGHTS[0] * WEIGHTS[1] * (mean[0] - mean[1]) ** 2
    return np.tensordot(WEIGHTS, mean, 1), np.tensordot(WEIGHTS, variance, 1) + apart


def test_that_a_mixture_is_as_wide_as_its_means_are_apart(backend, tolerance, rng):
    mean, variance = rng.standard_normal((K, NEW, 2)), rng.random((K, NEW, 2))
    found = mixture_moments(*(backend.asarray(part) for part in (WEIGHTS, mean, variance)))
    for one, other in zip(found, of_two(mean, variance), strict=True):
        np.testing.assert_allclose(to_numpy(one), other, rtol=tolerance(backend, 1e-13, 1e-5))


@pytest.mark.parametrize("latents", [1, 2])
def test_that_latents_at_new_inputs_have_the_moments_of_the_mixture(latents, backend, tolerance):
    model = TwoComponents(latents)
    bound_state = model.bound_state(backend)
    close = {"rtol": tolerance(backend, 1e-9, 1e-3)}
    mean, variance = latent_moments(bound_state, backend.asarray(model.X))
    expected = model.moments()
    np.testing.assert_allclose(to_numpy(mean), expected[0], **close)
    np.testing.assert_allclose(to_numpy(variance), expected[1], **close)
    found = mixture_moments(bound_state.q.weights, mean, variance)
    for one, other in zip(found, of_two(*expected), strict=True):
        np.testing.assert_allclose(to_numpy(one), other, **close)
    for k in range(K):
        joint = to_numpy(latent_covariance(bound_state, backend.asarray(model.X), k))
        np.testing.assert_allclose(joint, model.components()[1][k], atol=tolerance(backend, 1e-10))


def test_that_draws_of_the_components_have_the_moments_of_the_mixture(numpy_backend, rng):
    model, count = TwoComponents(2), 4000
    components = [0] * round(WEIGHTS[0] * count) + [1] * round(WEIGHTS[1] * count)
    draws = latent_draws(model.bound_state(numpy_backend), model.X, rng.standard_normal((count, NEW, 2)), components)
    mean, variance = of_two(*model.moments())
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / count))
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.1)


@pytest.mark.parametrize("latents", [1, 2])
def test_that_noisy_outputs_add_their_noise_to_the_mixture(latents, backend, tolerance):
    model, xp = TwoComponents(latents), backend.namespace
    bound_state = model.bound_state(backend)
    at = expectation_nodes(bound_state, 1024, np.random.default_rng(0))

    def moments(f):
        return f, NOISE_VARIANCE * xp.ones_like(f)

    found = output_moments(bound_state, backend.asarray(model.X), moments, at)
    mean, variance = model.moments()
    close = tolerance(backend, 1e-9, 1e-3) if latents == 1 else 0.01
    for one, other in zip(found, of_two(mean, variance + NOISE_VARIANCE), strict=True):
        np.testing.assert_allclose(to_numpy(one), other, rtol=close, atol=close)


def test_that_exponential_outputs_have_the_moments_of_log_normals(numpy_backend):
    model = TwoComponents(1)
    bound_state = model.bound_state(numpy_backend)

    def moments(f):
        return np.exp(f), np.zeros_like(f)

    found = output_moments(bound_state, model.X, moments, expectation_nodes(bound_state, 1, np.random.default_rng(0)))
    mean, variance = model.moments()
    each = np.exp(mean + variance / 2), np.expm1(variance) * np.exp(2 * mean + variance)
    for one, other in zip(found, of_two(*each), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)


def test_that_the_predictive_density_is_the_sum_over_the_components(numpy_backend, rng):
    model = TwoComponents(1)
    bound_state = model.bound_state(numpy_backend)
    y = rng.standard_normal((NEW, 1))
    mean, variance = model.moments()
    found = log_predictive_density(
        bound_state,
        model.X,
        lambda f: norm(f, np.sqrt(NOISE_VARIANCE)).logpdf(y)[..., 0],
        expectation_nodes(bound_state, 1, np.random.default_rng(0)),
    )
    of_each = norm(mean, np.sqrt(variance + NOISE_VARIANCE)).logpdf(y)[..., 0]
    np.testing.assert_allclose(found, logsumexp(of_each, axis=0, b=WEIGHTS[:, None]), atol=1e-4)


def test_that_weighted_nodes_count_by_their_weight(numpy_backend):
    bound_state = TwoComponents(1).bound_state(numpy_backend)
    given = Nodes(np.asarray([[-1.0], [2.0]]), np.asarray([2 / 3, 1 / 3]))
    mean, variance = output_moments(bound_state, TwoComponents(1).X, lambda f: (f, np.zeros_like(f)), given)
    centre, spread = TwoComponents(1).moments()
    expected = of_two(centre, 2.0 * spread)  # nodes of mean 0 and variance 2
    np.testing.assert_allclose(mean, expected[0], rtol=1e-9)
    np.testing.assert_allclose(variance, expected[1], rtol=1e-9)
