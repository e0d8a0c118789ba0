"""Influence of data against inversions without them."""

import json
from dataclasses import replace

import numpy as np
import pytest

import invgp
from helpers.command_line import run_in_process, write_files
from helpers.linear_evidence import product_problem
from helpers.problems import linear_problem
from invgp.answers.emulated_problem import hide_data
from invgp.answers.influence import DataGroup, data_groups


def without(problem, n, p):
    mask = np.zeros(problem.survey.Y.shape, dtype=bool)
    mask[n, p] = True
    return hide_data(problem, mask)


@pytest.mark.slow
def test_that_the_influence_in_a_linear_problem_is_that_of_inversions_without_the_data():
    problem = linear_problem()
    posterior = invgp.invert(problem)
    found = invgp.influence(posterior, config=problem, hardest=3)
    names = [latent.name for latent in problem.latents]
    for n, p, name in ((4, 0, "first"), (9, 1, "second"), (14, 0, "first")):
        other = invgp.invert(without(problem, n, p))
        # Leverage from the predictions: of the outputs with and without the datum.
        with_datum = float(posterior[f"{name}_predicted"][n])
        alone = float(other[f"{name}_predicted"][n])
        y = float(posterior[f"{name}_observed"][n])
        assert float(found[f"{name}_leverage"][n]) == pytest.approx((with_datum - alone) / (y - alone), abs=0.04)
    for k, group in enumerate(data_groups(problem)):
        assert group.name == ("first", "second")[k]
        other = invgp.invert(hide_data(problem, group.mask))
        for name in names:
            exact = 1.0 - posterior[f"{name}_std"] / other[f"{name}_std"]
            np.testing.assert_allclose(found[f"{name}_reduction"].values[k], exact.values, atol=0.01)
    hardest = json.loads(found.attrs["invgp_hardest"])
    assert len(hardest) == 3
    assert abs(hardest[0]["pull"]) == pytest.approx(max(float(found[f"{n}_pull"].max()) for n in ("first", "second")))


@pytest.mark.slow
@pytest.mark.xfail(reason="the pull of one datum is 0.81 where an inversion without it gives 1.09; the cause is open")
def test_that_the_pull_in_a_linear_problem_is_that_of_inversions_without_the_data():
    problem = linear_problem()
    posterior = invgp.invert(problem)
    found = invgp.influence(posterior, config=problem, hardest=3)
    for n, p, name in ((4, 0, "first"), (9, 1, "second"), (14, 0, "first")):
        other = invgp.invert(without(problem, n, p))
        names = [latent.name for latent in problem.latents]
        shift = [float((abs(posterior[k] - other[k]) / posterior[f"{k}_std"]).max()) for k in names]
        assert float(found[f"{name}_pull"][n]) == pytest.approx(max(shift), rel=0.1, abs=0.03)


@pytest.mark.slow
def test_that_the_pull_in_a_curved_problem_is_near_that_of_an_inversion_with_the_simulator():
    """The formula is that of the linear case; with a datum that is off by three standard deviations."""
    problem = product_problem()
    [observation] = problem.survey.observations
    values = observation.values.copy()
    values[3] += 0.9
    problem = replace(problem, survey=replace(problem.survey, observations=(replace(observation, values=values),)))
    posterior = invgp.invert(problem)
    found = invgp.influence(posterior, config=problem)
    other = invgp.invert(without(problem, 3, 0))
    shift = max(float((abs(posterior[k] - other[k]) / posterior[f"{k}_std"]).max()) for k in "ab")
    assert int(np.argmax(found["y_pull"].values)) == 3
    assert float(found["y_pull"][3]) == pytest.approx(shift, rel=0.35)
    assert data_groups(problem) == []


@pytest.mark.slow
def test_that_the_command_lists_data_without_the_simulator(tmp_path):
    write_files(tmp_path)
    assert run_in_process("run", "survey.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "was_called").unlink()
    result = json.loads(run_in_process("influence", "posterior.nc", "--hardest", "2", "--json", cwd=tmp_path).stdout)
    assert [row["observation"] for row in result["hardest"]] == ["time", "time"]
    assert not (tmp_path / "was_called").exists()
    assert (tmp_path / "posterior_influence.png").stat().st_size > 5000


def test_that_hidden_data_are_missing():
    problem = linear_problem()
    group = DataGroup("first", np.asarray([[True, False]] * 15))
    hidden = hide_data(problem, group.mask)
    assert np.isnan(hidden.survey.Y[:, 0]).all()
    np.testing.assert_array_equal(hidden.survey.Y[:, 1], problem.survey.Y[:, 1])
