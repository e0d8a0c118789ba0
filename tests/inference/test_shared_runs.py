"""Surveys with more sites than runs: runs are shared, and their number does not grow with the survey."""

from dataclasses import replace

import numpy as np
import pytest

import invgp
from invgp.emulation import run_schedule
from invgp.emulation.run_schedule import shares_runs
from invgp.inference import partial_search
from invgp.inference.pilot import expected_cost, pilot_size, run_pilot
from invgp.inference.search_state import SearchResult, SearchState
from invgp.inference.shared_runs import Check, RefinementOptions, judge_accuracy
from invgp.inference.site_solution import _factor

NOISE = 0.05


def curve(a):
    return np.stack([np.exp(0.3 * a), np.sin(0.7 * a) + 0.5 * a], axis=-1)


def rough(a):
    return np.stack([a + 0.5 * np.sign(np.sin(40.0 * a)), 0.3 * a], axis=-1)


def line(function, sites, seed=0, **inference):
    """Sites along 20 length-scales, with a field that is a sum of waves, and their data; and the field."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 20.0, sites))
    waves = rng.standard_normal(60), rng.uniform(0.0, 2.0 * np.pi, 60), rng.standard_normal(60)
    truth = np.sqrt(2.0 / 60.0) * sum(a * np.cos(w * x + p) for w, p, a in zip(*waves, strict=True))
    y = function(truth)
    y += NOISE * rng.standard_normal(y.shape)
    problem = invgp.define(
        {"x": x, "y1": y[:, 0], "y2": y[:, 1]},
        coordinates={"x": "km"},
        observations={"y": {"columns": ["y1", "y2"], "dimension": "gate", "unit": "s"}},
        dimensions={"gate": [1, 2]},
        latents={"a": {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 1.0}}},
        noise={"y": NOISE},
        forward=function,
        inference={"posterior": "coupled gaussian", "seed": 1, **inference},
    )
    return problem, truth


def distance(posterior, reference):
    """Root mean square difference of the means, in standard deviations, and median ratio of these."""
    std = reference["a_std"].values
    error = (posterior["a"].values - reference["a"].values) / std
    return np.sqrt(np.mean(error**2)), np.median(posterior["a_std"].values / std)


@pytest.fixture(autouse=True)
def share_runs(monkeypatch):
    """Let small surveys share runs."""
    monkeypatch.setattr(run_schedule, "MANY_SITES", 64)


def search_in_a_part(monkeypatch):
    """Find the emulator at 200 sites, the fewest, in surveys of 300 sites and more."""
    monkeypatch.setattr(partial_search, "size_of_part", lambda problem, options: 200)
    monkeypatch.setattr(partial_search, "fewest_sites_for_a_part", lambda problem, options: 300)


@pytest.fixture(scope="module")
def reference():
    """The posterior of 300 sites from the simulator itself."""
    return invgp.invert(line(curve, 300)[0].with_inference(emulator=False, max_runs=10**7))


def test_that_shared_runs_give_the_posterior_of_the_simulator(reference):
    problem, _ = line(curve, 300)
    assert shares_runs(problem)
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_runs"] <= 300  # fewer than one per site
    assert posterior.attrs["invgp_converged"] == "yes"
    error, ratio = distance(posterior, reference)
    assert error < 0.05
    assert ratio == pytest.approx(1.0, abs=0.02)


def test_that_a_part_of_the_sites_gives_the_emulator_of_all(reference, monkeypatch):
    search_in_a_part(monkeypatch)
    problem, _ = line(curve, 300, batch=100)
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_converged"] == "yes"
    error, ratio = distance(posterior, reference)
    assert error < 0.1  # mini-batches end at a movement of 0.05
    assert ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_that_runs_do_not_grow_with_the_survey(monkeypatch):
    search_in_a_part(monkeypatch)
    found = []
    for sites in (400, 4000):
        problem, truth = line(curve, sites, batch=500)
        posterior = invgp.invert(problem)
        inside = np.abs(truth - posterior["a"].values) <= 1.96 * posterior["a_std"].values
        assert inside.mean() > 0.9
        found.append(posterior.attrs["invgp_runs"])
    assert max(found) <= 500
    assert found[1] <= 1.5 * found[0]


@pytest.mark.slow
def test_that_sites_that_the_emulator_cannot_serve_are_named():
    problem, _ = line(rough, 100, max_evaluations=5)
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_runs"] < 4000  # the simulator itself would take tens of thousands
    assert posterior.attrs["invgp_converged"] == "no"
    assert "less accurate than inference.emulator_error" in posterior.attrs["invgp_diagnostics"]


@pytest.mark.slow
def test_that_the_budget_of_shared_runs_is_never_exceeded():
    problem, _ = line(curve, 300, max_runs=90)
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_runs"] <= 90


@pytest.mark.slow
def test_that_the_forecast_of_shared_runs_is_within_a_factor_of_two(tmp_path):
    problem, _ = line(curve, 300)
    used = invgp.invert(problem).attrs["invgp_runs"]
    pilot = run_pilot(problem, pilot_size(problem), directory=tmp_path)
    for forecast in (expected_cost(problem), expected_cost(problem, pilot)):
        assert used / 2 <= forecast.runs <= 2 * used


def test_that_a_check_needs_small_errors_everywhere():
    options, small = RefinementOptions(), np.full(50, 0.01)
    assert Check(small, small).is_good(0.2, 100.0, options)
    assert not Check(small, small).is_good(0.2, 10_000.0, options)  # so many sites share the error
    assert Check(small, small).is_accurate(0.2, options)
    assert not Check(small, np.full(50, 0.5)).is_accurate(0.2, options)
    assert not Check(np.full(50, np.nan), small).is_accurate(0.2, options)
    assert Check(small, small[:0]).is_good(0.2, 100.0, options)


def test_that_a_search_whose_emulator_fails_at_many_sites_has_not_converged():
    state = SearchState(None, None, None, None, None, result=SearchResult("found", converged=True))
    few, many = (replace(state, inaccurate=np.arange(100) < count) for count in (5, 6))
    assert judge_accuracy(state).result.converged
    assert judge_accuracy(few).result.converged
    assert not judge_accuracy(many).result.converged


def test_that_close_sites_have_a_conditional_covariance_with_a_factor():
    x = np.linspace(0.0, 1e-3, 200)
    covariance = np.exp(-0.5 * (x[:, None] - x) ** 2) - np.exp(-0.5 * x[:, None] ** 2) * np.exp(-0.5 * x**2)
    covariance -= 1e-13 * np.eye(200)  # rounding
    factor = _factor(covariance, 1.0)
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=2e-8)
