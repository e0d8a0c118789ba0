"""Mistakes in the choice of an earlier posterior as the prior."""

import pytest

import invgp
from helpers.joint_problems import latents, line_problem
from invgp.errors import ConfigError


@pytest.fixture(scope="module")
def earlier():
    """A posterior of depth and velocity along x."""
    return invgp.invert(line_problem(None))


def survey(prior, *, x="x", latent_keys=None, crs=None, forward=None):
    return invgp.define(
        {x: [100.0, 700.0], "y": [115.0, 120.0]},
        coordinates={x: "m"},
        observations={"y": "1"},
        latents=latents() if latent_keys is None else latent_keys,
        forward=forward or (lambda depth, velocity: depth + velocity),
        noise={"y": 1.0},
        crs=crs,
        prior=prior,
    )


def change_keys(name, **keys):
    found = latents()
    found[name] |= keys
    return found


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"latent_keys": {"depth": latents()["depth"]}, "forward": lambda depth: depth}, "had 'velocity' too"),
        (
            {"latent_keys": change_keys("depth", unit="m")},
            "latents.depth: must have the unit of the prior, '1', had 'm'",
        ),
        (
            {"latent_keys": change_keys("depth", link="log")},
            "latents.depth: must have the link of the prior, identity, ",
        ),
        ({"x": "easting"}, r"prior: must have the coordinates of this problem, 'easting \(m\)', had 'x \(m\)'"),
        ({"crs": "EPSG:28354"}, "prior: must have the coordinate reference system of this problem, .*, had none"),
    ],
)
def test_that_a_posterior_of_something_else_is_refused(earlier, keys, sentence):
    with pytest.raises(ConfigError, match=sentence):
        survey(earlier, **keys)


def test_that_other_files_are_refused(earlier, tmp_path):
    with pytest.raises(ConfigError, match=r"prior: .*missing\.nc"):
        survey(tmp_path / "missing.nc")
    (tmp_path / "text.nc").write_text("no posterior", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"prior: .*text\.nc"):
        survey(tmp_path / "text.nc")
    with pytest.raises(ConfigError, match="prior: must be a posterior that `invgp run` wrote"):
        survey(invgp.predict(earlier, "x=0:1900:475"))
    with pytest.raises(ConfigError, match="prior: must be a posterior with the variables for prediction"):
        survey(earlier.drop_vars(["site_shift", "site_precision"]))


def test_that_names_of_the_prior_are_reserved(earlier):
    with pytest.raises(ConfigError, match=r"survey\.observations\.prior_data: must have names of its own"):
        invgp.define(
            {"x": [100.0, 700.0], "prior_data": [115.0, 120.0]},
            coordinates={"x": "m"},
            observations={"prior_data": "1"},
            latents=latents(),
            forward=lambda depth, velocity: depth + velocity,
            noise={"prior_data": 1.0},
            prior=earlier,
        )
    with pytest.raises(ConfigError, match="prior: must be left out if a source is called 'prior'"):
        invgp.define(
            {"x": [100.0, 700.0], "y": [115.0, 120.0]},
            coordinates={"x": "m"},
            observations={"y": "1"},
            latents=latents(),
            forward=lambda depth, velocity: depth + velocity,
            noise={"y": 1.0},
            direct={
                "prior": {"coordinates": {"x": 5.0}, "values": {"top": {"quantity": "depth", "value": 1.0, "std": 1}}}
            },
            prior=earlier,
        )
