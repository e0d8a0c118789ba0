"""Posteriors averaged over learnt hyperparameters, against sums over a grid of them."""

import numpy as np
import pytest

import invgp

SITES = 8
X = np.linspace(0.0, 4.0, SITES)
LENGTH, STD, NOISE, FACTOR = 1.0, 1.0, 0.3, 2.0


def double(a):
    return 2.0 * a


def correlation(x, scale):
    r = np.sqrt(5.0) * np.abs(x[:, None] - x) / scale
    return (1.0 + r + r**2 / 3.0) * np.exp(-r)


def problem(y, learn, noise=None, **inference):
    return invgp.define(
        {"x": X, "y": y},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={
            "a": {
                "unit": "m",
                "mean": 0.5,
                "std": STD,
                "kernel": {"kind": "matern 5/2", "length_scale": LENGTH},
                "learn": learn,
            }
        },
        noise={"std": {"y": NOISE}, "learn": noise or {}},
        forward=double,
        inference={"posterior": "sampled", **inference},
    )


def data(seed):
    rng = np.random.default_rng(seed)
    f = np.linalg.cholesky(STD**2 * correlation(X, 1.5 * LENGTH)) @ rng.standard_normal(SITES)
    return 2.0 * (0.5 + f) + 1.4 * NOISE * rng.standard_normal(SITES)


def exact_moments(y, at=X, *, noise=False):
    """Moments at points, of the log hyperparameters, and the log evidence, averaged over length-scale and std."""
    axis = np.log(FACTOR) * np.linspace(-5.0, 5.0, 41)
    grid = np.stack(np.meshgrid(axis, axis, axis if noise else [0.0], indexing="ij"), axis=-1).reshape(-1, 3)
    logs, means, variances = [], [], []
    both = np.concatenate([X, at])
    for scale, std, level in np.exp(grid):
        prior = (STD * std) ** 2 * correlation(both, LENGTH * scale)
        within, across = prior[:SITES, :SITES], prior[:SITES, SITES:]
        covariance = 4.0 * within + (NOISE * level) ** 2 * np.eye(SITES)
        weights = np.linalg.solve(covariance, 2.0 * across)
        residual = y - 1.0
        logs.append(-0.5 * residual @ np.linalg.solve(covariance, residual))
        logs[-1] -= 0.5 * np.linalg.slogdet(2.0 * np.pi * covariance)[1]
        means.append(0.5 + residual @ weights)
        variances.append(np.diag(prior)[SITES:] - np.sum(2.0 * across * weights, axis=0))
    log_prior = -0.5 * np.sum((grid / np.log(FACTOR)) ** 2, axis=1)
    logs = np.asarray(logs) + log_prior
    shares = np.exp(logs - logs.max())
    evidence = logs.max() + np.log(shares.sum() / np.exp(log_prior).sum())
    shares /= shares.sum()
    mean = shares @ means
    std = np.sqrt(shares @ (np.asarray(variances) + np.square(means)) - mean**2)
    theta = shares @ grid
    return mean, std, theta, np.sqrt(shares @ grid**2 - theta**2), evidence


@pytest.fixture(scope="module")
def averaged_posterior():
    return invgp.invert(problem(data(1), {"length_scale": FACTOR, "std": FACTOR}))


def test_that_the_posterior_of_a_linear_simulator_is_the_average_over_its_hyperparameters(averaged_posterior):
    mean, std, theta, spread, evidence = exact_moments(data(1))
    assert np.abs((averaged_posterior["a"].values - mean) / std).max() < 0.12
    assert np.median(averaged_posterior["a_std"].values / std) == pytest.approx(1.0, abs=0.03)
    np.testing.assert_allclose(averaged_posterior["a_std"].values / std, 1.0, atol=0.1)
    drawn = np.log(
        np.stack(
            [averaged_posterior["a_length_scale_x_sample"] / LENGTH, averaged_posterior["a_std_factor_sample"]], axis=-1
        )
    )
    assert np.abs((drawn.mean(axis=0) - theta[:2]) / spread[:2]).max() < 0.15
    np.testing.assert_allclose(drawn.std(axis=0), spread[:2], rtol=0.12)
    if "invgp_log_evidence" in averaged_posterior.attrs:
        assert averaged_posterior.attrs["invgp_log_evidence"] == pytest.approx(evidence, abs=0.15)
    point = invgp.invert(
        problem(data(1), {"length_scale": FACTOR, "std": FACTOR}).with_inference(posterior="coupled gaussian")
    )
    assert np.median(point["a_std"].values / std) < 0.97  # what the average is for


def test_that_the_file_describes_the_hyperparameters_with_their_prior(averaged_posterior):
    assert averaged_posterior.attrs["invgp_hyperparameters"].split() == ["a_length_scale_x", "a_std_factor"]
    assert "averaged over" in averaged_posterior.attrs["invgp_draws"]
    scale, factor = averaged_posterior["a_length_scale_x_sample"], averaged_posterior["a_std_factor_sample"]
    assert scale.dims == factor.dims == ("draw",)
    assert averaged_posterior.sizes["draw"] == averaged_posterior["whitened_sample"].sizes["draw"]
    assert scale.attrs["units"] == "km"
    assert (scale.attrs["prior_median"], scale.attrs["prior_factor"]) == (LENGTH, FACTOR)
    assert scale.attrs["most_probable"] == pytest.approx(averaged_posterior["a"].attrs["length_scale"])
    assert factor.attrs["process_std"] == STD


@pytest.mark.slow
def test_that_learnt_noise_is_averaged_too():
    found = invgp.invert(problem(data(2), {"length_scale": FACTOR, "std": FACTOR}, {"y": FACTOR}))
    mean, std, theta, spread, _ = exact_moments(data(2), noise=True)
    assert np.abs((found["a"].values - mean) / std).max() < 0.15
    assert np.median(found["a_std"].values / std) == pytest.approx(1.0, abs=0.04)
    drawn = np.log(found["y_noise_factor_sample"].values)
    assert drawn.mean() == pytest.approx(theta[2], abs=0.15 * spread[2])
    assert drawn.std() == pytest.approx(spread[2], rel=0.12)


def test_that_a_map_uses_the_hyperparameters_of_each_draw(averaged_posterior, tmp_path):
    """Between the sites and far from them, where the spread is that of the prior averaged over its factor."""
    file = tmp_path / "posterior.nc"
    invgp.write(averaged_posterior, file)
    with invgp.open_posterior(file) as stored:
        there = invgp.predict(stored, grid="x=0.3:30.3:3", draws=50)
    points = there["x"].values
    mean, std, *_ = exact_moments(data(1), points)
    np.testing.assert_allclose(there["a"].values, mean, atol=0.15 * std.max())
    np.testing.assert_allclose(there["a_std"].values, std, rtol=0.12)
    draws = there["a_sample"].values
    assert draws.shape == (50, len(points))
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.5)


@pytest.mark.slow
def test_that_inducing_points_and_a_nonlinear_simulator_can_be_averaged():
    """With an inducing point at every second site, and a length-scale that they resolve."""

    def exponential(a):
        return np.exp(0.3 * a)

    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 4.0, 24)
    y = np.exp(0.3 * np.sin(x)) + 0.05 * rng.standard_normal(24)
    settings = {
        "coordinates": {"x": "km"},
        "observations": {"y": {"unit": "1"}},
        "latents": {
            "a": {"unit": "m", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 1.5}, "learn": {"length_scale": 1.5}}
        },
        "noise": {"std": {"y": 0.05}},
        "forward": exponential,
    }
    dense, sparse = (
        invgp.invert(invgp.define({"x": x, "y": y}, **settings, inference={"posterior": "sampled", **inference}))
        for inference in ({}, {"inducing": 12})
    )
    ratio = sparse["a_std"] / dense["a_std"]
    assert float(np.median(ratio)) == pytest.approx(1.0, abs=0.05)
    assert float(abs((sparse["a"] - dense["a"]) / dense["a_std"]).max()) < 0.4
    scales = [float(one["a_length_scale_x_sample"].mean()) for one in (sparse, dense)]
    assert scales[0] == pytest.approx(scales[1], rel=0.1)
