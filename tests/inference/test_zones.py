"""Priors with zones between which nothing is correlated, against closed forms."""

import json

import numpy as np
import pytest

import invgp
from helpers.linear_priors import assert_same_posterior, condition, matern52, site_problem
from invgp.errors import ConfigError

LENGTH, STD, MEAN, NOISE, FAULT = 400.0, 3.0, 10.0, 0.5, 430.0
WEST = [[-10.0, -10.0], [5.0, -10.0], [3.0, 20.0], [-10.0, 20.0], [-10.0, -10.0]]


def is_west(X):
    """Whether points are on the western side of the inclined edge of the polygon."""
    return X[:, 0] < 5.0 - 2.0 * (X[:, 1] + 10.0) / 30.0


def collection(*polygons):
    features = [{"type": "Feature", "properties": {}, "geometry": geometry} for geometry in polygons]
    return json.dumps({"type": "FeatureCollection", "features": features})


def latent(zones, **kernel):
    table = {"kind": "matern 5/2", "length_scale": LENGTH, "zones": zones} | kernel
    return {"depth": {"unit": "m", "mean": MEAN, "std": STD, "kernel": table}}


def test_that_a_fault_on_a_line_has_the_closed_form_and_a_jump_in_the_map(tmp_path):
    x = np.linspace(0.0, 1000.0, 15)
    y = MEAN + np.where(x < FAULT, 4.0, -4.0) + np.sin(x / 100.0)
    posterior = invgp.invert(site_problem(x[:, None], y, latent([FAULT]), NOISE), seed=1)
    points = np.arange(405.0, 460.0, 10.0)
    both = np.concatenate([x, points])[:, None]
    side = both[:, 0] < FAULT
    covariance = STD**2 * matern52(both, both, LENGTH) * (side[:, None] == side)
    rows = np.eye(len(both))[: len(x)]
    mean, covariance = condition(np.full(len(both), MEAN), covariance, rows, y, NOISE)
    std = np.sqrt(np.diagonal(covariance))
    assert_same_posterior(posterior, "depth", mean[: len(x)], std[: len(x)])
    invgp.write(posterior, tmp_path / "posterior.nc")
    with invgp.open_posterior(tmp_path / "posterior.nc") as stored:
        there = invgp.predict(stored, grid="x=405:455:10")
    np.testing.assert_allclose(there["depth"].values, mean[len(x) :], atol=1e-5)
    np.testing.assert_allclose(there["depth_std"].values, std[len(x) :], rtol=1e-5)
    assert there["depth"].values[2] - there["depth"].values[3] > 5.0


def test_that_polygons_on_a_map_have_the_closed_form_in_a_part_of_a_sum(tmp_path, monkeypatch, rng):
    """Half of the variance is continuous across the fault."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocks.geojson").write_text(collection({"type": "Polygon", "coordinates": [WEST]}))
    X = rng.uniform(0.0, 10.0, (25, 2))
    y = MEAN + np.where(is_west(X), 3.0, -3.0) + 0.3 * X[:, 1]
    part = {"kind": "matern 5/2", "length_scale": 4.0}
    kernel = {"kind": "sum", "parts": [{**part, "zones": "blocks.geojson"}, part]}
    latents = {"depth": {"unit": "m", "mean": MEAN, "std": STD, "kernel": kernel}}
    posterior = invgp.invert(site_problem(X, y, latents, NOISE), seed=1)
    same = is_west(X)[:, None] == is_west(X)
    covariance = STD**2 * matern52(X, X, 4.0) * np.where(same, 1.0, 0.5)
    mean, covariance = condition(np.full(len(X), MEAN), covariance, np.eye(len(X)), y, NOISE)
    assert_same_posterior(posterior, "depth", mean, np.sqrt(np.diagonal(covariance)))


def test_that_a_field_model_takes_zones():
    nodes = np.arange(0.0, 1001.0, 50.0)
    y = MEAN + np.where(nodes[1:-1] < FAULT, 4.0, -4.0)
    posterior = invgp.invert(
        invgp.define(
            {"x": nodes[1:-1], "data": y},
            coordinates={"x": "m"},
            observations={"data": "1"},
            grid={"x": {"unit": "m", "start": 0, "stop": 1000, "step": 50}},
            latents=latent([FAULT]),
            forward=lambda depth: depth[:, 1:-1],
            noise={"data": NOISE},
            inference={"kept_variance": 0.9999999},
        ),
        seed=2,
    )
    side = nodes < FAULT
    covariance = STD**2 * matern52(nodes[:, None], nodes[:, None], LENGTH) * (side[:, None] == side)
    mean, covariance = condition(np.full(len(nodes), MEAN), covariance, np.eye(len(nodes))[1:-1], y, NOISE)
    assert_same_posterior(posterior, "depth", mean, np.sqrt(np.diagonal(covariance)), tolerance=2e-3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            collection({"type": "Polygon", "coordinates": [[[100, 100], [101, 100], [100, 101]]]}),
            "must divide the sites",
        ),
        (collection({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}), "must have polygons only"),
        (collection({"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}), "lists of at least three corners"),
        (collection({"type": "MultiPolygon", "coordinates": "x"}), "lists of at least three corners"),
        (collection(), "must have polygons whose rings are lists of at least three corners"),
        ("{", "must be a GeoJSON file"),
        ("[" * 100_000, "must be a GeoJSON file"),
        ("3", "must have polygons only"),
    ],
)
def test_that_files_without_useful_polygons_are_refused(text, sentence, tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocks.geojson").write_text(text)
    with pytest.raises(ConfigError) as error:
        site_problem(rng.uniform(0.0, 10.0, (5, 2)), np.ones(5), latent("blocks.geojson"))
    assert "latents.depth.kernel.zones: " in str(error.value)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("zones", "dimensions", "sentence"),
    [
        ([5.0], 2, "must be a GeoJSON file unless the kernel has one coordinate"),
        ("blocks.geojson", 1, "must be a list of positions if the kernel has one coordinate"),
        ([5.0, 2.0], 1, "must be positions that increase"),
        ([1e6], 1, "must divide the sites into zones"),
        ([], 1, "must be a GeoJSON file, or a list of positions"),
        ("missing.geojson", 2, "missing.geojson"),
    ],
)
def test_that_zones_must_fit_the_coordinates(zones, dimensions, sentence, rng):
    with pytest.raises(ConfigError) as error:
        site_problem(rng.uniform(0.0, 10.0, (5, dimensions)), np.ones(5), latent(zones))
    assert "latents.depth.kernel.zones: " in str(error.value)
    assert sentence in str(error.value)
