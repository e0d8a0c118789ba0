"""Composed kernels in a field model, against Gaussian process regression by the book."""

import numpy as np
import pandas as pd
import pytest

import invgp
from invgp.kernels import Constant, Linear, Matern52, White
from invgp.maps.predict import predict

X = np.arange(0.0, 101.0, 4.0)
KERNELS = {
    "trend": (Constant(0.3) + Linear(0.3, 50.0, 50.0) + Matern52(0.4, 20.0)).with_variance(1.0),
    "smooth": Matern52(0.95, 35.0) + White(0.05),
}
WEIGHTS = np.random.default_rng(3).uniform(0.0, 1.0, (12, 2 * len(X))) / np.sqrt(len(X))


def weighted_sum(trend, smooth):
    """All data are weighted sums of both fields."""
    return {"g": np.concatenate([trend, smooth], axis=-1) @ WEIGHTS.T}


@pytest.mark.slow
def test_that_a_field_with_composed_kernels_is_exact_and_is_predicted_from_its_file():
    rng = np.random.default_rng(0)
    prior = np.zeros((2 * len(X),) * 2)
    for j, kernel in enumerate(KERNELS.values()):
        own = slice(len(X) * j, len(X) * (j + 1))
        prior[own, own] = kernel(X[:, None], X[:, None])
    truth = np.linalg.cholesky(prior + 1e-9 * np.eye(len(prior))) @ rng.standard_normal(len(prior))
    y = WEIGHTS @ truth + 0.05 * rng.standard_normal(12)
    problem = invgp.define(
        data=pd.DataFrame({"x": np.linspace(0.0, 100.0, 12), "g": y}),
        coordinates={"x": "m"},
        observations={"g": "1"},
        grid={"x": {"unit": "m", "start": 0.0, "stop": 100.0, "step": 4.0}},
        latents={name: {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": kernel} for name, kernel in KERNELS.items()},
        forward=weighted_sum,
        noise={"g": 0.05},
        inference={"kept_variance": 0.9999, "max_runs": 400},
    )
    found = invgp.invert(problem)
    K = WEIGHTS @ prior @ WEIGHTS.T + 0.05**2 * np.eye(12)
    gain = prior @ WEIGHTS.T @ np.linalg.inv(K)
    mean, std = gain @ y, np.sqrt(np.diag(prior - gain @ WEIGHTS @ prior))
    for j, name in enumerate(KERNELS):
        own = slice(len(X) * j, len(X) * (j + 1))
        np.testing.assert_allclose((found[name] - mean[own]) / std[own], 0.0, atol=0.05)
        np.testing.assert_allclose(found[f"{name}_std"] / std[own], 1.0, atol=0.05)
    scale = np.sqrt(KERNELS["trend"].diagonal(X[:, None]))
    np.testing.assert_allclose(found["trend_prior_std"], scale, rtol=1e-12)
    on_map = predict(found, grid="x=0:100:4")
    for name in KERNELS:
        np.testing.assert_allclose(on_map[name], found[name], atol=0.05)
        np.testing.assert_allclose(on_map[f"{name}_std"], found[f"{name}_std"], rtol=0.05)
