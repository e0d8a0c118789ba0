"""Noise that is correlated over the numbers of a site, with some of them missing, against closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import invgp
from helpers.line_problems import line_problem
from helpers.problems import map_problem
from invgp.core.backend import select_backend
from invgp.latent_model.noise_density import draw_noise, noise_log_density
from invgp.problem import Noise

CORRELATION = np.asarray([[1.0, 0.8], [0.8, 1.0]])


def linear(a, b):
    return {"t": np.stack([a + b, a - 0.5 * b], axis=-1)}


def test_that_the_density_is_the_normal_density_of_the_observed_data(rng):
    """An observation of its own beside the two that are correlated; at two sites something is missing."""
    problem = map_problem()
    problem = replace(problem, noise=replace(problem.noise, correlation={"far": CORRELATION}))
    Y, std = problem.survey.Y, problem.noise_std
    outputs = Y + std * rng.standard_normal((4, *Y.shape))
    outputs = np.where(np.isnan(outputs), 1.0, outputs)
    found = noise_log_density(problem, select_backend("cpu"))(outputs)
    whole = np.eye(3)
    whole[1:, 1:] = CORRELATION
    for n, y in enumerate(Y):
        seen = np.flatnonzero(~np.isnan(y))
        covariance = (std[n][:, None] * whole * std[n])[np.ix_(seen, seen)]
        expected = [multivariate_normal(y[seen], covariance).logpdf(o[n, seen]) for o in outputs]
        np.testing.assert_allclose(found[:, n], expected)
    assert np.isnan(Y).sum() == 2


def test_that_draws_have_the_correlation():
    problem, _ = line_problem(linear, sites=2000)
    problem = replace(problem, noise=replace(problem.noise, correlation={"t": CORRELATION}))
    drawn = draw_noise(problem, np.random.default_rng(0)) / problem.noise_std
    np.testing.assert_allclose(drawn.T @ drawn / 2000, CORRELATION, atol=0.08)


@pytest.mark.parametrize(
    "inference", [{}, {"emulator": False}, {"emulator": False, "estimator": "score"}, {"batch": 5}]
)
def test_that_the_posterior_of_a_linear_simulator_is_exact(inference):
    problem, _ = line_problem(linear, sites=15, **inference)
    values = problem.survey.observations[0].values.copy()
    values[4, 0], values[9] = np.nan, np.nan
    noise = Noise("gaussian", {"t": np.full((15, 2), 0.3)}, correlation={"t": CORRELATION})
    survey = replace(problem.survey, observations=(replace(problem.survey.observations[0], values=values),))
    posterior = invgp.invert(replace(problem, survey=survey, noise=noise))
    x = np.linspace(0.0, 100.0, 15)
    K = np.kron(np.exp(-0.5 * ((x[:, None] - x) / 20.0) ** 2), np.eye(2))
    H = np.kron(np.eye(15), [[1.0, 1.0], [1.0, -0.5]])
    R = np.kron(np.eye(15), 0.09 * CORRELATION)
    seen = np.isfinite(values.ravel())
    H, R = H[seen], R[np.ix_(seen, seen)]
    V = H @ K @ H.T + R
    gain = np.linalg.solve(V, H @ K).T
    mean, std = gain @ values.ravel()[seen], np.sqrt(np.diag(K - gain @ H @ K))
    for i, name in enumerate("ab"):
        np.testing.assert_allclose((posterior[name] - mean[i::2]) / std[i::2], 0.0, atol=0.05)
        np.testing.assert_allclose(posterior[f"{name}_std"], std[i::2], rtol=0.02)
    assert posterior.attrs["invgp_converged"] == "yes"
    evidence = multivariate_normal(np.zeros(len(V)), V).logpdf(values.ravel()[seen])
    assert float(posterior["elbo"][-1]) == pytest.approx(evidence, abs=0.05)
