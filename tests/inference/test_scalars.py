"""Unknown numbers that are the same everywhere, against closed forms, in site and field models."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import truncnorm

import invgp
from invgp.core.coupled import Prior
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.hyperparameters import site_evidence
from invgp.core.geometry import join_parameters, split_parameters
from invgp.core.kernels import Scalar, SquaredExponential
from invgp.errors import ArgumentError, ConfigError
from invgp.maps.read_posterior_field import read_posterior_field

RNG = np.random.default_rng(4)
SITES = 24
X = np.sort(RNG.uniform(0.0, 10.0, SITES))
SLOPE = RNG.standard_normal(SITES)
FIELD_STD, STDS, NOISE = 2.0, np.asarray([1.0, 0.7]), 0.2
Y = 3.0 + np.sin(X) + 1.3 * SLOPE - 0.8 + NOISE * RNG.standard_normal(SITES)
LATENTS = {
    "field": {"unit": "m", "mean": 3, "std": FIELD_STD, "kernel": {"length_scale": 2.0}},
    "a": {"unit": "m", "domain": "scalar", "mean": 0, "std": STDS[0]},
    "b": {"unit": "1", "domain": "scalar", "mean": 0.5, "std": STDS[1]},
}


def correlations(first, second):
    return np.exp(-0.5 * (first[:, None] - second) ** 2 / 2.0**2)


def closed_form(x=X):
    """Mean and standard deviation of the field at x and of the two scalars, by regression on all data."""
    H = np.stack([SLOPE, np.full(SITES, 2.0)], axis=1)
    prior = np.block(
        [
            [FIELD_STD**2 * correlations(x, x), np.zeros((len(x), 2))],
            [np.zeros((2, len(x))), np.diag(STDS**2)],
        ]
    )
    cross = np.concatenate([FIELD_STD**2 * correlations(x, X), np.diag(STDS**2) @ H.T])
    data = FIELD_STD**2 * correlations(X, X) + H @ np.diag(STDS**2) @ H.T + NOISE**2 * np.eye(SITES)
    mean = np.concatenate([np.full(len(x), 3.0), [0.0, 0.5]]) + cross @ np.linalg.solve(data, Y - 3.0 - 1.0)
    return mean, np.sqrt(np.diagonal(prior - cross @ np.linalg.solve(data, cross.T)))


def site_problem(**inference):
    return invgp.define(
        {"x": X, "slope": SLOPE, "y": Y},
        coordinates={"x": "m"},
        covariates={"slope": "1"},
        observations={"y": "m"},
        latents=LATENTS,
        forward=lambda field, a, b, slope: field + slope * a + 2.0 * b,
        noise={"y": NOISE},
        inference={"posterior": "coupled gaussian"} | inference,
    )


def deviations(posterior, expected):
    mean, std = expected
    found = np.concatenate([posterior["field"].values.ravel(), [posterior["a"].item(), posterior["b"].item()]])
    spread = np.concatenate([posterior["field_std"].values.ravel(), [posterior[f"{n}_std"].item() for n in "ab"]])
    return max(np.abs((found - mean) / std).max(), np.abs(spread / std - 1.0).max())


@pytest.mark.parametrize(
    "inference", [{}, {"batch": 10}, {"inducing": SITES}, {"emulator": False}], ids=["dense", "batch", "all", "direct"]
)
def test_that_a_site_model_with_scalars_is_the_closed_form(inference):
    posterior = invgp.invert(site_problem(**inference))
    assert posterior["a"].dims == ()
    assert deviations(posterior, closed_form()) < 1e-6


def test_that_scalars_are_exact_with_inducing_points_that_describe_the_field():
    posterior = invgp.invert(site_problem(inducing=14))
    assert deviations(posterior, closed_form()) < 1e-4
    draws = posterior["a_sample"].values
    assert draws.shape == (posterior.sizes["realization"],)
    assert draws.std() == pytest.approx(posterior["a_std"].item(), rel=0.2)


def test_that_a_map_has_scalars_as_numbers_and_expressions_of_both():
    posterior = invgp.invert(site_problem())
    at = np.linspace(0.0, 10.0, 21)
    found = invgp.predict(posterior, "x=0:10:0.5", derive=["sum = field + a"], draws=4)
    assert deviations(found, closed_form(at)) < 1e-6
    assert found["a_sample"].dims == ("realization",)
    difference = found["sum_sample"] - found["field_sample"]
    np.testing.assert_allclose(difference, found["a_sample"].broadcast_like(difference), atol=1e-6)


def test_that_a_scalar_is_the_same_at_all_points_to_the_last_digit():
    field = read_posterior_field(invgp.invert(site_problem(inducing=8)))
    at = field.at(np.linspace(-50.0, 80.0, 7)[:, None], [1])
    mean, covariance = at.moments([1])
    assert np.ptp(mean) == 0.0
    assert np.ptp(covariance) == 0.0


@pytest.mark.parametrize("dense", [True, False])
def test_that_the_gradient_of_the_evidence_with_a_scalar_is_that_of_finite_differences(dense):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 4.0, (9, 1))
    Z = np.broadcast_to(x if dense else x[:5], (2, 9 if dense else 5, 1))
    root = rng.standard_normal((9, 2, 2))
    sites = SiteFactors(root @ root.swapaxes(1, 2), rng.standard_normal((9, 2)))
    kernels = (SquaredExponential(1.3, [1.1]), Scalar(0.6))

    def evidence(parameters):
        own = split_parameters(kernels, parameters)
        return site_evidence(Prior(own, np.zeros(2), x, Z, dense, 0.0 if dense else 1e-6), sites)

    start, step = join_parameters(kernels), 1e-5
    slopes = [
        (evidence(start + step * unit).value - evidence(start - step * unit).value) / (2.0 * step)
        for unit in np.eye(len(start))
    ]
    np.testing.assert_allclose(evidence(start).kernels, slopes, rtol=1e-6, atol=1e-8)


MATRIX = RNG.standard_normal((20, 4))
NUMBERS = MATRIX @ np.asarray([1.0, -0.5, 2.0, 0.3]) + 0.1 * RNG.standard_normal(20)


def test_that_four_numbers_without_coordinates_or_a_grid_are_the_closed_form():
    problem = invgp.define(
        {"y": NUMBERS},
        observations={"y": "m"},
        latents={name: {"unit": "1", "domain": "scalar", "mean": 0, "std": 1.5} for name in "abcd"},
        forward={"function": lambda a, b, c, d: np.stack([a, b, c, d], axis=-1) @ MATRIX.T, "kind": "field"},
        noise={"y": 0.1},
    )
    posterior = invgp.invert(problem)
    covariance = np.linalg.inv(MATRIX.T @ MATRIX / 0.1**2 + np.eye(4) / 1.5**2)
    mean, std = covariance @ MATRIX.T @ NUMBERS / 0.1**2, np.sqrt(np.diagonal(covariance))
    assert "node" not in posterior.dims
    np.testing.assert_allclose([posterior[name].item() for name in "abcd"], mean, atol=1e-6 * std.min())
    np.testing.assert_allclose([posterior[f"{name}_std"].item() for name in "abcd"], std, rtol=1e-6)
    with pytest.raises(ConfigError, match="only scalars"):
        invgp.predict(posterior)


@pytest.mark.slow
def test_that_a_field_model_with_a_field_and_a_scalar_is_the_closed_form():
    nodes = np.arange(0.0, 10.1, 0.5)
    weights = correlations(X, nodes) / 5.0
    problem = invgp.define(
        {"y": weights @ np.sin(nodes) + 1.3 * SLOPE, "slope": SLOPE},
        observations={"y": "m"},
        covariates={"slope": "1"},
        latents={key: LATENTS[key] | {"mean": 0} for key in ("field", "a")},
        forward=lambda field, a, slope: field @ weights.T + a[:, None] * slope,
        grid={"x": {"unit": "m", "start": 0, "stop": 10, "step": 0.5}},
        noise={"y": NOISE},
        inference={"kept_variance": 0.9999999},
    )
    posterior = invgp.invert(problem)
    prior = np.block(
        [
            [FIELD_STD**2 * correlations(nodes, nodes), np.zeros((len(nodes), 1))],
            [np.zeros((1, len(nodes))), np.ones((1, 1))],
        ]
    )
    H = np.concatenate([weights, SLOPE[:, None]], axis=1)
    gain = np.linalg.solve(H @ prior @ H.T + NOISE**2 * np.eye(SITES), H @ prior).T
    std = np.sqrt(np.diagonal(prior - gain @ H @ prior))
    mean = gain @ problem.survey.Y[:, 0]
    found = np.append(posterior["field"].values, posterior["a"].item())
    spread = np.append(posterior["field_std"].values, posterior["a_std"].item())
    assert np.abs((found - mean) / std).max() < 1e-5
    assert np.abs(spread / std - 1.0).max() < 1e-5


def test_that_bounded_priors_are_exact_where_the_data_say_nothing():
    bounds = {"link": "uniform", "lower": [2.0, -1.0], "upper": [5.0, 0.0]}
    truncated = {"link": "truncated normal", "mean": 1.0, "std": 2.0, "lower": 0.0}
    problem = invgp.define(
        {"y": np.zeros(3)},
        observations={"y": "m"},
        dimensions={"part": [1, 2]},
        latents={
            "u": {"unit": "1", "domain": "scalar", "dimension": "part"} | bounds,
            "t": {"unit": "1", "domain": "scalar"} | truncated,
            "c": {"unit": "1", "domain": "scalar", "mean": 0, "std": 1},
        },
        forward={
            "function": lambda u, t, c: c[:, None] + 0.0 * (u.sum(axis=1) + t)[:, None] * np.ones(3),
            "kind": "field",
        },
        noise={"y": 0.5},
    )
    posterior = invgp.invert(problem)
    np.testing.assert_allclose(posterior["u"], [3.5, -0.5], atol=1e-5)
    np.testing.assert_allclose(posterior["u_std"], np.asarray([3.0, 1.0]) / np.sqrt(12.0), rtol=1e-5)
    levels = posterior["quantile"].values
    np.testing.assert_allclose(posterior["u_quantile"], [2.0, -1.0] + levels[:, None] * [3.0, 1.0], atol=1e-5)
    expected = truncnorm(-0.5, np.inf, 1.0, 2.0)
    np.testing.assert_allclose(posterior["t_quantile"], expected.ppf(levels), atol=1e-4)
    assert posterior["t"].item() == pytest.approx(expected.mean(), abs=1e-4)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"domain": "scalar", "mean": 0, "std": 1, "kernel": {"length_scale": 1}}, "a.kernel: must be left out for"),
        ({"mean": 0, "std": 1}, "a.kernel: is missing; it must be"),
        ({"domain": "scalar", "std": 1}, "a.mean: is missing; it must be"),
        ({"domain": "scalar", "link": "uniform", "lower": 0}, "a.upper: is missing; with link = 'uniform'"),
        ({"domain": "scalar", "link": "uniform", "lower": 3, "upper": 2}, "a.upper: must be above lower = 3, was 2"),
        ({"domain": "scalar", "link": "uniform", "lower": 0, "upper": 2, "mean": 1}, "a.mean: must be left out with"),
        ({"domain": "scalar", "mean": 0, "std": 1, "lower": 0}, "a.lower: must be left out unless link"),
        ({"domain": "scalar", "link": "truncated normal", "mean": 0, "std": 1}, "a.lower: is missing; with link"),
        (
            {"domain": "scalar", "mean": 0, "std": 1, "learn": {"length_scale": True}},
            "must be left out unless the kernel",
        ),
    ],
)
def test_that_keys_of_scalars_and_bounds_are_checked(keys, sentence):
    with pytest.raises(ConfigError, match=sentence.replace("[", "\\[")):
        invgp.define(
            {"x": X, "y": Y},
            coordinates={"x": "m"},
            observations={"y": "m"},
            latents={"a": {"unit": "m"} | keys},
            forward=lambda a: a,
            noise={"y": NOISE},
        )


def test_that_only_scalars_and_field_models_can_do_without_coordinates():
    with pytest.raises(ConfigError, match=r"survey\.coordinates: is missing"):
        invgp.define(
            {"y": Y},
            observations={"y": "m"},
            latents={"field": LATENTS["field"]},
            forward=lambda field: field,
            noise={"y": 1},
        )


def four_numbers():
    return invgp.define(
        {"y": NUMBERS},
        observations={"y": "m"},
        latents={
            "a": {"unit": "1", "domain": "scalar", "dimension": "part", "mean": [0, 1], "std": 1.5},
            "b": {"unit": "m", "domain": "scalar", "link": "uniform", "lower": 0, "upper": 3},
        },
        dimensions={"part": ["first", "second"]},
        forward={"function": lambda a, b: np.column_stack([a, b]) @ MATRIX[:, :3].T, "kind": "field"},
        noise={"y": 0.4},
        inference={"posterior": "coupled gaussian"},
    )


def test_that_figures_reports_and_exports_show_scalars_as_numbers(tmp_path):
    posterior = invgp.invert(four_numbers())
    file = tmp_path / "posterior.nc"
    invgp.write(posterior, file)
    read = invgp.open_posterior(file)
    assert read["b"].attrs["link_upper"] == 3.0
    assert invgp.plots.suitable_kinds(read) == ("fit", "correlation", "scalars", "convergence")
    figure = invgp.plots.plot_scalars(read)
    assert [ax.get_xlabel() for ax in figure.axes] == ["a, first", "a, second", "b (m)"]
    low, high = figure.axes[2].get_lines()[0].get_xdata()[[0, -1]]
    assert 0.0 <= low < high <= 3.0
    page = invgp.report(read, tmp_path / "report.html").read_text()
    assert "3 scalars, from 20 observations" in page
    assert "uniform link above 0 and below 3" in page
    [table] = invgp.export(read, "csv", tmp_path / "numbers.csv")
    rows = pd.read_csv(table)
    assert rows["scalar"].tolist() == ["a", "a", "b"]
    np.testing.assert_allclose(rows["mean"], [*read["a"].values, read["b"].item()], rtol=1e-5)
    [ensemble] = invgp.export(read, "pest", tmp_path / "ensemble.csv")
    assert pd.read_csv(ensemble).columns.tolist() == ["real_name", "a_first", "a_second", "b"]
    [tree] = invgp.export(read, "arviz", tmp_path / "draws.nc")
    with xr.open_datatree(tree) as groups:
        assert set(groups["posterior"].data_vars) == {"a", "b"}
        assert groups["posterior"]["a"].dims == ("chain", "draw", "part")
        assert "sample_stats" not in groups
    with pytest.raises(ArgumentError, match="only scalars"):
        invgp.export(read, "vtk", tmp_path / "numbers.vtr")


def test_that_a_source_is_chosen_by_its_name():
    first, second = site_problem(), site_problem()
    joint = first.join({"other": second})
    assert joint.source().survey.size == SITES
    assert joint.source("other").forward is second.forward
    with pytest.raises(ConfigError, match="source: must be a source with a simulator, 'survey' or 'other', was 'mt'"):
        joint.source("mt")


def test_that_a_simulator_of_a_field_model_takes_one_number_of_a_scalar_and_runs_lead_back():
    problem = four_numbers()
    assert [quantity.size for quantity in problem.forward.inputs] == [2, 1]
    f = np.asarray([[[0.3, -0.2, 0.7]]])
    rows = problem.field_to_simulator(problem.to_physical(f))
    assert rows.shape == (1, 3)
    np.testing.assert_allclose(problem.field_from_simulator_inputs(rows)[0], f, atol=1e-12)
