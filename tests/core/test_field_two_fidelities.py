"""The regression of a fine model by a coarse one and a correction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.linear_field import LinearProblem
from invgp.core.backend import Backend, to_numpy
from invgp.core.field.field_gaussian import LowRankGaussian
from invgp.core.field.field_inference import FieldState
from invgp.core.field.regression import fit_regression
from invgp.core.field.two_fidelities import CoarseTrend, left_out_error


def run(
    problem: LinearProblem, backend: Backend, batches: list[int], coarse: np.ndarray, curvature: float = 0.0
) -> FieldState:
    """Run the inference with 60 runs of the linear coarse model with this matrix (D, R); the fine one may be curved."""
    rng, state = np.random.default_rng(1), problem.inference.init()
    at = rng.standard_normal((60, problem.size))
    of_coarse = backend.asarray(at), backend.asarray(1.0 + at @ coarse.T)
    for count in batches:
        w = problem.inference.ask(state, count, rng)
        linear = problem.outputs(to_numpy(w))
        outputs = backend.asarray(linear + curvature * linear**2)
        state, _ = problem.inference.tell(state, w, outputs, rng, coarse=of_coarse)
    return state


def trend_of(state: FieldState) -> CoarseTrend:
    assert state.regression is not None
    trend = state.regression.parts[0].trend
    assert isinstance(trend, CoarseTrend)
    return trend


@pytest.mark.parametrize("factor", [1.0, 0.4])
def test_that_few_runs_correct_a_coarse_model_with_another_offset_and_factor(backend: Backend, factor: float) -> None:
    """Fewer runs than variables: without the coarse model the posterior would be far too wide."""
    problem = LinearProblem(backend)
    state = run(problem, backend, [6], factor * problem.A)
    assert problem.size > 15
    rounding = 1e-3 if backend.dtype == "float64" else 1e-1
    assert trend_of(state).factor == pytest.approx(1.0 / factor, rel=rounding)
    np.testing.assert_allclose(to_numpy(state.q.mean), problem.mean, atol=rounding)
    np.testing.assert_allclose(to_numpy(state.q.covariance), problem.covariance, atol=rounding)


@pytest.mark.parametrize("kind", ["near", "unrelated", "opposite"])
def test_that_any_coarse_model_gives_the_posterior_of_the_fine_one(numpy_backend: Backend, kind: str) -> None:
    """With more runs than variables, a linear model is known exactly, whatever the coarse model is."""
    problem = LinearProblem(numpy_backend)
    other = np.random.default_rng(5).standard_normal(problem.A.shape)
    coarse = {"near": problem.A + 0.1 * other, "unrelated": other, "opposite": -problem.A}[kind]
    state = run(problem, numpy_backend, [8, problem.size], coarse)
    np.testing.assert_allclose(state.q.mean, problem.mean, atol=0.02)
    np.testing.assert_allclose(state.q.covariance, problem.covariance, atol=0.02)


def test_that_a_useless_coarse_model_does_not_hide_what_few_runs_leave_open(numpy_backend: Backend) -> None:
    problem = LinearProblem(numpy_backend)
    coarse = np.random.default_rng(5).standard_normal(problem.A.shape)
    state = run(problem, numpy_backend, [8], coarse)
    off = problem.modes @ (to_numpy(state.q.mean) - problem.mean)
    assert np.sqrt(np.mean((off / problem.spread(to_numpy(state.q.covariance))) ** 2)) < 1.2
    assert np.median(problem.spread(to_numpy(state.q.covariance)) / problem.spread(problem.covariance)) > 1.5


def test_that_derivatives_and_averages_contain_the_coarse_model(numpy_backend: Backend) -> None:
    problem = LinearProblem(numpy_backend)
    state = run(problem, numpy_backend, [8, 6], 0.9 * problem.A, curvature=0.02)
    regression, rng = state.regression, np.random.default_rng(3)
    assert regression is not None
    assert trend_of(state).factor != 0.0
    w, direction = rng.standard_normal((2, 3, problem.size))
    expected, _, chain_rule = regression.predictions_with_derivatives(w)
    np.testing.assert_allclose(expected, regression.predictions(w)[0])
    cotangents = rng.standard_normal(expected.shape)
    slope = np.sum(chain_rule(cotangents, np.zeros_like(expected)) * direction, axis=1)
    both = [regression.predictions(w + sign * 1e-3 * direction)[0] for sign in (1.0, -1.0)]
    np.testing.assert_allclose(slope, np.sum(cotangents * (both[0] - both[1]), axis=1) / 2e-3, rtol=1e-4, atol=1e-4)
    value, average_slope = regression.average_over(state.linear)
    draws = to_numpy(state.linear.samples(rng.standard_normal((40_000, problem.size))))
    np.testing.assert_allclose(value, regression.predictions(draws)[0].mean(axis=0), atol=0.1)
    ahead = [regression.average_over(moved)[0] for moved in _moved(state, 1e-3)]
    np.testing.assert_allclose(average_slope[:, 0], (ahead[0] - ahead[1]) / 2e-3, rtol=1e-4, atol=1e-4)
    products = regression.inner_products(w)
    again = regression.inner_products(direction)
    np.testing.assert_allclose(regression.inner_products(w + 2.0 * direction), products + 2.0 * again, atol=1e-10)
    np.testing.assert_allclose(regression.predictions(w, products)[0], expected)


def _moved(state: FieldState, step: float) -> list[LowRankGaussian]:
    first = np.eye(len(state.linear.mean))[0]
    return [replace(state.linear, mean=state.linear.mean + sign * step * first) for sign in (1.0, -1.0)]


def test_that_the_error_at_left_out_runs_is_that_of_refitted_regressions(numpy_backend: Backend) -> None:
    problem, rng = LinearProblem(numpy_backend), np.random.default_rng(4)
    w = rng.standard_normal((12, problem.size))
    linear = problem.outputs(w)
    fit = fit_regression(problem.inference.modes, w, linear + 0.03 * linear**2)
    z = fit.covariance @ fit.coefficients
    off = []
    for run_number in range(12):
        rest = np.delete(np.arange(12), run_number)
        weights = np.linalg.solve(fit.covariance[np.ix_(rest, rest)], fit.covariance[rest, run_number])
        off.append(z[run_number] - weights @ z[rest])
    assert left_out_error(fit) == pytest.approx(np.sqrt(np.sum(np.square(off)) / 12), rel=1e-6)
