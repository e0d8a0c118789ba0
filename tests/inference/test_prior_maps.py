"""Priors from maps, and trends, against closed forms."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.interpolate import RegularGridInterpolator

import invgp
from helpers.linear_priors import assert_same_posterior, condition, matern52, site_problem
from invgp.maps import joint_draws

LENGTH = 300.0
NOISE = 2.0
RNG = np.random.default_rng(7)
X = RNG.uniform(0.0, 1000.0, (25, 2))
POINTS = RNG.uniform(0.0, 1000.0, (40, 2))
DATA = 100.0 + 0.05 * X[:, 0] + 3.0 * RNG.standard_normal(25)
AXES = np.linspace(-50.0, 1050.0, 12), np.linspace(-60.0, 1040.0, 9)
MEAN = 100.0 + 0.04 * AXES[0][:, None] + 10.0 * np.sin(AXES[1] / 200.0)
STD = 5.0 + 0.01 * AXES[0][:, None] + 0.002 * AXES[1]


def write_map(path, values, name="value"):
    """Write a map on AXES."""
    if path.suffix == ".csv":
        rows = [f"{x},{y},{float(values[i, j])!r}" for i, x in enumerate(AXES[0]) for j, y in enumerate(AXES[1])]
        path.write_text("\n".join([f"x,y,{name}", *rows]), encoding="utf-8")
    else:
        # Rows from north to south, as in most files.
        about = {"x": ("x", AXES[0], {"units": "m"}), "y": ("y", AXES[1][::-1], {"units": "m"})}
        xr.Dataset({name: (("y", "x"), values[:, ::-1].T)}, about).to_netcdf(path)


def write_points(points):
    """Write the points of a map to a file in the working directory."""
    path = Path("points.csv")
    path.write_text("x,y\n" + "\n".join(f"{float(x)!r},{float(y)!r}" for x, y in points), encoding="utf-8")
    return path


def at(values, points):
    return RegularGridInterpolator(AXES, values)(points)


def closed_form(mean, covariance):
    """Posterior moments at the sites and points, from prior moments at them."""
    rows = np.eye(len(X), len(mean))
    found, spread = condition(mean, covariance, rows, DATA, NOISE)
    return found, np.sqrt(np.diag(spread))


def check(problem, mean, covariance, tolerance=1e-6):
    """Compare the posterior at the sites, and the map at POINTS, with the closed form."""
    posterior = invgp.invert(problem, seed=0)
    wanted_mean, wanted_std = closed_form(mean, covariance)
    N = len(X)
    assert_same_posterior(posterior, "depth", wanted_mean[:N], wanted_std[:N], tolerance)
    np.testing.assert_allclose(posterior["depth_prior"], mean[:N], rtol=1e-9)
    np.testing.assert_allclose(posterior["depth_prior_std"], np.sqrt(np.diag(covariance))[:N], rtol=1e-9)
    found = invgp.predict(posterior, write_points(POINTS), draws=400, seed=1)
    assert_same_posterior(found, "depth", wanted_mean[N:], wanted_std[N:], tolerance)
    np.testing.assert_allclose(found["depth_prior"], mean[N:], rtol=1e-9)
    np.testing.assert_allclose(found["depth_prior_std"], np.sqrt(np.diag(covariance))[N:], rtol=1e-9)
    draws = (found["depth_sample"].mean("realization") - wanted_mean[N:]) / wanted_std[N:]
    np.testing.assert_allclose(draws, 0.0, atol=4.5 / np.sqrt(400))
    return posterior


def latent(**keys):
    return {"depth": {"unit": "m", "kernel": {"kind": "matern 5/2", "length_scale": LENGTH}} | keys}


@pytest.mark.parametrize("suffix", [".csv", ".nc"])
def test_that_mean_and_std_from_maps_give_the_closed_form(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    write_map(tmp_path / f"mean{suffix}", MEAN)
    write_map(tmp_path / f"std{suffix}", STD)
    everywhere = np.concatenate([X, POINTS])
    std = at(STD, everywhere)
    covariance = std[:, None] * matern52(everywhere, everywhere, LENGTH) * std
    problem = site_problem(X, DATA, latent(mean=f"mean{suffix}", std=f"std{suffix}"), NOISE)
    check(problem, at(MEAN, everywhere), covariance)


def test_that_a_prior_map_is_in_the_posterior_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_map(tmp_path / "mean.csv", MEAN)
    posterior = invgp.invert(site_problem(X, DATA, latent(mean="mean.csv", std=4), NOISE), seed=0)
    posterior.to_netcdf(tmp_path / "posterior.nc")
    points = write_points(POINTS)
    (tmp_path / "mean.csv").unlink()
    xr.testing.assert_allclose(
        invgp.predict(posterior, points)["depth"], invgp.predict(tmp_path / "posterior.nc", points)["depth"]
    )
    outside = invgp.predict(posterior, write_points(np.asarray([[500.0, 500.0], [5000.0, 500.0]])))
    assert np.isfinite(outside["depth"].values).tolist() == [True, False]


def test_that_a_trend_is_universal_kriging(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_map(tmp_path / "gravity.csv", MEAN)
    everywhere = np.concatenate([X, POINTS])
    low, high = X.min(axis=0), X.max(axis=0)
    g = at(MEAN, X)
    terms = np.stack(
        [
            np.ones(len(everywhere)),
            (everywhere[:, 0] - 0.5 * (low[0] + high[0])) / (0.5 * (high[0] - low[0])),
            (at(MEAN, everywhere) - 0.5 * (g.min() + g.max())) / (0.5 * (g.max() - g.min())),
        ],
        axis=-1,
    )
    covariance = 4.0**2 * (matern52(everywhere, everywhere, LENGTH) + 20.0**2 * terms @ terms.T)
    keys = {"mean": 90, "std": 4, "trend": ["x", "gravity.csv"], "trend_std": 20}
    check(site_problem(X, DATA, latent(**keys), NOISE), np.full(len(everywhere), 90.0), covariance, 2e-6)
    # With wide coefficients it is the generalised least-squares estimate, whatever the prior mean.
    wide = {**keys, "trend_std": 1000}
    posterior = invgp.invert(site_problem(X, DATA, latent(**wide), NOISE), seed=0)
    K = 16.0 * matern52(X, X, LENGTH)
    G, T = K + NOISE**2 * np.eye(len(X)), terms[: len(X)]
    beta = np.linalg.solve(T.T @ np.linalg.solve(G, T), T.T @ np.linalg.solve(G, DATA))
    kriged = T @ beta + K @ np.linalg.solve(G, DATA - T @ beta)
    np.testing.assert_allclose(posterior["depth"], kriged, rtol=1e-4)


@pytest.mark.slow
def test_that_a_sparse_prior_with_maps_and_all_inducing_points_is_dense(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_map(tmp_path / "mean.csv", MEAN)
    write_map(tmp_path / "std.csv", STD)
    keys = {"mean": "mean.csv", "std": "std.csv", "trend": ["y"]}
    dense = invgp.invert(site_problem(X, DATA, latent(**keys), NOISE), seed=0)
    sparse = invgp.invert(
        site_problem(X, DATA, latent(**keys), NOISE, inference={"posterior": "coupled gaussian", "inducing": 24}),
        seed=0,
    )
    assert "x_inducing" in sparse
    difference = (sparse["depth"] - dense["depth"]) / dense["depth_std"]
    assert float(np.abs(difference).max()) < 0.35
    batched = invgp.invert(
        site_problem(X, DATA, latent(**keys), NOISE, inference={"posterior": "coupled gaussian", "batch": 10}), seed=0
    )
    np.testing.assert_allclose((batched["depth"] - dense["depth"]) / dense["depth_std"], 0.0, atol=0.01)


@pytest.mark.slow
def test_that_draws_by_sums_of_waves_have_the_prior_of_the_maps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(joint_draws, "DENSE_POINTS", 0)
    write_map(tmp_path / "mean.csv", MEAN)
    write_map(tmp_path / "std.csv", STD)
    keys = {"mean": "mean.csv", "std": "std.csv", "trend": ["y"], "trend_std": 2}
    posterior = invgp.invert(site_problem(X, DATA, latent(**keys), NOISE), seed=0)
    found = invgp.predict(posterior, write_points(POINTS), draws=500, seed=1)
    assert found.attrs["invgp_map_draws"] == "sums of waves"
    shift = (found["depth_sample"].mean("realization") - found["depth"]) / found["depth_std"]
    np.testing.assert_allclose(shift, 0.0, atol=4.5 / np.sqrt(500))
    np.testing.assert_allclose(found["depth_sample"].std("realization") / found["depth_std"], 1.0, atol=0.2)


def field_problem(**keys):
    """A field model: data are averages of the field over windows of a line."""
    x = np.linspace(0.0, 1000.0, 41)
    rows = np.exp(-0.5 * ((np.linspace(50.0, 950.0, 12)[:, None] - x) / 60.0) ** 2)
    rows /= rows.sum(axis=1, keepdims=True)
    y = rows @ (100.0 + 0.03 * x + 8.0 * np.sin(x / 150.0))
    problem = invgp.define(
        {"s": np.linspace(50.0, 950.0, 12), "data": y},
        coordinates={"s": "m"},
        observations={"data": "1"},
        grid={"x": {"unit": "m", "start": 0, "stop": 1000, "step": 25}},
        latents=latent(**keys),
        forward=lambda depth: depth @ rows.T,
        noise={"data": 1.0},
        inference={"kept_variance": 0.9999999, "posterior": "coupled gaussian"},
    )
    return problem, x, rows, y


@pytest.mark.slow
def test_that_a_field_model_takes_maps_and_trends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nodes = np.linspace(-100.0, 1100.0, 7)
    mean, std = 100.0 + 0.05 * nodes, 5.0 + 0.004 * nodes
    for name, values in (("mean", mean), ("std", std)):
        rows = "\n".join(f"{float(x)!r},{float(v)!r}" for x, v in zip(nodes, values, strict=True))
        (tmp_path / f"{name}.csv").write_text(f"x,{name}\n{rows}", encoding="utf-8")
    problem, x, rows, y = field_problem(mean="mean.csv", std="std.csv", trend=["x"], trend_std=3)
    nominal = np.sqrt(np.mean((5.0 + 0.004 * x) ** 2))
    between = np.asarray([12.0, 333.0, 790.0])
    everywhere = np.concatenate([x, between])
    spread, terms = 5.0 + 0.004 * everywhere, np.stack([np.ones(44), (everywhere - 500.0) / 500.0], axis=-1)
    covariance = spread[:, None] * matern52(everywhere[:, None], everywhere[:, None], LENGTH) * spread
    covariance = covariance + (3.0 * nominal) ** 2 * terms @ terms.T
    H = np.concatenate([rows, np.zeros((12, 3))], axis=1)
    wanted, posterior_covariance = condition(100.0 + 0.05 * everywhere, covariance, H, y, 1.0)
    wanted_std = np.sqrt(np.diag(posterior_covariance))
    posterior = invgp.invert(problem, seed=0)
    assert_same_posterior(posterior, "depth", wanted[:41], wanted_std[:41], 2e-3)
    Path("points.csv").write_text("x\n12\n333\n790", encoding="utf-8")
    found = invgp.predict(posterior, "points.csv")
    assert_same_posterior(found, "depth", wanted[41:], wanted_std[41:], 2e-3)
    np.testing.assert_allclose(found["depth_prior"], 100.0 + 0.05 * between)


def test_that_a_kernel_along_the_strike_has_the_closed_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kernel = {"kind": "matern 5/2", "length_scale": [900.0, 150.0], "angle": 35.0}
    problem = site_problem(X, DATA, latent(mean=100, std=6, kernel=kernel), NOISE)
    a, everywhere = np.radians(35.0), np.concatenate([X, POINTS])
    turned = everywhere @ np.asarray([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    covariance = 36.0 * matern52(turned, turned, np.asarray([900.0, 150.0]))
    posterior = check(problem, np.full(len(everywhere), 100.0), covariance)
    monkeypatch.setattr(joint_draws, "DENSE_POINTS", 0)
    found = invgp.predict(posterior, grid="x=0:1000:250,y=0:1000:250", draws=300, seed=2)
    shift = (found["depth_sample"].mean("realization") - found["depth"]) / found["depth_std"]
    assert found.attrs["invgp_map_draws"] == "sums of waves"
    np.testing.assert_allclose(shift, 0.0, atol=4.5 / np.sqrt(300))
    np.testing.assert_allclose(found["depth_sample"].std("realization") / found["depth_std"], 1.0, atol=0.25)
