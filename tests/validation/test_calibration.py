"""Calibration: truths from the prior, their posteriors, and how often intervals hold the truth."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from helpers.averaged_fields import averages, field_problem
from helpers.problems import map_problem
from invgp import calibrate, netcdf, plots
from invgp.adapters import CallableModel, Quantity
from invgp.core.kernels import Matern32
from invgp.errors import ConfigError, PlotError, RunsFailedError
from invgp.links import LINKS
from invgp.plots.validation_figures import selected_ranks
from invgp.problem import Column, InferenceSettings, Latent, Noise, Observation, Problem, SimulatorVariable, Survey
from invgp.validation import calibration
from invgp.validation import calibration_trial as trial
from invgp.validation.calibration import InterruptedCalibration, identity
from invgp.validation.calibration_trial import run_trial
from invgp.validation.coverage import (
    INTERVALS,
    bin_count,
    count_band,
    coverage_of,
    dependence_of_sites,
    interval_coverage,
    rank_counts,
)
from invgp.validation.simulated_surveys import draw_prior, with_drawn_hyperparameters

SURVEYS = 50
SITES = 5
POSITION = np.arange(float(SITES))
MISSING = 2  # the site where nothing was observed


def twice(depth):
    return 2.0 * depth


def line_problem(noise: float = 2.0, function=twice) -> Problem:
    """A linear simulator and Gaussian noise: the posterior of its one latent is exact."""
    observed = np.zeros((SITES, 1))
    observed[MISSING] = np.nan
    return Problem(
        title="A line",
        survey=Survey((Column("position", "m", POSITION),), (Observation("time", "s", observed),)),
        latents=(Latent("depth", "m", np.asarray([10.0]), np.asarray([2.0]), Matern32(1.0, np.asarray([2.0]))),),
        noise=Noise("gaussian", {"time": np.full((SITES, 1), noise)}),
        forward=CallableModel(function=function, inputs=(Quantity("depth", "m"),), outputs=(Quantity("time", "s"),)),
        inputs=(SimulatorVariable("depth"),),
        outputs=(SimulatorVariable("time"),),
        inference=InferenceSettings(posterior="coupled gaussian", seed=4, emulator=False),
    )


@pytest.fixture(scope="module")
def exact() -> xr.Dataset:
    """The calibration of an exact posterior. Look, do not touch."""
    return calibrate(line_problem(), SURVEYS)


def prior_covariance() -> np.ndarray:
    r = np.sqrt(3.0) * np.abs(POSITION[:, None] - POSITION) / 2.0
    return 4.0 * (1.0 + r) * np.exp(-r)


@pytest.mark.slow
def test_that_an_exact_posterior_has_the_nominal_coverage(exact):
    for latent in ("depth", ""):
        found = coverage_of(exact, latent)
        assert not found.below.any()
        assert not found.above.any()
    assert float(exact["depth_absolute_score"]) == pytest.approx(np.sqrt(2.0 / np.pi), abs=0.1)
    assert float(exact["depth_error_ratio"]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_that_the_ranks_of_an_exact_posterior_are_uniform(exact):
    ranks = selected_ranks(exact, "depth")[:, 0]
    counts = rank_counts(ranks, 10)
    lower, upper = count_band(SURVEYS, 10)
    assert ((lower <= counts) & (counts <= upper)).all()
    assert stats.chisquare(counts).pvalue > 0.01
    assert set(exact["rank_site"].values) == set(range(1, SITES + 1))


def test_that_scores_are_those_of_the_closed_form(exact):
    K, seen = prior_covariance(), np.arange(SITES) != MISSING
    gain = np.linalg.solve(4.0 * K[seen][:, seen] + 4.0 * np.eye(SITES - 1), 2.0 * K[seen]).T
    std = np.sqrt(np.diag(K - 2.0 * gain @ K[seen]))
    for survey in range(SURVEYS):
        one = exact.isel(survey=survey)
        mean = 10.0 + gain @ (one["time_observed"].values[seen] - 20.0)
        np.testing.assert_allclose(one["depth_score"], (one["depth_truth"].values - mean) / std, atol=2e-3)
    np.testing.assert_allclose(exact["depth_pit"], stats.norm.cdf(exact["depth_score"]))
    assert np.abs(exact["depth_rank"] / 100 - exact["depth_pit"]).max() < 0.25


def test_that_truths_and_data_are_drawn_from_the_problem(exact):
    assert np.isnan(exact["time_observed"]).all("survey")[MISSING]
    noise = (exact["time_observed"] - 2.0 * exact["depth_truth"]).values[:, np.arange(SITES) != MISSING]
    assert stats.kstest(noise.ravel() / 2.0, "norm").pvalue > 0.01
    draws = [draw_prior(line_problem(), rng) for rng in np.random.default_rng(1).spawn(2000)]
    np.testing.assert_allclose(np.cov(np.asarray(draws)[..., 0].T), prior_covariance(), atol=0.45)


@pytest.mark.slow
def test_that_half_the_noise_is_reported_as_overconfident():
    result = calibrate(line_problem(noise=1.0), 20, drawn_from=line_problem(noise=2.0))
    assert coverage_of(result).below.all()
    assert float(result["depth_error_ratio"]) > 1.3


@pytest.mark.slow
def test_that_survey_k_depends_neither_on_the_number_of_workers_nor_on_that_of_surveys():
    problem = map_problem(max_evaluations=4)
    alone, two = (calibrate(problem, surveys, workers=workers) for surveys, workers in ((2, 1), (3, 2)))
    per_survey = [name for name, variable in alone.data_vars.items() if "survey" in variable.dims]
    xr.testing.assert_identical(alone[per_survey].drop_attrs(), two[per_survey].isel(survey=slice(2)).drop_attrs())
    assert len({float(value) for value in two["thickness_truth"][:, 0]}) == 3


@pytest.mark.slow
def test_that_finished_surveys_are_not_computed_again(exact, tmp_path):
    calls = []

    def count_runs(depth):
        calls.append(depth)
        return 2.0 * depth

    output = tmp_path / "line.nc"
    first = calibrate(line_problem(function=count_runs), 3, output=output)
    xr.testing.assert_equal(first["depth_truth"], exact["depth_truth"][:3])
    calls.clear()
    again = calibrate(line_problem(function=count_runs), 3, output=output)
    assert not calls
    xr.testing.assert_identical(first.drop_attrs(), again.drop_attrs())
    more = calibrate(line_problem(function=count_runs), 4, output=output)
    xr.testing.assert_equal(more["depth_score"], exact["depth_score"][:4])


def test_that_runs_of_an_unfinished_survey_are_not_repeated(tmp_path):
    calls, last = [], 9

    def count_runs(depth):
        if len(calls) == last:
            raise KeyboardInterrupt
        calls.append(float(depth))
        return 2.0 * depth

    problem = line_problem(function=count_runs)
    problem = replace(problem, forward=replace(problem.forward, vectorised=False, rows=1))
    folder, output = tmp_path / "line.surveys", tmp_path / "line.nc"
    for _ in range(3):
        with pytest.raises(InterruptedCalibration):
            calibrate(problem, 1, output=output)
        assert len(list(folder.glob("*.sqlite"))) == 2
        last += 7
    last = 10**6
    found = calibrate(problem, 1, output=output)
    assert len(calls) == len(set(calls))
    assert [path.name for path in folder.iterdir()] == ["survey00001.nc"]
    xr.testing.assert_equal(found.drop_attrs(), calibrate(line_problem(), 1).drop_attrs())


@pytest.mark.slow
def test_that_an_interruption_carries_the_surveys_that_were_finished(exact, monkeypatch):
    def impatient(problem, source, number, *others):
        if number == 3:
            raise KeyboardInterrupt
        return run_trial(problem, source, number, *others)

    monkeypatch.setattr(calibration, "run_trial", impatient)
    with pytest.raises(InterruptedCalibration) as interruption:
        calibrate(line_problem(), 5)
    xr.testing.assert_equal(interruption.value.result["depth_pit"], exact["depth_pit"][:2])


@pytest.mark.slow
def test_that_a_truth_at_which_the_simulator_fails_is_redrawn_and_counted():
    calls = []

    def fragile(depth):
        calls.append(depth)
        return np.where(depth > 11.0, np.nan, 2.0 * depth)

    result = calibrate(line_problem(), 4, drawn_from=line_problem(function=fragile))
    redrawn = int(result["redrawn"].sum())
    assert redrawn == result.attrs["invgp_truths_redrawn"] > 0
    assert len(calls) == 4 + redrawn
    assert float(result["depth_truth"].max()) <= 11.0


@pytest.mark.slow
def test_that_a_simulator_that_fails_at_every_truth_is_reported_in_one_sentence():
    with pytest.raises(RunsFailedError, match="none of 100 truths drawn from the prior could be simulated"):
        calibrate(line_problem(function=lambda depth: depth * np.nan), 2)


@pytest.mark.slow
def test_that_failed_inversions_are_counted_and_reported_if_all_fail():
    def fails(depth):
        return np.where(depth > limit, np.nan, 2.0 * depth)

    limit = 0.0
    with pytest.raises(RunsFailedError, match="none of 2 simulated surveys could be inverted; survey 1: "):
        calibrate(line_problem(function=fails), 2, drawn_from=line_problem())
    limit = 9.9  # half of the prior: an inversion stops if more than half of its first runs fail
    problem = line_problem(function=fails)
    emulated = problem.with_inference(emulator=True)
    result = calibrate(emulated, 6, drawn_from=line_problem())
    failed = result.attrs["invgp_surveys_failed"]
    assert failed == 6 - result.sizes["survey"] > 0
    assert result.attrs["invgp_first_failure"].startswith("survey ")


def test_that_learnt_parameters_are_drawn_from_their_prior(rng):
    problem = line_problem()
    [latent] = problem.latents
    learnt = replace(
        problem,
        latents=(replace(latent, link=LINKS["log"], learn={"std": 2.0, "length_scale": np.inf}),),
        noise=replace(problem.noise, learn={"time": 1.5}),
    )
    drawn = [with_drawn_hyperparameters(learnt, one) for one in rng.spawn(2000)]
    mean, std = learnt.prior_moments()
    factors = np.log([one.prior_moments()[1] / std for one in drawn])
    assert np.std(factors) == pytest.approx(np.log(2.0), rel=0.1)
    assert np.mean(factors) == pytest.approx(0.0, abs=0.05)
    np.testing.assert_allclose([one.prior_moments()[0] for one in drawn], np.tile(mean, (2000, 1)))
    assert np.std(np.log([one.noise_std[0, 0] for one in drawn])) == pytest.approx(np.log(1.5), rel=0.1)
    assert {float(one.latents[0].kernel.length_scale[0]) for one in drawn} == {2.0}


def test_that_scores_on_the_scale_of_a_log_link_are_right():
    mean, std = np.asarray([[1.0, 2.0]]), np.asarray([[0.3, 0.5]])
    f = mean + std * np.asarray([[-1.3, 5.0]])
    levels = stats.norm.ppf(np.asarray(trial.LEVELS))[:, None, None]
    link = LINKS["log"]
    np.testing.assert_allclose(trial.normal_scores(f, mean + std * levels, std), [[-1.3, 5.0]])
    _, physical_std = link.moments(mean[0], np.diag(std[0] ** 2))
    scores = trial.normal_scores(link(f), link(mean + std * levels), physical_std[None])
    assert scores[0, 0] == pytest.approx(-1.3, abs=1e-3)
    assert scores[0, 1] > 4.5


def test_that_dependent_sites_do_not_narrow_the_band(rng):
    """Calibrated posteriors leave a band of 95% five times in a hundred, also where sites are copies of each other."""
    pits = np.repeat(rng.random((2000, 60, 1)), 10, axis=2)
    flagged = [found.below or found.above for found in (interval_coverage(pit, 0.5) for pit in pits)]
    assert 0.03 < np.mean(flagged) < 0.07
    assert interval_coverage(0.4 + 0.2 * pits[0], 0.5).above
    assert interval_coverage(np.round(pits[0]), 0.5).below
    pit = rng.random((60, 10, 2))
    together = interval_coverage(pit, 0.8, tests=30)
    assert together.share.shape == (2,)
    assert (
        together.upper - together.lower > interval_coverage(pit, 0.8).upper - interval_coverage(pit, 0.8).lower
    ).all()


def flagged_share(pits, tests=3):
    """Share of calibrations (K, N, R) with a coverage outside its band, below and above."""
    found = [interval_coverage(pits, interval, tests) for interval in INTERVALS]
    return np.mean(np.any([one.below for one in found], axis=0)), np.mean(np.any([one.above for one in found], axis=0))


@pytest.mark.parametrize("surveys", [3, 8, 24, 100])
@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9, 1.0])
def test_that_few_calibrated_posteriors_are_flagged_however_dependent_the_sites_are(surveys, shared, rng):
    """`shared` is the correlation of the errors of any two sites; three standard errors of 400 calibrations are 3%."""
    common, own = rng.standard_normal((surveys, 1, 400)), rng.standard_normal((surveys, 40, 400))
    assert sum(flagged_share(stats.norm.cdf(np.sqrt(shared) * common + np.sqrt(1.0 - shared) * own))) < 0.08


def test_that_the_power_of_a_band_is_that_of_the_binomial_distribution(rng):
    """With copies as sites, the surveys are Bernoulli trials.

    The posterior has 3/8 of the right spread: 95% intervals contain 53.8% of the truths. At 8 surveys the band begins
    at 0.95 - 3.13 sqrt(0.95 0.05 / 8) = 0.709, with the quantile of Student's t for 3 tests: 5 of 8 are outside.
    """
    inside = 2.0 * stats.norm.cdf(3.0 / 8.0 * stats.norm.ppf(0.975)) - 1.0
    truths = stats.norm.cdf(8.0 / 3.0 * rng.standard_normal((8, 1, 4000)))
    found = interval_coverage(np.repeat(truths, 6, axis=1), 0.95, tests=3)
    assert found.lower == pytest.approx(0.95 - stats.t.ppf(1.0 - 0.025 / 3.0, 7) * np.sqrt(0.95 * 0.05 / 8.0))
    assert np.mean(found.below) == pytest.approx(stats.binom.cdf(5, 8, inside), abs=0.03)


def test_that_the_dependence_of_sites_is_estimated_for_any_coverage(rng):
    """Pairs of copies among 40 sites double the variance of independent ones, also if the posterior is too narrow."""
    normals = np.repeat(rng.standard_normal((5000, 20)), 2, axis=1)
    for factor in (1.0, 4.0):
        assert dependence_of_sites(stats.norm.cdf(factor * normals)) == pytest.approx(2.0 / 40.0, rel=0.1)
    assert dependence_of_sites(np.full((5, 40), 0.5)) == 1.0


def test_that_one_survey_has_the_band_of_one_truth():
    found = interval_coverage(np.full((1, 50), 0.5), 0.95)
    assert float(found.standard_error) == pytest.approx(np.sqrt(0.95 * 0.05))
    assert not found.above


@pytest.mark.parametrize("surveys", [7, 60, 200, 1000])
def test_that_the_band_of_a_bin_is_binomial(surveys):
    bins = bin_count(surveys)
    assert count_band(surveys, bins) == tuple(stats.binom.ppf([0.005, 0.995], surveys, 1.0 / bins))
    assert rank_counts(np.arange(100), bins).tolist() == [100 // bins] * bins


@pytest.mark.slow
def test_that_a_calibration_survives_its_file_and_is_drawn(exact, tmp_path):
    path = netcdf.write(exact, tmp_path / "calibration.nc")
    read = netcdf.read(path)
    xr.testing.assert_identical(read.drop_attrs(), exact.drop_attrs())
    assert read["depth_truth"].attrs == {"long_name": "true depth", "units": "m"}
    assert read.attrs["invgp_surveys"] == SURVEYS
    coverage_panel, ranks_panel = plots.plot_calibration(read).axes
    assert coverage_panel.get_xlabel() == "Probability of the interval (%)"
    [bars] = ranks_panel.containers
    assert sum(bar.get_height() for bar in bars) == SURVEYS
    figures = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for figure in figures:
        plots.save_figure(plots.plot_calibration(read), figure)
    assert figures[0].read_bytes() == figures[1].read_bytes()


@pytest.mark.slow
def test_that_every_label_has_its_panel_and_the_coordinate_system_stays(tmp_path):
    result = calibrate(map_problem(max_evaluations=2), 2)
    titles = [ax.get_title(loc="left") for ax in plots.plot_calibration(result).axes]
    assert titles == [
        "(a) resistivity",
        "(b) thickness",
        "(c) resistivity, layer 1",
        "(d) resistivity, layer 2",
        "(e) thickness",
    ]
    assert result["crs"].attrs["grid_mapping_name"] == "transverse_mercator"
    assert result["resistivity_coverage"].dims == ("interval", "layer")
    netcdf.write(result, tmp_path / "map.nc")


def test_that_a_posterior_is_not_drawn_as_a_calibration(exact):
    with pytest.raises(PlotError, match="not an invgp calibration"):
        plots.plot_calibration(exact.drop_vars("depth_rank"))


def test_that_the_identity_of_a_calibration_is_all_that_decides_it():
    problem = line_problem()
    same = replace(problem, title="B", inference=problem.inference.replace(workers=7))
    assert identity(problem, 4) == identity(same, 4) == identity(line_problem(), 4)
    others = [line_problem(noise=1.0), problem.with_inference(samples=32)]
    assert len({identity(other, 4) for other in (problem, *others)} | {identity(problem, 5)}) == 4


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"surveys": 0}, "surveys: must be at least 1, was 0"),
        ({"surveys": 1, "workers": 0}, "workers: must be at least 1, was 0"),
        ({"surveys": 1, "seed": -1}, "seed: must be at least 0, was -1"),
        ({"surveys": 1, "drawn_from": map_problem()}, "drawn_from: must have the sites, observations, latents and"),
    ],
)
def test_that_settings_out_of_range_are_refused(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        calibrate(line_problem(), **settings)


def test_that_a_name_that_the_file_needs_itself_is_refused():
    problem = line_problem()
    named = replace(problem, survey=replace(problem.survey, coordinates=(Column("survey", "m", POSITION),)))
    with pytest.raises(ConfigError, match="'survey' must be the name of one thing in a calibration's file"):
        calibrate(named, 1)


@pytest.mark.slow
@pytest.mark.parametrize("posterior", ["coupled gaussian", "sampled"])
def test_that_field_models_are_calibrated_at_their_nodes(posterior, tmp_path):
    problem = field_problem(posterior=posterior, max_runs=60, seed=2)
    result = calibrate(problem, 12, output=tmp_path / "field.nc", plot=tmp_path / "field.png")
    assert result["field_pit"].dims == ("survey", "node")
    assert result["datum_observed"].dims == ("survey", "site")
    assert len(set(result["rank_node"].values)) > 1
    found = coverage_of(result)
    assert not found.below.any()
    assert not found.above.any()
    assert float(result["field_error_ratio"]) == pytest.approx(1.0, abs=0.35)
    # The truths have the spread of the prior, and the data are theirs with noise.
    assert float(result["field_truth"].std()) == pytest.approx(1.0, abs=0.3)
    residual = result["datum_observed"].values - averages(result["field_truth"].values)
    assert np.sqrt(np.mean(residual**2)) == pytest.approx(0.1, rel=0.25)
    assert (tmp_path / "field.png").stat().st_size > 10_000


def test_that_scores_of_draws_are_finite_for_ties_and_beyond_the_outermost_draw():
    draws = np.sort(np.random.default_rng(0).standard_normal(500))
    draws[200:300] = draws[200]  # equal draws, as resampling makes them
    quantiles = np.quantile(draws, trial.LEVELS)[:, None]
    truth = np.asarray([draws[200], -20.0, 20.0, draws[-1]])
    scores = trial.normal_scores(truth, np.broadcast_to(quantiles, (len(quantiles), 4)), np.ones(4))
    assert np.isfinite(scores).all()
    assert scores[1:3] == pytest.approx([-4.0 - (20.0 + draws[0]), 4.0 + (20.0 - draws[-1])], abs=0.2)
    middle = stats.norm.ppf([0.4, 0.6])
    assert middle[0] - 0.1 < scores[0] < middle[1] + 0.1
