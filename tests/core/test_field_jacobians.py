"""Jacobians in the regression of a field model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from helpers.linear_field import LinearProblem
from invgp.core.backend import Backend, to_numpy
from invgp.core.field.field_gaussian import LowRankGaussian
from invgp.core.field.field_inference import FieldState


def run(problem: LinearProblem, backend: Backend, batches: list[int], curvature: float = 0.0) -> FieldState:
    """Run the inference with Jacobians; the outputs have a quadratic part of this size."""
    rng, state = np.random.default_rng(1), problem.inference.init()
    for count in batches:
        w = problem.inference.ask(state, count, rng)
        host = to_numpy(w)
        linear = problem.outputs(host)
        slopes = (1.0 + 2.0 * curvature * linear)[..., None] * problem.A
        state, _ = problem.inference.tell(
            state, w, backend.asarray(linear + curvature * linear**2), rng, slopes=backend.asarray(slopes)
        )
    return state


def test_that_few_runs_with_jacobians_give_the_posterior_of_a_linear_model(backend: Backend) -> None:
    """Fewer runs than variables: without Jacobians the posterior would be far too wide."""
    problem = LinearProblem(backend)
    state = run(problem, backend, [4])
    assert problem.size > 15
    rounding = 1e-6 if backend.dtype == "float64" else 1e-2
    np.testing.assert_allclose(to_numpy(state.q.mean), problem.mean, atol=rounding)
    np.testing.assert_allclose(to_numpy(state.q.covariance), problem.covariance, atol=rounding)
    assert state.regression is not None
    w = np.random.default_rng(2).standard_normal((5, problem.size))
    found = to_numpy(state.regression.mean(backend.asarray(w)))
    np.testing.assert_allclose(found, problem.outputs(w), rtol=rounding, atol=100.0 * rounding)


def test_that_derivatives_and_averages_contain_the_trend(numpy_backend: Backend) -> None:
    problem = LinearProblem(numpy_backend)
    state = run(problem, numpy_backend, [6, 4], curvature=0.02)
    regression, rng = state.regression, np.random.default_rng(3)
    assert regression is not None
    w, direction = rng.standard_normal((2, 3, problem.size))
    expected, _, chain_rule = regression.predictions_with_derivatives(w)
    np.testing.assert_allclose(expected, regression.predictions(w)[0])
    cotangents = rng.standard_normal(expected.shape)
    slope = np.sum(chain_rule(cotangents, np.zeros_like(expected)) * direction, axis=1)
    both = [regression.predictions(w + sign * 1e-2 * direction)[0] for sign in (1.0, -1.0)]
    np.testing.assert_allclose(slope, np.sum(cotangents * (both[0] - both[1]), axis=1) / 2e-2, rtol=2e-3, atol=1e-2)
    value, average_slope = regression.average_over(state.linear)
    draws = to_numpy(state.linear.samples(rng.standard_normal((40_000, problem.size))))
    np.testing.assert_allclose(value, regression.predictions(draws)[0].mean(axis=0), atol=0.2)
    ahead = [regression.average_over(moved)[0] for moved in _moved(state, 1e-2)]
    np.testing.assert_allclose(average_slope[:, 0], (ahead[0] - ahead[1]) / 2e-2, rtol=2e-3, atol=1e-2)


def _moved(state: FieldState, step: float) -> list[LowRankGaussian]:
    first = np.eye(len(state.linear.mean))[0]
    return [replace(state.linear, mean=state.linear.mean + sign * step * first) for sign in (1.0, -1.0)]


def test_that_the_regression_has_the_slopes_of_the_runs(numpy_backend: Backend) -> None:
    """Between runs it is a guess; at a run it has the outputs and, through the virtual runs, the Jacobian."""
    problem = LinearProblem(numpy_backend)
    state = run(problem, numpy_backend, [6, 4], curvature=0.02)
    regression = state.regression
    assert regression is not None
    assert len(regression.parts[0].w) > 10
    w = to_numpy(state.w)
    linear = problem.outputs(w)
    np.testing.assert_allclose(regression.mean(w), linear + 0.02 * linear**2, atol=0.05)
    direction = np.random.default_rng(3).standard_normal(problem.size)
    both = [regression.mean(w + sign * 1e-4 * direction) for sign in (1.0, -1.0)]
    exact = (1.0 + 0.04 * linear) * (problem.A @ direction)
    off = (both[0] - both[1]) / 2e-4 - exact
    assert np.sqrt(np.mean(off**2)) < 0.05 * np.sqrt(np.mean(exact**2))
