"""Steps of the coupled posterior: which are taken, which are not, and when they have ended."""

import numpy as np
import pytest
from scipy.optimize import minimize, root
from scipy.special import ndtri

from helpers.coupled_models import (
    CONVERGED,
    exponential,
    identity_model,
    independent_noise,
    prior_of,
    run,
    run_batches,
    sobol,
)
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.stage import Stage
from invgp.core.point_sets import Points


def even_points(backend, samples, sites):
    """One latent: points with the moments of the normal up to the ninth, so that no estimate of a quartic errs."""
    z = ndtri((np.arange(samples) + 0.5) / samples)
    orders, moments = np.asarray([2, 4, 6, 8]), np.asarray([1.0, 3.0, 15.0, 105.0])

    def odd_polynomial(c):
        return z + z * np.polynomial.polynomial.polyval(z**2, c)

    found = root(
        lambda c: np.mean(odd_polynomial(c)[:, None] ** orders, axis=0) / moments - 1.0, np.zeros(4), tol=1e-12
    )
    assert found.success
    return Points(backend.asarray(odd_polynomial(found.x)[:, None]), backend.asarray(np.ones((sites, 1, 1))))


def log_density_model(backend, log_density, sites=1, tolerance=1e-6, samples=500):
    """One latent at sites that know nothing of each other, and a log density of it."""
    prior = prior_of(backend, 100.0 * np.arange(sites), 1)
    stage = Stage("log density", even_points(backend, samples, sites), tolerance)
    return CoupledSavigp(prior, [stage], lambda outputs, rows: log_density(outputs[..., 0]))


class OneLatent:
    """The bound of one latent with prior N(0, 1) by quadrature."""

    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()

    def __init__(self, log_density):
        self.log_density = log_density

    def bound(self, mean, variance):
        expected = self.weights @ self.log_density(mean + np.sqrt(variance) * self.nodes)
        return expected - 0.5 * (variance + mean**2 - 1.0 - np.log(variance))


def bent_upwards(f):
    return 0.3 * f**2 + 0.1 * f


@pytest.mark.parametrize("batch", [None, 2])
def test_that_a_site_may_take_precision_away(batch, numpy_backend):
    """The exact posterior is Gaussian, with 0.4 of the prior's precision."""
    algorithm = log_density_model(numpy_backend, bent_upwards, sites=1 if batch is None else 3)
    if batch is None:
        state, history = run(algorithm, identity_model)
        found, bound = state.best, history[-1][1].elbo
    else:
        state, history = run_batches(algorithm, identity_model, batch)
        found, bound = state.posterior, history[-1][1].elbo / 3
    assert state.finished == CONVERGED
    np.testing.assert_allclose(found.marginals.covariance, 2.5, rtol=1e-4)
    np.testing.assert_allclose(found.marginals.mean, 0.25, rtol=1e-4)
    assert bound == pytest.approx(-0.5 * np.log(0.4) + 0.1**2 / 0.8, abs=1e-4)


DOUBLE_WELLS = {
    "a step that would take all precision": (1.0, 0.1),
    "that even the smallest step would take": (100.0, 0.1),
    "with a mean that does not move": (1.0, 0.0),
}


@pytest.mark.parametrize("batch", [None, 1])
@pytest.mark.parametrize("case", DOUBLE_WELLS)
def test_that_it_continues_where_a_full_step_would_give_no_distribution(case, batch, numpy_backend):
    height, tilt = DOUBLE_WELLS[case]

    def log_density(f):
        return height * (2.5 * f**2 - 0.25 * f**4 + tilt * f)

    algorithm = log_density_model(numpy_backend, log_density, tolerance=0.01)
    if batch is None:
        state, _ = run(algorithm, identity_model, most=200)
        found = state.best
    else:
        state, _ = run_batches(algorithm, identity_model, batch, most=200)
        found = state.posterior
    exact = OneLatent(log_density)
    mean, variance = float(found.marginals.mean[0, 0]), float(found.marginals.covariance[0, 0, 0])
    assert state.finished == CONVERGED
    assert exact.bound(mean, variance) > exact.bound(0.0, 1.0) + 0.2
    nearest = minimize(lambda x: -exact.bound(x[0], np.exp(x[1])), [mean, np.log(variance)])
    assert exact.bound(mean, variance) == pytest.approx(-nearest.fun, abs=2e-3)


OVERSHOOTING = np.asarray([[3.0], [-2.0], [0.3], [8.0]])


def overshooting_problem(backend, kind="hermite", sites=4):
    """Outputs exp(3 f): a step that is right for the curvature under the prior goes much too far."""
    prior = prior_of(backend, 0.5 * np.arange(sites), 1)
    stages = [
        Stage(kind, sobol(backend, 64, sites, 1), 1e-3),
        Stage(kind, sobol(backend, 128, sites, 1, seed=2), 1e-4),
    ]
    return CoupledSavigp(prior, stages, independent_noise(backend, OVERSHOOTING[:sites], 0.5))


def decreases_below_best(history):
    """How far each accepted bound lies below the best of its stage before it."""
    best, falls = {}, []
    for stage, info in history:
        if info.accepted:
            falls.append(best.get(stage, -np.inf) - info.elbo)
            best[stage] = max(best.get(stage, -np.inf), info.elbo)
    return np.asarray(falls)


@pytest.mark.parametrize("kind", ["hermite", "log density"])
def test_that_no_step_is_kept_that_lowers_the_bound(kind, numpy_backend):
    _, history = run(overshooting_problem(numpy_backend, kind), exponential)
    assert not all(info.accepted for _, info in history)
    assert np.all(decreases_below_best(history) <= 4 * 1e-4 + 1e-12)


@pytest.mark.parametrize("kind", ["hermite", "log density"])
def test_that_no_pass_is_kept_that_lowers_the_bound(kind, numpy_backend):
    _, history = run_batches(overshooting_problem(numpy_backend, kind), exponential, 2)
    assert not all(info.accepted for _, info in history)
    assert np.all(decreases_below_best(history) <= 4 * 1e-3 + 1e-12)


@pytest.mark.parametrize("kind", ["hermite", "log density"])
def test_that_mini_batches_get_over_passes_that_go_too_far(kind, numpy_backend):
    algorithm = overshooting_problem(numpy_backend, kind)
    whole, _ = run(algorithm, exponential, most=150)
    batches, _ = run_batches(algorithm, exponential, 2, most=150)
    scale = np.sqrt(whole.best.marginals.covariance[..., 0])
    away = (batches.posterior.marginals.mean - whole.best.marginals.mean) / scale
    assert np.max(np.abs(away)) < 0.1


def linear_with_units(backend, units, y=2.0):
    prior = prior_of(backend, 0.7 * np.arange(3), 2, variance=units**2)
    stage = Stage("linear", sobol(backend, 16, 3, 2), 1e-3)
    return CoupledSavigp(prior, [stage], independent_noise(backend, np.full((3, 2), y), 0.8))


@pytest.mark.parametrize("units", [1e-3, 1e3])
def test_that_movement_does_not_depend_on_the_units_of_the_latents(units, numpy_backend):
    found = []
    for scale in (1.0, units):
        _, history = run(linear_with_units(numpy_backend, scale), lambda f, scale=scale: f / scale)
        found.append([info.movement for _, info in history])
    assert found[0][0] > 0.1
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("units", [1e-3, 1e3])
def test_that_movement_of_a_pass_does_not_depend_on_the_units_of_the_latents(units, numpy_backend):
    found = []
    for scale in (1.0, units):
        algorithm = linear_with_units(numpy_backend, scale)
        _, history = run_batches(algorithm, lambda f, rows, scale=scale: f / scale, 2)
        found.append([info.movement for _, info in history])
    assert found[0][0] > 0.1
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-9)


def test_that_a_step_which_only_narrows_the_posterior_is_movement(numpy_backend):
    """The data lie at the prior mean: no mean moves, but every spread does."""
    algorithm = linear_with_units(numpy_backend, 1.0, y=0.0)
    _, history = run(algorithm, identity_model, most=1)
    after = algorithm.tell(algorithm.init(), algorithm.ask(algorithm.init()), np.ones((16, 3), dtype=bool))[0]
    shares = 0.5 * np.log(np.diagonal(after.trial.marginals.covariance, axis1=1, axis2=2))
    np.testing.assert_allclose(after.trial.marginals.mean, 0.0, atol=1e-12)
    assert np.abs(shares).min() - 1e-9 <= history[0][1].movement <= np.abs(shares).max() + 1e-9
    assert not after.finished


@pytest.mark.parametrize("batch", [None, 4])
def test_that_one_site_that_moves_is_movement_among_many_that_do_not(batch, numpy_backend):
    found = []
    for sites in (1, 40):
        prior = prior_of(numpy_backend, 100.0 * np.arange(sites), 1)
        y = np.where(np.arange(sites) == 0, 2.0, 0.0)[:, None]
        noise = independent_noise(numpy_backend, y, np.where(np.arange(sites) == 0, 0.8, 1e6)[:, None])
        algorithm = CoupledSavigp(prior, [Stage("linear", sobol(numpy_backend, 16, sites, 1), 1e-3)], noise)
        if batch is None:
            history = run(algorithm, identity_model, most=1)[1]
        else:
            history = run_batches(algorithm, identity_model, batch, most=1)[1]
        found.append(history[0][1].movement)
    assert found[0] > 0.5
    assert found[1] == pytest.approx(found[0], rel=1e-6)


def test_that_a_pass_which_only_narrows_the_posterior_is_movement(numpy_backend):
    state, history = run_batches(linear_with_units(numpy_backend, 1.0, y=0.0), identity_model, 2, most=1)
    assert history[0][1].movement > 0.1
    assert not state.finished
