"""Answers about a field model, from the runs in its ledger, against inversions with the simulator."""

import json
from shutil import copy

import numpy as np
import pytest

import invgp
from helpers.command_line import run_in_process
from invgp.answers.emulated_problem import hide_data
from invgp.scaffolds import read_template, write_project


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The example of a field model after its inversion, with a ledger."""
    folder = tmp_path_factory.mktemp("wells") / "field"
    write_project(read_template("field"), folder)
    config = folder / "survey.toml"
    text = config.read_text().replace('file = "posterior.nc"', 'file = "posterior.nc"\nledger = true')
    config.write_text(text)
    assert run_in_process("run", "survey.toml", cwd=folder).returncode == 0
    return folder


@pytest.mark.slow
def test_that_revisions_and_predictions_are_those_of_inversions_with_the_simulator(project, monkeypatch):
    monkeypatch.chdir(project)
    before = (project / "posterior.ledger.sqlite").read_bytes()
    changes = {"latents.conductivity.std": "30%", "noise.std.head": 0.15}
    revised = invgp.revise("posterior.nc", changes)
    exact = invgp.invert(invgp.load("survey.toml", changes=changes))
    assert float((abs(revised["conductivity"] - exact["conductivity"]) / exact["conductivity_std"]).max()) < 0.25
    np.testing.assert_allclose(revised["conductivity_std"], exact["conductivity_std"], rtol=0.2)

    problem = invgp.load("survey.toml")
    found = invgp.crossvalidate("posterior.nc", by="block", blocks=3)
    assert found.attrs["invgp_groups"] == 3
    sites = np.flatnonzero(found["held_out_group"].values == 2)
    mask = np.zeros(problem.survey.Y.shape, dtype=bool)
    mask[sites] = True
    without = invgp.invert(hide_data(problem, mask))
    std = np.hypot(without["head_predicted_std"].values[sites], 0.1)
    error = (found["head_held_out_mean"].values[sites] - without["head_predicted"].values[sites]) / std
    assert np.abs(error).max() < 0.4
    assert (project / "posterior.ledger.sqlite").read_bytes() == before


@pytest.mark.slow
def test_that_the_influence_and_the_design_need_no_runs(project, tmp_path, monkeypatch):
    monkeypatch.chdir(project)
    before = (project / "posterior.ledger.sqlite").read_bytes()
    found = invgp.influence("posterior.nc")
    problem = invgp.load("survey.toml")
    row = json.loads(found.attrs["invgp_hardest"])[0]
    mask = np.zeros(problem.survey.Y.shape, dtype=bool)
    mask[row["site"] - 1] = True
    posterior, without = invgp.open_posterior("posterior.nc"), invgp.invert(hide_data(problem, mask))
    # The pull is computed on the scale of the process, which is the logarithm.
    spread = np.log1p((posterior["conductivity_std"] / posterior["conductivity"]) ** 2) ** 0.5
    shift = float((abs(np.log(posterior["conductivity"] / without["conductivity"])) / spread).max())
    assert abs(row["pull"]) == pytest.approx(shift, rel=0.5)
    (tmp_path / "places.csv").write_text("position,quantity,std\n500,conductivity,1\n1500,conductivity,1\n")
    design = invgp.design("posterior.nc", tmp_path / "places.csv", best=1)
    assert float(design["reduction"].max()) > 0.05
    (tmp_path / "sites.csv").write_text("position\n500\n")
    with pytest.raises(invgp.InvgpError, match="data of a field model on a grid cannot be predicted here"):
        invgp.design("posterior.nc", tmp_path / "sites.csv", best=1)
    assert (project / "posterior.ledger.sqlite").read_bytes() == before
    copy("posterior.nc", "alone.nc")
    with pytest.raises(invgp.InvgpError, match="must be a file beside the ledger of its runs"):
        invgp.influence("alone.nc")
