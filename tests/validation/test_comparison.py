"""Comparison of posteriors with reference chains, of site and field models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from helpers.problems import map_problem
from helpers.reference_problems import INDEPENDENT, exact_posterior, latent_line, linear_problem, simulator_of
from invgp.plots import plot_comparison
from invgp.problem import Problem
from invgp.sampling.exact_target import Chains
from invgp.validation.comparison import (
    chains_have_converged,
    compare_with_chains,
    comparison_rows,
    describe_convergence,
    widest_interval,
)
from invgp.validation.reference_chains import reference


def dataset_of(problem: Problem, mean: np.ndarray, std: np.ndarray) -> xr.Dataset:
    """What `compare` and its figure read of a Gaussian posterior, from arrays (N, Q) of the physical quantities."""
    variables = {}
    for latent in problem.latents:
        columns = problem.latent_slices[latent.name]
        dims = ("site",) if latent.dimension is None else ("site", latent.dimension)
        for suffix, values in (("", mean), ("_std", std), ("_prior", mean)):
            own = values[:, columns].reshape([-1, latent.size][: len(dims)])
            variables[f"{latent.name}{suffix}"] = xr.DataArray(own, dims=dims, attrs={"units": latent.unit})
        ends = [variables[latent.name] + z * variables[f"{latent.name}_std"] for z in (-1.959964, 0.0, 1.959964)]
        variables[f"{latent.name}_quantile"] = xr.concat(ends, "quantile")
    coordinates = {c.name: ("site", c.values, {"units": c.unit}) for c in problem.survey.coordinates}
    names = {
        "invgp_latents": " ".join(latent.name for latent in problem.latents),
        "invgp_coordinates": " ".join(coordinates),
        "invgp_runs": 5,
    }
    labels = {d: list(latent.labels) for latent in problem.latents if (d := latent.dimension)}
    return xr.Dataset(variables, coordinates | labels | {"quantile": [0.025, 0.5, 0.975]}, names)


@pytest.mark.slow
def test_that_the_exact_posterior_compares_well_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    problem = linear_problem()
    mean, covariance = exact_posterior(problem)
    std = np.sqrt(np.diag(covariance)).reshape(mean.shape)
    chains = reference(problem, simulator_of(problem, tmp_path), seed=1)
    exact = compare_with_chains(problem, dataset_of(problem, mean, std), chains)
    assert chains_have_converged(exact)
    assert "have converged" in describe_convergence(exact)
    assert exact.attrs["invgp_interval"] == pytest.approx(0.95)
    for row in comparison_rows(exact):
        assert row.error < 3.0 * row.error_mcse < 0.15
        assert abs(row.ratio - 1.0) < 3.0 * row.ratio_mcse < 0.15
        assert row.inside == pytest.approx(0.95, abs=0.01)
        assert row.r_hat < 1.01
        assert row.ess > 400
    wrong = comparison_rows(compare_with_chains(problem, dataset_of(problem, mean + std, 0.5 * std), chains))
    assert [(round(row.error, 1), round(row.ratio, 1)) for row in wrong] == [(1.0, 0.5)] * 2
    for row in wrong:  # the interval from 0.02 to 1.98 standard deviations of the right posterior
        assert row.inside == pytest.approx(0.468, abs=0.02)


def test_that_chains_in_different_modes_are_no_reference() -> None:
    problem = latent_line(lambda f0: f0, np.asarray([[1.0]]), 1, INDEPENDENT)
    rng = np.random.default_rng(0)
    posterior = dataset_of(problem, np.zeros((1, 1)), np.ones((1, 1)))
    modes = np.asarray([-1.0, -1.0, 1.0, 1.0])[:, None, None, None, None]
    apart = compare_with_chains(problem, posterior, Chains(modes + 0.1 * rng.standard_normal((4, 16, 60, 1, 1)), 1))
    assert not chains_have_converged(apart)
    assert "have not converged, and are no reference yet" in describe_convergence(apart)
    assert apart.attrs["invgp_reference_converged"] == "no"
    short = compare_with_chains(problem, posterior, Chains(rng.standard_normal((4, 2, 20, 1, 1)), 1))
    assert not chains_have_converged(short)


def test_that_chains_that_drift_together_are_no_reference() -> None:
    problem = latent_line(lambda f0: f0, np.asarray([[1.0]]), 1, INDEPENDENT)
    drift = np.linspace(0.0, 1.0, 60)[:, None, None]
    draws = drift + np.random.default_rng(0).standard_normal((4, 16, 60, 1, 1))
    found = compare_with_chains(problem, dataset_of(problem, np.zeros((1, 1)), np.ones((1, 1))), Chains(draws, 1))
    assert float(found["f0_reference_r_hat"].max()) > 1.02
    assert not chains_have_converged(found)


def test_that_chains_that_keep_their_modes_count_as_one_draw_each() -> None:
    """Populations agree, but their chains do not move: the effective sample size is the number of chains."""
    problem = latent_line(lambda f0: f0, np.asarray([[1.0]]), 1, INDEPENDENT)
    rng = np.random.default_rng(0)
    modes = rng.choice([-1.0, 1.0], (4, 64, 1, 1, 1))
    draws = modes + 0.1 * rng.standard_normal((4, 64, 50, 1, 1))
    found = compare_with_chains(problem, dataset_of(problem, np.zeros((1, 1)), np.ones((1, 1))), Chains(draws, 1))
    assert 100 < float(found["f0_reference_ess"].max()) < 500


@pytest.mark.parametrize(("levels", "widest"), [([0.1, 0.5, 0.9, 0.05, 0.95], (0.05, 0.95)), ([0.5, 0.9], None)])
def test_that_the_widest_central_interval_of_the_file_is_used(levels: list, widest: tuple | None) -> None:
    assert widest_interval(xr.Dataset(coords={"quantile": levels})) == widest


@pytest.mark.slow
def test_that_a_map_with_links_units_and_labels_compares(tmp_path: Path) -> None:
    problem = map_problem()
    simulator = simulator_of(problem, tmp_path)
    chains = reference(problem, simulator, chains=16, effective=50)
    assert simulator.simulator.runs == chains.runs
    physical = problem.to_physical(chains.by_chain.reshape(-1, 12, 3))
    posterior = dataset_of(problem, physical.mean(axis=0), physical.std(axis=0))
    found = compare_with_chains(problem, posterior, chains)
    assert [(row.latent, row.label) for row in comparison_rows(found)] == [
        ("resistivity", "layer 1"),
        ("resistivity", "layer 2"),
        ("thickness", ""),
    ]
    assert found["resistivity_reference_draw"].dims == ("chain", "draw", "site", "layer")
    assert max(abs(row.error) for row in comparison_rows(found)) < 1e-9
    figure = plot_comparison(posterior, found)
    assert len(figure.axes) == 4
