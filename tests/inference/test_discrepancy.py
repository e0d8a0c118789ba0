"""Discrepancy fields: what a simulator cannot explain, against closed forms and over many surveys."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.discrepancy import WARNING, draw_line, line_problem, measure

import invgp
from helpers.linear_priors import assert_same_posterior, condition, matern52
from invgp.errors import ConfigError, PriorConflictError

X = np.linspace(0.0, 1000.0, 14)
KERNEL = {"kind": "matern 5/2", "length_scale": 300.0}
OF_DISCREPANCY = {"kind": "matern 5/2", "length_scale": 150.0}
CORRELATION = np.asarray([[1.0, 0.6], [0.6, 1.0]])
STD, NOISE, PRIOR_STD, SLOPES = np.asarray([0.5, 0.8]), 0.1, 2.0, np.asarray([1.0, 0.5])


class Calls:
    """A linear simulator with two outputs per site that counts its runs and records its arguments."""

    def __init__(self):
        self.runs = 0

    def __call__(self, depth):
        self.runs += len(depth)
        return depth[:, None] * SLOPES


def observations():
    """Data (14, 2) of a smooth depth and smooth discrepancies; one is missing."""
    depth = 1.0 + 1.5 * np.sin(X / 280.0)
    discrepancies = STD * np.stack([np.cos(X / 120.0), np.sin(X / 140.0 + 1.0)], axis=-1)
    y = depth[:, None] * SLOPES + discrepancies + NOISE * np.random.default_rng(3).standard_normal((len(X), 2))
    y[4, 1] = np.nan
    return y


def two_outputs(forward, *, discrepancy=True, learn=None, **keys):
    """A linear problem with two labels of an observation whose discrepancies are correlated."""
    y, noise = observations(), {"std": {"data": NOISE}}
    if discrepancy:
        table = {"std": STD.tolist(), "kernel": OF_DISCREPANCY, "label_correlation": CORRELATION.tolist()}
        noise["discrepancy"] = {"data": table | ({"learn": learn} if learn else {})}
    return invgp.define(
        {"x": X, "a": y[:, 0], "b": y[:, 1]},
        coordinates={"x": "m"},
        observations={"data": {"unit": "1", "columns": ["a", "b"], "dimension": "gate"}},
        dimensions={"gate": [1, 2]},
        latents={"depth": {"unit": "m", "mean": 1, "std": PRIOR_STD, "kernel": KERNEL}},
        forward=forward,
        noise=noise,
        **{"inference": {"posterior": "coupled gaussian"}} | keys,
    )


def closed_form(points, scale=1.0):
    """Mean and covariance of depth and both discrepancies at points, [depth, gate 1, gate 2] one after the other."""
    everywhere = np.concatenate([X, points])[:, None]
    n, own = len(everywhere), len(X)
    field, other = (matern52(everywhere, everywhere, k["length_scale"]) for k in (KERNEL, OF_DISCREPANCY))
    covariance = np.zeros((3 * n, 3 * n))
    covariance[:n, :n] = PRIOR_STD**2 * field
    covariance[n:, n:] = scale**2 * np.kron(STD[:, None] * CORRELATION * STD, other)
    mean = np.concatenate([np.ones(n), np.zeros(2 * n)])
    rows, data = [], observations()
    for label in range(2):
        for site in np.flatnonzero(np.isfinite(data[:, label])):
            row = np.zeros(3 * n)
            row[site], row[(label + 1) * n + site] = SLOPES[label], 1.0
            rows.append(row)
    known = data.T[np.isfinite(data.T)]
    mean, covariance = condition(mean, covariance, np.asarray(rows), known, NOISE)
    at = np.concatenate([np.arange(own, n) + k * n for k in range(3)])
    return mean[at], covariance[np.ix_(at, at)]


def test_that_a_linear_site_model_has_the_closed_form_without_more_runs(tmp_path):
    forward, plain = Calls(), Calls()
    posterior = invgp.invert(two_outputs(forward), seed=1)
    invgp.invert(two_outputs(plain, discrepancy=False), seed=1)
    assert forward.runs == 3 * len(X) <= plain.runs
    mean, covariance = closed_form(X)
    std = np.sqrt(np.diagonal(covariance))
    assert_same_posterior(posterior, "depth", mean[: len(X)], std[: len(X)])
    found = posterior.transpose("gate", ...)
    np.testing.assert_allclose(found["data_discrepancy"].values.ravel(), mean[len(X) :], atol=1e-6)
    np.testing.assert_allclose(found["data_discrepancy_std"].values.ravel(), std[len(X) :], atol=1e-6)
    fitted = SLOPES[:, None] * mean[: len(X)] + mean[len(X) :].reshape(2, -1)
    np.testing.assert_allclose(found["data_predicted"].values, fitted, atol=0.02)  # a mean over draws
    # The file predicts both at new points.
    posterior.to_netcdf(tmp_path / "posterior.nc")
    points = np.asarray([50.0, 450.0, 850.0, 1250.0])
    maps = invgp.predict(invgp.open_posterior(tmp_path / "posterior.nc"), grid="x=50:1250:400")
    mean, covariance = closed_form(points)
    std = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(maps["depth"].values.ravel(), mean[:4], atol=1e-5)
    np.testing.assert_allclose(maps["data_discrepancy"].transpose("gate", ...).values.ravel(), mean[4:], atol=1e-5)
    np.testing.assert_allclose(maps["data_discrepancy_std"].transpose("gate", ...).values.ravel(), std[4:], rtol=1e-4)


def test_that_draws_have_the_closed_form():
    posterior = invgp.invert(two_outputs(Calls(), inference={"posterior": "sampled"}), seed=2)
    mean, covariance = closed_form(X)
    std = np.sqrt(np.diagonal(covariance))
    assert_same_posterior(posterior, "depth", mean[: len(X)], std[: len(X)], tolerance=0.1)


@pytest.mark.slow
def test_that_a_learnt_size_of_the_discrepancy_is_averaged_as_on_a_grid():
    learn = {"std": 2.0}
    problem = two_outputs(Calls(), learn=learn, inference={"posterior": "sampled"})
    # Correlated labels have one factor; the reference integrates it on a grid of its logarithm.
    posterior = invgp.invert(problem, seed=3)
    data = observations()
    known = np.isfinite(data.T)
    field, other = (matern52(X[:, None], X[:, None], k["length_scale"]) for k in (KERNEL, OF_DISCREPANCY))
    logs, parts = np.linspace(-3.0, 3.0, 121) * np.log(2.0), []
    for log in logs:
        gram = np.kron(np.outer(SLOPES, SLOPES), PRIOR_STD**2 * field)
        gram += np.exp(2.0 * log) * np.kron(STD[:, None] * CORRELATION * STD, other)
        gram = gram[np.ix_(known.ravel(), known.ravel())] + NOISE**2 * np.eye(known.sum())
        residual = (data.T - SLOPES[:, None])[known]
        evidence = -0.5 * residual @ np.linalg.solve(gram, residual) - 0.5 * np.linalg.slogdet(gram)[1]
        mean, covariance = closed_form(X, np.exp(log))
        prior = -0.5 * (log / np.log(2.0)) ** 2
        parts.append((evidence + prior, mean[: len(X)], np.diagonal(covariance)[: len(X)]))
    logits, means, variances = (np.asarray(part) for part in zip(*parts, strict=True))
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    mean = weights @ means
    std = np.sqrt(weights @ (variances + (means - mean) ** 2))
    assert_same_posterior(posterior, "depth", mean, std, tolerance=0.12)
    factors = posterior["data_discrepancy_std_factor_sample"].values
    assert np.mean(np.log(factors)) == pytest.approx(weights @ logs, abs=0.1)


def averages(depth):
    """A linear field model: three-point averages at every second node."""
    smooth = (depth[:, :-2] + depth[:, 1:-1] + depth[:, 2:]) / 3.0
    return smooth[:, ::2]


def test_that_a_linear_field_model_has_the_closed_form():
    nodes = np.arange(0.0, 41.0) * 25.0
    sites, rng = nodes[1:-1:2], np.random.default_rng(5)
    y = 1.0 + np.sin(sites / 300.0) + 0.5 * np.cos(sites / 120.0) + NOISE * rng.standard_normal(len(sites))
    y[3] = np.nan
    posterior = invgp.invert(
        invgp.define(
            {"x": sites, "data": y},
            coordinates={"x": "m"},
            observations={"data": "1"},
            grid={"x": {"unit": "m", "start": 0, "stop": 1000, "step": 25}},
            latents={"depth": {"unit": "m", "mean": 1, "std": PRIOR_STD, "kernel": KERNEL}},
            forward=averages,
            noise={"std": {"data": NOISE}, "discrepancy": {"data": {"std": 0.5, "kernel": OF_DISCREPANCY}}},
            inference={"kept_variance": 0.9999999},
        ),
        seed=4,
    )
    n, own = len(nodes), len(sites)
    covariance = np.zeros((n + own, n + own))
    covariance[:n, :n] = PRIOR_STD**2 * matern52(nodes[:, None], nodes[:, None], KERNEL["length_scale"])
    covariance[n:, n:] = 0.25 * matern52(sites[:, None], sites[:, None], OF_DISCREPANCY["length_scale"])
    rows = np.concatenate([averages(np.eye(n)).T, np.eye(own)], axis=1)
    known = np.isfinite(y)
    mean = np.concatenate([np.ones(n), np.zeros(own)])
    mean, covariance = condition(mean, covariance, rows[known], y[known], NOISE)
    std = np.sqrt(np.diagonal(covariance))
    assert_same_posterior(posterior, "depth", mean[:n], std[:n], tolerance=2e-3)
    # These are means and spreads over draws.
    assert_same_posterior(posterior, "data_discrepancy", mean[n:], std[n:], tolerance=0.15)
    fitted = rows @ mean
    np.testing.assert_allclose(posterior["data_predicted"].values, fitted, atol=0.15 * std[n:].max())


def test_that_a_large_discrepancy_is_no_conflict_with_the_prior():
    """Data that a field model with a narrow prior cannot reach, but its discrepancy can."""
    sites = np.arange(0.0, 41.0)[1:-1:2] * 25.0
    problem = invgp.define(
        {"x": sites, "data": 5.0 + np.sin(sites / 300.0)},
        coordinates={"x": "m"},
        observations={"data": "1"},
        grid={"x": {"unit": "m", "start": 0, "stop": 1000, "step": 25}},
        latents={"depth": {"unit": "m", "mean": 1, "std": 0.1, "kernel": KERNEL}},
        forward=averages,
        noise={"std": {"data": NOISE}, "discrepancy": {"data": {"std": 3.0, "kernel": OF_DISCREPANCY}}},
    )
    posterior = invgp.invert(problem, seed=1)
    np.testing.assert_allclose(posterior["data_discrepancy"].values, 4.0 + np.sin(sites / 300.0), atol=0.5)
    with pytest.raises(PriorConflictError):
        invgp.invert(replace(problem, noise=replace(problem.noise, discrepancy={})), seed=1)


@pytest.mark.parametrize("kind", ["student-t", "laplace"])
def test_that_noise_with_heavy_tails_can_have_a_discrepancy(kind):
    noise = {"kind": kind, "std": {"data": NOISE}}
    table = {"std": 0.5, "kernel": OF_DISCREPANCY}
    y = 1.0 + np.sin(X / 280.0) + 0.4 * np.cos(X / 100.0)
    y[6] += 3.0  # an outlier, which must go into neither
    found = [
        invgp.invert(
            invgp.define(
                {"x": X, "data": y},
                coordinates={"x": "m"},
                observations={"data": "1"},
                latents={"depth": {"unit": "m", "mean": 1, "std": 1, "kernel": {"length_scale": 600.0}}},
                forward=lambda depth: depth,
                noise=noise | ({"discrepancy": {"data": table}} if on else {}),
                inference={"posterior": "coupled gaussian"},
            ),
            seed=1,
        )
        for on in (False, True)
    ]
    assert abs(float(found[1]["data_residual"][6])) > 2.0
    assert (found[1]["depth_std"].values > 1.5 * found[0]["depth_std"].values).all()


def test_that_a_source_takes_its_discrepancy_with_it():
    biased = two_outputs(Calls())
    right = invgp.define(
        {"x": X[::2] + 20.0, "other": 1.0 + 0.1 * X[::2] / 1000.0},
        coordinates={"x": "m"},
        observations={"other": "1"},
        latents={"depth": {"unit": "m", "mean": 1, "std": PRIOR_STD, "kernel": KERNEL}},
        forward=lambda depth: depth,
        noise={"other": 0.2},
        inference={"posterior": "coupled gaussian"},
    )
    joint = biased.join({"right": right})
    assert [latent.name for latent in joint.latents] == ["depth", "data_discrepancy"]
    posterior = invgp.invert(joint, seed=1)
    # The discrepancy of one source leaves the data of the other alone.
    alone = invgp.invert(joint.without("survey"), seed=1)
    assert "data_discrepancy" not in alone
    expected = invgp.invert(right, seed=1)
    np.testing.assert_allclose(alone["depth"].values, expected["depth"].values, atol=1e-6)
    assert (posterior["depth_std"].values[len(X) :] < alone["depth_std"].values).all()


@pytest.mark.slow
def test_that_intervals_hold_the_truth_under_a_biased_simulator():
    inside, squares, warned = measure(100, 24, discrepancy=True)
    assert 0.93 <= inside <= 0.97
    assert 0.8 < squares < 1.2
    assert warned <= 0.05


def test_that_a_bias_is_reported_with_the_remedy():
    x, _, data = draw_line(60, np.random.default_rng(0))
    off = invgp.invert(line_problem(x, data, discrepancy=False))
    assert WARNING in off.attrs["invgp_diagnostics"]
    assert "noise.discrepancy accounts for a bias" in off.attrs["invgp_diagnostics"]
    on = invgp.invert(line_problem(x, data, discrepancy=True))
    assert WARNING not in on.attrs["invgp_diagnostics"]


@pytest.mark.parametrize(
    ("discrepancy", "sentence"),
    [
        ({"other": {"std": 1, "kernel": KERNEL}}, "noise.discrepancy.other: must have the name of an observation"),
        ({"data": {"std": -1, "kernel": KERNEL}}, "noise.discrepancy.data.std: must be a positive number"),
        ({"data": {"std": [1, 2, 3], "kernel": KERNEL}}, "noise.discrepancy.data.std: must be one number, or a list"),
        ({"data": {"std": 1}}, "noise.discrepancy.data.kernel: is missing"),
        (
            {"data": {"std": 1, "kernel": KERNEL, "learn": {"period": 2}}},
            "noise.discrepancy.data.learn.period: must be left out unless the kernel is one with a period",
        ),
    ],
)
def test_that_mistakes_are_named(discrepancy, sentence):
    with pytest.raises(ConfigError) as error:
        invgp.define(
            {"x": X, "a": X, "b": X},
            coordinates={"x": "m"},
            observations={"data": {"unit": "1", "columns": ["a", "b"], "dimension": "gate"}},
            dimensions={"gate": [1, 2]},
            latents={"depth": {"unit": "m", "mean": 1, "std": 1, "kernel": KERNEL}},
            forward=lambda depth: depth,
            noise={"std": {"data": 1}, "discrepancy": discrepancy},
        )
    assert sentence in str(error.value)
