"""The difference of two posteriors of one area."""

import json
from dataclasses import replace

import numpy as np
import pytest

import invgp
from helpers.command_line import run_in_process
from helpers.problems import linear_problem
from invgp.answers.difference import difference_rows
from invgp.errors import ConfigError
from invgp.plots import plot_difference


@pytest.fixture(scope="module")
def posteriors():
    """Of a linear problem, with its noise and with half of it."""
    problem = linear_problem()
    quieter = problem.with_scaled_noise(np.full((15, 2), 0.5))
    return invgp.invert(problem), invgp.invert(quieter)


def test_that_a_posterior_does_not_differ_from_itself(posteriors):
    found = invgp.difference(posteriors[0], posteriors[0])
    for name in ("velocity", "depth"):
        assert not np.any(found[f"{name}_change"])
        assert not np.any(found[f"{name}_changed"])
        assert np.all(found[f"{name}_std_ratio"] == 1.0)


def test_that_changes_are_those_of_means_and_spreads(posteriors):
    before, after = posteriors
    found = invgp.difference(before, after, level=0.5)
    joint = np.sqrt(before["depth_std"] ** 2 + after["depth_std"] ** 2)
    change = after["depth"] - before["depth"]
    np.testing.assert_allclose(found["depth_change"], change)
    np.testing.assert_allclose(found["depth_standardised_change"], change / joint)
    np.testing.assert_allclose(found["depth_std_ratio"], after["depth_std"] / before["depth_std"])
    np.testing.assert_array_equal(found["depth_changed"], np.abs(change / joint) > 0.5)
    rows = {row.latent: row for row in difference_rows(found)}
    assert rows["depth"].unit == "m"
    assert rows["depth"].std_ratio < 1.0


def test_that_a_posterior_of_fewer_sites_is_predicted_at_the_places_of_the_other(posteriors):
    problem = linear_problem()
    fewer = invgp.invert(problem.select_sites(np.arange(10)))
    observations = tuple(
        replace(o, values=np.where(np.arange(15)[:, None] < 10, o.values, np.nan)) for o in problem.survey.observations
    )
    hidden = invgp.invert(replace(problem, survey=replace(problem.survey, observations=observations)))
    found = invgp.difference(posteriors[0], fewer)
    np.testing.assert_allclose(found["depth_after"], hidden["depth"], atol=2e-3)
    np.testing.assert_allclose(found["depth_after"] - found["depth_before"], found["depth_change"])
    assert found.sizes["site"] == 15


def test_that_posteriors_that_cannot_be_compared_are_refused(posteriors):
    other = posteriors[1].copy()
    other["depth"] = other["depth"].assign_attrs(units="km")
    with pytest.raises(ConfigError, match=r"^after: must have 'depth' in 'm', had it in 'km'$"):
        invgp.difference(posteriors[0], other)
    with pytest.raises(ConfigError, match=r"^after: must have a latent of 'velocity' and 'depth', had 'other'$"):
        invgp.difference(posteriors[0], posteriors[1].assign_attrs(invgp_latents="other"))
    with pytest.raises(ConfigError, match="must be a file that `invgp run`"):
        invgp.difference(invgp.difference(*posteriors), posteriors[1])


def posterior_of_scalars(mean, **field):
    """Of a sum of a scalar and, if its keys are given, a field."""
    names = ["shift", *field]
    return invgp.invert(
        invgp.define(
            {"x": np.arange(5.0), "y": np.ones(5)},
            coordinates={"x": "m"},
            observations={"y": "m"},
            latents={"shift": {"unit": "m", "domain": "scalar", "mean": mean, "std": 2.0}, **field},
            forward={"function": lambda **latents: sum(latents[name] for name in names), "inputs": names},
            noise={"y": 1.0},
        )
    )


def test_that_scalars_are_compared_as_numbers(tmp_path):
    field = {"depth": {"unit": "m", "mean": 0, "std": 1, "kernel": {"length_scale": 2.0}}}
    before, after = (posterior_of_scalars(mean, **field) for mean in (0.0, 1.0))
    found = invgp.difference(before, after, plot=tmp_path / "change.png")
    assert found["shift_change"].dims == ()
    assert float(found["shift_change"]) == pytest.approx(float(after["shift"] - before["shift"]))
    assert found["depth_change"].dims == ("site",)
    assert [row.latent for row in difference_rows(found)] == ["shift", "depth"]
    assert (tmp_path / "change.png").is_file()
    alone = [posterior_of_scalars(mean) for mean in (0.0, 1.0)]
    assert "site" not in invgp.difference(*alone).dims
    paths = [invgp.write(p, tmp_path / name) for p, name in zip(alone, ("a.nc", "b.nc"), strict=True)]
    result = json.loads(run_in_process("difference", *paths, "--json", cwd=tmp_path).stdout)
    assert result["figure"] is None
    assert result["latents"][0]["change"] == pytest.approx(float(alone[1]["shift"] - alone[0]["shift"]))


def test_that_the_command_writes_a_file_and_a_figure(posteriors, tmp_path):
    paths = [invgp.write(p, tmp_path / name) for p, name in zip(posteriors, ("a.nc", "b.nc"), strict=True)]
    result = json.loads(run_in_process("difference", *paths, "--json", cwd=tmp_path).stdout)
    assert {row["latent"] for row in result["latents"]} == {"velocity", "depth"}
    written = invgp.netcdf.read(tmp_path / "b.difference.nc")
    assert written.attrs["invgp_answer"] == "difference"
    assert (tmp_path / "b_difference.png").stat().st_size > 10_000
    assert len(plot_difference(written).axes) == 12  # six maps and their colour bars
