"""Chains on the simulator of a field model against closed forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from arviz_stats.base.array import array_stats
from scipy import stats

from helpers.averaged_fields import DATA, NOISE, SENSORS, WINDOWS, X, averages, field_problem, quadratic_averages
from helpers.reference_problems import simulator_of
from invgp.sampling.simulated_field import SimulatedField
from invgp.sampling.tempered_chains import Limits, sample_chains
from invgp.validation.comparison import spread_mcse


def kernel() -> np.ndarray:
    r = np.sqrt(5.0) * np.abs(X[:, None] - X) / 0.3
    return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r))


@pytest.mark.slow
def test_that_the_posterior_of_a_linear_field_model_is_drawn_from(tmp_path: Path) -> None:
    problem = field_problem()
    target = SimulatedField(problem, simulator_of(problem, tmp_path))
    chains = sample_chains(target, 64, np.random.default_rng(0), Limits(30_000, 1.01, 1000.0))
    K = kernel()
    gain = K @ WINDOWS.T @ np.linalg.inv(WINDOWS @ K @ WINDOWS.T + NOISE**2 * np.eye(SENSORS))
    mean, std = gain @ DATA, np.sqrt(np.diag(K - gain @ WINDOWS @ K))
    draws = chains.by_chain[..., 0]
    error = array_stats.mcse(draws, chain_axis=0, draw_axis=1)
    omitted = 0.02 * std  # 1e-4 of the prior variance is not in the modes
    assert (np.abs(draws.mean(axis=(0, 1)) - mean) < 4.0 * error + omitted).all()
    assert (np.abs(draws.std(axis=(0, 1)) - std) < 4.0 * spread_mcse(draws) + omitted).all()
    assert chains.acceptance > 0.8
    assert chains.runs <= 30_000


NOISES = {
    "independent": {"datum": NOISE},
    "correlated": {"std": {"datum": NOISE}, "correlation_length": {"datum": 0.3}},
    "student-t": {"kind": "student-t", "degrees": 4.0, "std": {"datum": NOISE}},
}


@pytest.mark.parametrize("kind", NOISES)
def test_that_the_likelihood_is_that_of_the_noise(kind: str, tmp_path: Path) -> None:
    problem = field_problem(noise=NOISES[kind])
    target = SimulatedField(problem, simulator_of(problem, tmp_path))
    v = 0.3 * np.random.default_rng(1).standard_normal((1, 5, target.size))
    found = target.log_likelihood(v, np.arange(1))[0][0]
    off = DATA - averages(target.latents(v)[..., 0])
    if kind == "student-t":
        exact = stats.t.logpdf(off, 4.0, scale=NOISE * np.sqrt(0.5)).sum(axis=1)
    else:
        sensors = problem.survey.X[:, 0]
        distance = np.abs(sensors[:, None] - sensors) / 0.3
        correlation = np.exp(-distance) if kind == "correlated" else np.eye(SENSORS)
        exact = stats.multivariate_normal.logpdf(off, cov=NOISE**2 * correlation)
    np.testing.assert_allclose(found - found[0], exact - exact[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", NOISES)
def test_that_the_surrogate_approximates_the_likelihood_and_has_its_own_gradient(kind: str, tmp_path: Path) -> None:
    problem = field_problem(quadratic_averages, NOISES[kind])
    target = SimulatedField(problem, simulator_of(problem, tmp_path))
    rng, block = np.random.default_rng(2), np.arange(1)
    assert target.fit_surrogate(1.0) is None
    target.log_likelihood(rng.standard_normal((1, 120, target.size)), block)
    target.outputs += 0.1 * rng.standard_normal(
        target.outputs.shape
    )  # without noise, the regression is ill-conditioned
    surrogate = target.fit_surrogate(1.0)
    v = 0.5 * rng.standard_normal((1, 4, target.size))
    value, gradient = surrogate.linearise(v, block)
    exact, _ = target.log_likelihood(v, block)
    assert np.corrcoef(value[0], exact[0])[0, 1] > 0.9
    for i in (0, 3, target.size - 1):
        step = np.zeros(target.size)
        step[i] = 1e-3
        numeric = (surrogate.linearise(v + step, block)[0] - surrogate.linearise(v - step, block)[0]) / 2e-3
        np.testing.assert_allclose(gradient[..., i], numeric, rtol=0.01, atol=1e-3 * np.abs(gradient).max())
    information = surrogate.information(v, block)[0]
    np.testing.assert_allclose(information, information.T, atol=1e-8)
    assert np.linalg.eigvalsh(information).min() > -1e-8 * np.abs(information).max()
