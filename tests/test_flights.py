"""Regression of the airline kind, small: a black-box likelihood beside sparse regression that knows its own."""

import importlib
import subprocess
import sys

import numpy as np
import pytest

from invgp.core.backend import place
from invgp.core.kernels import CORRELATIONS, Kernel


@pytest.fixture(scope="module")
def folder(root):
    return root / "case_studies" / "flights"


@pytest.fixture
def module(folder, monkeypatch):
    """A module of the case study by its name."""
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module


def table(folder, *arguments):
    command = [sys.executable, str(folder / "flights.py"), *arguments]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line[:34].strip(): [float(n) for n in line[34:].split()] for line in said.splitlines()[-6:-1]}


def test_that_sparse_regression_with_all_inputs_is_the_exact_process(module):
    rng, where = np.random.default_rng(0), place("cpu")
    kernel = Kernel(CORRELATIONS["squared exponential"], where.asarray(1.5), where.asarray(np.array([1.0, 2.0])))
    X, X_test, y = rng.standard_normal((30, 2)), rng.standard_normal((7, 2)), rng.standard_normal(30)
    mean, variance = module("baselines").sparse_regression(X, y, X_test, X, kernel, 0.5)
    gain = np.linalg.solve(kernel(X, X) + 0.25 * np.eye(30), kernel(X, X_test))
    np.testing.assert_allclose(mean, gain.T @ y, atol=1e-3)
    np.testing.assert_allclose(variance, 1.5 - np.sum(gain * kernel(X, X_test), axis=0), atol=1e-3)


def test_that_the_black_box_comes_to_the_closed_form_and_beats_a_line(folder, tmp_path):
    arguments = ["--count", "16000", "--inducing", "60", "--epochs", "4", "--subsets", "60", "--output", str(tmp_path)]
    found = table(folder, "generated", *arguments)
    ours, known = found["black box, stochastic"], found["likelihood known, closed form"]
    assert ours[0] == pytest.approx(known[0], rel=0.002)
    assert ours[1] == pytest.approx(known[1], abs=0.002)
    assert (tmp_path / "flights_generated.png").stat().st_size > 10_000
    assert found["the function itself"][0] < ours[0] < found["linear"][0]


def test_that_flights_from_new_york_are_in_order_and_told_apart_in_time(module):
    split = module("data").new_york(4000)
    assert split.X.shape == (3500, 8)
    assert split.X_test.shape == (500, 8)
    assert np.all(np.isfinite(split.X))
    assert split.X_test[:, 6].min() >= split.X[:, 6].max()  # days of January: the test comes after
    np.testing.assert_allclose([split.y.mean(), split.y.std()], [0.0, 1.0], atol=1e-9)


def test_that_sets_of_flights_begin_one_after_the_other(module):
    whole, later = (module("data").new_york(count, offset) for count, offset in ((4000, 0), (3000, 1000)))
    y, y_later = (part.scale * np.concatenate([part.y, part.y_test]) for part in (whole, later))
    np.testing.assert_allclose(np.diff(y[1000:]), np.diff(y_later), atol=1e-9)
