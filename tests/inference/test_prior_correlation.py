"""Prior correlations between latents and between labels, against closed forms."""

from pathlib import Path

import numpy as np
import pytest

import invgp
from helpers.linear_priors import SLOPES, assert_same_posterior, condition, matern52, site_problem
from invgp.errors import ConfigError

LENGTH, NOISE = 250.0, 1.5
RNG = np.random.default_rng(11)
X = np.sort(RNG.uniform(0.0, 1000.0, 18))[:, None]
POINTS = np.asarray([[30.0], [480.0], [1100.0]])
DATA = 12.0 + 2.0 * RNG.standard_normal(18)
KERNEL = {"kind": "matern 5/2", "length_scale": LENGTH}
NAMES = ("density", "velocity")
MEAN, STD, RHO = np.asarray([10.0, 4.0]), np.asarray([3.0, 2.0]), 0.8


def two_latents(**second):
    return {
        "density": {"unit": "1", "mean": 10, "std": 3, "kernel": KERNEL},
        "velocity": {"unit": "1", "mean": 4, "std": 2, "kernel": KERNEL, "correlated_with": {"density": RHO}} | second,
    }


def closed_form(rho=RHO):
    """Moments of both latents at the sites, then at the points: (2, 21) each."""
    everywhere = np.concatenate([X, POINTS])
    n = len(everywhere)
    between = np.asarray([[1.0, rho], [rho, 1.0]]) * STD[:, None] * STD
    covariance = np.kron(between, matern52(everywhere, everywhere, LENGTH))
    rows = np.kron(np.asarray([SLOPES]), np.eye(len(X), n))
    mean, spread = condition(np.repeat(MEAN, n), covariance, rows, DATA, NOISE)
    return mean.reshape(2, n), np.sqrt(np.diag(spread)).reshape(2, n)


def predict_points(posterior, **keys):
    path = Path("points.csv")
    path.write_text("x\n" + "\n".join(str(x) for x in POINTS[:, 0]), encoding="utf-8")
    return invgp.predict(posterior, path, **keys)


def test_that_correlated_latents_have_the_closed_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    posterior = invgp.invert(site_problem(X, DATA, two_latents(), NOISE), seed=0)
    posterior.to_netcdf("posterior.nc")
    mean, std = closed_form()
    found = predict_points("posterior.nc", draws=2000, derive=["total = density + velocity"])
    N = len(X)
    for j, name in enumerate(NAMES):
        assert_same_posterior(posterior, name, mean[j, :N], std[j, :N])
        assert_same_posterior(found, name, mean[j, N:], std[j, N:])
        np.testing.assert_allclose(posterior[f"{name}_prior"], MEAN[j])
        np.testing.assert_allclose(found[f"{name}_prior_std"], STD[j])
    draws = np.stack([found[f"{name}_sample"].values for name in NAMES])
    far = [np.corrcoef(draws[:, :, k])[0, 1] for k in range(3)]
    total = draws.sum(axis=0)
    np.testing.assert_allclose(total.std(axis=0) / found["total_std"], 1.0, atol=0.08)
    assert far[-1] > 0.3  # beyond the data the prior correlation remains
    # Without the correlation the answer is another one.
    assert np.max(np.abs(closed_form(0.0)[0] - mean) / std) > 0.5


@pytest.mark.slow
def test_that_draws_from_the_exact_posterior_have_the_correlation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = site_problem(X, DATA, two_latents(), NOISE, inference={"posterior": "sampled"})
    posterior = invgp.invert(problem, seed=0)
    mean, std = closed_form()
    N = len(X)
    found = predict_points(posterior, derive=["total = density + velocity"])
    for j, name in enumerate(NAMES):
        assert_same_posterior(posterior, name, mean[j, :N], std[j, :N], 0.1)
        assert_same_posterior(found, name, mean[j, N:], std[j, N:], 0.1)
    exact = invgp.invert(site_problem(X, DATA, two_latents(), NOISE), seed=0)
    total = predict_points(exact, derive=["total = density + velocity"])
    np.testing.assert_allclose(found["total_std"] / total["total_std"], 1.0, atol=0.1)


def test_that_neighbouring_labels_can_be_correlated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    latents = {
        "depth": {"unit": "m", "mean": [10, 4], "std": [3, 2], "kernel": KERNEL, "dimension": "layer"}
        | {"label_correlation": RHO}
    }
    problem = site_problem(X, DATA, latents, NOISE, dimensions={"layer": [1, 2]})
    posterior = invgp.invert(problem, seed=0)
    mean, std = closed_form()
    N = len(X)
    assert_same_posterior(posterior, "depth", mean[:, :N].T.ravel(), std[:, :N].T.ravel())
    assert_same_posterior(predict_points(posterior), "depth", mean[:, N:].T.ravel(), std[:, N:].T.ravel())


@pytest.mark.slow
def test_that_a_field_model_has_correlated_latents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.linspace(0.0, 1000.0, 26)
    rows = np.exp(-0.5 * ((np.linspace(50.0, 950.0, 9)[:, None] - x) / 80.0) ** 2)
    rows /= rows.sum(axis=1, keepdims=True)
    y = 12.0 + np.random.default_rng(2).standard_normal(9)
    problem = invgp.define(
        {"s": np.linspace(50.0, 950.0, 9), "data": y},
        coordinates={"s": "m"},
        observations={"data": "1"},
        grid={"x": {"unit": "m", "start": 0, "stop": 1000, "step": 40}},
        latents=two_latents(),
        forward=lambda density, velocity: (SLOPES[0] * density + SLOPES[1] * velocity) @ rows.T,
        noise={"data": 0.5},
        direct={
            "well": {"coordinates": {"x": 400.0}, "values": {"log": {"quantity": "velocity", "value": 5, "std": 1}}}
        },
        inference={"kept_variance": 0.9999999, "posterior": "coupled gaussian"},
    )
    covariance = np.kron(
        np.asarray([[1.0, RHO], [RHO, 1.0]]) * STD[:, None] * STD, matern52(x[:, None], x[:, None], LENGTH)
    )
    H = np.concatenate([SLOPES[0] * rows, SLOPES[1] * rows], axis=1)
    well = np.zeros((1, 52))
    well[0, 26 + 10] = 1.0
    mean, spread = condition(
        np.repeat(MEAN, 26), covariance, np.concatenate([H, well]), np.append(y, 5.0), np.append(np.full(9, 0.5), 1.0)
    )
    posterior = invgp.invert(problem, seed=0)
    for j, name in enumerate(NAMES):
        part = slice(26 * j, 26 * (j + 1))
        assert_same_posterior(posterior, name, mean[part], np.sqrt(np.diag(spread))[part], 2e-3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"correlated_with": {"porosity": 0.5}}, "latents.velocity.correlated_with: must be other latents, 'density'"),
        ({"correlated_with": {"density": 1.5}}, "must be a number between -1 and 1"),
        ({"kernel": {"length_scale": 10}}, "latents.velocity.correlated_with.density: must have the kernel of"),
        ({"learn": {"std": 2}}, "latents.velocity.learn: must be left out for latents that are correlated"),
        ({"label_correlation": 0.5}, "latents.velocity.label_correlation: must be left out without a dimension"),
    ],
)
def test_that_impossible_correlations_are_reported_in_one_sentence(keys, message):
    with pytest.raises(ConfigError) as error:
        site_problem(X, DATA, two_latents(**keys), NOISE)
    assert message in str(error.value)
    assert len(error.value.sentences) == 1
