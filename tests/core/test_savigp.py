"""The whole algorithm against exact answers."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from invgp.core.backend import to_numpy
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.core.optimisers import LBFGS
from invgp.core.sampling import standard_normals
from invgp.core.savigp import Savigp, dense_full_gaussian
from invgp.likelihoods import Gaussian

N, S = 12, 32
NOISE = 0.3


def settle(algorithm, where, forward, limit=400):
    state = algorithm.init()
    while not state.finished and state.evaluations < limit:
        outputs = forward(to_numpy(algorithm.ask(state)))
        valid = where.asmask(np.isfinite(outputs).all(axis=-1))
        state, info = algorithm.tell(state, where.asarray(outputs), valid)
    return state, info


def regression(where, kind, observed, seed=0):
    X = np.linspace(0, 5, N)[:, None]
    prior_mean = np.full((1, N), 0.7)
    kernels = [Kernel(CORRELATIONS[kind], 1.44, where.asarray([0.8]))]
    family = dense_full_gaussian(where.asarray(X), where.asarray(prior_mean), kernels)
    likelihood = Gaussian(where.asarray(observed), where.asarray(np.full(observed.shape, NOISE)))
    normals = standard_normals(np.random.default_rng(seed), S, N, 1)
    algorithm = Savigp(family, likelihood.log_density, where.asarray(normals), LBFGS(tolerance=1e-15))
    prior = to_numpy(kernels[0](where.asarray(X), where.asarray(X)))
    return algorithm, prior, prior_mean[0]


@pytest.fixture
def observed(rng):
    y = np.sin(np.linspace(0, 5, N)) + NOISE * rng.standard_normal(N)
    return y[:, None]


@pytest.mark.parametrize("kind", CORRELATIONS)
def test_that_gaussian_noise_gives_the_exact_gaussian_process(kind, where, tolerance, observed):
    algorithm, prior, mean = regression(where, kind, observed)
    state, _ = settle(algorithm, where, lambda f: f)
    gain = prior @ np.linalg.inv(prior + NOISE**2 * np.eye(N))
    factor = to_numpy(algorithm.family.covariance_factor(state.parameters))[0]
    evidence = multivariate_normal(mean, prior + NOISE**2 * np.eye(N)).logpdf(observed[:, 0])
    np.testing.assert_allclose(
        to_numpy(algorithm.family.mean(state.parameters))[0],
        mean + gain @ (observed[:, 0] - mean),
        atol=tolerance(where, 1e-6, 0.02),
    )
    np.testing.assert_allclose(factor @ factor.T, prior - gain @ prior, atol=tolerance(where, 1e-6, 0.01))
    assert -state.optimiser.value == pytest.approx(evidence, abs=tolerance(where, 1e-6, 0.01))


def test_that_a_missing_observation_is_as_if_it_had_not_been_asked_for(where, tolerance, observed):
    gappy = observed.copy()
    gappy[[3, 4, 9]] = np.nan
    algorithm, prior, mean = regression(where, "matern 3/2", gappy)
    state, _ = settle(algorithm, where, lambda f: f)
    kept = np.flatnonzero(~np.isnan(gappy[:, 0]))
    gain = prior[:, kept] @ np.linalg.inv(prior[np.ix_(kept, kept)] + NOISE**2 * np.eye(len(kept)))
    np.testing.assert_allclose(
        to_numpy(algorithm.family.mean(state.parameters))[0],
        mean + gain @ (gappy[kept, 0] - mean[kept]),
        atol=tolerance(where, 1e-6, 0.02),
    )
    evidence = multivariate_normal(mean[kept], prior[np.ix_(kept, kept)] + NOISE**2 * np.eye(len(kept)))
    assert -state.optimiser.value == pytest.approx(evidence.logpdf(gappy[kept, 0]), abs=tolerance(where, 1e-6, 0.01))


def test_that_random_failures_change_nothing_when_the_fit_is_exact(where, tolerance, observed, rng):
    whole, _, _ = regression(where, "matern 5/2", observed)
    reference, _ = settle(whole, where, lambda f: f)

    def sometimes(f):
        return np.where(rng.random(f.shape[:2])[..., None] < 0.2, np.nan, f)

    state, _ = settle(whole, where, sometimes)
    np.testing.assert_allclose(
        to_numpy(whole.family.mean(state.parameters)),
        to_numpy(whole.family.mean(reference.parameters)),
        atol=tolerance(where, 1e-6, 0.03),
    )


def test_that_a_step_to_where_most_runs_fail_is_taken_back(numpy_place, observed):
    """Where too few runs of a site are left to fit, the bound counts as minus infinity, and the step is retraced."""
    algorithm, _, _ = regression(numpy_place, "matern 5/2", observed)
    state = algorithm.init()
    outputs = algorithm.ask(state)
    state, _ = algorithm.tell(state, outputs, np.ones(outputs.shape[:2], dtype=bool))
    broken = np.ones(outputs.shape[:2], dtype=bool)
    broken[2:, 5] = False
    after, info = algorithm.tell(state, algorithm.ask(state), broken)
    assert info.elbo == -np.inf
    assert not info.accepted
    np.testing.assert_array_equal(after.parameters, state.parameters)


def test_that_a_nonlinear_model_of_two_latents_gives_the_same_numbers_in_every_place(
    where, tolerance, numpy_place, rng
):
    X = np.sort(rng.random((6, 2)), axis=0)
    y = rng.random((6, 2))

    def forward(f):
        return np.stack([np.exp(0.3 * f[..., 0]) * f[..., 1], f[..., 0] - f[..., 1] ** 2], axis=-1)

    def run(at):
        kernels = [Kernel(c, 1.0, at.asarray([0.5, 0.9])) for c in list(CORRELATIONS.values())[:2]]
        family = dense_full_gaussian(at.asarray(X), at.asarray(np.zeros((2, 6))), kernels)
        likelihood = Gaussian(at.asarray(y), at.asarray(np.full((6, 2), 0.2)))
        normals = standard_normals(np.random.default_rng(1), 64, 6, 2)
        algorithm = Savigp(family, likelihood.log_density, at.asarray(normals))
        state, _ = settle(algorithm, at, forward, limit=8)
        return -state.optimiser.value, to_numpy(state.parameters), state

    bound, parameters, state = run(where)
    expected_bound, expected_parameters, _ = run(numpy_place)
    assert bound == pytest.approx(expected_bound, rel=tolerance(where, 1e-9, 1e-3))
    np.testing.assert_allclose(parameters, expected_parameters, atol=tolerance(where, 1e-7, 0.05))
    assert state.parameters.dtype == getattr(where.namespace, where.dtype)
