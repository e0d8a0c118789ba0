"""Field models whose runs lack some outputs, from the problem to the posterior."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import invgp
from helpers.missing_outputs import Lacking, Mask
from invgp.core.backend import select_backend
from invgp.core.field.field_inference import FieldInferenceOptions
from invgp.execution.simulator import Simulator
from invgp.inference.field import prepare_field, run_batch
from invgp.inference.field_solution import field_solution
from invgp.inference.runner import Runner

NODES, AT = np.arange(0.0, 60.0, 2.0), np.arange(3.0, 60.0, 6.0)
CORRELATION = np.asarray([[1.0, 0.8], [0.8, 1.0]])


def windows() -> np.ndarray:
    """(20, 30): two averages at each of ten sites, over windows of two widths."""
    parts = [np.exp(-0.5 * ((AT[:, None] - NODES) / width) ** 2) for width in (4.0, 8.0)]
    return np.stack([part / part.sum(axis=1, keepdims=True) for part in parts], axis=1).reshape(20, -1)


def missing_in_turns(number: np.ndarray) -> np.ndarray:
    """Half of the runs lack the first number of each site, the others the second."""
    return (number[:, None] < 0.5) == (np.arange(20) % 2 == 0)


def some(number: np.ndarray) -> np.ndarray:
    """Four runs in ten lack the first number of each site."""
    return (number[:, None] < 0.4) & (np.arange(20) % 2 == 0)


def problem_with(mask: Mask | None, **inference: Any) -> invgp.Problem:
    rng = np.random.default_rng(0)
    K = np.exp(-0.5 * ((NODES[:, None] - NODES) / 10.0) ** 2)
    truth = np.linalg.cholesky(K + 1e-8 * np.eye(len(K))) @ rng.standard_normal(len(K))
    root = np.kron(np.eye(10), np.linalg.cholesky(CORRELATION))
    data = windows() @ truth + 0.1 * root @ rng.standard_normal(20)
    problem = invgp.define(
        {"x": AT, "narrow": data[::2], "wide": data[1::2]},
        coordinates={"x": "m"},
        observations={"average": {"unit": "m", "columns": ["narrow", "wide"], "dimension": "window"}},
        dimensions={"window": [1, 2]},
        latents={"height": {"unit": "m", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 10.0}}},
        grid={"x": {"unit": "m", "start": 0, "stop": 58, "step": 2}},
        forward=lambda height: height @ windows().T,
        noise={"average": 0.1},
        inference={"kept_variance": 0.9999, "max_runs": 60} | inference,
    )
    return problem if mask is None else replace(problem, forward=Lacking(problem.forward, mask))


def correlate_noise(problem: invgp.Problem) -> invgp.Problem:
    return replace(problem, noise=replace(problem.noise, correlation={"average": CORRELATION}))


def exact_moments(problem: invgp.Problem, correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the height, in closed form."""
    K, W = np.exp(-0.5 * ((NODES[:, None] - NODES) / 10.0) ** 2), windows()
    gain = K @ W.T @ np.linalg.inv(W @ K @ W.T + 0.01 * np.kron(np.eye(10), correlation))
    return gain @ problem.survey.Y.ravel(), np.sqrt(np.diagonal(K - gain @ W @ K))


@pytest.mark.parametrize("reach", [None, 40.0])
def test_that_numbers_of_a_site_with_correlated_noise_need_not_come_together(reach: float | None) -> None:
    """No run has both: each is known all the same."""
    located = {} if reach is None else {"localisation": reach}
    problem = correlate_noise(problem_with(missing_in_turns, max_runs=120, **located))
    posterior = invgp.invert(problem)
    mean, std = exact_moments(problem, CORRELATION)
    assert np.abs((mean - exact_moments(problem, np.eye(2))[0]) / std).max() > 0.3  # or it would say nothing
    np.testing.assert_allclose((posterior["height"] - mean) / std, 0.0, atol=0.1)
    np.testing.assert_allclose(posterior["height_std"] / std, 1.03, atol=0.05)


def test_that_runs_without_gaps_count_as_before_once_one_has_some(tmp_path: Path) -> None:
    problem = correlate_noise(problem_with(None))
    runner = Runner(Simulator(problem, tmp_path))
    search, state = prepare_field(problem, select_backend("cpu"), runner, 0)
    state = run_batch(search, runner, state, 30)
    whole = state.inference.q
    runner.simulator.problem = replace(problem, forward=Lacking(problem.forward, missing_in_turns))
    state = run_batch(search, runner, state, 8)
    assert state.model.whitening.unmixing is not None
    np.testing.assert_allclose(state.inference.q.mean, whole.mean, atol=0.01)
    np.testing.assert_allclose(state.inference.q.covariance, whole.covariance, atol=0.01)


def test_that_an_inversion_with_missing_outputs_can_be_stopped_and_resumed(tmp_path: Path) -> None:
    problem = correlate_noise(problem_with(some, max_runs=40))
    alone = invgp.invert(problem, ledger=tmp_path / "runs.sqlite")
    again = invgp.invert(problem, ledger=tmp_path / "runs.sqlite")
    for name in ("height", "height_std", "height_sample", "height_few_runs_std", "average_predicted"):
        np.testing.assert_array_equal(again[name], alone[name])
    assert again.attrs["invgp_runs_from_ledger"] == 40


def test_that_hyperparameters_are_learnt_in_spite_of_gaps() -> None:
    scales, noises = [], []
    for mask in (None, some):
        problem = correlate_noise(problem_with(mask, max_runs=100))
        latent = replace(problem.latents[0], learn={"length_scale": 2.0})
        learning = replace(problem, latents=(latent,), noise=replace(problem.noise, learn={"average": 2.0}))
        posterior = invgp.invert(learning)
        scales.append(float(posterior["height"].attrs["length_scale"]))
        noises.append(float(posterior["average_noise_std"].values.flat[0]))
    assert abs(scales[0] - 10.0) > 0.2  # or nothing was learnt
    assert scales[1] == pytest.approx(scales[0], rel=0.02)
    assert noises[1] == pytest.approx(noises[0], rel=0.02)


def test_that_an_output_missing_in_the_nearest_runs_contributes_no_information(tmp_path: Path) -> None:
    problem = problem_with(None)
    runner = Runner(Simulator(problem, tmp_path))
    search, state = prepare_field(problem, select_backend("cpu"), runner, 0)
    state = run_batch(search, runner, state, 12)
    few = replace(state.model.algorithm, options=FieldInferenceOptions(max_fitted_runs=1))  # or twice the modes
    state = replace(state, model=replace(state.model, algorithm=few))
    runner.simulator.problem = replace(
        problem, forward=Lacking(problem.forward, lambda number: (number[:, None] < 2.0) & (np.arange(20) < 2))
    )
    state = run_batch(search, runner, state, 4 * state.model.variables)
    scale = np.asarray(state.inference.regression.scale)
    assert len(state.inference.fitted_runs) == 2 * state.model.variables
    assert np.all(scale[:2] < 1e-5)
    np.testing.assert_allclose(scale[2:], 1.0)
    _, solution = field_solution(search, runner, state)
    assert np.isnan(solution.predicted[0]).all()
    assert not np.isnan(solution.predicted[1:]).any()
    assert not np.isnan(solution.mean).any()


@pytest.mark.parametrize("output", [0, 19])
def test_that_a_gap_does_not_blur_data_with_noise_in_common(output: int) -> None:
    """Wherever it is: the others say what they would without it."""
    problem = problem_with(lambda number: (number[:, None] < 0.75) & (np.arange(20) == output), max_runs=24)
    shared = 0.01 * (
        0.3 + 0.63 * np.exp(-0.5 * ((np.arange(20)[:, None] - np.arange(20)) / 2.0) ** 2) + 0.07 * np.eye(20)
    )
    posterior = invgp.invert(replace(problem, noise=replace(problem.noise, covariance=shared)))
    K, others = np.exp(-0.5 * ((NODES[:, None] - NODES) / 10.0) ** 2), np.arange(20) != output
    W = windows()[others]
    gain = K @ W.T @ np.linalg.inv(W @ K @ W.T + shared[np.ix_(others, others)])
    std = np.sqrt(np.diagonal(K - gain @ W @ K))
    assert np.all(posterior["height_std"] < 1.03 * std)
