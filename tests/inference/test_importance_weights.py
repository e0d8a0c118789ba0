"""Importance weights that are smoothed by a Pareto distribution."""

import numpy as np
import pytest

from invgp.inference.importance_draws import smooth_weights


@pytest.mark.parametrize("width", [0.7, 1.2])
def test_that_smoothed_weights_give_the_moments_of_the_target(width):
    z = np.random.default_rng(1).standard_normal(20_000)
    log_weights = 0.5 * z**2 - 0.5 * (z / width) ** 2
    smoothed, k_hat = smooth_weights(log_weights)
    weights = np.exp(smoothed)
    assert k_hat < 0.7
    assert np.corrcoef(smoothed, log_weights)[0, 1] > 0.99
    assert np.sum(weights * z**2) / np.sum(weights) == pytest.approx(width**2, rel=0.05)
