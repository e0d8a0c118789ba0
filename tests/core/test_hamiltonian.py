"""Hamiltonian Monte Carlo and tempering against closed forms and quadrature."""

import math

import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from invgp.core.backend import to_numpy
from invgp.core.sampling.hamiltonian import (
    HamiltonianOptions,
    Tuning,
    covariance_factor,
    evaluate,
    follow,
    move,
    sample,
    transforms_of,
)
from invgp.core.sampling.statistics import effective_sample_size, split_r_hat
from invgp.core.sampling.tempering import TemperingOptions, temper


def gaussian(backend, mean, covariance):
    """Log density and gradient of a normal distribution, on a backend."""
    xp = backend.namespace
    centre, precision = backend.asarray(mean), backend.asarray(np.linalg.inv(covariance))

    def log_density(z):
        offset = z - centre
        return -0.5 * xp.sum(offset * (offset @ precision), axis=1), -(offset @ precision)

    return log_density


@pytest.mark.parametrize("harmonic", [False, True])
def test_that_draws_have_the_moments_of_a_correlated_gaussian(backend, harmonic):
    mean, covariance = np.asarray([0.5, -1.0, 0.0]), np.asarray([[1.0, 0.6, 0.0], [0.6, 0.8, 0.1], [0.0, 0.1, 1.5]])
    density = gaussian(backend, mean, covariance)
    rng = np.random.default_rng(0)
    start = backend.asarray(rng.standard_normal((32, 3)))
    options = HamiltonianOptions(harmonic=harmonic)
    found = sample(density, transforms_of(density), start, rng, warmup=40, iterations=60, options=options)
    draws = found.z.reshape(-1, 3)
    effective = effective_sample_size(found.z.swapaxes(0, 1))
    assert split_r_hat(found.z.swapaxes(0, 1)).max() < 1.03
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 4.0 * np.sqrt(np.diag(covariance) / effective))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.15)


def test_that_a_trajectory_conserves_the_energy_to_second_order(backend):
    density = gaussian(backend, np.zeros(2), np.asarray([[1.0, 0.3], [0.3, 0.5]]))
    start = evaluate(density, backend.asarray(np.random.default_rng(1).standard_normal((200, 2))))
    rejected = [
        1.0 - move(density, start, Tuning(step, 1.0), 1.0, np.random.default_rng(2), HamiltonianOptions()).acceptance
        for step in (0.1, 0.2)
    ]
    assert rejected[1].mean() / rejected[0].mean() == pytest.approx(4.0, rel=0.3)


def test_that_harmonic_motion_accepts_every_step_in_a_standard_normal_density(backend):
    density = gaussian(backend, np.zeros(50), np.eye(50))
    start = evaluate(density, backend.asarray(np.random.default_rng(1).standard_normal((20, 50))))
    moved = move(density, start, Tuning(1.3, 3.0), 1.0, np.random.default_rng(2), HamiltonianOptions(harmonic=True))
    np.testing.assert_allclose(moved.acceptance, 1.0, atol=1e-12 if backend.dtype == "float64" else 1e-4)
    assert np.abs(to_numpy(moved.points.z - start.z)).max() > 0.5


@pytest.mark.parametrize("variance", [0.02, 25.0])
def test_that_few_samples_give_the_direction_in_which_they_are_not_whitened(variance):
    rng, D, n = np.random.default_rng(3), 100, 400
    direction = np.full(D, D**-0.5)
    covariance = np.eye(D) + (variance - 1.0) * np.outer(direction, direction)
    samples = rng.standard_normal((n, D)) @ np.linalg.cholesky(covariance).T
    factor = covariance_factor(samples, n)
    estimated = factor @ factor.T
    assert direction @ estimated @ direction == pytest.approx(variance, rel=0.3 if variance > 1.0 else 1.5)
    across = np.eye(D) - np.outer(direction, direction)
    np.testing.assert_allclose(np.linalg.eigvalsh(across @ estimated @ across)[1:], 1.0, atol=0.6)


def test_that_fewer_samples_than_variables_are_taken_for_whitened():
    samples = np.random.default_rng(4).standard_normal((200, 400))
    assert np.abs(covariance_factor(samples, 200) - np.eye(400)).max() < 0.1


def test_that_a_ridge_is_sampled_in_its_whole_length():
    """The product of two unknowns is known: the exact spread comes from a sum over a grid."""
    spread, noise = 0.3, 0.02

    def log_density(z):
        a, b = 1.0 + spread * z[:, 0], 1.0 + spread * z[:, 1]
        residual = (1.0 - a * b) / noise
        slope = residual / noise * spread
        gradient = np.stack([slope * b, slope * a], axis=1) - z
        return -0.5 * residual**2 - 0.5 * np.sum(z**2, axis=1), gradient

    axis = np.linspace(-4.0, 4.0, 1601)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = np.exp(log_density(grid)[0])
    mean = weight @ grid / weight.sum()
    std = np.sqrt(weight @ (grid - mean) ** 2 / weight.sum())
    rng = np.random.default_rng(0)
    found = sample(
        log_density, transforms_of(log_density), 0.1 * rng.standard_normal((64, 2)), rng, warmup=100, iterations=200
    )
    draws = found.z.reshape(-1, 2)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.06)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.05)


def test_that_points_where_the_density_is_not_finite_are_never_visited():
    def log_density(z):
        inside = z[:, 0] > 0.0
        return np.where(inside, -0.5 * np.sum(z**2, axis=1), np.nan), np.where(inside[:, None], -z, np.inf)

    rng = np.random.default_rng(0)
    start = np.abs(rng.standard_normal((32, 2)))
    found = sample(log_density, transforms_of(log_density), start, rng, warmup=40, iterations=100)
    assert found.z[..., 0].min() > 0.0
    assert found.z[..., 0].mean() == pytest.approx(math.sqrt(2.0 / math.pi), abs=0.06)


def test_that_tempering_finds_both_modes_with_their_weights_and_the_evidence():
    """y = a^2 with a prior that prefers the positive root, at three independent places."""
    prior_mean, noise = 0.2, 0.1

    def log_likelihood(v):
        a = prior_mean + v
        residual = (1.0 - a**2) / noise
        return -0.5 * np.sum(residual**2, axis=1), residual / noise * 2.0 * a

    axis = np.linspace(-6.0, 6.0, 200_001)
    likelihood = np.exp(-0.5 * ((1.0 - (prior_mean + axis) ** 2) / noise) ** 2)
    density = likelihood * np.exp(-0.5 * axis**2) / math.sqrt(2.0 * math.pi)
    evidence = np.trapezoid(density, axis)
    positive = np.trapezoid(np.where(prior_mean + axis > 0.0, density, 0.0), axis) / evidence
    rng = np.random.default_rng(0)
    start = rng.standard_normal((4, 400, 3))
    found = temper(log_likelihood, lambda _: np.eye(3), start, rng, TemperingOptions(final_moves=5))
    signs = prior_mean + found.v[-1] > 0.0
    assert signs.mean() == pytest.approx(positive, abs=0.06)
    assert found.log_evidence.mean() == pytest.approx(3.0 * math.log(evidence), abs=0.4)
    assert found.powers > 3


def test_that_tempering_of_a_gaussian_is_exact_on_every_backend(backend):
    xp = backend.namespace

    def log_likelihood(v):
        return -0.5 * xp.sum(xp.square((v - 1.0) / 0.5), axis=1), -(v - 1.0) / 0.25

    rng = np.random.default_rng(3)
    start = backend.asarray(rng.standard_normal((2, 200, 2)))
    eye = backend.asarray(np.eye(2))
    found = temper(log_likelihood, lambda power: eye / (1.0 + 4.0 * power) ** 0.5, start, rng)
    draws = found.v.reshape(-1, 2)
    np.testing.assert_allclose(draws.mean(axis=0), 0.8, atol=0.08)
    np.testing.assert_allclose(draws.std(axis=0), math.sqrt(0.2), rtol=0.1)
    exact = 2.0 * (-0.5 / 1.25 + 0.5 * math.log(0.25 / 1.25))
    assert found.log_evidence.mean() == pytest.approx(exact, abs=0.2)


@pytest.mark.parametrize("correlation", [-0.3, 0.0, 0.9])
def test_that_statistics_agree_with_arviz(correlation):
    rng = np.random.default_rng(0)
    draws = np.zeros((6, 150, 2))
    draws[:, 0] = rng.standard_normal((6, 2))
    for k in range(1, 150):
        step = math.sqrt(1.0 - correlation**2) * rng.standard_normal((6, 2))
        draws[:, k] = correlation * draws[:, k - 1] + step
    draws[0, :, 1] += 0.5
    for variable in range(2):
        one = draws[..., variable]
        bulk, tail = array_stats.ess(one, method="bulk"), array_stats.ess(one, method="tail", prob=(0.05, 0.95))
        assert split_r_hat(draws)[variable] == pytest.approx(float(array_stats.rhat(one)), abs=1e-9)
        assert effective_sample_size(draws)[variable] == pytest.approx(min(float(bulk), float(tail)), rel=0.05)


def test_that_a_constant_variable_has_converged():
    draws = np.ones((4, 20, 1))
    assert split_r_hat(draws) == pytest.approx([1.0])
    assert np.isfinite(effective_sample_size(draws)).all()


def test_that_each_chain_can_have_its_own_step(backend):
    rng = np.random.default_rng(0)
    z, momentum = (backend.asarray(rng.standard_normal((3, 2))) for _ in range(2))

    def log_density(z):
        xp = backend.namespace
        return -xp.sum(z**4, axis=1), -4.0 * z**3

    steps = np.asarray([[0.1], [0.2], [0.05]])
    tolerance = 1e-12 if backend.dtype == "float64" else 1e-5
    for harmonic in (False, True):
        points = evaluate(log_density, z)
        together, _ = follow(log_density, points, momentum, backend.asarray(steps), 4, harmonic=harmonic)
        for chain, step in enumerate(steps[:, 0].tolist()):
            alone, _ = follow(log_density, points, momentum, step, 4, harmonic=harmonic)
            np.testing.assert_allclose(to_numpy(together.z)[chain], to_numpy(alone.z)[chain], atol=tolerance)
