"""Data that feel the field near them alone: what localisation gains, and what it must not cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import invgp
from invgp.errors import ConfigError

NODES, AT = np.arange(200.0), np.linspace(2.0, 197.0, 60)
LENGTH_SCALE, WINDOW, NOISE = 4.0, 3.0, 0.1


def windows() -> np.ndarray:
    found = np.exp(-0.5 * ((AT[:, None] - NODES) / WINDOW) ** 2)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


class Line(NamedTuple):
    """Local averages of a line, with their exact posterior."""

    problem: invgp.Problem
    mean: np.ndarray
    std: np.ndarray
    truth: np.ndarray

    def found(self, runs: int, reach: float | None) -> tuple[float, float, float]:
        """Error of the mean and spread in exact standard deviations, and that of the truth in those found."""
        reaches = None if reach is None else np.asarray([reach])
        inference = self.problem.inference.replace(max_runs=runs, localisation=reaches)
        posterior = invgp.invert(replace(self.problem, inference=inference), seed=1)
        mean, std = posterior["height"].values, posterior["height_std"].values
        error = np.sqrt(np.mean(((mean - self.mean) / self.std) ** 2))
        off = np.sqrt(np.mean(((mean - self.truth) / std) ** 2))
        return float(error), float(np.median(std / self.std)), float(off)


def describe_problem(**changes: Any) -> dict[str, Any]:
    axis = {"unit": "m", "start": 0, "stop": 199, "step": 1}
    described = {
        "coordinates": {"x": "m"},
        "observations": {"average": "m"},
        "latents": {"height": {"unit": "m", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": LENGTH_SCALE}}},
        "grid": {"x": axis},
        "forward": lambda height: height @ windows().T,
        "noise": {"average": NOISE},
        "inference": {"kept_variance": 0.999},
    }
    return described | changes


@pytest.fixture(scope="module")
def line() -> Line:
    rng = np.random.default_rng(0)
    K = np.exp(-0.5 * ((NODES[:, None] - NODES) / LENGTH_SCALE) ** 2)
    truth = np.linalg.cholesky(K + 1e-8 * np.eye(len(K))) @ rng.standard_normal(len(K))
    W = windows()
    y = W @ truth + NOISE * rng.standard_normal(len(AT))
    gain = K @ W.T @ np.linalg.inv(W @ K @ W.T + NOISE**2 * np.eye(len(AT)))
    problem = invgp.define({"x": AT, "average": y}, **describe_problem())
    return Line(problem, gain @ y, np.sqrt(np.diagonal(K - gain @ W @ K)), truth)


@pytest.mark.slow
def test_that_few_runs_suffice_where_data_are_local(line: Line) -> None:
    error, spread, _ = line.found(20, 15.0)
    assert error < 0.1
    assert spread == pytest.approx(1.0, abs=0.05)
    without = line.found(20, None)
    assert without[0] > 1.0
    assert without[1] > 2.0


@pytest.mark.slow
def test_that_too_short_a_reach_makes_the_posterior_wide_and_not_wrong(line: Line) -> None:
    _, spread, off = line.found(40, 4.0)
    assert spread > 0.95
    assert off < 1.3


@pytest.mark.slow
def test_that_predictions_follow_their_own_block(line: Line) -> None:
    inference = line.problem.inference.replace(max_runs=30, localisation=np.asarray([15.0]))
    posterior = invgp.invert(replace(line.problem, inference=inference))
    expected = windows() @ posterior["height"].values
    np.testing.assert_allclose(posterior["average_predicted"].values, expected, atol=0.3 * NOISE)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"inference": {"localisation": -1.0}}, "inference.localisation: must be"),
        ({"inference": {"localisation": [1.0, 2.0]}}, "inference.localisation: must be one number"),
        (
            {"inference": {"localisation": 9.0}, "coordinates": {"station": "m"}},
            "unless the survey has the coordinates of the grid \\('x'\\): it has no 'x'",
        ),
        ({"inference": {"localisation": 9.0}, "coordinates": {"x": "km"}}, "grid.coordinates.x.unit: must be"),
    ],
)
def test_that_a_mistake_is_reported_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    data = {"x": AT, "station": AT, "average": np.zeros(len(AT))}
    with pytest.raises(ConfigError, match=sentence):
        invgp.define(data, **describe_problem(**changes))
