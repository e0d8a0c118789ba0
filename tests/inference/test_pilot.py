"""Forecasts of the number of runs, and the pilot that they come from."""

from dataclasses import replace

import numpy as np
import pytest

import invgp
from invgp.emulation.run_schedule import most_runs, run_budget, runs_of_steps
from invgp.errors import ConfigError, PriorConflictError
from invgp.inference.pilot import Pilot, expected_cost, pilot_size, run_pilot
from invgp.inference.prior_conflict import find_conflicts_at_prior_mean, find_prior_conflicts

SITES = 12


class Counted:
    """A function of one unknown that counts its rows."""

    def __init__(self, function):
        self.function, self.rows = function, 0

    def __call__(self, a):
        self.rows += len(np.atleast_1d(a))
        return self.function(a)


def exponential(a):
    return np.exp(0.3 * a)


def wave(a):
    return np.sin(3.0 * a)


def line(function, factor=1.0, noise=0.05, learn=None, **inference):
    """Sites along a line, with data from the function times a factor."""
    x = np.linspace(0.0, 1.0, SITES)
    truth = np.sin(5.0 * x)
    counted = Counted(function)
    problem = invgp.define(
        {"x": x, "y": factor * function(truth)},
        coordinates={"x": "km"},
        observations={"y": {"unit": "s"}},
        latents={"a": {"unit": "1", "mean": 0.1, "std": 1.0, "kernel": {"length_scale": 0.3}}},
        noise={"std": {"y": noise * factor}} | ({"learn": learn} if learn else {}),
        forward=counted,
        inference={"posterior": "coupled gaussian", **inference},
    )
    return problem, counted


def test_that_the_runs_of_a_pilot_are_the_first_of_the_inversion(tmp_path):
    problem, counted = line(exponential)
    alone = invgp.invert(problem)
    ledger, counted.rows = tmp_path / "runs.sqlite", 0
    pilot = run_pilot(problem, pilot_size(problem), directory=tmp_path, ledger=ledger)
    assert pilot.runs == counted.rows == pilot_size(problem) < alone.attrs["invgp_runs"]
    after = invgp.invert(problem, ledger=ledger)
    assert after.attrs["invgp_runs_from_ledger"] == pilot.runs
    assert counted.rows == after.attrs["invgp_runs"] == alone.attrs["invgp_runs"]  # none is made twice
    for name in ("a", "a_std", "elbo"):
        np.testing.assert_array_equal(after[name], alone[name])
    again = run_pilot(problem, pilot_size(problem), directory=tmp_path, ledger=ledger)
    assert (again.runs, again.reused) == (pilot.runs, pilot.runs)
    assert np.isnan(again.pace)


@pytest.mark.parametrize("posterior", ["coupled gaussian", "sampled"])
def test_that_a_forecast_is_within_a_factor_of_two(posterior, tmp_path):
    problem, _ = line(exponential, posterior=posterior)
    pilot = run_pilot(problem, pilot_size(problem), directory=tmp_path)
    used = invgp.invert(problem).attrs["invgp_runs"]
    assert used / 2 <= expected_cost(problem, pilot).runs <= 2 * used
    assert used / 2 <= expected_cost(problem).runs <= 2 * used


def test_that_an_inaccurate_emulator_raises_the_forecast(tmp_path):
    smooth, rough = (line(function, posterior="sampled")[0] for function in (exponential, wave))
    costs = [expected_cost(p, run_pilot(p, pilot_size(p), directory=tmp_path)).runs for p in (smooth, rough)]
    assert costs[1] > 1.5 * costs[0]
    gaussian, _ = line(wave)
    pilot = run_pilot(gaussian, pilot_size(gaussian), directory=tmp_path)
    assert pilot.inaccurate_sites > 0
    assert expected_cost(gaussian, pilot).runs > 3 * expected_cost(gaussian).runs


def test_that_a_pilot_that_finishes_the_inversion_gives_its_runs(tmp_path):
    problem, _ = line(exponential)
    used = invgp.invert(problem).attrs["invgp_runs"]
    pilot = run_pilot(problem, 10 * used, directory=tmp_path)
    assert pilot.finished
    assert expected_cost(problem, pilot).runs == used


def test_that_a_forecast_never_exceeds_the_budget():
    problem, _ = line(exponential, max_runs=20)
    assert expected_cost(problem).runs == expected_cost(problem).most == 20
    hopeless = Pilot(12, 0, 0.0, False, (np.nan,))
    assert expected_cost(problem, hopeless).runs == 20


def test_that_a_forecast_is_a_range():
    problem, _ = line(exponential, posterior="sampled")
    cost = expected_cost(problem)
    assert cost.runs < cost.high == run_budget(problem) < cost.most
    finished = Pilot(30, 0, 0.0, True, (0.01,))
    assert expected_cost(problem, finished).high == expected_cost(problem, finished).runs == 30
    small, _ = line(exponential, posterior="sampled", max_runs=50)
    assert expected_cost(small).high == 50


def test_that_site_models_have_a_default_budget():
    assert most_runs(line(exponential)[0]) == 2000
    assert most_runs(line(exponential, emulator=False)[0]) == 60_000
    assert most_runs(line(exponential, max_runs=77)[0]) == 77
    assert most_runs(line(exponential, posterior="full gaussian")[0]) == 2000


def test_that_an_inversion_ends_at_the_default_budget(monkeypatch):
    monkeypatch.setattr("invgp.emulation.run_schedule.MOST_RUNS", 150)
    monkeypatch.setattr("invgp.emulation.run_schedule.MOST_PER_SITE", 1)
    problem, counted = line(wave, noise=0.01, runs_per_site=5)
    posterior = invgp.invert(problem)
    assert counted.rows <= 150
    assert "inference.max_runs = 150, its default," in posterior.attrs["invgp_status"]
    assert posterior.attrs["invgp_converged"] == "no"


@pytest.mark.parametrize("factor", [1000.0, 0.001])
@pytest.mark.parametrize("posterior", ["coupled gaussian", "sampled"])
def test_that_data_in_the_wrong_unit_stop_the_inversion_after_its_first_runs(factor, posterior):
    problem, counted = line(exponential, factor, posterior=posterior)
    with pytest.raises(PriorConflictError, match=r"^the data of y are far outside .* Check the units of y") as error:
        invgp.invert(problem)
    assert counted.rows == runs_of_steps(problem)[0]
    assert "a factor of about" in str(error.value)
    assert error.value.exit_code == 6


@pytest.mark.parametrize(
    ("factor", "noise", "learn", "conflict"),
    [
        (1.0, 0.05, None, False),
        (1.0, 1e-6, None, False),  # the prior explains the data, however small the noise
        (1.5, 0.05, None, False),
        (60.0, 0.05, None, True),
        (1000.0, 0.05, {"y": True}, False),  # learnt noise explains anything
    ],
)
def test_that_only_data_far_outside_the_prior_are_in_conflict(factor, noise, learn, conflict):
    problem, _ = line(exponential, factor, noise, learn)
    rng = np.random.default_rng(0)
    sites = np.arange(40) % SITES
    outputs = exponential(0.1 + rng.standard_normal((40, 1)))
    assert bool(find_prior_conflicts(problem, outputs, sites)) == conflict
    outputs[3] = np.nan
    assert bool(find_prior_conflicts(problem, outputs, sites)) == conflict


def test_that_outputs_without_data_do_not_hide_a_conflict():
    """A field model may return anything at sites where an observation was not made."""
    measured = np.where(np.arange(20) < 10, 60.0, np.nan)
    problem = invgp.define(
        {"x": np.arange(20.0), "y": measured},
        coordinates={"x": "km"},
        observations={"y": {"unit": "s"}},
        latents={"a": {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 1.0}}},
        noise={"std": {"y": 0.05}},
        forward=exponential,
    )
    outputs = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 1))
    sites = np.tile(np.arange(20), 10)
    outputs[sites >= 10] = -200.0
    assert find_prior_conflicts(problem, outputs, sites)


def test_that_the_prior_mean_alone_shows_a_factor_that_the_prior_cannot_explain():
    def problem(std, factor):
        return invgp.define(
            {"x": np.arange(5.0), "y": factor * np.linspace(0.9, 1.1, 5)},
            coordinates={"x": "km"},
            observations={"y": {"unit": "s"}},
            latents={"a": {"unit": "1", "mean": 1.0, "std": std, "link": "log", "kernel": {"length_scale": 1.0}}},
            noise={"std": {"y": 0.1}},
            forward=exponential,
        )

    at_mean = np.ones((5, 1))
    assert find_conflicts_at_prior_mean(problem(0.3, 1000.0), at_mean)
    assert find_conflicts_at_prior_mean(problem(0.3, 0.001), at_mean)
    assert not find_conflicts_at_prior_mean(problem(0.3, 10.0), at_mean)
    assert not find_conflicts_at_prior_mean(problem(30.0, 1000.0), at_mean)
    assert not find_conflicts_at_prior_mean(problem(0.3, -1000.0), at_mean)


def linear_line(length_scale, centre, **inference):
    """The same line, with a linear kernel."""
    problem, _ = line(exponential, **inference)
    x = problem.survey.X[:, 0]
    return invgp.define(
        {"x": x, "y": exponential(x - x[0])},
        coordinates={"x": "km"},
        observations={"y": {"unit": "s"}},
        latents={
            "a": {
                "unit": "1",
                "mean": 0.0,
                "std": 1.0,
                "kernel": {"kind": "linear", "length_scale": length_scale, "centre": centre},
            }
        },
        noise={"std": {"y": 0.05}},
        forward=exponential,
        inference={"posterior": "coupled gaussian", **inference},
    )


@pytest.mark.parametrize(("length_scale", "centre"), [(1e-7, 0.0), (1.0, 1e9), (1e-90, 1e90)])
def test_that_a_linear_kernel_that_is_far_too_large_at_the_sites_is_a_mistake(length_scale, centre):
    with pytest.raises(
        ConfigError, match=r"latents\.a\.kernel: must have a standard deviation of at most 1e\+06 times"
    ):
        linear_line(length_scale, centre)


def test_that_a_site_at_the_centre_of_a_linear_kernel_has_no_information():
    """The prior fixes the value there, so that the variance of the prior is zero."""
    posterior = invgp.invert(linear_line(1.0, 0.0))
    information = posterior["a_information"].values
    assert information[0] == 0.0
    assert (information[1:] > 0.5).all()
    found = invgp.predict(posterior, "x=0:1:0.5")["a_information"].values
    assert found[0] == 0.0
    assert (found[1:] > 0.5).all()


def test_that_a_pilot_reports_a_prior_that_cannot_be_factorised(tmp_path):
    problem = linear_line(1.0, 0.0)
    (latent,) = problem.latents
    broken = replace(latent, kernel=replace(latent.kernel, length_scale=np.asarray([1e-200])))
    with pytest.raises(ConfigError, match="cannot be factorised"), np.errstate(all="ignore"):
        run_pilot(replace(problem, latents=(broken,)), 1, directory=tmp_path)
