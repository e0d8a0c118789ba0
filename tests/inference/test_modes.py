"""Search for modes: draws in separate groups, and samplers that start in one of them."""

from dataclasses import replace

import numpy as np
import pytest

import invgp
from invgp.inference.emulated_draws import DRAFT, modes_of_draws
from invgp.inference.emulated_posterior import SamplingOptions, find_valleys, label_modes
from invgp.inference.sampled import SampledSearch
from invgp.posterior import Samples

OPTIONS = SamplingOptions()


def normal(rng, count, centres, shares):
    """Draws (count, 1, 1) from a mixture of normal distributions of unit variance."""
    return (rng.standard_normal(count) + rng.choice(centres, count, p=shares)).reshape(-1, 1, 1)


def test_that_two_modes_are_labelled_the_most_probable_first(rng):
    draws = normal(rng, 3000, [0.0, 8.0], [0.3, 0.7])
    labels = label_modes(draws, OPTIONS)
    assert labels.max() == 1
    assert np.array_equal(labels == 0, draws[:, 0, 0] > 4.0) or np.mean((labels == 0) == (draws[:, 0, 0] > 4.0)) > 0.999
    assert np.mean(labels == 0) == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_that_copies_of_few_draws_are_no_modes(seed):
    """After weighting with the simulator, most of the stored draws can be copies of a few hundred different ones."""
    rng = np.random.default_rng(seed)
    different = rng.standard_normal((246, 20, 2))
    copies = different[rng.choice(246, 3072, p=rng.dirichlet(np.ones(246)))]
    assert label_modes(copies, OPTIONS).max() == 0


def test_that_curved_and_long_tailed_draws_have_one_mode(rng):
    draws = rng.standard_normal((3000, 20, 2))
    draws[..., 1] = np.exp(draws[..., 1])
    assert not find_valleys(draws, OPTIONS)[0].any()
    assert not find_valleys(rng.standard_t(3, (500, 20, 2)), DRAFT)[0].any()


def test_that_few_different_draws_show_no_modes(rng):
    draws = normal(rng, 30, [0.0, 50.0], [0.9, 0.1])
    assert label_modes(draws, OPTIONS).max() == 0


def samples(latents, method="tempered sequential Monte Carlo", effective=4000.0):
    R, N, Q = latents.shape
    ones = np.ones((N, Q))
    return Samples(
        latents, np.zeros(R, dtype=int), np.zeros(R, dtype=int), method, np.nan, ones, effective * ones,
        whitened=np.swapaxes(latents, 1, 2),
    )  # fmt: skip


def test_that_tempered_draws_are_the_starts_of_the_next_chains(rng):
    draws = normal(rng, 400, [0.0, 9.0], [0.5, 0.5])
    found = modes_of_draws(samples(draws))
    assert found.several
    assert np.array_equal(found.starts, draws[:, 0])
    assert modes_of_draws(samples(draws, "Hamiltonian Monte Carlo")) is None
    assert modes_of_draws(None) is None


def test_that_few_effective_draws_have_not_converged(rng):
    search = SampledSearch(rng, rng, rng, rng)
    state = type("State", (), {"samples": samples(rng.standard_normal((500, 2, 1)))})
    assert search.judge_draws(state).converged
    state.samples = replace(state.samples, effective=np.full((2, 1), 149.0))
    result = search.judge_draws(state)
    assert not result.converged
    assert "effective draws" in result.status


def distance(a):
    return np.abs(a - 2.0)


@pytest.mark.slow
def test_that_both_sides_of_a_fold_far_out_in_the_prior_have_their_probabilities():
    """A Gaussian approximation covers one side only, and its importance weights do not show the other."""
    y, noise = np.full(4, 0.3), 0.08
    problem = invgp.define(
        {"x": np.arange(4.0), "y": y},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={"a": {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 0.001}}},
        noise={"std": {"y": noise}},
        forward=distance,
        inference={"posterior": "sampled"},
    )
    posterior = invgp.invert(problem)
    axis = np.linspace(-5.0, 5.0, 20_001)
    weight = np.exp(-0.5 * ((0.3 - np.abs(axis - 2.0)) / noise) ** 2 - 0.5 * axis**2)
    mean = np.sum(weight * axis) / weight.sum()
    std = np.sqrt(np.sum(weight * (axis - mean) ** 2) / weight.sum())
    np.testing.assert_allclose(posterior["a"].values, mean, atol=0.12 * std)
    np.testing.assert_allclose(posterior["a_std"].values, std, rtol=0.08)
    assert posterior.attrs["invgp_converged"] == "yes"
