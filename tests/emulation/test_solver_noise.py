"""Numerical noise of a simulator: its estimate, and that it does not cost runs."""

import numpy as np
import pytest

import invgp
from invgp.emulation.solver_noise import SolverNoiseOptions, estimate_solver_noise, place_lines


def test_that_lines_are_short_and_lie_in_the_posterior():
    rng = np.random.default_rng(0)
    mean, factor = rng.standard_normal((5, 2)), np.broadcast_to(np.diag([1.0, 100.0]), (5, 2, 2))
    latents, sites = place_lines(mean, factor, rng)
    options = SolverNoiseOptions()
    assert latents.shape == (options.points, options.lines, 2)
    assert len(set(sites)) == options.lines
    np.testing.assert_allclose(latents.mean(axis=0), mean[sites])
    steps = np.linalg.norm(np.diff(latents, axis=0) / [1.0, 100.0], axis=-1)
    np.testing.assert_allclose(steps, options.spacing)


@pytest.mark.parametrize("size", [0.0, 1e-3, 0.1])
def test_that_the_noise_of_a_smooth_function_is_estimated(size):
    rng = np.random.default_rng(1)
    options = SolverNoiseOptions(lines=200)
    mean, factor = rng.standard_normal((200, 3)), np.broadcast_to(np.eye(3), (200, 3, 3))
    latents, _ = place_lines(mean, factor, rng, options)
    clean = np.stack([np.exp(0.5 * latents[..., 0]), latents[..., 1] * latents[..., 2]], axis=-1)
    found = estimate_solver_noise(clean + size * rng.standard_normal(clean.shape), options)
    np.testing.assert_allclose(found, size, rtol=0.15, atol=2e-5)


def test_that_a_jump_on_one_line_and_failed_runs_do_not_count():
    rng = np.random.default_rng(2)
    outputs = 1e-3 * rng.standard_normal((6, 3, 1))
    outputs[3:, 0] += 10.0
    assert estimate_solver_noise(outputs)[0] < 3e-3
    outputs[0, 1] = np.nan
    assert np.isfinite(estimate_solver_noise(outputs)).all()
    assert estimate_solver_noise(np.full((6, 3, 2), np.nan)).tolist() == [0.0, 0.0]


def rough(a):
    """A smooth function with an error of 1e-3 that differs from input to input."""
    return np.exp(0.5 * a) + 1e-3 * (2.0 * np.modf(np.abs(43758.5453 * np.sin(12345.678 * a)))[0] - 1.0)


@pytest.mark.slow
def test_that_solver_noise_does_not_cost_hundreds_of_runs_per_site():
    """The noise of the solver is 0.3 standard deviations of that of the data, above inference.emulator_error."""
    sites, noise = 24, 0.002
    rng = np.random.default_rng(3)
    truth = rng.standard_normal(sites)
    problem = invgp.define(
        {"x": np.arange(float(sites)), "y": np.exp(0.5 * truth) + noise * rng.standard_normal(sites)},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={"a": {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 0.01}}},
        noise={"std": {"y": noise}},
        forward=rough,
        inference={"posterior": "coupled gaussian"},
    )
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_runs"] <= 12 * sites
    assert "as with a solver of low accuracy" in posterior.attrs["invgp_diagnostics"]
    # The posterior is that of the smooth function: no narrower, and wider by no more than the noise of the solver asks.
    exact = 2.0 * noise / np.exp(0.5 * truth)
    ratio = posterior["a_std"].values / exact
    assert 0.97 <= np.median(ratio) <= 1.3
    assert np.mean(np.abs(posterior["a"].values - truth) <= 3.0 * posterior["a_std"].values) >= 0.9
