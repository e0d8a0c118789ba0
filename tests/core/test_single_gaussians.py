"""One Gaussian, full or diagonal, found anew for every trial of the rest; and mixtures that start around it."""

from dataclasses import replace

import numpy as np
import pytest
from test_training import N, X, Y, regression

from invgp.core.backend import to_numpy
from invgp.core.posteriors import Diagonal
from invgp.core.profile import Profile
from invgp.core.training import Blocks, evaluate
from invgp.core.training.mixtures import around_the_best
from invgp.likelihoods import StudentT


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
@pytest.mark.parametrize("heavy", [False, True], ids=["Gaussian noise", "heavy tails"])
def test_that_the_best_diagonal_gaussian_is_where_its_bound_is_stationary(dense, heavy, numpy_place):
    bound, parameters, data, points = regression(numpy_place, "diagonal", dense=dense)
    if heavy:
        data = replace(data, likelihood=StudentT(0.2, 3.0))
        parameters = replace(parameters, likelihood=np.asarray(data.likelihood.parameters))
    found = Blocks(("posterior",), tolerance=1e-10).fit(bound, parameters, data, points)
    slopes = [
        float(np.linalg.norm(evaluate(bound, at, data, points, ("posterior",)).gradient.posterior))
        for at in (parameters, found)
    ]
    assert slopes[1] < 1e-3 * slopes[0]


def test_that_the_best_diagonal_gaussian_has_the_exact_mean_and_the_conditional_variances(numpy_place):
    """With Gaussian noise at every site: the exact posterior's mean, and 1 / its precisions."""
    bound, parameters, data, points = regression(numpy_place, "diagonal")
    frame = Profile(bound, data, points, 1e-12).start(parameters).frame
    K = frame.factor[0] @ frame.factor[0].T
    noise = np.exp(2.0 * parameters.likelihood[0])
    mean = K @ np.linalg.solve(K + noise * np.eye(N), Y[:, 0])
    np.testing.assert_allclose(frame.factor[0] @ frame.q.mean[0, 0], mean, atol=1e-5)
    precision = np.diag(np.linalg.inv(K)) + 1.0 / noise
    np.testing.assert_allclose(frame.q.spread[0, 0], 1.0 / precision, rtol=1e-3)


def test_that_a_diagonal_gaussian_is_learnt_to_the_optimum_of_a_long_search(numpy_place):
    values = []
    for settings in ({}, {"anew": False, "rounds": 40, "evaluations": 400, "tolerance": 1e-9}):
        bound, parameters, data, points = regression(numpy_place, "diagonal", dense=False)
        learnt = Blocks(**settings).fit(bound, parameters, data, points)
        values.append(float(evaluate(bound, learnt, data, points, ()).elbo))
    assert values[0] == pytest.approx(values[1], abs=0.02)


def test_that_diagonal_steps_are_the_same_in_every_place(where, tolerance, numpy_place):
    def after_a_round(at):
        bound, parameters, data, points = regression(at, "diagonal", dense=False)
        return Blocks(rounds=1, evaluations=3).fit(bound, parameters, data, points).flat(["kernels", "likelihood"])

    here, there = after_a_round(where), after_a_round(numpy_place)
    assert here.dtype == getattr(where.namespace, where.dtype)
    np.testing.assert_allclose(to_numpy(here), there, atol=tolerance(where, 1e-6, 0.05))


@pytest.mark.parametrize("family", ["full", "diagonal"])
def test_that_components_lie_one_standard_deviation_from_the_best_single_gaussian(family, where, tolerance):
    bound, parameters, data, points = regression(where, family, dense=False, components=2)
    single = replace(bound, posterior=replace(bound.posterior, components=1))
    alone = regression(where, family, dense=False)[1]
    best = Profile(single, data, points, 1e-7).start(alone).frame
    q = bound.frame(around_the_best(bound, parameters, data, points, 1e-7)).q
    L, spread = to_numpy(best.factor[0, ...]), to_numpy(best.q.spread[0, 0, ...])
    for k in range(2):
        away = to_numpy(q.mean[k, 0, :]) - to_numpy(best.q.mean[0, 0, :])
        diagonal = isinstance(bound.posterior, Diagonal)
        units = (L @ away) / np.sqrt(spread) if diagonal else np.linalg.solve(spread, away)
        assert np.linalg.norm(units) == pytest.approx(1.0, abs=tolerance(where, 1e-3, 0.1))


def test_that_a_mixture_is_found_where_the_prior_is_a_poor_start(numpy_place):
    """Kernels so smooth and wide that few steps from the prior lead nowhere."""
    bound, parameters, data, points = regression(numpy_place, "diagonal", dense=False, components=2)
    smooth = numpy_place.asarray([[np.log(1e5), np.log(3.0)]])
    parameters = replace(parameters, kernels=smooth)
    few = {"learn": ("posterior",), "rounds": 1, "evaluations": 30}
    with_start, without = (
        float(evaluate(bound, Blocks(**few, anew=anew).fit(bound, parameters, data, points), data, points, ()).elbo)
        for anew in (True, False)
    )
    assert with_start > without + 10.0


class Magnitude(StudentT):
    """Only the magnitude of the latent is observed: its sign is open."""

    def log_density(self, y, f):
        return super().log_density(abs(y), abs(f))


def test_that_a_mixture_that_starts_at_two_modes_stays_there(numpy_place):
    """The best single Gaussian takes one sign: around it there is less to gain than at both."""
    bound, parameters, data, points = regression(numpy_place, "full", dense=False, components=2)
    data = replace(data, likelihood=Magnitude(0.3, 4.0), y=numpy_place.asarray(1.0 + 0.1 * np.cos(X)))
    one_sign = numpy_place.asarray([[0.0, np.log(8.0)]])
    parameters = replace(parameters, kernels=one_sign, likelihood=np.asarray(data.likelihood.parameters))
    q, L = bound.frame(parameters).q, bound.frame(parameters).factor[0]
    either = np.linalg.solve(L, np.ones(len(L))) * np.asarray([1.0, -1.0])[:, None, None]
    parameters = replace(parameters, posterior=bound.posterior.pack(q._replace(mean=either)))
    found = bound.frame(Blocks(("posterior",)).fit(bound, parameters, data, points))
    assert sorted(np.sign(np.mean(L @ found.q.mean[k, 0])) for k in range(2)) == [-1.0, 1.0]
    np.testing.assert_allclose(np.abs(found.q.mean @ L.T)[:, 0], 1.0, atol=0.3)
