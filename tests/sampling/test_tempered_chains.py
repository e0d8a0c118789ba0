"""Chains on the simulator against closed forms and quadrature, and their limits of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from helpers.reference_problems import (
    INDEPENDENT,
    NOISE,
    TIED,
    exact_posterior,
    latent_line,
    linear,
    linear_problem,
    target_of,
)
from invgp.errors import RunsFailedError
from invgp.problem import Problem
from invgp.sampling.exact_target import Chains
from invgp.sampling.simulated_sites import WhitenedPrior
from invgp.sampling.tempered_chains import Limits, RunsSpent, extrapolate_runs, sample_chains, shrunk_covariance
from invgp.validation.comparison import spread_mcse
from invgp.validation.reference_chains import default_chains, default_runs


def sample(
    problem: Problem, folder: Path, chains: int = 64, effective: float = 1000.0, runs: int = 10**6, seed: int = 1
) -> Chains:
    limits = Limits(runs, 1.01, effective)
    return sample_chains(target_of(problem, folder), chains, np.random.default_rng(seed), limits)


def check_moments(chains: Chains, mean: np.ndarray, std: np.ndarray) -> None:
    """Compare with exact means and standard deviations (M, Q), in Monte Carlo errors."""
    draws = chains.by_chain
    off = (draws.mean(axis=(0, 1)) - mean) / array_stats.mcse(draws, chain_axis=0, draw_axis=1)
    assert np.abs(off).max() < 4.0
    off = (draws.std(axis=(0, 1)) - std) / spread_mcse(draws)
    assert np.abs(off).max() < 4.0


@pytest.mark.slow
@pytest.mark.parametrize("length_scale", [TIED, INDEPENDENT])
def test_that_the_posterior_of_a_linear_problem_is_drawn_from(length_scale: float, tmp_path: Path) -> None:
    problem = linear_problem(length_scale)
    mean, covariance = exact_posterior(problem)
    spread = np.sqrt(np.diag(covariance))
    chains = sample(problem, tmp_path)
    check_moments(chains, mean, spread.reshape(mean.shape))
    draws = chains.by_chain.reshape(-1, mean.size)
    assert np.abs(np.corrcoef(draws.T) - covariance / np.outer(spread, spread)).max() < 0.15
    assert chains.acceptance > 0.8


class WrongSurrogate:
    """A surrogate whose gradient has the wrong size and direction."""

    def __init__(self, right) -> None:
        self.right = right

    def linearise(self, v: np.ndarray, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, gradient = self.right.linearise(v, blocks)
        return 0.5 * value, 0.5 * gradient[..., ::-1] + 1.0

    def information(self, v: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        return 3.0 * self.right.information(v, blocks)


@pytest.mark.slow
@pytest.mark.parametrize("surrogate", [WrongSurrogate, lambda right: None], ids=["wrong", "none"])
def test_that_the_draws_do_not_depend_on_the_errors_of_the_surrogate(surrogate, tmp_path: Path) -> None:
    problem = linear_problem(INDEPENDENT)
    target = target_of(problem, tmp_path)
    fit = target.fit_surrogate
    target.fit_surrogate = lambda power: surrogate(fit(power))
    chains = sample_chains(target, 128, np.random.default_rng(3), Limits(10**6, 1.01, 1500.0))
    mean, covariance = exact_posterior(problem)
    check_moments(chains, mean, np.sqrt(np.diag(covariance)).reshape(mean.shape))


def product(f0: np.ndarray, f1: np.ndarray) -> np.ndarray:
    return f0 * f1


def weighted_moments(values: np.ndarray, log_density: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ values
    return mean, np.sqrt(weight @ (values - mean) ** 2)


@pytest.mark.slow
def test_that_a_ridge_is_sampled_in_its_whole_length(tmp_path: Path) -> None:
    # Both branches of each hyperbola are likely enough to have many of the chains.
    problem = latent_line(product, np.asarray([[-0.5], [0.2]]), 2, INDEPENDENT, noise=0.1)
    chains = sample(problem, tmp_path, chains=256, effective=2000.0)
    axis = np.linspace(-6.0, 6.0, 3001)
    a, b = (grid.ravel() for grid in np.meshgrid(axis, axis, indexing="ij"))
    moments = [
        weighted_moments(
            1.0 + np.stack([a, b], axis=-1),
            -0.5 * (a**2 + b**2) - 0.5 * ((datum - (1.0 + a) * (1.0 + b)) / 0.1) ** 2,
        )
        for datum in problem.survey.Y[:, 0]
    ]
    check_moments(chains, np.stack([mean for mean, _ in moments]), np.stack([std for _, std in moments]))
    assert array_stats.rhat(chains.by_iteration, chain_axis=0, draw_axis=1).max() < 1.01


@pytest.mark.slow
def test_that_a_ridge_of_coupled_sites_is_sampled(tmp_path: Path) -> None:
    problem = latent_line(product, np.asarray([[3.0], [1.0]]), 2, TIED, noise=0.8)
    chains = sample(problem, tmp_path, chains=256, effective=1500.0)
    axis = np.linspace(-5.0, 5.0, 51)
    v = np.stack([grid.ravel() for grid in np.meshgrid(*[axis] * 4, indexing="ij")], axis=-1)
    f = WhitenedPrior(problem)(v)
    misfit = (problem.survey.Y[:, 0] - f[..., 0] * f[..., 1]) / 0.8
    log_density = -0.5 * np.sum(v**2, axis=1) - 0.5 * np.sum(misfit**2, axis=1)
    mean, std = weighted_moments(f.reshape(-1, 4), log_density)
    check_moments(chains, mean.reshape(2, 2), std.reshape(2, 2))


def square(f0: np.ndarray) -> np.ndarray:
    return f0**2


@pytest.mark.slow
def test_that_several_modes_have_their_probabilities(tmp_path: Path) -> None:
    problem = latent_line(square, np.asarray([[1.0], [3.0]]), 1, INDEPENDENT)
    chains = sample(problem, tmp_path, chains=256, effective=1000.0)
    axis = np.linspace(-5.0, 7.0, 12_001)
    for site, datum in enumerate((1.0, 3.0)):
        log_density = -0.5 * (axis - 1.0) ** 2 - 0.5 * ((axis**2 - datum) / NOISE) ** 2
        negative, _ = weighted_moments((axis < 0.0).astype(float)[:, None], log_density)
        drawn = (chains.by_chain[:, :, site] < 0.0).astype(float)
        error = array_stats.mcse(drawn, chain_axis=0, draw_axis=1).item()
        assert drawn.mean() == pytest.approx(negative.item(), abs=4.0 * error)
        assert error < 0.03


def fails_above_one(f0: np.ndarray) -> np.ndarray:
    return np.where(f0 > 1.0, np.nan, 1.0)


@pytest.mark.slow
def test_that_a_failed_run_is_a_likelihood_of_zero_and_sites_without_data_need_no_run(tmp_path: Path) -> None:
    problem = latent_line(fails_above_one, np.asarray([[1.0], [np.nan]]), 1, INDEPENDENT)
    chains = sample(problem, tmp_path)
    assert chains.draws[..., 0, 0].max() <= 1.0
    half_normal = 1.0 - np.sqrt(2.0 / np.pi), np.sqrt(1.0 - 2.0 / np.pi)
    check_moments(chains, np.asarray([[half_normal[0]], [1.0]]), np.asarray([[half_normal[1]], [1.0]]))
    assert default_runs(problem) == default_runs(latent_line(fails_above_one, np.ones((1, 1)), 1, TIED))


def never(f0: np.ndarray) -> np.ndarray:
    return np.full_like(f0, np.nan)


def test_that_a_site_at_which_all_runs_fail_is_named(tmp_path: Path) -> None:
    problem = latent_line(never, np.asarray([[np.nan], [1.0]]), 1, TIED)
    with pytest.raises(RunsFailedError, match="all runs at 16 draws from the prior failed at site 2"):
        sample(problem, tmp_path, chains=16)


def test_that_coupled_sites_with_some_failures_are_sampled(tmp_path: Path) -> None:
    """No draw from the prior is likely to succeed at all sites."""
    problem = latent_line(fails_above_one, np.ones((8, 1)), 1, 0.5)
    draws = sample(problem, tmp_path, chains=64, effective=20.0, runs=60_000).draws
    assert draws.max() <= 1.0


@pytest.mark.parametrize("length_scale", [TIED, INDEPENDENT])
def test_that_the_limit_of_runs_is_kept_and_more_runs_continue_the_same_chains(
    length_scale: float, tmp_path: Path
) -> None:
    problem = linear_problem(length_scale)
    with pytest.raises(RunsSpent) as spent:
        sample(problem, tmp_path, chains=16, runs=500)
    assert 0.0 <= spent.value.power <= 1.0
    few = sample(problem, tmp_path, chains=16, runs=4000, effective=10**6)
    many = sample(problem, tmp_path, chains=16, runs=5000, effective=10**6)
    for limit, found in ((4000, few), (5000, many)):
        assert limit - 16 * 4 < found.runs <= limit  # one more move of four sites with data
    np.testing.assert_array_equal(many.draws[:, :, : few.draws.shape[2]], few.draws)


@pytest.mark.parametrize("length_scale", [TIED, INDEPENDENT])
@pytest.mark.parametrize("function", [linear, lambda f0, f1: np.stack([f0 * f1, f0**2 - f1**3], axis=-1)])
def test_that_the_surrogate_fits_polynomials_and_has_their_gradient(
    function: Callable[..., np.ndarray], length_scale: float, tmp_path: Path
) -> None:
    problem = latent_line(function, np.ones((3, 2)), 2, length_scale)
    target = target_of(problem, tmp_path)
    rng, blocks = np.random.default_rng(0), np.arange(target.blocks)
    v = rng.standard_normal((target.blocks, 60, target.size))
    exact, _ = target.log_likelihood(v, blocks)
    surrogate = target.fit_surrogate(1.0)
    value, gradient = surrogate.linearise(v, blocks)
    np.testing.assert_allclose(value, exact, rtol=1e-6, atol=1e-5)
    for i in range(target.size):
        step = np.zeros(target.size)
        step[i] = 1e-5
        numeric = (surrogate.linearise(v + step, blocks)[0] - surrogate.linearise(v - step, blocks)[0]) / 2e-5
        np.testing.assert_allclose(gradient[..., i], numeric, rtol=1e-5, atol=1e-3)


def test_that_the_information_of_a_linear_problem_is_exact(tmp_path: Path) -> None:
    problem = linear_problem()
    target = target_of(problem, tmp_path)
    v = np.random.default_rng(0).standard_normal((1, 40, target.size))
    target.log_likelihood(v, np.arange(1))
    information = target.fit_surrogate(1.0).information(v, np.arange(1))[0]
    covariance = np.linalg.inv(np.eye(target.size) + information)
    prior = WhitenedPrior(problem)
    latents = prior(np.linalg.cholesky(covariance).T) - prior.mean  # one direction each
    spread = np.sqrt(np.sum(latents**2, axis=0))
    np.testing.assert_allclose(spread.ravel(), np.sqrt(np.diag(exact_posterior(problem)[1])), rtol=1e-5)


def test_that_the_covariance_is_shrunk_as_by_ledoit_and_wolf() -> None:
    from sklearn.covariance import ledoit_wolf  # noqa: PLC0415 - takes a second

    rng = np.random.default_rng(0)
    samples = rng.standard_normal((3, 20, 6)) @ rng.standard_normal((3, 6, 6))
    for found, one in zip(shrunk_covariance(samples), samples, strict=True):
        np.testing.assert_allclose(found, ledoit_wolf(one)[0], rtol=1e-10)


def test_that_the_default_number_of_chains_decreases_with_the_variables() -> None:
    assert [default_chains(variables) for variables in (1, 400, 904, 10**6)] == [256, 148, 64, 64]


def test_that_the_runs_of_chains_are_extrapolated_from_the_growth_of_the_power():
    path = [(1000 * (k + 1), 2.0 ** (k - 10)) for k in range(5)]  # the power doubles with every 1,000 runs
    assert extrapolate_runs(path) == 17_000  # 11,000 until the power is 1, and half as many for the draws
    assert extrapolate_runs([(1000, 0.5), (2000, 1.0)]) == 3000
    assert extrapolate_runs(path[:1]) is None
