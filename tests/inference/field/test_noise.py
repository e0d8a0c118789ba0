"""Noise of field models: correlated, heavy-tailed, from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import invgp
from helpers.local_averages import POSITIONS, exact_moments, windows
from invgp.core.backend import select_backend
from invgp.errors import ConfigError
from invgp.execution.simulator import Simulator
from invgp.inference.field import prepare_field, run_batch
from invgp.inference.runner import Runner


def test_that_student_t_noise_is_understood(load_problem: Callable[..., invgp.Problem]) -> None:
    problem = load_problem({"std.average": 'kind = "student-t"\nstd.average', "seed = 3": "seed = 3\nmax_runs = 40"})
    Y = problem.survey.observations[0].values.copy()
    Y[7] += 15.0
    survey = replace(problem.survey, observations=(replace(problem.survey.observations[0], values=Y),))
    mean, std = exact_moments(problem)
    posterior = invgp.invert(replace(problem, survey=survey))
    assert float(np.abs(posterior["depth"] - mean).max()) < 3.0 * std.max()


def test_that_noise_may_go_together_over_distances(load_problem: Callable[..., invgp.Problem]) -> None:
    problem = load_problem(
        {
            "std.average = 0.5": "std.average = 0.5\ncorrelation_length.average = 15",
            "kept_variance = 0.999": "kept_variance = 0.9999999",
        }
    )
    posterior = invgp.invert(problem)
    noise = 0.25 * np.exp(-np.abs(POSITIONS[:, None] - POSITIONS) / 15.0)
    mean, std = exact_moments(problem, noise)
    np.testing.assert_allclose(posterior["depth"], mean, atol=0.005)
    np.testing.assert_allclose(posterior["depth_std"], std, rtol=0.01)
    assert np.abs(mean - exact_moments(problem)[0]).max() > 0.1  # or it would say nothing


def test_that_correlated_noise_gives_the_exact_posterior_of_the_modes(
    load_problem: Callable[..., invgp.Problem], folder: Path
) -> None:
    problem = load_problem({"std.average = 0.5": "std.average = 0.5\ncorrelation_length.average = 15"})
    runner = Runner(Simulator(problem, folder / "runs"))
    search, state = prepare_field(problem, select_backend("cpu"), runner, 0)
    for count in (state.model.variables + 2, 10):
        state = run_batch(search, runner, state, count)
    seen = ~np.isnan(problem.survey.Y[:, 0])
    A = (windows(problem.grid.X[:, 0]) @ (4.0 * state.model.field.bases[0].modes))[seen]
    X = POSITIONS[seen]
    weight = np.linalg.inv(0.25 * np.exp(-np.abs(X[:, None] - X) / 15.0))
    whole = np.linalg.inv(np.eye(A.shape[1]) + A.T @ weight @ A)
    mean = whole @ A.T @ weight @ (problem.survey.Y[seen, 0] - 20.0)
    np.testing.assert_allclose(state.inference.q.mean, mean, atol=1e-6)
    np.testing.assert_allclose(state.inference.q.covariance, whole, atol=1e-6)
    data = A @ A.T + np.linalg.inv(weight)
    off = problem.survey.Y[seen, 0] - 20.0
    evidence = -0.5 * (off @ np.linalg.solve(data, off) + np.linalg.slogdet(2.0 * np.pi * data)[1])
    assert abs(runner.bound - evidence) < 1e-3


@pytest.mark.parametrize("ending", ["csv", "npy"])
def test_that_the_noise_of_all_data_may_come_from_a_file(
    load_problem: Callable[..., invgp.Problem], folder: Path, ending: str
) -> None:
    rng = np.random.default_rng(3)
    root = 0.2 * rng.standard_normal((14, 14))
    noise = root @ root.T + 0.1 * np.eye(14)
    noise[4] = noise[:, 4] = np.nan  # nothing was measured there
    if ending == "csv":
        np.savetxt(folder / "noise.csv", noise, delimiter=",", fmt="%.17g")
    else:
        np.save(folder / "noise.npy", noise)
    problem = load_problem(
        {"std.average = 0.5": f'covariance = "noise.{ending}"', "kept_variance = 0.999": "kept_variance = 0.9999999"}
    )
    posterior = invgp.invert(problem)
    mean, std = exact_moments(problem, noise)
    np.testing.assert_allclose(posterior["depth"], mean, atol=0.005)
    np.testing.assert_allclose(posterior["depth_std"], std, rtol=0.01)
    np.testing.assert_allclose(posterior["average_noise_std"][:4], np.sqrt(np.diagonal(noise))[:4])


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.eye(13), "noise.covariance: must be 14 by 14, a row for each number of each site in turn, was 13 by 13"),
        (np.ones((14, 14)), "noise.covariance: must be positive definite, was not"),
        (np.eye(14) + np.tri(14), "noise.covariance: must be symmetric, was not"),
        (-np.eye(14), "noise.covariance: must have variances above 0 on its diagonal, had -1"),
        (1e-40 * np.eye(14), "noise.covariance, standard deviation of average: must be at least 1e-12 times the"),
        (np.full((14, 14), np.inf), "noise.covariance: must hold finite numbers wherever there are observations"),
        (None, "noise.covariance: must be a file that can be read, was"),
        ("a,b\n1,2\n", "noise.covariance: must be a CSV file of numbers without a header, or a NumPy file"),
    ],
)
def test_that_an_invalid_covariance_is_reported(
    load_problem: Callable[..., invgp.Problem], folder: Path, matrix: np.ndarray | str | None, sentence: str
) -> None:
    if isinstance(matrix, str):
        (folder / "noise.csv").write_text(matrix, encoding="utf-8")
    elif matrix is not None:
        np.savetxt(folder / "noise.csv", matrix, delimiter=",")
    with pytest.raises(ConfigError) as caught:
        load_problem({"std.average = 0.5": 'covariance = "noise.csv"'})
    assert sentence in str(caught.value)


def test_that_an_empty_file_with_a_covariance_is_reported_in_one_sentence(
    load_problem: Callable[..., invgp.Problem], folder: Path
) -> None:
    (folder / "noise.npy").touch()
    with pytest.raises(ConfigError, match=r"noise\.covariance: must be a CSV file of numbers .* it is empty"):
        load_problem({"std.average = 0.5": 'covariance = "noise.npy"'})


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("std.average = 0.5", 'covariance = "n.csv"\nstd.average = 1', "noise.std: must be left out with noise.cov"),
        (
            "std.average = 0.5",
            'kind = "student-t"\nstd.average = 1\ncorrelation_length.average = 2',
            "noise.correlation_length: must be left out where noise.kind is not 'gaussian'",
        ),
        (
            "std.average = 0.5",
            "std.average = 1\ncorrelation_length.averge = 2",
            "noise.correlation_length.averge: must",
        ),
    ],
)
def test_that_inconsistent_noise_settings_are_reported(
    load_problem: Callable[..., invgp.Problem], old: str, new: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_problem({old: new})
    assert sentence in str(caught.value)
