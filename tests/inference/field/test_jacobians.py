"""Field models whose simulator gives Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import invgp
from helpers.local_averages import FUNCTION, exact_moments, windows
from invgp.core.backend import select_backend
from invgp.execution.simulator import Simulator
from invgp.inference.field_model import compute_slopes
from invgp.latent_model.prior_field import field_of

WITH_JACOBIANS = (
    FUNCTION
    + """

def with_jacobian(depth, position):
    return averages(depth, position), {"depth": 100.0 * weights(position)}


def averages_of_squares(depth, position):
    return 100.0 * (weights(position) @ depth ** 2) / 40.0


def averages_of_squares_with_jacobian(depth, position):
    return averages_of_squares(depth, position), {"depth": 100.0 * weights(position) * depth / 20.0}
"""
)
LINEAR = {"averages:averages": "averages:with_jacobian", "vectorised = false": "vectorised = false\njacobian = true"}
CURVED = {**LINEAR, "averages:averages": "averages:averages_of_squares_with_jacobian"}


@pytest.fixture
def load_changed(folder: Path, load_problem: Callable[..., invgp.Problem]) -> Callable[..., invgp.Problem]:
    (folder / "averages.py").write_text(WITH_JACOBIANS, encoding="utf-8")
    return load_problem


@pytest.mark.parametrize("link", ["identity", "log"])
def test_that_slopes_are_differences_of_the_simulator(
    load_changed: Callable[..., invgp.Problem], link: str, tmp_path: Path
) -> None:
    """Through links and units: the simulator returns cm, the data are in m."""
    problem = load_changed({**CURVED, 'positive = "down"': f'positive = "down"\nlink = "{link}"'})
    field = field_of(problem, select_backend("cpu"))
    rng = np.random.default_rng(1)
    w = rng.standard_normal((2, sum(basis.size for basis in field.bases)))
    simulator = Simulator(problem, tmp_path / "runs")
    batch = simulator.run_fields(field.latents(w), "slopes")
    assert batch.jacobians is not None
    slopes = compute_slopes(problem, field, field.latents(w), batch.jacobians)
    for direction in rng.standard_normal(w.shape)[:, None] * [[[1.0]], [[0.3]]]:
        step = 1e-5 * direction
        both = [simulator.run_fields(field.latents(w + sign * step), "differences").outputs for sign in (1.0, -1.0)]
        numeric = (both[0] - both[1]) / 2e-5
        np.testing.assert_allclose(slopes @ direction[0], numeric, rtol=1e-5, atol=1e-5)


def test_that_eight_runs_of_a_linear_simulator_give_the_exact_posterior(
    load_changed: Callable[..., invgp.Problem],
) -> None:
    problem = load_changed({**LINEAR, "kept_variance = 0.999": "kept_variance = 0.999999"})
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_converged"] == "yes"
    assert posterior.attrs["invgp_runs"] == 16  # the second batch verifies the first
    mean, std = exact_moments(problem)
    np.testing.assert_allclose(posterior["depth"], mean, atol=0.01)
    np.testing.assert_allclose(posterior["depth_std"], std, rtol=0.01)
    assert problem.grid is not None
    np.testing.assert_allclose(posterior["average_predicted"], windows(problem.grid.X[:, 0]) @ mean, atol=0.1)


def test_that_a_nonlinear_simulator_has_the_same_posterior_with_fewer_runs(
    load_changed: Callable[..., invgp.Problem],
) -> None:
    derived = invgp.invert(load_changed(CURVED))
    plain = invgp.invert(load_changed({"averages:averages": "averages:averages_of_squares"}))
    assert derived.attrs["invgp_converged"] == plain.attrs["invgp_converged"] == "yes"
    assert derived.attrs["invgp_runs"] < 0.7 * plain.attrs["invgp_runs"]
    off = (derived["depth"] - plain["depth"]) / plain["depth_std"]
    assert float(np.sqrt(np.mean(off**2))) < 0.1
    ratio = derived["depth_std"] / plain["depth_std"]
    assert abs(float(np.median(ratio)) - 1.0) < 0.05
    np.testing.assert_allclose(derived["average_predicted"], plain["average_predicted"], atol=0.1)


def test_that_jacobians_are_recorded_and_not_computed_again(
    load_changed: Callable[..., invgp.Problem], tmp_path: Path
) -> None:
    problem, ledger = load_changed(CURVED), tmp_path / "ledger.sqlite"
    first = invgp.invert(problem, ledger=ledger)
    again = invgp.invert(problem, ledger=ledger)
    np.testing.assert_array_equal(again["depth"], first["depth"])
    assert again.attrs["invgp_runs_from_ledger"] == again.attrs["invgp_runs"] == first.attrs["invgp_runs"]
    other = load_changed({**CURVED, "std.average = 0.5": "std.average = 0.7"})
    assert invgp.invert(other, ledger=ledger).attrs["invgp_runs"] < first.attrs["invgp_runs"]


def test_that_a_jacobian_counts_at_its_declared_cost(load_changed: Callable[..., invgp.Problem]) -> None:
    costs = {**LINEAR, "vectorised = false": "vectorised = false\njacobian = true\njacobian_cost = 1"}
    assert invgp.invert(load_changed(costs)).attrs["invgp_runs"] == 32
    limited = {**costs, "seed = 3": "seed = 3\nmax_runs = 20"}
    assert invgp.invert(load_changed(limited)).attrs["invgp_runs"] <= 20
