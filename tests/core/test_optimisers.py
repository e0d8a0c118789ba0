import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from invgp.core.backend import device_of, to_numpy
from invgp.core.optimisers import LBFGS
from invgp.core.stochastic_optimisers import AdaDelta, Adam


def search(optimiser, start, backend, function, derivative, limit=500):
    state = optimiser.init(backend.asarray(start))
    evaluations = 0
    while not state.finished and evaluations < limit:
        x = to_numpy(state.trial)
        state = optimiser.tell(state, float(function(x)), backend.asarray(derivative(x)))
        evaluations += 1
    return state, evaluations


def test_that_it_finds_the_minimum_of_a_curved_valley_as_scipy_does(backend, tolerance):
    start = np.asarray([-1.2, 1.0, -0.5, 0.8, 1.7])
    state, evaluations = search(LBFGS(tolerance=1e-14), start, backend, rosen, rosen_der)
    reference = minimize(rosen, start, jac=rosen_der, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})
    np.testing.assert_allclose(to_numpy(state.point), reference.x, atol=tolerance(backend, 1e-5, 0.02))
    assert evaluations < 2 * reference.nfev or backend.dtype == "float32"
    assert device_of(state.point) == device_of(backend.asarray(start))


@pytest.mark.slow
def test_that_it_solves_an_ill_conditioned_quadratic(backend, tolerance):
    scales = np.geomspace(1, 1e4, 20)
    state, _ = search(
        LBFGS(tolerance=1e-14), np.ones(20), backend, lambda x: 0.5 * np.sum(scales * x**2), lambda x: scales * x
    )
    np.testing.assert_allclose(to_numpy(state.point), 0.0, atol=tolerance(backend, 1e-5))


def test_that_it_steps_back_from_values_that_are_not_finite(backend, tolerance):
    def barrier(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sum(x - np.log(x)) if np.all(x > 0) else np.inf

    state, _ = search(LBFGS(tolerance=1e-12), np.full(3, 50.0), backend, barrier, lambda x: 1.0 - 1.0 / x)
    np.testing.assert_allclose(to_numpy(state.point), 1.0, atol=tolerance(backend, 1e-4, 1e-2))


def test_that_the_best_point_is_kept_when_no_step_helps(backend):
    # A gradient that points the wrong way: every step makes the value larger.
    state, evaluations = search(LBFGS(), np.ones(2), backend, lambda x: np.sum(x**2), lambda x: -x)
    np.testing.assert_array_equal(to_numpy(state.point), np.ones(2))
    assert state.finished
    assert not state.accepted
    assert evaluations < 40


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_that_a_start_without_a_finite_value_ends_the_search(value):
    optimiser = LBFGS()
    state = optimiser.tell(optimiser.init(np.ones(2)), value, np.ones(2))
    assert state.finished == "the objective is not finite at the start"


def test_that_the_first_step_of_adam_is_its_rate_for_any_gradient(backend, tolerance):
    state = Adam(rate=0.03).init(backend.asarray([1.0, 2.0, -1.0]))
    moved = Adam(rate=0.03).tell(state, backend.asarray([50.0, -0.2, 1e-3]))
    np.testing.assert_allclose(to_numpy(moved.trial), [0.97, 2.03, -1.03], rtol=tolerance(backend, 1e-5))


def test_that_the_first_two_steps_of_adadelta_are_those_of_its_definition(backend, tolerance):
    optimiser, g = AdaDelta(decay=0.9, epsilon=1e-4), np.asarray([2.0, -0.5])
    state, point, squares, moves = optimiser.init(backend.asarray([0.0, 1.0])), np.asarray([0.0, 1.0]), 0.0, 0.0
    for _ in range(2):
        state = optimiser.tell(state, backend.asarray(g))
        squares = 0.9 * squares + 0.1 * g**2
        step = -np.sqrt(moves + 1e-4) / np.sqrt(squares + 1e-4) * g
        moves = 0.9 * moves + 0.1 * step**2
        point = point + step
    np.testing.assert_allclose(to_numpy(state.trial), point, rtol=tolerance(backend, 1e-12, 1e-5))


def test_that_the_first_step_along_the_gradient_has_a_largest_length():
    for length in (1.0, 0.3):
        optimiser = LBFGS(first_step=length)
        state = optimiser.tell(optimiser.init(np.zeros(2)), 1.0, np.asarray([30.0, 40.0]))
        np.testing.assert_allclose(state.trial, [-0.6 * length, -0.8 * length])
    small = optimiser.tell(optimiser.init(np.zeros(2)), 1.0, np.asarray([0.1, 0.0]))
    np.testing.assert_allclose(small.trial, [-0.1, 0.0])
