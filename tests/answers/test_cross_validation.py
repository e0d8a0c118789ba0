"""Cross-validation against the closed form of a linear problem."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import invgp
from helpers.command_line import run_in_process, write_files
from helpers.linear_evidence import data_moments, product_problem
from helpers.problems import linear_problem
from invgp.answers.cross_validation import cross_validation_rows, site_groups
from invgp.answers.emulated_problem import hide_data
from invgp.errors import ConfigError


@pytest.fixture(scope="module")
def inverted_problem():
    problem = linear_problem(posterior="sampled")
    mean, covariance = data_moments(problem)
    y = np.random.default_rng(5).multivariate_normal(mean, covariance).reshape(15, 2)
    columns = zip(problem.survey.observations, y.T, strict=True)
    observations = tuple(replace(one, values=values[:, None]) for one, values in columns)
    problem = replace(problem, survey=replace(problem.survey, observations=observations))
    return problem, invgp.invert(problem)


def exact_scores(problem, groups):
    """Log predictive density of each site's data without its group, and the probability of each datum."""
    mean, covariance = data_moments(problem)
    y, N = problem.survey.Y.ravel(), problem.survey.size
    score, pit = np.empty(N), np.empty((N, 2))
    for n in range(N):
        out = np.repeat(groups == groups[n], 2)
        own = np.asarray([2 * n, 2 * n + 1])
        gain = np.linalg.solve(covariance[np.ix_(~out, ~out)], covariance[np.ix_(~out, own)]).T
        centre = mean[own] + gain @ (y - mean)[~out]
        spread = covariance[np.ix_(own, own)] - gain @ covariance[np.ix_(~out, own)]
        score[n] = multivariate_normal(centre, spread).logpdf(y[own])
        pit[n] = norm.cdf((y[own] - centre) / np.sqrt(np.diagonal(spread)))
    return score, pit


@pytest.mark.slow
@pytest.mark.parametrize("by", ["site", "block"])
def test_that_scores_of_a_linear_problem_are_exact(inverted_problem, by):
    problem, posterior = inverted_problem
    found = invgp.crossvalidate(posterior, by=by, blocks=4, config=problem)
    score, pit = exact_scores(problem, site_groups(problem, by, 4))
    error = np.abs(found["held_out_log_score"].values - score)
    assert np.all(error < np.where(score > -5.0, 0.25, 0.9))  # few draws come near data in the tails
    assert np.median(error) < 0.15
    own = np.stack([found[f"{name}_held_out_probability"].values for name in ("first", "second")], axis=-1)
    np.testing.assert_allclose(own, pit, atol=0.07)
    assert found.attrs["invgp_groups"] == (15 if by == "site" else 4)


@pytest.mark.slow
def test_that_held_out_data_of_a_curved_posterior_are_predicted_as_by_inversions_with_the_simulator():
    problem = product_problem()
    found = invgp.crossvalidate(invgp.invert(problem), config=problem)
    for n in (0, 4):
        mask = np.zeros((8, 1), dtype=bool)
        mask[n] = True
        without = invgp.invert(hide_data(problem, mask))
        draws = (without["a_sample"] * without["b_sample"]).isel(site=n).values
        mean, std = float(draws.mean()), float(np.hypot(draws.std(), 0.3))
        assert float(found["y_held_out_mean"][n]) == pytest.approx(mean, abs=0.3 * std)
        assert float(found["y_held_out_std"][n]) == pytest.approx(std, rel=0.2)


@pytest.mark.slow
def test_that_the_command_does_not_run_the_simulator(tmp_path):
    write_files(tmp_path)
    early = run_in_process("crossvalidate", "survey.toml", cwd=tmp_path)
    assert early.returncode == 2
    assert "run `invgp run survey.toml` first, or give the file of the posterior" in early.stderr
    assert run_in_process("run", "survey.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "was_called").unlink()
    result = json.loads(run_in_process("crossvalidate", "survey.toml", "--json", cwd=tmp_path).stdout)
    assert result["groups"] == 5  # one of the six sites has no datum
    assert result["observations"][0]["data"] == 5
    assert not (tmp_path / "was_called").exists()
    assert (tmp_path / "posterior_crossvalidation.png").stat().st_size > 5000
    failed = run_in_process("crossvalidate", "posterior.nc", "--by", "source", cwd=tmp_path)
    assert failed.returncode == 2
    assert "--by: must be 'site' or 'block', since the problem has one source" in failed.stderr


@pytest.mark.slow
def test_that_each_source_of_a_linear_joint_problem_is_predicted_from_the_others():
    x, wells = np.arange(6.0), np.asarray([1.5, 4.2])
    y, tops = 2.0 + np.sin(x), np.asarray([2.5, 1.1])
    problem = invgp.define(
        {"x": x, "y": y},
        coordinates={"x": "km"},
        observations={"y": "1"},
        latents={"a": {"unit": "1", "mean": 2.0, "std": 1.0, "kernel": {"length_scale": 2.0}}},
        forward=lambda a: {"y": a},
        noise={"y": 0.3},
        direct={"well": {"coordinates": {"x": wells}, "values": {"top": {"quantity": "a", "value": tops, "std": 0.2}}}},
    )
    found = invgp.crossvalidate(invgp.invert(problem), by="source", config=problem)
    places, data = np.append(x, wells), np.append(y, tops)
    noise = np.append(np.full(6, 0.3), np.full(2, 0.2))
    K = problem.latents[0].kernel(places[:, None], places[:, None])
    wells = np.arange(8) >= 6
    for own, name in ((wells, "top"), (~wells, "y")):
        gain = np.linalg.solve(K[np.ix_(~own, ~own)] + np.diag(noise[~own] ** 2), K[np.ix_(~own, own)]).T
        mean = 2.0 + gain @ (data[~own] - 2.0)
        std = np.sqrt(np.diagonal(K[np.ix_(own, own)] - gain @ K[np.ix_(~own, own)]) + noise[own] ** 2)
        np.testing.assert_allclose(found[f"{name}_held_out_mean"].values[own], mean, atol=0.15 * std.min())
        np.testing.assert_allclose(found[f"{name}_held_out_std"].values[own], std, rtol=0.1)
        np.testing.assert_allclose(found["held_out_log_score"][own], norm.logpdf(data[own], mean, std), atol=0.25)
    assert found.attrs["invgp_groups"] == 2
    [_, top] = cross_validation_rows(found)
    residuals = found["top_held_out_residual"].values[wells]
    assert top["residual_rms"] == pytest.approx(np.sqrt(np.mean(residuals**2)))  # 1 if calibrated, also for few data


def test_that_blocks_are_neighbours(inverted_problem):
    problem, _ = inverted_problem
    groups = site_groups(problem, "block", 3)
    assert set(groups) == {0, 1, 2}
    with pytest.raises(ConfigError, match=r"^blocks: must be between 2 and 15, the sites with data, was 99$"):
        site_groups(problem, "block", 99)
