"""The bound and its gradient, against finite differences and against each other, for every family and block."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.kernels import kernels_of_all_kinds
from helpers.savigp_models import FAMILIES, M, N, Q, Quadratic, small_model
from invgp.core import bound as bound_module
from invgp.core.backend import to_numpy
from invgp.core.parameters import BLOCKS
from invgp.core.point_sets import Points
from invgp.core.posteriors.mixture import Posterior

KINDS = ("squared exponential", "matern 5/2")
STEP = 1e-5


@pytest.fixture
def quadratic():
    return Quadratic(np.random.default_rng(7))


def differences(function, point):
    """Central differences of a function of a vector."""
    steps = STEP * np.eye(len(point))
    return np.asarray([(function(point + h) - function(point - h)) / (2 * STEP) for h in steps])


@pytest.mark.parametrize("family", FAMILIES)
def test_that_every_family_keeps_the_contract(family, numpy_backend):
    assert isinstance(small_model(family, KINDS, dense=False)(numpy_backend)[0].posterior, Posterior)


@pytest.mark.slow
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block", BLOCKS)
def test_that_the_gradient_of_each_block_is_that_of_finite_differences(
    block, family, dense, backend, tolerance, numpy_backend, quadratic
):
    build = small_model(family, KINDS, dense)
    bound, parameters, points = build(backend)
    terms = bound.bound_state(parameters).evaluate(quadratic.at(backend, parameters.likelihood), points)
    gradient = to_numpy(terms.gradient.flatten([block]))
    if block == "inducing" and dense:
        np.testing.assert_array_equal(gradient, 0.0)
        return
    reference, start, reference_points = build(numpy_backend)

    def value(vector):
        trial = start.with_blocks([block], vector)
        density = quadratic.at(numpy_backend, trial.likelihood)
        return float(reference.bound_state(trial).evaluate(density, reference_points, ()).elbo)

    expected = differences(value, start.flatten([block]))
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(gradient / scale, expected / scale, atol=tolerance(backend, 1e-6, 5e-3))


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "sites"])
@pytest.mark.parametrize("block", ["kernels", "inducing"])
def test_that_gradients_with_the_inducing_variables_held_are_those_of_finite_differences(
    block, family, dense, numpy_backend, quadratic
):
    bound, parameters, points = small_model(family, KINDS, dense)(numpy_backend)
    held = bound.bound_state(parameters)
    density = quadratic.at(numpy_backend, parameters.likelihood)

    def terms(vector):
        return bound.bound_state(parameters.with_blocks([block], vector), held=held).evaluate(density, points)

    gradient = terms(parameters.flatten([block])).gradient.flatten([block])
    expected = (
        0.0 * gradient
        if dense and block == "inducing"
        else differences(lambda vector: float(terms(vector).elbo), parameters.flatten([block]))
    )
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def exact_bound(bound, parameters, log_density, nodes):
    """The bound with the expectations by Gauss-Hermite quadrature of the marginals, instead of by samples."""
    bound_state = bound.bound_state(parameters)
    means, variances = bound_state.marginals(bound_state.geometry(0, N))
    at, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[at] * Q)], axis=-1)[:, None, :]
    weight = np.prod(np.meshgrid(*[weights / weights.sum()] * Q), axis=0).ravel()
    value = bound_state.family.negative_kl(bound_state.q, bound_state.factor)
    for pi, mean, variance in zip(bound_state.q.weights, means, variances, strict=True):
        value += pi * np.sum(weight @ log_density(mean + np.sqrt(variance) * grid, 0, N)[0])
    return float(value)


@pytest.mark.slow
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("kind", kernels_of_all_kinds())
@pytest.mark.parametrize("family", FAMILIES)
def test_that_every_gradient_with_every_kernel_is_that_of_the_exact_expectation(
    family, kind, dense, numpy_backend, quadratic
):
    bound, parameters, points = small_model(family, (kind, kind), dense)(numpy_backend)
    density = quadratic.at(numpy_backend, parameters.likelihood)
    gradient = bound.bound_state(parameters).evaluate(density, points).gradient

    def exact_value(block, vector):
        trial = parameters.with_blocks([block], vector)
        return exact_bound(bound, trial, quadratic.at(numpy_backend, trial.likelihood), nodes=3)

    for block in BLOCKS:
        if block == "inducing" and dense:
            continue
        expected = differences(lambda vector, block=block: exact_value(block, vector), parameters.flatten([block]))
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(gradient.flatten([block]) / scale, expected / scale, atol=1e-5, err_msg=block)


def sigmoid_of_both(parameters):
    """A log density that is far from quadratic, and couples the latents."""

    def log_density(f, start, stop):
        sign = np.where(np.arange(start, stop) % 2, 1.0, -1.0)
        value = -np.exp(parameters[0]) * np.logaddexp(0.0, sign * (2.0 * f[..., 0] - f[..., 1]))
        return value, value[..., None]

    return log_density


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_that_the_gradient_of_each_block_has_no_bias_beyond_its_standard_error(family, numpy_backend):
    bound, parameters, _ = small_model(family, KINDS, dense=False)(numpy_backend)
    sets, found = 60, []
    bound_state, density = bound.bound_state(parameters), sigmoid_of_both(parameters.likelihood)
    for seed in range(sets):
        # Independent normals: what is shown is the estimator's, not that of the points.
        z = np.random.default_rng(seed).standard_normal((4096, Q))
        points = Points(z, np.broadcast_to(np.eye(Q), (N, Q, Q)), independent=True)
        found.append(bound_state.evaluate(density, points).gradient.flatten(BLOCKS))

    def exact_value(vector):
        trial = parameters.with_blocks(BLOCKS, vector)
        return exact_bound(bound, trial, sigmoid_of_both(trial.likelihood), nodes=40)

    expected = differences(exact_value, parameters.flatten(BLOCKS))
    error, standard = np.mean(found, axis=0) - expected, np.std(found, axis=0) / np.sqrt(sets)
    # Of some hundred numbers the largest; and the error of the finite differences.
    allowed = 5.0 * standard + 1e-6
    assert np.all(np.abs(error) < allowed), np.max(np.abs(error) / allowed)


def test_that_the_jitter_belongs_to_the_kernel(numpy_backend, quadratic):
    bound, parameters, points = small_model("full", KINDS, dense=False)(numpy_backend)
    bound = replace(bound, jitter=0.1)
    density = quadratic.at(numpy_backend, parameters.likelihood)
    gradient = bound.bound_state(parameters).evaluate(density, points).gradient.flatten(["kernels", "inducing"])

    def value(vector):
        trial = parameters.with_blocks(["kernels", "inducing"], vector)
        return float(bound.bound_state(trial).evaluate(density, points, ()).elbo)

    np.testing.assert_allclose(gradient, differences(value, parameters.flatten(["kernels", "inducing"])), atol=1e-6)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "sites"])
def test_that_in_the_dense_case_the_likelihood_sees_no_kernel(family, numpy_backend, quadratic):
    """With the distribution of the inducing variables held, kernels move the KL term alone."""
    bound, parameters, points = small_model(family, KINDS, dense=True)(numpy_backend)
    held = bound.bound_state(parameters)
    other = replace(parameters, kernels=parameters.kernels + 0.3)
    density = quadratic.at(numpy_backend, parameters.likelihood)
    before, after = (
        float(bound.bound_state(p, held=held).evaluate(density, points).expected_log_likelihood)
        for p in (parameters, other)
    )
    assert before == pytest.approx(after, rel=1e-10)


def test_that_inducing_inputs_at_the_sites_are_the_dense_case(backend, tolerance, quadratic):
    bound, parameters, points = small_model("full", KINDS, dense=True)(backend)
    density = quadratic.at(backend, parameters.likelihood)
    dense = bound.bound_state(parameters).evaluate(density, points)
    sparse = replace(bound, dense=False).bound_state(parameters).evaluate(density, points)
    assert float(dense.elbo) == pytest.approx(float(sparse.elbo), rel=tolerance(backend, 1e-9, 1e-3))


def test_that_two_equal_components_are_one(numpy_backend, quadratic):
    """A mixture of equal components has the bound of one, but for what Jensen's inequality costs the entropy."""
    one, parameters, points = small_model("full", KINDS, dense=False)(numpy_backend)
    two, _, _ = small_model("mixture of two full", KINDS, dense=False)(numpy_backend)
    half = parameters.posterior
    means, rest = np.split(half, [Q * M])
    doubled = np.concatenate([[0.0, 0.0], means, means, rest, rest])
    density = quadratic.at(numpy_backend, parameters.likelihood)
    single = one.bound_state(parameters).evaluate(density, points)
    double = two.bound_state(replace(parameters, posterior=doubled)).evaluate(density, points)
    assert float(double.expected_log_likelihood) == pytest.approx(float(single.expected_log_likelihood), rel=1e-12)
    # Exact entropy minus Jensen's bound of a Gaussian: (1 - log 2) / 2 for each dimension.
    assert float(double.kl - single.kl) == pytest.approx(0.5 * Q * M * (1 - np.log(2)), rel=1e-10)


def test_that_batches_of_sites_add_up(monkeypatch, numpy_backend, quadratic):
    bound, parameters, points = small_model("mixture of two full", KINDS, dense=False)(numpy_backend)
    density = quadratic.at(numpy_backend, parameters.likelihood)
    whole = bound.bound_state(parameters).evaluate(density, points)
    monkeypatch.setattr(bound_module, "MEMORY_BUDGET", 8 * M * Q * 7 * 2)
    assert len(list(bound.batches())) == 4
    parts = bound.bound_state(parameters).evaluate(density, points)
    assert float(parts.elbo) == pytest.approx(float(whole.elbo), rel=1e-12)
    np.testing.assert_allclose(parts.gradient.flatten(BLOCKS), whole.gradient.flatten(BLOCKS), atol=1e-9)


def test_that_what_is_held_of_a_geometry_is_what_the_budget_counts(numpy_backend, quadratic, monkeypatch):
    bound, parameters, points = small_model("full", KINDS, dense=False)(numpy_backend)
    bound_state = bound.bound_state(parameters)
    bound_state.evaluate(quadratic.at(numpy_backend, parameters.likelihood), points, BLOCKS)
    assert [geometry.covariances for geometry in bound_state.kernel_cache.geometries.values()] == [None]
    monkeypatch.setattr(bound_module, "MEMORY_BUDGET", 8 * N * M * Q - 1)
    bound_state = bound.bound_state(parameters)
    bound_state.evaluate(quadratic.at(numpy_backend, parameters.likelihood), points, BLOCKS)
    assert not bound_state.kernel_cache.geometries


def test_that_mini_batches_estimate_the_bound_without_bias(numpy_backend, quadratic):
    bound, parameters, points = small_model("full", KINDS, dense=False)(numpy_backend)
    density = quadratic.at(numpy_backend, parameters.likelihood)
    whole = bound.bound_state(parameters).evaluate(density, points)
    estimates = []
    for n in range(N):
        alone = replace(bound, X=bound.X[n : n + 1], weight=float(N))
        at_n = alone.bound_state(parameters).evaluate(
            lambda f, start, stop, n=n: density(f, n, n + 1), points.at(n, n + 1)
        )
        estimates.append(np.concatenate([[float(at_n.elbo)], at_n.gradient.flatten(BLOCKS)]))
    expected = np.concatenate([[float(whole.elbo)], whole.gradient.flatten(BLOCKS)])
    np.testing.assert_allclose(np.mean(estimates, axis=0), expected, atol=1e-8)


def test_that_samples_without_a_density_are_left_out(backend, tolerance, quadratic):
    """The estimator is exact for a quadratic log density, with fewer samples as well."""
    bound, parameters, points = small_model("full", KINDS, dense=False)(backend)
    density, xp = quadratic.at(backend, parameters.likelihood), backend.namespace
    missing = backend.asmask(np.arange(points.base.shape[0])[:, None] % 5 == np.arange(N) % 7)

    def some(f, start, stop):
        values, derivatives = density(f, start, stop)
        return xp.where(missing[:, start:stop], xp.nan * xp.ones_like(values), values), derivatives

    whole, part = (bound.bound_state(parameters).evaluate(d, points) for d in (density, some))
    assert float(part.elbo) == pytest.approx(float(whole.elbo), rel=tolerance(backend, 1e-10))
    gradients = (to_numpy(terms.gradient.flatten(BLOCKS)) for terms in (part, whole))
    np.testing.assert_allclose(*gradients, atol=tolerance(backend, 1e-8, 5e-3))
