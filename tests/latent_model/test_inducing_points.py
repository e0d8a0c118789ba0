"""Inducing points that are chosen by default, and the note on too few, against dense posteriors."""

import numpy as np
import pytest

import invgp
from invgp.core.kernels import Matern32, Matern52, SquaredExponential
from invgp.latent_model import inducing_points
from invgp.latent_model.inducing_points import choose_inducing_count, needed_inducing_points, omitted_share

NOISE = 0.2


def identity(depth):
    return {"y": depth}


def survey(dimensions: int, sites: int, **inference):
    """A linear survey, of one process with unit variance and length-scale."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0.0, 8.0 if dimensions == 1 else 3.0, (sites, dimensions))
    K = Matern52(1.0, np.ones(dimensions))(X, X)
    y = np.linalg.cholesky(K + 1e-9 * np.eye(sites)) @ rng.standard_normal(sites) + NOISE * rng.standard_normal(sites)
    names = ("x", "z")[:dimensions]
    return invgp.define(
        {**{name: X[:, d] for d, name in enumerate(names)}, "y": y},
        coordinates=dict.fromkeys(names, "m"),
        observations={"y": "m"},
        latents={"depth": {"unit": "m", "mean": 0.0, "std": 1.0, "kernel": {"kind": "matern 5/2", "length_scale": 1}}},
        forward=identity,
        noise={"std": {"y": NOISE}},
        inference={"posterior": "coupled gaussian", "emulator": False, **inference},
    )


def posterior_error(posterior, dense) -> tuple[float, float]:
    """Root mean square of the error of the mean, in standard deviations, and the mean ratio of the spreads."""
    away = (posterior["depth"] - dense["depth"]) / dense["depth_std"]
    return float(np.sqrt((away**2).mean())), float((posterior["depth_std"] / dense["depth_std"]).mean())


def note(posterior) -> str:
    return str(posterior.attrs["invgp_diagnostics"])


@pytest.mark.slow
@pytest.mark.parametrize(("dimensions", "sites"), [(1, 300), (2, 400)])
def test_that_the_chosen_number_gives_nearly_the_dense_posterior_and_fewer_are_reported(dimensions, sites, monkeypatch):
    monkeypatch.setattr(inducing_points, "DEFAULTS", inducing_points.InducingOptions(dense_unknowns=100))
    dense = invgp.invert(survey(dimensions, sites, inducing=sites))
    chosen = invgp.invert(survey(dimensions, sites))
    count = chosen.sizes["inducing"]
    assert 10 < count < sites / 2
    error, spread = posterior_error(chosen, dense)
    assert error < 0.1
    assert spread == pytest.approx(1.0, abs=0.02)
    assert "inducing" not in note(chosen)
    few = invgp.invert(survey(dimensions, sites, inducing=count // 3))
    assert posterior_error(few, dense)[0] > 0.2
    assert f"The {count // 3} inducing points omit" in note(few)
    assert "would be enough (inference.inducing)" in note(few)


def test_that_small_surveys_have_an_inducing_point_at_every_site():
    assert "inducing" not in invgp.invert(survey(1, 40)).dims


def test_that_a_process_with_few_sites_per_length_scale_is_dense():
    """Half of the sites are too few inducing points; the dense posterior is within the limits."""
    problem = survey(2, 400)
    kernel = SquaredExponential(1.0, np.full(2, 0.02))
    assert choose_inducing_count(problem, [kernel]) is None


@pytest.mark.parametrize("kind", [SquaredExponential, Matern52, Matern32])
def test_that_more_precise_data_and_shorter_length_scales_need_more_points(kind):
    X = np.random.default_rng(8).uniform(0.0, 20.0, (500, 1))

    def needed_points(length_scale, information):
        return needed_inducing_points([kind(1.0, np.asarray([length_scale]))], X, X, [information], 500)

    assert needed_points(1.0, 10.0) < needed_points(1.0, 1000.0)
    assert needed_points(1.0, 10.0) < needed_points(0.3, 10.0)
    assert needed_inducing_points([kind(1.0, np.asarray([0.05]))], X, X, [1000.0], 20) is None


def test_that_the_omitted_share_is_that_of_the_dense_formulas(rng):
    X, Z, kernel = rng.uniform(0.0, 5.0, (30, 1)), rng.uniform(0.0, 5.0, (6, 1)), Matern32(1.0, np.ones(1))
    Kzz, Kzx = kernel(Z, Z) + inducing_points.JITTER * np.eye(6), kernel(Z, X)
    projected = Kzx.T @ np.linalg.solve(Kzz, Kzx)
    omitted = np.diagonal(kernel(X, X) - projected)
    posterior = np.diagonal(projected - projected @ np.linalg.solve(projected + 0.25 * np.eye(30), projected)) + omitted
    expected = np.sqrt(np.mean((omitted / posterior) ** 2))
    assert omitted_share(kernel, Z, X, 4.0) == pytest.approx(expected, rel=1e-6)
