"""An earlier posterior of a site model as the prior, against the inversion of all data together."""

import numpy as np
import pytest

import invgp
from helpers.joint_problems import (
    LOG,
    NOISE,
    SITES,
    WELLS,
    ClosedForm,
    deviations,
    latents,
    line_problem,
    linear_combination,
    observations,
)
from invgp.config.build_earlier import whiten_factors

WEST = np.arange(20) < 9
EAST_ORDER = np.concatenate([SITES[~WEST], SITES[WEST]])


def survey(x, y, *, prior=None, direct=None, latent_keys=None, forward=linear_combination, **inference):
    return invgp.define(
        {"x": x, "y": y},
        coordinates={"x": "m"},
        observations={"y": "1"},
        latents=latents() if latent_keys is None else latent_keys,
        forward=forward,
        noise={"std": {"y": NOISE}},
        direct=direct,
        prior=prior,
        inference={"posterior": "coupled gaussian"} | inference,
    )


def west(**keys):
    return survey(SITES[WEST], observations()[WEST], **keys)


def east(**keys):
    return survey(SITES[~WEST], observations()[~WEST], **keys)


class Repeated(ClosedForm):
    """The whole line, measured twice at the same sites."""

    def __init__(self):
        super().__init__()
        for x, y in zip(SITES, observations() + 1.0, strict=True):
            if np.isfinite(y):
                self._add({"depth": 0.6, "velocity": 1.1}, [x], [1.0], y, NOISE)


@pytest.mark.parametrize("inference", [{}, {"emulator": False}, {"emulator": False, "batch": 6}])
def test_that_two_surveys_in_sequence_have_the_closed_form(inference):
    first = invgp.invert(west(direct={"wells": WELLS, "log": LOG}, **inference))
    second = invgp.invert(east(prior=first, **inference))
    assert deviations(second, ClosedForm([WELLS, LOG]), EAST_ORDER, np.arange(20)) < 1e-6
    assert second.attrs["invgp_sources"] == "survey prior"
    assert second.attrs["invgp_source_runs"][1] == 0


def test_that_a_survey_repeated_at_the_same_sites_has_the_closed_form():
    first = invgp.invert(survey(SITES, observations()))
    second = invgp.invert(survey(SITES, observations() + 1.0, prior=first))
    assert deviations(second, Repeated(), SITES, np.arange(20)) < 1e-6


def test_that_three_surveys_in_sequence_have_the_closed_form(tmp_path):
    parts = [np.arange(20) % 3 == k for k in range(3)]
    prior = None
    for k, part in enumerate(parts):
        found = invgp.invert(survey(SITES[part], observations()[part], prior=prior))
        prior = tmp_path / f"{k}.nc"
        invgp.write(found, prior)
    order = np.concatenate([SITES[part] for part in reversed(parts)])
    assert deviations(found, ClosedForm(), order, np.arange(20)) < 1e-6
    assert found.attrs["invgp_prior"] == "1.nc"


@pytest.mark.parametrize("inducing", [6, 12])
def test_that_inducing_points_approximate_in_the_same_way_as_all_data_together(inducing):
    first = invgp.invert(west(inducing=inducing))
    second = invgp.invert(east(prior=first, inducing=inducing))
    both = invgp.invert(east(inducing=inducing).join({"west": west(inducing=inducing)}))
    for name in ("depth", "depth_std", "velocity", "velocity_std"):
        scale = both[f"{name.removesuffix('_std')}_std"].values
        assert np.max(np.abs(second[name].values - both[name].values) / scale) < 1e-6


def test_that_correlated_latents_in_sequence_are_those_of_all_data_together():
    keys = latents(kernel={"length_scale": 400.0})
    keys["velocity"]["correlated_with"] = {"depth": 0.7}
    first = invgp.invert(west(latent_keys=keys))
    second = invgp.invert(east(latent_keys=keys, prior=first))
    both = invgp.invert(east(latent_keys=keys).join({"west": west(latent_keys=keys)}))
    for name in ("depth", "depth_std", "velocity"):
        np.testing.assert_allclose(second[name], both[name], rtol=1e-7)


def test_that_logarithms_and_prior_maps_are_carried_over(tmp_path):
    """The data are linear in the logarithm of a latent whose prior mean is a map."""
    grid = np.linspace(-100.0, 2000.0, 8)
    (tmp_path / "map.csv").write_text(
        "x,depth\n" + "\n".join(f"{x},{100.0 + 0.02 * x}" for x in grid), encoding="utf-8"
    )
    keys = latents()
    keys["depth"] |= {"mean": {"file": str(tmp_path / "map.csv")}, "link": "log"}

    def forward(depth, velocity):
        return 20.0 * np.log(depth) + 0.5 * velocity

    some = np.arange(20) % 2 == 0
    some[[0, 19]] = True, False  # the new survey has the last site, so that its part of the map covers both
    some[[0, 1]] = False, True
    parts = [
        {"x": SITES[part], "y": observations()[part], "latent_keys": keys, "forward": forward, "emulator": False}
        for part in (some, ~some)
    ]
    first = invgp.invert(survey(**parts[0]))
    second = invgp.invert(survey(**parts[1], prior=first))
    both = invgp.invert(survey(**parts[1]).join({"first": survey(**parts[0])}))
    for name in ("depth", "depth_std", "velocity"):
        np.testing.assert_allclose(second[name], both[name], rtol=1e-6)
    assert not second.attrs["invgp_diagnostics"]


def test_that_the_prior_can_have_latents_that_the_new_simulator_does_not_take():
    first = invgp.invert(survey(SITES, observations()))
    x, y = np.asarray([130.0, 1111.0]), np.asarray([51.0, 46.0])
    second = invgp.invert(survey(x, y, prior=first, forward=lambda velocity: velocity - 1.0))
    exact = ClosedForm()
    for place, value in zip(x, y, strict=True):
        exact._add({"velocity": 1.0}, [place], [1.0], value + 1.0, NOISE)
    assert deviations(second, exact, [*x, *SITES], np.arange(22)) < 1e-6


def test_that_the_prior_can_be_left_out():
    first = invgp.invert(west())
    alone, left = invgp.invert(east()), invgp.invert(east(prior=first).without("prior"))
    np.testing.assert_array_equal(alone["depth"], left["depth"])


def test_that_another_kernel_is_reported_and_used():
    """The file contributes its data: the result is that of all data with the new prior."""
    first = invgp.invert(west(latent_keys=latents(kernel={"length_scale": 200.0})))
    second = invgp.invert(east(prior=first))
    assert deviations(second, ClosedForm(), EAST_ORDER, np.arange(20)) < 1e-6
    assert "'depth' and 'velocity' had another mean, standard deviation or kernel" in second.attrs["invgp_diagnostics"]


@pytest.mark.slow
def test_that_draws_in_sequence_have_the_moments_of_the_closed_form():
    first = invgp.invert(west(direct={"wells": WELLS}, posterior="sampled"))
    second = invgp.invert(east(prior=first, posterior="sampled"))
    places = [*EAST_ORDER, *WELLS["coordinates"]["x"]]
    assert deviations(second, ClosedForm([WELLS]), places, np.arange(len(places))) < 0.15
    assert not second.attrs["invgp_diagnostics"]


@pytest.mark.slow
def test_that_a_posterior_that_is_not_gaussian_is_reported():
    keys = {"posterior": "sampled", "forward": lambda depth, velocity: 0.02 * (depth - 100.0) ** 2 + 0.01 * velocity}
    first = invgp.invert(survey(SITES[:4], np.asarray([8.0, 9.0, 10.0, 9.0]), **keys))
    second = east(prior=first)
    doubts = second.parts[1].problem.forward.doubts
    assert any("modes" in doubt or "not Gaussian" in doubt for doubt in doubts)


def test_that_learnt_length_scales_are_those_of_all_data_together():
    keys = latents(learn={"length_scale": 2.0})
    first = invgp.invert(west(latent_keys=keys))
    second = invgp.invert(east(latent_keys=keys, prior=first))
    both = invgp.invert(east(latent_keys=keys).join({"west": west(latent_keys=keys)}))
    ours, theirs = (found["depth"].attrs["length_scale"] for found in (second, both))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


def test_that_factors_become_data_with_the_same_density():
    rng = np.random.default_rng(3)
    roots, f = rng.standard_normal((5, 3, 3)), rng.standard_normal((5, 3))
    roots[4, :2] = 0.0  # a site with one informed direction
    precision = roots.swapaxes(1, 2) @ roots
    mean, std = rng.standard_normal((5, 3)), np.asarray([0.1, 1.0, 20.0])
    shift = (roots.swapaxes(1, 2) @ rng.standard_normal((5, 3, 1)))[..., 0]
    weights, values, negative = whiten_factors(precision, shift, mean, std)

    def factor(g):
        off = g - mean
        return np.einsum("nk,nk->n", shift, off) - 0.5 * np.einsum("nk,nkl,nl->n", off, precision, off)

    def data(g):
        return -0.5 * np.nansum((values - np.einsum("nkl,nl->nk", weights, g)) ** 2, axis=1)

    other = rng.standard_normal((5, 3))
    np.testing.assert_allclose(factor(f) - factor(other), data(f) - data(other), rtol=1e-9, atol=1e-9)
    assert np.isnan(values).sum() == 2
    assert negative == 0
    assert whiten_factors(-precision, shift, mean, std)[2] == 5


def test_that_the_file_and_a_chain_of_directories_are_read_from_the_configuration(tmp_path):
    first = invgp.invert(line_problem(None))
    invgp.write(first, tmp_path / "2024.nc")
    (tmp_path / "new.csv").write_text("x,y\n100,120\n500,118\n", encoding="utf-8")
    (tmp_path / "simulator.py").write_text(
        "def combined(depth, velocity):\n    return 0.6 * depth + 1.1 * velocity\n", encoding="utf-8"
    )
    (tmp_path / "survey.toml").write_text(
        """
prior = "2024.nc"
survey = { file = "new.csv", coordinates.x.unit = "m", observations.y = { columns = ["y"], unit = "1" } }
latents.depth = { unit = "1", mean = 100, std = 20, kernel.length_scale = 400 }
latents.velocity = { unit = "1", mean = 50, std = 8, kernel.length_scale = 700 }
forward = { adapter = "callable", function = "simulator:combined", inputs = ["depth", "velocity"], outputs = ["y"] }
noise.std.y = 3
inference.posterior = "coupled gaussian"
""",
        encoding="utf-8",
    )
    found = invgp.invert(invgp.load(tmp_path / "survey.toml"))
    exact = ClosedForm()
    for x, y in ((100.0, 120.0), (500.0, 118.0)):
        exact._add({"depth": 0.6, "velocity": 1.1}, [x], [1.0], y, NOISE)
    assert deviations(found, exact, [100.0, 500.0, *SITES], np.arange(22)) < 1e-6
