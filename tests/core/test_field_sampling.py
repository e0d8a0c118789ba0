"""Draws from the posterior of a field model with the regression in place of the forward model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from helpers.linear_field import LinearProblem
from invgp.core.backend import Backend, to_numpy
from invgp.core.field.elliptical_slices import run_slice_chains
from invgp.core.field.field_gaussian import Gaussian, mirrored_normals
from invgp.core.field.field_inference import FieldInference, FieldState
from invgp.core.field.field_sampling import (
    FieldSamplingOptions,
    RegressionTarget,
    label_modes,
    sample_posterior,
    weigh_by_uncertainty,
)
from invgp.core.field.local_regression import Block, fit_blocks
from invgp.core.field.regression import Modes

NUMPY = Backend(np, "cpu")
Tolerance = Callable[..., float]
Forward = Callable[[np.ndarray], np.ndarray]


def infer(forward: Forward, y: np.ndarray, variables: int, batches: list[int]) -> tuple[FieldInference, FieldState]:
    """Run the inference of whitened data y for a forward model of a few variables of equal variance."""
    rng = np.random.default_rng(3)
    inference = FieldInference(Modes(np.ones(variables), (variables,)), y, mirrored_normals(rng, 64, variables))
    state = inference.init()
    for count in batches:
        w = inference.ask(state, count, rng)
        state, _ = inference.tell(state, w, forward(w), rng)
    return inference, state


def draw(inference: FieldInference, state: FieldState, **options: int) -> np.ndarray:
    """Draw variables (n, R) from the posterior of the regression."""
    target = RegressionTarget.from_state(inference, state)
    found = sample_posterior(target, state.q, np.random.default_rng(5), FieldSamplingOptions(**options))
    return found.w.reshape(-1, found.w.shape[-1])


def quadrature(forward: Forward, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, covariance and log evidence of the posterior of two variables, on a grid."""
    axis = np.linspace(-5.0, 5.0, 801)
    w = np.stack([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")], axis=-1)
    log_density = -0.5 * np.sum((y - forward(w)) ** 2, axis=1) - 0.5 * np.sum(w**2, axis=1)
    density = np.exp(log_density - log_density.max())
    log_evidence = np.log(density.sum() * (axis[1] - axis[0]) ** 2) + log_density.max()
    density /= density.sum()
    mean = density @ w
    constant = -0.5 * (2.0 + len(y)) * np.log(2.0 * np.pi)
    return mean, (w - mean).T @ ((w - mean) * density[:, None]), log_evidence + constant


@pytest.mark.parametrize("degrees", [None, 4.0])
@pytest.mark.parametrize("local", [False, True])
def test_that_the_gradient_of_the_log_likelihood_agrees_with_differences(degrees: float | None, *, local: bool) -> None:
    problem = LinearProblem(NUMPY, length_scale=0.2, data=20)
    problem.inference = replace(problem.inference, degrees=degrees)
    state = problem.run_batches(NUMPY, [12, 8], given=lambda outputs: outputs + 0.3 * outputs**2)
    regression, size = state.regression, problem.size
    assert regression is not None
    if local:
        projections = [np.linalg.qr(np.random.default_rng(k).standard_normal((size, 3)))[0] for k in range(2)]
        blocks = [
            Block(np.arange(10) + 10 * k, projection, Modes(np.ones(3), (3,)))
            for k, projection in enumerate(projections)
        ]
        regression = fit_blocks(blocks, state.w, state.outputs, None)
    rng = np.random.default_rng(0)
    w, weights = rng.standard_normal((5, size)), rng.uniform(0.5, 1.0, 20)
    value, gradient = problem.inference.likelihood.log_likelihood(regression, w, weights)
    density = problem.inference.likelihood.log_density(regression, w, weights)
    np.testing.assert_allclose(value - 0.5 * np.sum(w**2, axis=1), density, rtol=1e-10)
    steps = 1e-5 * np.eye(size)
    differences = [
        problem.inference.likelihood.log_likelihood(regression, w + step, weights)[0]
        - problem.inference.likelihood.log_likelihood(regression, w - step, weights)[0]
        for step in steps
    ]
    np.testing.assert_allclose(gradient, np.stack(differences, axis=1) / 2e-5, atol=1e-6 * np.abs(gradient).max())


def test_that_draws_of_a_linear_model_have_the_exact_mean_and_covariance(
    backend: Backend, tolerance: Tolerance
) -> None:
    problem = LinearProblem(backend, length_scale=0.15, data=40)
    state = problem.run_batches(backend, [problem.size + 6])
    w = draw(problem.inference, state, iterations=48)
    # In single precision the regression has an error that varies with w: the Gaussian of the state is an approximation.
    exact, single = (problem.mean, problem.covariance), (to_numpy(state.q.mean), to_numpy(state.q.covariance))
    mean, covariance = exact if backend.dtype == "float64" else single
    std = np.sqrt(np.diagonal(covariance))
    assert np.abs((w.mean(axis=0) - mean) / std).max() < tolerance(backend, 0.15, 0.3)
    np.testing.assert_allclose(w.std(axis=0), std, rtol=tolerance(backend, 0.08, 0.2))
    factor = np.linalg.inv(np.linalg.cholesky(covariance))
    off = factor @ np.cov(w.T) @ factor.T - np.eye(problem.size)
    assert np.abs(off).max() < tolerance(backend, 0.15, 0.3)


def test_that_draws_of_a_cubic_response_agree_with_quadrature() -> None:
    def cubic(w: np.ndarray) -> np.ndarray:
        total = np.stack([w[:, 0] + 0.5 * w[:, 1], 0.3 * w[:, 0] - w[:, 1]], axis=-1)
        return (total + total**3) / 0.3

    y = cubic(np.asarray([[0.1, 0.2]]))[0] + np.asarray([0.5, -0.7])
    inference, state = infer(cubic, y, 2, [20, 20, 20, 20])
    mean, covariance, _ = quadrature(cubic, y)
    w = draw(inference, state, iterations=100)
    std = np.sqrt(np.diagonal(covariance))
    assert np.abs((w.mean(axis=0) - mean) / std).max() < 0.1
    np.testing.assert_allclose(w.std(axis=0) / std, 1.0, atol=0.06)


def test_that_draws_on_a_ridge_have_its_spread_and_its_data() -> None:
    """The product of two variables: no Gaussian has both the spread and the predicted data of the posterior."""

    def product(w: np.ndarray) -> np.ndarray:
        return ((1.0 + 0.3 * w[:, :1]) * (1.0 + 0.3 * w[:, 1:])) / 0.05

    y = product(np.asarray([[0.5, -0.2]]))[0]
    inference, state = infer(product, y, 2, [20, 20, 20])
    mean, covariance, log_evidence = quadrature(product, y)
    target = RegressionTarget.from_state(inference, state)
    found = sample_posterior(target, state.q, np.random.default_rng(5), FieldSamplingOptions(iterations=100))
    w = found.w.reshape(-1, 2)
    std = np.sqrt(np.diagonal(covariance))
    assert np.abs((w.mean(axis=0) - mean) / std).max() < 0.15
    np.testing.assert_allclose(w.std(axis=0) / std, 1.0, atol=0.08)
    assert 0.9 < product(w).std() < 1.1  # the noise has standard deviation 1
    assert product(state.q.samples(np.random.default_rng(0).standard_normal((500, 2)))).std() > 1.3
    assert abs(found.log_evidence.mean() + inference.likelihood.log_constant(target.regression) - log_evidence) < 0.5


def test_that_both_modes_of_a_square_are_found_and_labelled() -> None:
    def square(w: np.ndarray) -> np.ndarray:
        return np.asarray((w[:, :1] + 0.2) ** 2 / 0.1)

    y = square(np.asarray([[1.0, 0.0]]))[0]
    inference, state = infer(square, y, 2, [16, 16, 16])
    target = RegressionTarget.from_state(inference, state)
    found = sample_posterior(
        target, state.q, np.random.default_rng(5), FieldSamplingOptions(chains=256, iterations=8, particles=2048)
    )
    mode = label_modes(found.w)
    assert set(mode.tolist()) == {0, 1}
    sides = found.w[..., 0].mean(axis=0) > -0.2
    assert len(set(zip(mode.tolist(), sides.tolist(), strict=True))) == 2
    # At 1 and at -1.4, with the same width: the weights are those of the prior.
    assert abs(np.mean(sides) - 1.0 / (1.0 + np.exp(-0.5 * (1.4**2 - 1.0)))) < 0.1


def test_that_chains_in_one_mode_have_one_label() -> None:
    rng = np.random.default_rng(0)
    chains = rng.standard_normal((20, 64, 30))
    assert label_modes(chains).max() == 0
    chains[:, :20, 4] += 8.0
    mode = label_modes(chains)
    assert np.all(mode[:20] == 1)
    assert np.all(mode[20:] == 0)


def test_that_another_prior_gives_its_own_posterior() -> None:
    """The regression of one prior serves another one, here with all standard deviations doubled."""
    problem = LinearProblem(NUMPY, length_scale=0.15, data=40)
    state = problem.run_batches(NUMPY, [problem.size + 6])
    target = replace(RegressionTarget.from_state(problem.inference, state), mixing=2.0 * np.eye(problem.size))
    q = target.gaussian(state.linear).to_dense()
    covariance = np.linalg.inv(np.eye(problem.size) + 4.0 * problem.A.T @ problem.A)
    np.testing.assert_allclose(q.covariance, covariance, atol=1e-5)
    np.testing.assert_allclose(q.mean, covariance @ (2.0 * problem.A.T) @ (problem.y - problem.offset), atol=1e-4)
    drawn = sample_posterior(target, q, np.random.default_rng(0), FieldSamplingOptions(particles=0))
    std = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(drawn.w.reshape(-1, problem.size).std(axis=0), std, rtol=0.08)
    assert to_numpy(q.factor).shape == covariance.shape


def test_that_slices_end_where_the_density_cannot_be_resolved():
    """Rounding hides the threshold, or the density is not a number: the chains stay where they are."""
    rng = np.random.default_rng(0)
    near = Gaussian(np.zeros(2), np.eye(2), np.eye(2))
    for density in (lambda w: np.full(len(w), np.nan), lambda w: -1e30 * np.sum(w**2, axis=1)):
        found = run_slice_chains(density, near, rng, 4, 3)
        assert np.isfinite(found).all()


def test_that_a_mode_without_runs_has_the_weight_of_an_uncertain_region() -> None:
    class Guess:
        """Two regions explain the data; the uncertainty of the regression costs 20 nats in one of them."""

        weights = np.ones(1)

        def log_likelihood(self, w: np.ndarray, trust: float) -> tuple[np.ndarray, np.ndarray]:
            return (1.0 - trust) * np.where(w[:, 0] > 0.0, -20.0, 0.0), np.zeros_like(w)

    particles = np.where(np.arange(16)[:, None] % 2, 1.0, -1.0) * np.ones((4, 16, 2))
    particles[3] = 1.0  # a population that has only found the uncertain region
    kept, log_evidence = weigh_by_uncertainty(Guess(), particles, np.zeros(4), np.random.default_rng(0))
    assert (particles.reshape(-1, 2)[kept, 0] < 0.0).all()
    np.testing.assert_allclose(log_evidence, -np.log(2.0), atol=1e-6)
