"""Composed kernels in an inversion, against Gaussian process regression by the book."""

import functools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import invgp
from helpers.exact_posterior import joint_posterior
from helpers.kernels import Sinc
from helpers.problems import linear_problem
from invgp import netcdf
from invgp.errors import ConfigError
from invgp.kernels import (
    Constant,
    Coregionalised,
    Linear,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    White,
)
from invgp.latent_model.inducing_points import JITTER
from invgp.maps import joint_draws, prior_functions
from invgp.maps.predict import predict

KERNELS = {
    "nugget": Matern52(0.8, [30.0, 40.0]) + White(0.2),
    "trend": SquaredExponential(0.5, 30.0) + Linear(0.4, [60.0, 60.0], [50.0, 50.0]) + Constant(0.1),
    "periodic": Periodic(1.0, 1.2, 45.0).on(0) * Matern32(1.0, 80.0),
    "rational quadratic": RationalQuadratic(1.0, [25.0, 35.0], 0.7),
    "own": Sinc(0.6, 20.0) * Matern52(1.0, [60.0, 60.0]) + White(0.4),
}
NEW = np.asarray([[20.0, 30.0], [50.0, 50.0], [120.0, 10.0], [64.0, 71.0]])


def composed_problem(name, **inference):
    """The linear problem whose first latent has a composed kernel."""
    problem = linear_problem(**inference)
    first = replace(problem.latents[0], kernel=KERNELS[name].with_variance(1.0))
    return replace(problem, latents=(first, problem.latents[1]))


@functools.cache
def invert_composed(name, **inference):
    return invgp.invert(composed_problem(name, **inference))


@pytest.mark.parametrize("name", KERNELS)
def test_that_the_posterior_at_the_sites_is_exact(name):
    problem, found = composed_problem(name), invert_composed(name)
    mean, covariance = joint_posterior(problem, problem.survey.X)
    for j, latent in enumerate(("velocity", "depth")):
        own = slice(15 * j, 15 * (j + 1))
        np.testing.assert_allclose(found[latent], mean[own], atol=1e-6)
        np.testing.assert_allclose(found[f"{latent}_std"], np.sqrt(np.diag(covariance)[own]), atol=1e-6)
    prior = 2.0 * np.sqrt(problem.latents[0].kernel.diagonal(problem.survey.X))
    np.testing.assert_allclose(found["velocity_prior_std"], prior, rtol=1e-12)
    np.testing.assert_allclose(found["velocity_information"], 1.0 - np.diag(covariance)[:15] / prior**2, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_that_a_map_from_the_file_is_exact(name, tmp_path):
    problem = composed_problem(name)
    dataset = netcdf.read(netcdf.write(invert_composed(name), tmp_path / "posterior.nc"))
    sites = problem.survey.X[:3]
    points = np.concatenate([NEW, sites])
    table = pd.DataFrame(points, columns=["easting", "northing"])
    table.to_csv(tmp_path / "points.csv", index=False)
    found = predict(dataset, tmp_path / "points.csv")
    mean, covariance = joint_posterior(problem, points)
    std = np.sqrt(np.diag(covariance))
    count = len(points)
    for j, latent in enumerate(("velocity", "depth")):
        own = slice(count * j, count * (j + 1))
        np.testing.assert_allclose(found[latent].values, mean[own], atol=1e-6)
        np.testing.assert_allclose(found[f"{latent}_std"].values, std[own], atol=2e-6)
    prior = 2.0 * np.sqrt(problem.latents[0].kernel.diagonal(points))
    np.testing.assert_allclose(found["velocity_prior_std"].values, prior, rtol=1e-12)


@pytest.mark.parametrize("name", ["nugget", "trend", "periodic"])
def test_that_the_posterior_with_inducing_points_is_that_of_the_book(name):
    problem, found = composed_problem(name, inducing=9), invert_composed(name, inducing=9)
    X, y = problem.survey.X, problem.survey.Y
    Z = np.stack([found[f"{c}_inducing"] for c in ("easting", "northing")], axis=-1)
    weights, conditional, covariances = [], [], []
    for j, latent in enumerate(problem.latents):
        K = latent.kernel(Z[j], Z[j])
        K = latent.std[0] ** 2 * (K + JITTER * np.diag(latent.kernel.diagonal(Z[j])))
        across = latent.std[0] ** 2 * latent.kernel(X, Z[j])
        weights.append(across @ np.linalg.inv(K))
        covariances.append(K)
        conditional.append(latent.std[0] ** 2 * latent.kernel.diagonal(X) - np.sum(weights[-1] * across, axis=1))
    A, K = scipy.linalg.block_diag(*weights), scipy.linalg.block_diag(*covariances)
    design = np.kron([[1.0, 0.5], [-0.3, 2.0]], np.eye(15)) @ A
    precision = np.repeat([1 / 0.49, 1 / 0.16], 15)
    residual = y.T.ravel() - np.kron([[1.0, 0.5], [-0.3, 2.0]], np.eye(15)) @ np.repeat([7.0, 6.0], 15)
    S = np.linalg.inv(np.linalg.inv(K) + design.T @ (precision[:, None] * design))
    mean = np.repeat([7.0, 6.0], 15) + A @ S @ design.T @ (precision * residual)
    variance = np.concatenate(conditional) + np.diag(A @ S @ A.T)
    for j, latent in enumerate(("velocity", "depth")):
        own = slice(15 * j, 15 * (j + 1))
        np.testing.assert_allclose(found[latent], mean[own], atol=1e-5)
        np.testing.assert_allclose(found[f"{latent}_std"], np.sqrt(variance[own]), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["nugget", "trend", "periodic", "rational quadratic"])
def test_that_joint_draws_have_the_exact_covariance(name, exact, monkeypatch):
    if not exact:
        monkeypatch.setattr(joint_draws, "DENSE_POINTS", 0)
        monkeypatch.setattr(joint_draws, "GRID_BYTES", 0)
    grid = "easting=20:80:30,northing=30:60:30"
    found = predict(invert_composed(name), grid=grid, draws=4000)
    northing, easting = np.meshgrid([30.0, 60.0], [20.0, 50.0, 80.0], indexing="ij")
    X = np.stack([easting.ravel(), northing.ravel()], axis=-1)
    mean, covariance = joint_posterior(composed_problem(name), X)
    draws = np.concatenate([found[f"{n}_sample"].values.reshape(4000, -1) for n in ("velocity", "depth")], axis=1)
    std = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / std, 0.0, atol=0.08)
    prior = np.repeat([2.0, 1.5], len(X))
    error = (np.cov(draws.T) - covariance) / (prior[:, None] * prior)
    assert np.max(np.abs(error)) < (0.07 if exact else 0.07 + prior_functions.WAVE_ERROR)


def test_that_draws_at_many_points_of_an_own_kernel_are_refused(monkeypatch):
    monkeypatch.setattr(joint_draws, "DENSE_POINTS", 0)
    with pytest.raises(ConfigError, match=r"must have fewer points for draws .*'sinc of the tests'"):
        predict(invert_composed("own"), grid="5", draws=2)


def test_that_a_coregionalised_kernel_accepts_its_outputs_only():
    x, part = np.tile(np.linspace(0.0, 100.0, 6), 2), np.repeat([0, 1], 6)
    kernel = Matern52(length_scale=30.0).on(0) * Coregionalised([[1.0], [1.0]], 0.1).on(1)

    def define(part):
        return invgp.define(
            data=pd.DataFrame({"x": x, "part": part, "time": 2.0 * (50.0 + np.sin(x / 20.0))}),
            coordinates={"x": "m", "part": "1"},
            observations={"time": {"unit": "s"}},
            latents={"depth": {"unit": "m", "mean": 50, "std": 2, "kernel": kernel}},
            forward=lambda depth: 2.0 * depth,
            noise={"time": 0.1},
        )

    message = "a coregionalised kernel with 2 rows of weights must have the output numbers 0 to 1, had"
    with pytest.raises(ConfigError, match=rf"latents\.depth\.kernel: must be defined at all sites: {message} 2"):
        define(part + 1)
    posterior = invgp.invert(define(part))
    at_sites = predict(posterior, grid="x=0:100:20,part=0:1:1")["depth"].values
    np.testing.assert_allclose(at_sites.ravel(), posterior["depth"], atol=1e-6)
    with pytest.raises(ConfigError, match=rf"grid: must have points at which the kernel is defined: {message} 0\.5"):
        predict(posterior, grid="x=0:100:50,part=0:1:0.5")


@pytest.mark.slow
@pytest.mark.parametrize("inducing", [None, 14])
def test_that_learnt_parameters_of_a_kernel_maximise_the_exact_evidence(inducing):
    problem = composed_problem("nugget", inducing=inducing)
    learn = {"length_scale": 1.5, "share": 2.0}
    problem = replace(problem, latents=(replace(problem.latents[0], learn=learn), problem.latents[1]))
    found = invgp.invert(problem)
    assert found["velocity"].attrs["learnt"] == "length_scale share"
    if inducing is not None:
        return  # no closed form; that it learns is enough
    first = problem.latents[0]

    def objective(theta):
        ties = np.concatenate([first.learnt_parameters(name) for name in learn], axis=1)
        kernel = first.kernel.with_parameters(first.kernel.parameters + ties @ theta)
        X, y = problem.survey.X, problem.survey.Y
        K = np.zeros((2, 15, 2, 15))
        K[0, :, 0] = 4.0 * kernel(X, X)
        K[1, :, 1] = 2.25 * problem.latents[1].kernel(X, X)
        design = np.kron([[1.0, 0.5], [-0.3, 2.0]], np.eye(15))
        S = design @ K.reshape(30, 30) @ design.T + np.diag(np.repeat([0.49, 0.16], 15))
        mean = design @ np.repeat([7.0, 6.0], 15)
        spread = np.log([1.5, 1.5, 2.0, 2.0])
        return -multivariate_normal(mean, S).logpdf(y.T.ravel()) + 0.5 * np.sum((theta / spread) ** 2)

    best = minimize(objective, np.zeros(4))
    kernel = first.kernel.with_parameters(
        first.kernel.parameters + np.concatenate([first.learnt_parameters(name) for name in learn], axis=1) @ best.x
    )
    from invgp.posterior.gaussian_processes import kernel_from_attributes  # noqa: PLC0415

    stored = kernel_from_attributes(found["velocity"].attrs)
    std = float(found["velocity"].attrs["process_std"])
    X = problem.survey.X
    np.testing.assert_allclose(std**2 * stored(X, X), 4.0 * kernel(X, X), atol=0.02)
    assert float(found["elbo"][-1]) == pytest.approx(-best.fun, abs=1e-3)


@pytest.mark.slow
def test_that_draws_are_averaged_over_the_parameters_of_a_kernel_and_predicted_from_the_file(tmp_path):
    problem = composed_problem("nugget", posterior="sampled")
    learn = {"length_scale": 1.5, "share": 2.0, "std": 1.5}
    problem = replace(problem, latents=(replace(problem.latents[0], learn=learn), problem.latents[1]))
    found = netcdf.read(netcdf.write(invgp.invert(problem), tmp_path / "posterior.nc"))
    names = found.attrs["invgp_hyperparameters"].split()
    assert names == [
        *("velocity_length_scale_1", "velocity_length_scale_2", "velocity_share_1", "velocity_share_2"),
        "velocity_std_factor",
    ]
    assert found["velocity_share_1_sample"].values.std() > 0.05
    pd.DataFrame(problem.survey.X, columns=["easting", "northing"]).to_csv(tmp_path / "points.csv", index=False)
    on_map = predict(found, tmp_path / "points.csv")
    # With a dense prior the draws at the sites determine the processes there.
    np.testing.assert_allclose(on_map["velocity"].values, found["velocity"].values, atol=0.1)
    np.testing.assert_allclose(on_map["velocity_std"].values, found["velocity_std"].values, rtol=0.15)


def define(kernel, **latent):
    x = np.linspace(0.0, 100.0, 12)
    data = pd.DataFrame({"x": x, "h": x**2, "t": 2.0 + np.sin(x / 10.0)})
    return invgp.define(
        data=data,
        coordinates={"x": "m", "h": "m2"},
        observations={"t": "s"},
        latents={"depth": {"unit": "m", "mean": 2.0, "std": 0.5, "kernel": kernel, **latent}},
        forward=lambda depth: depth,
        noise={"t": 0.1},
    )


def test_that_tables_and_objects_define_the_same_kernel(rng):
    table = {
        "kind": "sum",
        "parts": [
            {
                "kind": "product",
                "share": 3,
                "parts": [
                    {"kind": "matern 5/2", "length_scale": [20, 400]},
                    {"kind": "periodic", "period": 30, "length_scale": 0.8, "coordinates": ["x"]},
                ],
            },
            {"kind": "rational quadratic", "length_scale": [10, 50], "shape": 0.5, "share": 2},
            {"kind": "linear", "length_scale": 50, "centre": 20, "coordinates": ["x"], "share": 1},
            {"kind": "white", "share": 1},
            {"kind": "constant", "share": 1},
        ],
    }
    kernel = (
        Matern52(0.375, [20.0, 400.0]) * Periodic(1.0, 0.8, 30.0).on(0)
        + RationalQuadratic(0.25, [10.0, 50.0], 0.5)
        + Linear(0.125, 50.0, 20.0).on(0)
        + White(0.125)
        + Constant(0.125)
    )
    X = rng.uniform(0, 100, (6, 2))
    by_table, by_object = define(table).latents[0].kernel, define(kernel).latents[0].kernel
    np.testing.assert_allclose(by_table(X, X), kernel(X, X), rtol=1e-12)
    np.testing.assert_allclose(by_object(X, X), kernel(X, X), rtol=1e-12)
    assert by_table.formula == "matern 5/2 * periodic + rational quadratic + linear + white + constant"


@pytest.mark.parametrize(
    ("kernel", "latent", "message"),
    [
        ({"kind": "periodic"}, {}, "latents.depth.kernel.period: is missing; it must be the period"),
        ({"kind": "white", "length_scale": 3}, {}, "kernel.length_scale: must be left out for kind = 'white'"),
        ({"kind": "linear", "length_scale": [1, 1]}, {}, "kernel.centre: is missing"),
        ({"kind": "sum", "parts": [{"kind": "white"}]}, {}, "kernel.parts: must hold 2 at least"),
        (
            {"kind": "sum", "parts": [{"kind": "white", "share": 1}, {"kind": "constant"}]},
            {},
            "kernel.parts: must all have a share, or none",
        ),
        (
            {"kind": "product", "parts": [{"kind": "white", "share": 1}, {"kind": "constant"}]},
            {},
            "kernel.parts: must not have a share in a product",
        ),
        (
            {"kind": "matern 5/2", "length_scale": 3, "coordinates": ["y"]},
            {},
            "kernel.coordinates: must be coordinates, 'x' and 'h', had 'y'",
        ),
        ({"kind": "matern 5/2", "length_scale": 3}, {}, "kernel.length_scale: must be a list of 2"),
        (
            {"kind": "sum", "parts": [{"kind": "white"}, {"kind": "matern 5/2", "length_scale": -1}]},
            {},
            r"kernel.parts\[1\].length_scale: must be a positive number",
        ),
        (
            {"kind": "matern 5/2", "length_scale": [3, 3]},
            {"learn": {"period": 2}},
            "learn.period: must be left out unless the kernel is one with a period, was 'matern 5/2'",
        ),
        (
            {"kind": "matern 5/2", "length_scale": [3, 3]},
            {"learn": {"share": 2}},
            "learn.share: must be left out unless the kernel is a sum",
        ),
        (Matern52(1.0, [1.0, 2.0, 3.0]), {}, "latents.depth.kernel: must accept 2 coordinates, was"),
    ],
)
def test_that_wrong_kernels_are_named(kernel, latent, message):
    with pytest.raises(ConfigError, match=message):
        define(kernel, **latent)


def test_that_an_unknown_kernel_of_a_file_is_named(tmp_path):
    dataset = invert_composed("own").copy()
    text = dataset["velocity"].attrs["kernel_definition"]
    dataset["velocity"].attrs["kernel_definition"] = text.replace("sinc of the tests", "sinc of nobody")
    path = netcdf.write(dataset, tmp_path / "posterior.nc")
    with pytest.raises(ConfigError, match=r"must describe a kernel: .*'sinc of nobody': import the module"):
        netcdf.read(path)
