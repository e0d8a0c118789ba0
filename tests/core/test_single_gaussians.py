"""One Gaussian, full or diagonal, optimised for every trial of the other parameters; mixtures that start around it."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.gp_regression import M, N, X, Y, regression
from invgp import SAVIGP
from invgp.core.backend import to_numpy
from invgp.core.bound import Bound
from invgp.core.geometry import inducing_factor, join_parameters
from invgp.core.kernels import SquaredExponential
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal
from invgp.core.profiled_bound import Profile
from invgp.core.training import Blocks, evaluate
from invgp.core.training.mixtures import surround_best_gaussian
from invgp.likelihoods import Poisson, Softmax, StudentT


def two_latents(backend):
    """Two classes on a line by a sparse model whose data count for much: rough latents with means of their own."""
    Z = np.stack([np.linspace(0, 5, M)[:, None]] * 2)
    kernels = tuple(SquaredExponential(backend.asarray(v), backend.asarray([0.3])) for v in (2.0, 5.0))
    family = Diagonal(2, M)
    factor = inducing_factor(kernels, backend.asarray(Z))
    parameters = Parameters(
        posterior=family.initial_parameters(factor, 0.5, backend.asarray(0.1 * np.ones((1, 2, M)))),
        kernels=join_parameters(kernels),
        inducing=backend.asarray(Z),
        likelihood=backend.asarray(np.zeros(0)),
        prior_mean=backend.asarray([0.3, -0.5]),
    )
    bound = Bound(family, kernels, backend.asarray(X), dense=False)
    data = Data(Softmax(2), backend.asarray(np.eye(2)[(Y[:, 0] > 0).astype(int)]))
    return bound, parameters, data, Points.draw(np.random.default_rng(1), 64, N, 2, backend)


def test_that_the_best_diagonal_gaussian_has_the_variances_of_each_variable_given_the_others(
    numpy_backend, monkeypatch
):
    monkeypatch.setattr("invgp.core.bound.BATCH_SITES", 15)
    bound, parameters, data, points = two_latents(numpy_backend)
    trial = Profile(bound, data, points, 1e-12).start(parameters)
    for j, kernel in enumerate(trial.bound_state.kernels):
        Z = parameters.inducing[j]
        inverse = np.linalg.inv(kernel(Z, Z))
        A = inverse @ kernel(Z, X)
        reported = A**2 @ trial.pseudo.precision[j]
        assert np.median(reported * np.diag(np.linalg.inv(inverse))) > 0.3  # what the data say counts
        np.testing.assert_allclose(trial.bound_state.q.spread[0, j], 1.0 / (np.diag(inverse) + reported), rtol=1e-6)


def test_that_the_best_diagonal_gaussian_has_the_exact_mean(numpy_backend):
    """With Gaussian noise at every site."""
    bound, parameters, data, points = regression(numpy_backend, "diagonal")
    bound_state = Profile(bound, data, points, 1e-12).start(parameters).bound_state
    K = bound_state.factor[0] @ bound_state.factor[0].T
    noise = np.exp(2.0 * parameters.likelihood[0])
    mean = K @ np.linalg.solve(K + noise * np.eye(N), Y[:, 0])
    np.testing.assert_allclose(bound_state.factor[0] @ bound_state.q.mean[0, 0], mean, atol=1e-5)


def long_search(bound, parameters, data, points):
    """The bound after one for the posterior alone."""
    method = Blocks(("posterior",), profile_posterior=False, rounds=20, evaluations=400, tolerance=1e-9)
    return float(evaluate(bound, method.fit(bound, parameters, data, points), data, points, ()).elbo)


@pytest.mark.parametrize("batch", [15, 4096])
def test_that_the_best_diagonal_gaussian_is_that_of_a_long_search(batch, numpy_backend, monkeypatch):
    monkeypatch.setattr("invgp.core.bound.BATCH_SITES", batch)
    model = bound, parameters, data, points = two_latents(numpy_backend)
    start = Profile(bound, data, points, 1e-13).start(parameters)
    assert start.elbo == pytest.approx(long_search(*model), abs=0.02)


@pytest.mark.parametrize("family", ["full", "diagonal"])
@pytest.mark.parametrize("likelihood", [StudentT(0.2, 3.0), Poisson()], ids=["outliers", "counts"])
def test_that_the_best_gaussian_is_found_where_log_densities_are_far_from_quadratic(family, likelihood, numpy_backend):
    bound, parameters, data, points = regression(numpy_backend, family, dense=False)
    outliers = np.where(np.arange(N)[:, None] % 5 == 3, 6.0, 0.0)
    y = Y + outliers if isinstance(likelihood, StudentT) else np.round(np.exp(3.0 + 2.0 * Y))
    data = replace(data, likelihood=likelihood, y=numpy_backend.asarray(y))
    parameters = replace(parameters, likelihood=np.asarray(likelihood.parameters))
    start, best = Profile(bound, data, points, 1e-9).start(parameters), long_search(bound, parameters, data, points)
    assert start.elbo > best - 0.02 * abs(best)


@pytest.mark.slow
def test_that_a_search_takes_no_irreversible_step(numpy_backend):
    """Outliers beside which the first steps would lead to kernels that explain nothing."""
    rng = np.random.default_rng(102)
    X = np.sort(rng.uniform(0, 10, (80, 1)), axis=0)
    y = 2.0 * np.sin(X[:, 0]) + 0.3 * rng.standard_t(1.5, 80)
    bounds = {
        posterior: SAVIGP(StudentT(0.2, 3.0), inducing=12, posterior=posterior, samples=64).fit(X, y).trace_[-1]
        for posterior in ("full", "diagonal")
    }
    longer = (
        SAVIGP(StudentT(0.2, 3.0), inducing=12, samples=64, method=Blocks(profile_posterior=False)).fit(X, y).trace_[-1]
    )
    assert bounds["full"] > longer - 0.5
    assert bounds["diagonal"] > longer - 15.0


def test_that_a_diagonal_gaussian_is_learnt_to_the_optimum_of_a_long_search(numpy_backend):
    values = []
    for settings in ({}, {"profile_posterior": False, "rounds": 40, "evaluations": 400, "tolerance": 1e-9}):
        bound, parameters, data, points = regression(numpy_backend, "diagonal", dense=False)
        learnt = Blocks(**settings).fit(bound, parameters, data, points)
        values.append(float(evaluate(bound, learnt, data, points, ()).elbo))
    assert values[0] == pytest.approx(values[1], abs=0.02)


@pytest.mark.parametrize("family", ["full", "diagonal"])
def test_that_components_lie_one_standard_deviation_from_the_best_single_gaussian(family, backend, tolerance):
    bound, parameters, data, points = regression(backend, family, dense=False, components=2)
    single = replace(bound, posterior=replace(bound.posterior, components=1))
    alone = regression(backend, family, dense=False)[1]
    best = Profile(single, data, points, 1e-7).start(alone).bound_state
    q = bound.bound_state(surround_best_gaussian(bound, parameters, data, points, 1e-7)).q
    L, spread = to_numpy(best.factor[0, ...]), to_numpy(best.q.spread[0, 0, ...])
    norms = []
    for k in range(2):
        away = to_numpy(q.mean[k, 0, :]) - to_numpy(best.q.mean[0, 0, :])
        diagonal = isinstance(bound.posterior, Diagonal)
        units = (L @ away) / np.sqrt(spread) if diagonal else np.linalg.solve(spread, away)
        norms.append(np.linalg.norm(units))
    # Two components lie as far from their mean as each other, so that both are the farthest.
    assert norms == pytest.approx([1.0, 1.0], abs=tolerance(backend, 1e-3, 0.1))


def test_that_a_mixture_is_found_where_the_prior_is_a_poor_start(numpy_backend):
    """Kernels so smooth and wide that few steps from the prior lead nowhere."""
    bound, parameters, data, points = regression(numpy_backend, "diagonal", dense=False, components=2)
    smooth = numpy_backend.asarray([np.log(1e5), np.log(3.0)])
    parameters = replace(parameters, kernels=smooth)
    few = {"learn": ("posterior",), "rounds": 1, "evaluations": 30}
    with_start, without = (
        float(
            evaluate(
                bound, Blocks(**few, profile_posterior=profiled).fit(bound, parameters, data, points), data, points, ()
            ).elbo
        )
        for profiled in (True, False)
    )
    assert with_start > without + 10.0


class Magnitude(StudentT):
    """Only the magnitude of the latent is observed: its sign is open."""

    def log_density(self, y, f):
        return super().log_density(abs(y), abs(f))


def test_that_a_mixture_that_starts_at_two_modes_stays_there(numpy_backend):
    """The best single Gaussian takes one sign: around it there is less to gain than at both."""
    bound, parameters, data, points = regression(numpy_backend, "full", dense=False, components=2)
    data = replace(data, likelihood=Magnitude(0.3, 4.0), y=numpy_backend.asarray(1.0 + 0.1 * np.cos(X)))
    one_sign = numpy_backend.asarray([0.0, np.log(8.0)])
    parameters = replace(parameters, kernels=one_sign, likelihood=np.asarray(data.likelihood.parameters))
    q, L = bound.bound_state(parameters).q, bound.bound_state(parameters).factor[0]
    either = np.linalg.solve(L, np.ones(len(L))) * np.asarray([1.0, -1.0])[:, None, None]
    parameters = replace(parameters, posterior=bound.posterior.pack(q._replace(mean=either)))
    found = bound.bound_state(Blocks(("posterior",)).fit(bound, parameters, data, points))
    assert sorted(np.sign(np.mean(L @ found.q.mean[k, 0])) for k in range(2)) == [-1.0, 1.0]
    np.testing.assert_allclose(np.abs(found.q.mean @ L.T)[:, 0], 1.0, atol=0.3)


def test_that_components_in_one_place_are_left_to_their_own_start(numpy_backend):
    bound, parameters, data, points = regression(numpy_backend, "full", dense=False, components=3)
    q = bound.bound_state(parameters).q
    alike = np.broadcast_to(q.mean[:1], q.mean.shape)
    one_place = replace(parameters, posterior=bound.posterior.pack(q._replace(mean=alike)))
    assert surround_best_gaussian(bound, one_place, data, points, 1e-7) is None
    shift = np.asarray([-1.0, 0.0, 1.0])[:, None, None] * np.ones_like(q.mean)
    in_a_row = replace(parameters, posterior=bound.posterior.pack(q._replace(mean=alike + shift)))
    apart = bound.bound_state(surround_best_gaussian(bound, in_a_row, data, points, 1e-7)).q
    np.testing.assert_allclose(apart.mean[0] + apart.mean[2], 2.0 * apart.mean[1], atol=1e-9)
    np.testing.assert_allclose(apart.weights, q.weights)
