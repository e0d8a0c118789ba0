"""Priors whose length-scale varies by a map, against closed forms."""

import numpy as np
import pytest

import invgp
from helpers.linear_priors import assert_same_posterior, condition, site_problem
from invgp.errors import ConfigError

LENGTH, STD, MEAN, NOISE = 300.0, 3.0, 10.0, 0.4
MAP = "x,factor\n-500,0.3\n400,0.3\n700,1.5\n2000,1.5\n"


def covariance(points):
    """Covariance by the formula of Paciorek and Schervish, pair by pair."""
    found = np.empty((len(points), len(points)))
    for i, a in enumerate(points):
        for j, b in enumerate(points):
            first, second = (LENGTH * np.interp(p, [-500, 400, 700, 2000], [0.3, 0.3, 1.5, 1.5]) for p in (a, b))
            mixed = 0.5 * (first**2 + second**2)
            r = np.sqrt(5.0) * abs(a - b) / np.sqrt(mixed)
            found[i, j] = np.sqrt(first * second / mixed) * (1.0 + r + r**2 / 3.0) * np.exp(-r)
    return STD**2 * found


def latent(**keys):
    kernel = {"kind": "matern 5/2", "length_scale": LENGTH}
    table = {"unit": "m", "mean": MEAN, "std": STD, "kernel": kernel, "length_scale_map": "factor.csv"}
    return {"depth": table | keys}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "factor.csv").write_text(MAP)
    return tmp_path


def test_that_posterior_and_map_have_the_closed_form(folder):
    x = np.linspace(0.0, 1000.0, 18)
    y = MEAN + 2.0 * np.sin(x / np.where(x < 500.0, 30.0, 200.0))
    posterior = invgp.invert(site_problem(x[:, None], y, latent(), NOISE), seed=1)
    points = np.asarray([35.0, 435.0, 835.0, 1235.0])
    both = np.concatenate([x, points])
    rows = np.eye(len(both))[: len(x)]
    mean, variance = condition(np.full(len(both), MEAN), covariance(both), rows, y, NOISE)
    std = np.sqrt(np.diagonal(variance))
    assert_same_posterior(posterior, "depth", mean[: len(x)], std[: len(x)])
    (folder / "factor.csv").unlink()  # the posterior file has the map
    invgp.write(posterior, folder / "posterior.nc")
    with invgp.open_posterior(folder / "posterior.nc") as stored:
        there = invgp.predict(stored, grid="x=35:1235:400")
    np.testing.assert_allclose(there["depth"].values, mean[len(x) :], atol=1e-5)
    np.testing.assert_allclose(there["depth_std"].values, std[len(x) :], rtol=1e-5)


def test_that_a_field_model_takes_the_map(folder):
    nodes = np.arange(0.0, 1001.0, 40.0)
    y = MEAN + np.sin(nodes[1:-1] / 90.0)
    posterior = invgp.invert(
        invgp.define(
            {"x": nodes[1:-1], "data": y},
            coordinates={"x": "m"},
            observations={"data": "1"},
            grid={"x": {"unit": "m", "start": 0, "stop": 1000, "step": 40}},
            latents=latent(),
            forward=lambda depth: depth[:, 1:-1],
            noise={"data": NOISE},
            inference={"kept_variance": 0.9999999},
        ),
        seed=2,
    )
    rows = np.eye(len(nodes))[1:-1]
    mean, variance = condition(np.full(len(nodes), MEAN), covariance(nodes), rows, y, NOISE)
    assert_same_posterior(posterior, "depth", mean, np.sqrt(np.diagonal(variance)), tolerance=2e-3)


@pytest.mark.parametrize(
    ("text", "keys", "sentence"),
    [
        ("x,factor\n-500,1\n2000,0\n", {}, "must be positive everywhere, was 0 in the map"),
        ("x,factor\n300,1\n400,1\n", {}, "must cover all 3 points"),
        (MAP, {"kernel": {"kind": "rational quadratic", "length_scale": 3}}, "must be left out unless the kernel has"),
        (MAP, {"length_scale_map": 3}, "must be a map file or its table"),
        (MAP, {"domain": "scalar", "kernel": None}, "must be left out for domain = 'scalar'"),
    ],
)
def test_that_mistakes_are_named(text, keys, sentence, folder):
    (folder / "factor.csv").write_text(text)
    table = {name: value for name, value in latent(**keys)["depth"].items() if value is not None}
    with pytest.raises(ConfigError) as error:
        site_problem(np.asarray([[0.0], [350.0], [1000.0]]), np.ones(3), {"depth": table})
    assert "latents.depth.length_scale_map: " in str(error.value)
    assert sentence in str(error.value)
