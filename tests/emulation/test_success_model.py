"""The probability that a run succeeds, from the runs that failed."""

import numpy as np
import pytest

from invgp.emulation.success_model import fit_success


def test_that_a_limit_of_the_simulator_is_found():
    x = np.random.default_rng(0).standard_normal((200, 3))
    model = fit_success(x, x[:, 0] + x[:, 1] < 0.5)
    assert model is not None
    at = np.array([[0.0, 0.0, 0.0], [-1.0, 1.0, 2.0], [1.0, 0.5, 0.0], [0.6, 0.6, -2.0]])
    probability = np.exp(model.log_probability(at)[0])
    np.testing.assert_array_less(0.95, probability[:2])
    np.testing.assert_array_less(probability[2:], 0.05)


def test_that_a_region_between_two_limits_is_found():
    x = np.random.default_rng(0).standard_normal((300, 1))
    model = fit_success(x, np.abs(x[:, 0]) < 1.0)
    assert model is not None
    np.testing.assert_allclose(np.exp(model.log_probability(np.array([[-2.0], [0.0], [2.0]]))[0]), [0, 1, 0], atol=0.02)


@pytest.mark.parametrize("seed", range(10))
def test_that_random_failures_are_left_alone(seed):
    rng = np.random.default_rng(seed)
    assert fit_success(rng.standard_normal((100, 4)), rng.random(100) < 0.8) is None


@pytest.mark.parametrize("failures", [0, 2, 98, 100])
def test_that_few_failures_or_successes_contain_nothing(failures):
    x = np.linspace(-1.0, 1.0, 100)[:, None]
    assert fit_success(x, np.arange(100) >= failures) is None


def test_that_the_gradient_is_that_of_the_value():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    model = fit_success(x, np.sum(x**2, axis=1) + x[:, 0] < 2.0)
    assert model is not None
    at, cotangents, step = rng.standard_normal((5, 2)), rng.standard_normal(5), 1e-6
    gradient = model.log_probability(at)[1](cotangents)
    for k in range(2):
        shift = step * np.eye(2)[k]
        ahead, behind = (model.log_probability(at + sign * shift)[0] for sign in (1.0, -1.0))
        np.testing.assert_allclose(gradient[:, k], cotangents * (ahead - behind) / (2.0 * step), rtol=1e-5, atol=1e-7)
