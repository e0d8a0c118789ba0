"""Draws of sites next to kinks and jumps, weighted with the simulator itself, against sums over a grid."""

import numpy as np
import pytest

import invgp
from invgp.execution.simulator import Batch
from invgp.inference.importance_draws import smooth_weights
from invgp.inference.runner import Runner
from invgp.inference.simulated_draws import has_heavy_tail, strata

AXIS = np.linspace(-6.0, 6.0, 24_001)


def jump(a):
    """A jump of ten standard deviations of the noise, between two slopes."""
    return np.where(a > 0.2, 0.5 * a + 1.0, 0.5 * a)


def problem(y, noise, **inference):
    return invgp.define(
        {"x": np.arange(float(len(y))), "y": y},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={"a": {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 0.001}}},
        noise={"std": {"y": noise}},
        forward=jump,
        inference=inference,
    )


def exact_moments(y, noise):
    weight = np.exp(-0.5 * ((y - jump(AXIS)) / noise) ** 2 - 0.5 * AXIS**2)
    mean = np.sum(weight * AXIS) / weight.sum()
    return mean, np.sqrt(np.sum(weight * (AXIS - mean) ** 2) / weight.sum())


@pytest.mark.slow
def test_that_sites_next_to_a_jump_have_their_exact_posterior():
    """Between the two slopes only the jump explains the data: the posterior has two parts that end at it."""
    y, noise = np.asarray([0.3, 0.9]), 0.4
    posterior = invgp.invert(problem(y, noise))
    for site, value in enumerate(y):
        mean, std = exact_moments(value, noise)
        assert posterior["a"].values[site] == pytest.approx(mean, abs=0.15 * std)
        assert posterior["a_std"].values[site] == pytest.approx(std, rel=0.15)
    assert posterior.attrs["invgp_converged"] == "yes" or posterior.attrs["invgp_diagnostics"]


@pytest.mark.slow
def test_that_sites_next_to_a_jump_are_named_if_there_are_no_runs_for_them():
    y, noise = np.asarray([0.3, 1.1]), 0.1
    posterior = invgp.invert(problem(y, noise, max_runs=45))
    assert posterior.attrs["invgp_runs"] <= 45
    exact = [exact_moments(value, noise) for value in y]
    right = all(
        abs(posterior["a"].values[n] - mean) < 0.2 * std and abs(np.log(posterior["a_std"].values[n] / std)) < 0.2
        for n, (mean, std) in enumerate(exact)
    )
    assert right or posterior.attrs["invgp_converged"] == "no"
    assert posterior.attrs["invgp_converged"] == "yes" or posterior.attrs["invgp_diagnostics"]


def test_that_nearly_equal_weights_have_no_heavy_tail():
    """Next to a jump most weights are nearly equal, and a few are several times as large: their Pareto k is useless."""
    rng = np.random.default_rng(0)
    nearly_equal = np.concatenate([rng.uniform(0.18, 0.26, 190), rng.uniform(1.0, 1.4, 10)])
    heavy = np.log(rng.pareto(0.8, 200))
    assert smooth_weights(nearly_equal)[1] > 1.0
    assert not has_heavy_tail(nearly_equal, smooth_weights(nearly_equal)[1])
    assert has_heavy_tail(heavy, smooth_weights(heavy)[1])


@pytest.mark.slow
def test_that_failed_runs_do_not_replace_the_emulator(monkeypatch):
    """A draw whose run failed keeps the weight of the emulator, whose error still widens the posterior."""
    sample, failed = Runner.sample, []

    def fail_at_draws(self, latents, label, sites):
        if label == "simulated-draws":
            failed.append(len(sites))
            return Batch.all_failed(len(latents), len(sites), 1)
        return sample(self, latents, label, sites)

    monkeypatch.setattr(Runner, "sample", fail_at_draws)
    posterior = invgp.invert(problem(np.asarray([0.3, 1.1]), 0.1))
    assert failed
    assert "weighted with the simulator" not in posterior.attrs["invgp_draws"]
    assert posterior.attrs["invgp_converged"] == "no"


def test_that_strata_are_disjoint_compact_and_of_equal_size():
    points = np.random.default_rng(0).standard_normal((1000, 2))
    parts = strata(points, 64)
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
    assert {len(part) for part in parts} <= {15, 16}
    assert {len(part) for part in strata(points, 50)} == {20}  # not a power of two
    widths = [np.ptp(points[part], axis=0).max() for part in parts]
    assert np.median(widths) < 1.0
    assert len(strata(points[:3], 10)) == 3


def test_that_one_draw_of_each_stratum_estimates_a_mean_better_than_random_draws():
    rng = np.random.default_rng(1)
    points = rng.standard_normal((4000, 1))
    parts = strata(points, 64)
    stratified = [np.mean([points[rng.choice(part), 0] for part in parts]) for _ in range(50)]
    random = [points[rng.integers(len(points), size=64), 0].mean() for _ in range(50)]
    assert np.std(stratified) < 0.2 * np.std(random)
