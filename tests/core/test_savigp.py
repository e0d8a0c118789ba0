"""The whole algorithm against exact answers."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from helpers.savigp_models import dense_savigp
from invgp.core.backend import to_numpy
from invgp.core.kernels import CORRELATIONS, Kernel

N, S = 12, 32
NOISE = 0.3


def settle(algorithm, backend, forward, limit=400):
    state = algorithm.init()
    while not state.finished and state.evaluations < limit:
        outputs = forward(to_numpy(algorithm.ask(state)))
        valid = backend.asmask(np.isfinite(outputs).all(axis=-1))
        state, info = algorithm.tell(state, backend.asarray(outputs), valid)
    return state, info


def regression(backend, kind, observed):
    X = np.linspace(0, 5, N)[:, None]
    kernel = Kernel(CORRELATIONS[kind], backend.asarray(1.44), backend.asarray([0.8]))
    algorithm = dense_savigp(backend, X, [kernel], [0.7], observed, NOISE, samples=S)
    return algorithm, to_numpy(kernel(backend.asarray(X), backend.asarray(X))), np.full(N, 0.7)


def posterior_moments(algorithm, state):
    """Mean (N,) and covariance (N, N) of the first latent."""
    bound_state = algorithm.bound_state(state.posterior)
    factor = to_numpy(bound_state.factor)[0] @ to_numpy(bound_state.q.spread)[0, 0]
    return to_numpy(algorithm.marginals(state)[0])[:, 0], factor @ factor.T


@pytest.fixture
def observed(rng):
    y = np.sin(np.linspace(0, 5, N)) + NOISE * rng.standard_normal(N)
    return y[:, None]


@pytest.mark.parametrize("kind", CORRELATIONS)
def test_that_gaussian_noise_gives_the_exact_gaussian_process(kind, backend, tolerance, observed):
    algorithm, prior, mean = regression(backend, kind, observed)
    state, _ = settle(algorithm, backend, lambda f: f)
    gain = prior @ np.linalg.inv(prior + NOISE**2 * np.eye(N))
    found_mean, found_covariance = posterior_moments(algorithm, state)
    evidence = multivariate_normal(mean, prior + NOISE**2 * np.eye(N)).logpdf(observed[:, 0])
    np.testing.assert_allclose(found_mean, mean + gain @ (observed[:, 0] - mean), atol=tolerance(backend, 1e-6, 0.02))
    np.testing.assert_allclose(found_covariance, prior - gain @ prior, atol=tolerance(backend, 1e-6, 0.01))
    assert state.elbo == pytest.approx(evidence, abs=tolerance(backend, 1e-6, 0.01))


@pytest.mark.parametrize(("sites", "noise"), [(100, 1e-2), (100, 1e-3), (1, 1e-6)])
def test_that_data_much_sharper_than_the_prior_are_fitted_in_a_few_evaluations(sites, noise, numpy_backend, rng):
    X = np.linspace(0, 5, sites)[:, None]
    kernel = Kernel(CORRELATIONS["matern 3/2"], numpy_backend.asarray(1.0), numpy_backend.asarray([0.5]))
    prior = kernel(X, X)
    truth = np.linalg.cholesky(prior) @ rng.standard_normal(sites)
    y = (truth + noise * rng.standard_normal(sites))[:, None]
    algorithm = dense_savigp(numpy_backend, X, [kernel], [0.0], y, noise, samples=S, tolerance=1e-7)
    state, _ = settle(algorithm, numpy_backend, lambda f: f)
    covariance = prior + noise**2 * np.eye(sites)
    gain = np.linalg.solve(covariance, prior).T
    std = np.sqrt(np.diag(prior - gain @ prior))
    mean, found = posterior_moments(algorithm, state)
    assert state.finished == "the bound has converged"
    assert state.evaluations < 20
    np.testing.assert_allclose((mean - gain @ y[:, 0]) / std, 0.0, atol=1e-3)
    np.testing.assert_allclose(np.sqrt(np.diag(found)) / std, 1.0, atol=1e-3)


def test_that_a_missing_observation_equals_one_that_was_not_made(backend, tolerance, observed):
    gappy = observed.copy()
    gappy[[3, 4, 9]] = np.nan
    algorithm, prior, mean = regression(backend, "matern 3/2", gappy)
    state, _ = settle(algorithm, backend, lambda f: f)
    kept = np.flatnonzero(~np.isnan(gappy[:, 0]))
    gain = prior[:, kept] @ np.linalg.inv(prior[np.ix_(kept, kept)] + NOISE**2 * np.eye(len(kept)))
    expected = mean + gain @ (gappy[kept, 0] - mean[kept])
    np.testing.assert_allclose(posterior_moments(algorithm, state)[0], expected, atol=tolerance(backend, 1e-6, 0.02))
    evidence = multivariate_normal(mean[kept], prior[np.ix_(kept, kept)] + NOISE**2 * np.eye(len(kept)))
    assert state.elbo == pytest.approx(evidence.logpdf(gappy[kept, 0]), abs=tolerance(backend, 1e-6, 0.01))


def test_that_random_failures_change_nothing_when_the_fit_is_exact(backend, tolerance, observed, rng):
    algorithm, _, _ = regression(backend, "matern 5/2", observed)
    reference, _ = settle(algorithm, backend, lambda f: f)

    def sometimes(f):
        return np.where(rng.random(f.shape[:2])[..., None] < 0.2, np.nan, f)

    state, _ = settle(algorithm, backend, sometimes)
    found, expected = (posterior_moments(algorithm, s)[0] for s in (state, reference))
    np.testing.assert_allclose(found, expected, atol=tolerance(backend, 1e-6, 0.03))


def test_that_a_step_to_where_most_runs_fail_is_taken_back(numpy_backend, observed):
    """Where too few runs of a site are left to fit, the bound counts as minus infinity, and the step is retraced."""
    algorithm, _, _ = regression(numpy_backend, "matern 5/2", observed)
    state = algorithm.init()
    outputs = algorithm.ask(state)
    state, _ = algorithm.tell(state, outputs, np.ones(outputs.shape[:2], dtype=bool))
    broken = np.ones(outputs.shape[:2], dtype=bool)
    broken[2:, 5] = False
    after, info = algorithm.tell(state, algorithm.ask(state), broken)
    assert info.elbo == -np.inf
    assert not info.accepted
    np.testing.assert_array_equal(after.posterior, state.posterior)


def test_that_draws_have_the_joint_moments_of_the_posterior(backend, observed, rng):
    algorithm, _, _ = regression(backend, "matern 3/2", observed)
    state, _ = settle(algorithm, backend, lambda f: f)
    mean, covariance = posterior_moments(algorithm, state)
    draws = to_numpy(algorithm.draws(state, backend.asarray(rng.standard_normal((20_000, N, 1)))))[..., 0]
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.01)


def test_that_a_nonlinear_model_gives_the_same_numbers_on_every_backend(backend, tolerance, numpy_backend, rng):
    X = np.sort(rng.random((6, 2)), axis=0)
    y = rng.random((6, 2))

    def forward(f):
        return np.stack([np.exp(0.3 * f[..., 0]) * f[..., 1], f[..., 0] - f[..., 1] ** 2], axis=-1)

    def run(at):
        kernels = [Kernel(c, at.asarray(1.0), at.asarray([0.5, 0.9])) for c in list(CORRELATIONS.values())[:2]]
        algorithm = dense_savigp(at, X, kernels, np.zeros(2), y, 0.2, samples=64, tolerance=1e-7)
        state, _ = settle(algorithm, at, forward, limit=8)
        return state.elbo, to_numpy(state.posterior), state

    bound, parameters, state = run(backend)
    expected_bound, expected_parameters, _ = run(numpy_backend)
    assert bound == pytest.approx(expected_bound, rel=tolerance(backend, 1e-9, 1e-3))
    np.testing.assert_allclose(parameters, expected_parameters, atol=tolerance(backend, 1e-7, 0.05))
    assert state.posterior.dtype == getattr(backend.namespace, backend.dtype)
