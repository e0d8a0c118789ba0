"""Direct data in field models, against the closed form."""

import numpy as np
import pytest

import invgp
from invgp.errors import ConfigError

NODES = np.linspace(0.0, 2000.0, 41)
PLACES = np.asarray([410.0, 1330.0])
LENGTH, STD, MEAN = 350.0, 20.0, 100.0
WINDOWS = np.exp(-0.5 * ((np.linspace(0.0, 2000.0, 12)[:, None] - NODES) / 150.0) ** 2)
WINDOWS /= WINDOWS.sum(axis=1, keepdims=True)
DATA = 100.0 + 15.0 * np.sin(np.linspace(0.0, 2000.0, 12) / 300.0)
INTERVAL = (600.0, 900.0)


def averages(depth):
    return depth @ WINDOWS.T


def problem(direct, latent=None, **inference):
    return invgp.define(
        {"s": np.linspace(0.0, 2000.0, 12), "y": DATA},
        coordinates={"s": "m"},
        observations={"y": "m"},
        latents={"depth": {"unit": "m", "mean": MEAN, "std": STD, "kernel": {"length_scale": LENGTH}} | (latent or {})},
        forward=averages,
        grid={"x": {"unit": "m", "start": 0.0, "stop": 2000.0, "step": 50.0}},
        noise={"y": 2.0},
        direct=direct,
        inference={"max_runs": 200, **inference},
    )


DIRECT = {
    "wells": {
        "coordinates": {"x": PLACES},
        "values": {"top": {"quantity": "depth", "value": [112.0, 90.0], "std": 3.0}},
    },
    "log": {
        "coordinates": {"x": {"start": INTERVAL[0], "stop": INTERVAL[1]}},
        "values": {"twice": {"quantity": "2 * depth", "value": 190.0, "std": 4.0}},
    },
}


def closed_form():
    nodes, shares = np.polynomial.legendre.leggauss(30)
    middle, half = np.mean(INTERVAL), 0.5 * np.ptp(INTERVAL)
    X = np.concatenate([NODES, PLACES, middle + half * nodes])
    K = STD**2 * np.exp(-0.5 * ((X[:, None] - X) / LENGTH) ** 2)
    H = np.zeros((15, len(X)))
    H[:12, :41] = WINDOWS
    H[[12, 13], [41, 42]] = 1.0
    H[14, 43:] = shares  # twice the average
    R = np.diag(np.square([2.0] * 12 + [3.0, 3.0, 4.0]))
    y = np.concatenate([DATA, [112.0, 90.0, 190.0]]) - H @ np.full(len(X), MEAN)
    gain = np.linalg.solve(H @ K @ H.T + R, H @ K).T
    covariance = K - gain @ H @ K
    return MEAN + (gain @ y)[:41], np.sqrt(np.diagonal(covariance))[:41]


@pytest.mark.parametrize("posterior", ["coupled gaussian", "sampled"])
def test_that_linear_field_models_with_direct_data_have_the_closed_form(posterior):
    mean, std = closed_form()
    found = invgp.invert(problem(DIRECT, posterior=posterior, kept_variance=1.0 - 1e-9))
    np.testing.assert_allclose(found["depth"], mean, atol=0.02)
    np.testing.assert_allclose(found["depth_std"], std, rtol=0.02)


def test_that_direct_data_alone_determine_the_field_as_in_the_closed_form():
    """With data that contain nothing, only the direct data act: exactly, because they need no regression."""
    flat = problem(DIRECT, kept_variance=1.0 - 1e-9)
    from dataclasses import replace  # noqa: PLC0415

    noise = replace(flat.noise, std={"y": np.full((12, 1), 1e9)})
    found = invgp.invert(replace(flat, noise=noise))
    nodes, shares = np.polynomial.legendre.leggauss(30)
    X = np.concatenate([NODES, PLACES, 750.0 + 150.0 * nodes])
    K = STD**2 * np.exp(-0.5 * ((X[:, None] - X) / LENGTH) ** 2)
    H = np.zeros((3, len(X)))
    H[[0, 1], [41, 42]] = 1.0
    H[2, 43:] = shares
    y = np.asarray([12.0, -10.0, -10.0])
    gain = np.linalg.solve(H @ K @ H.T + np.diag([9.0, 9.0, 16.0]), H @ K).T
    std = np.sqrt(np.diagonal(K - gain @ H @ K))[:41]
    np.testing.assert_allclose(found["depth"], MEAN + (gain @ y)[:41], atol=1e-4)
    np.testing.assert_allclose(found["depth_std"], std, rtol=1e-5)


def test_that_the_fit_of_direct_data_is_in_the_file():
    found = invgp.invert(problem(DIRECT))
    np.testing.assert_allclose(found["top_observed"], [112.0, 90.0])
    np.testing.assert_allclose(found["wells_x"], PLACES)
    assert (np.abs(found["top_residual"]) < 3.0 * 3.0).all()
    assert (found["top_predicted_std"] < 3.0).all()


@pytest.mark.parametrize(
    ("direct", "keys", "sentence"),
    [
        (
            {},
            {"latent": {"link": "log"}},
            "direct.wells.values.top.quantity: must be a linear function of latents with",
        ),
        ({}, {"latent": {"learn": {"std": True}}}, "latents.depth.learn: must be left out in a field model with"),
        ({}, {"localisation": 500.0}, "inference.localisation: must be left out"),
    ],
)
def test_that_limits_are_reported(direct, keys, sentence):
    with pytest.raises(ConfigError, match=sentence.replace(".", r"\.")):
        problem({"wells": DIRECT["wells"]} | direct, **keys)
