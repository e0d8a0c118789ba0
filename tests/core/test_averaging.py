"""Draws of hyperparameters, and draws averaged over them, against closed forms."""

import numpy as np
import pytest
from scipy.special import ndtri

from invgp.core.backend import to_numpy
from invgp.core.sampling.averaging import average_over_nodes
from invgp.core.sampling.hyperparameter_draws import ProposalOptions, curvature, draw_hyperparameters, nested_order

COVARIANCE = np.array([[0.5, 0.3], [0.3, 0.4]])


def gaussian_cost(theta, centre=(0.7, -1.2)):
    offset = theta - np.asarray(centre)
    return 0.5 * offset @ np.linalg.solve(COVARIANCE, offset)


def test_that_draws_have_the_moments_and_the_integral_of_a_gaussian():
    # The start is not the maximum.
    found = draw_hyperparameters(gaussian_cost, np.zeros(2), np.full(2, 2.0), 400, np.random.default_rng(1))
    np.testing.assert_allclose(found.theta.mean(axis=0), [0.7, -1.2], atol=0.05)
    np.testing.assert_allclose(np.cov(found.theta.T), COVARIANCE, atol=0.06)
    exact = 0.5 * np.log(np.linalg.det(2.0 * np.pi * COVARIANCE))
    assert found.log_evidence == pytest.approx(exact, abs=0.03)
    assert found.effective > 300


def test_that_draws_of_a_skewed_density_reach_its_tail():
    """The logarithm of a gamma variable with shape 1 has the density exp(t - exp(t)) and a long left tail."""

    def cost(theta):
        return float(np.exp(theta[0]) - theta[0])

    found = draw_hyperparameters(cost, np.zeros(1), np.full(1, 3.0), 500, np.random.default_rng(2))
    assert found.theta.mean() == pytest.approx(-0.5772, abs=0.05)
    assert found.theta.std() == pytest.approx(np.pi / np.sqrt(6.0), rel=0.05)
    assert np.quantile(found.theta, 0.05) == pytest.approx(np.log(-np.log(0.95)), abs=0.3)
    assert found.log_evidence == pytest.approx(0.0, abs=0.03)


def test_that_a_density_that_is_not_defined_everywhere_can_be_sampled():
    def half(theta):
        return 0.5 * float(theta[0] ** 2) if theta[0] > 0.0 else np.inf

    found = draw_hyperparameters(half, np.array([0.3]), np.ones(1), 300, np.random.default_rng(3))
    assert found.theta.min() > 0.0
    assert found.theta.mean() == pytest.approx(np.sqrt(2.0 / np.pi), abs=0.04)


def test_that_proposals_stay_within_a_distance():
    options = ProposalOptions(proposals=128, rounds=2, farthest=0.5)
    found = draw_hyperparameters(
        gaussian_cost, np.array([0.7, -1.2]), np.ones(2), 100, np.random.default_rng(4), options
    )
    assert np.abs(found.theta - [0.7, -1.2]).max() <= 0.5


def test_that_the_curvature_is_the_inverse_covariance():
    np.testing.assert_allclose(
        curvature(gaussian_cost, np.array([0.3, 0.1]), 0.05), np.linalg.inv(COVARIANCE), rtol=1e-9
    )


def test_that_the_nested_order_contains_every_point_and_keeps_neighbours_together():
    points = np.random.default_rng(5).standard_normal((256, 3))
    order = nested_order(points, np.full(256, 1.0 / 256))
    assert sorted(order) == list(range(256))
    apart = np.linalg.norm(np.diff(points[order], axis=0), axis=1).mean()
    assert apart < 0.6 * np.linalg.norm(np.diff(points, axis=0), axis=1).mean()


def path_density(backend, thetas, first, mean, log_spread):
    """Density of z with mean `mean` theta, log standard deviation `log_spread` theta, and evidence exp(0.3 theta)."""

    def density(share, node):
        theta = backend.asarray(first + share * (thetas[node] - first))[:, None]
        xp = backend.namespace

        def log_density(z):
            spread = xp.exp(log_spread * theta)
            scaled = (z - mean * theta) / spread
            value = xp.sum(-0.5 * xp.square(scaled) - log_spread * theta, axis=1) + 0.3 * theta[:, 0]
            return value, -scaled / spread

        return log_density

    return density


@pytest.mark.parametrize("size", [1, 5])
def test_that_particles_end_at_the_average_over_the_nodes(backend, size):
    """The nodes are from N(0, 0.5^2); the evidence tilts them to N(0.3 * 0.25, 0.5^2)."""
    rng, sd, mean, log_spread = np.random.default_rng(6), 0.5, 1.0, 0.4
    quantiles = (np.arange(256) + 0.5) / 256
    thetas = sd * ndtri(quantiles)
    rng.shuffle(thetas)
    first = 0.4
    R = 4096
    z = mean * first + np.exp(log_spread * first) * rng.standard_normal((R, size))
    node = np.arange(R) % len(thetas)
    density = path_density(backend, thetas, first, mean, log_spread)
    found = average_over_nodes(density, backend.asarray(z), node, 4, rng)
    theta, ended = thetas[found.node], to_numpy(found.z)
    centre = 0.3 * sd**2
    assert theta.mean() == pytest.approx(centre, abs=0.06)
    assert theta.std() == pytest.approx(sd, rel=0.08)
    variance = np.exp(2.0 * log_spread * centre + 2.0 * log_spread**2 * sd**2) + mean**2 * sd**2
    np.testing.assert_allclose(ended.mean(axis=0), mean * centre, atol=0.12)
    np.testing.assert_allclose(ended.var(axis=0), variance, rtol=0.15)
    # The mean evidence of the nodes relative to that at the start.
    assert found.log_ratio == pytest.approx(0.5 * 0.3**2 * sd**2 - 0.3 * first, abs=0.08)
    assert 0.0 < found.share <= 1.0


def test_that_the_path_ends_where_no_particle_is_possible(backend):
    def density(share, node):
        xp = backend.namespace

        def log_density(z):
            value = -0.5 * xp.sum(xp.square(z), axis=1)
            return (value if share == 0.0 else value - np.inf), -z

        return log_density

    z = backend.asarray(np.random.default_rng(7).standard_normal((64, 2)))
    assert average_over_nodes(density, z, np.zeros(64, dtype=np.intp), 4, np.random.default_rng(8)).share == 0.0
