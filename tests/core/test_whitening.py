"""Whitening by a posterior, against finite differences."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.savigp_models import N, Q, Quadratic, small_model
from invgp.core.backend import to_numpy
from invgp.core.posteriors import Full, Mixture
from invgp.core.whitened_posteriors import Whitening

M = 3


def narrow_posterior(rng, backend, latents=Q, inducing=M):
    """One Gaussian far narrower than the prior, with correlations: spreads are lower triangular."""
    spread = np.tril(rng.standard_normal((1, latents, inducing, inducing)))
    on_diagonal = np.arange(inducing)
    spread[..., on_diagonal, on_diagonal] = 0.1 + rng.random((1, latents, inducing))
    mean = rng.standard_normal((1, latents, inducing))
    return Mixture(backend.asarray(np.ones(1)), backend.asarray(mean), backend.asarray(0.1 * spread))


def finite_differences(function, x, step=1e-5):
    gradient = np.zeros_like(x)
    for i in range(len(x)):
        change = np.zeros_like(x)
        change[i] = step
        gradient[i] = (function(x + change) - function(x - change)) / (2 * step)
    return gradient


def by_part(x, latents=Q, inducing=M):
    """The mean's and the spread's share of a vector of free parameters."""
    return x[: latents * inducing], x[latents * inducing :]


def test_that_the_start_is_the_base_itself(backend, tolerance, rng):
    base, family = narrow_posterior(rng, backend), Full(Q, M)
    whitening = Whitening(family, base)
    found = family.unpack(whitening.posterior(whitening.start()), base.spread)
    for one, other in zip(found, base, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=tolerance(backend, 1e-13))


def test_that_the_free_parameters_move_mean_and_factor_in_units_of_the_base(numpy_backend, rng):
    base, family = narrow_posterior(rng, numpy_backend), Full(Q, M)
    whitening = Whitening(family, base)
    x = 0.5 * rng.standard_normal(whitening.start().shape)
    inner = family.unpack(x, base.spread)
    found = family.unpack(whitening.posterior(x), base.spread)
    R = base.spread[0]
    np.testing.assert_allclose(found.mean[0], base.mean[0] + np.einsum("qij,qj->qi", R, inner.mean[0]), rtol=1e-12)
    np.testing.assert_allclose(found.spread[0], R @ inner.spread[0], rtol=1e-12, atol=1e-15)


def test_that_the_gradient_is_that_of_finite_differences_in_mean_and_in_spread(numpy_backend, rng):
    base = narrow_posterior(rng, numpy_backend)
    whitening = Whitening(Full(Q, M), base)
    x = 0.3 * rng.standard_normal(whitening.start().shape)
    weights = rng.standard_normal(x.shape)
    found = whitening.gradient(x, weights * np.cos(whitening.posterior(x)))
    expected = finite_differences(lambda at: float(weights @ np.sin(whitening.posterior(at))), x)
    for one, other in zip(by_part(found), by_part(expected), strict=True):
        assert np.max(np.abs(other)) > 0.01
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dense", [True, False])
def test_that_the_gradient_of_the_bound_is_that_of_finite_differences(dense, numpy_backend, rng):
    bound, parameters, points = small_model("full", ["matern 5/2", "squared exponential"], dense)(numpy_backend)
    size = bound.posterior.inducing
    whitening = Whitening(bound.posterior, narrow_posterior(rng, numpy_backend, inducing=size))
    x = 0.2 * rng.standard_normal(whitening.start().shape)
    density = Quadratic(rng).at(numpy_backend, parameters.likelihood)

    def terms(at):
        here = replace(parameters, posterior=whitening.posterior(at))
        return bound.bound_state(here).evaluate(density, points, ("posterior",))

    found = whitening.gradient(x, terms(x).gradient.posterior)
    expected = finite_differences(lambda at: float(terms(at).elbo), x)
    assert points.rotations.shape[0] == N
    for one, other in zip(by_part(found, inducing=size), by_part(expected, inducing=size), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * np.max(np.abs(other)))


def test_that_the_gradient_is_the_same_on_every_backend(backend, tolerance, numpy_backend):
    found = []
    for there in (backend, numpy_backend):
        rng = np.random.default_rng(5)
        whitening = Whitening(Full(Q, M), narrow_posterior(rng, there))
        x, by_posterior = (there.asarray(rng.standard_normal(whitening.start().shape)) for _ in range(2))
        found.append(to_numpy(whitening.gradient(x, by_posterior)))
    np.testing.assert_allclose(found[0], found[1], rtol=tolerance(backend, 1e-11, 1e-3), atol=tolerance(backend, 1e-12))
