"""Simulated data under the prior against the observed ones."""

import json
import subprocess
import sys

import numpy as np
import pytest

import invgp
from helpers.command_line import CONFIG, run_in_process, write_files
from helpers.linear_evidence import data_moments
from helpers.problems import linear_problem, map_problem
from invgp.answers.prior_check import prior_rows, prior_scores


def test_that_scores_of_a_linear_problem_are_those_of_its_prior():
    problem = linear_problem()
    mean, covariance = data_moments(problem)
    found = invgp.prior(problem, runs=150)
    scores = np.stack([found[f"{name}_prior_score"].values for name in ("first", "second")], axis=-1)
    exact = ((problem.survey.Y.ravel() - mean) / np.sqrt(np.diagonal(covariance))).reshape(15, 2)
    assert np.corrcoef(scores.ravel(), exact.ravel())[0, 1] > 0.85
    many = prior_scores(
        problem, np.random.default_rng(0).multivariate_normal(mean, covariance, 4000).reshape(-1, 15, 2)
    )
    np.testing.assert_allclose(
        many,
        exact / np.sqrt(1.0 + (problem.noise_std**2).ravel().reshape(15, 2) / np.diagonal(covariance).reshape(15, 2)),
        atol=0.08,
    )
    assert found["velocity_prior_sample"].std() == pytest.approx(2.0, rel=0.25)
    assert found.attrs["invgp_runs"] == 150
    assert len(prior_rows(found)) == 2
    more = invgp.prior(problem, runs=450)
    assert more.attrs["invgp_runs"] == 450  # at 15 sites
    assert int(np.isfinite(more["first_simulated"]).sum()) == 450


def test_that_data_with_labels_are_named():
    found = invgp.prior(map_problem(), runs=24)
    assert [row.label for row in prior_rows(found)] == ["", "early", "late"]
    assert found["layer"].values.tolist() == [1, 2]


@pytest.mark.slow
def test_that_the_command_records_its_runs_and_names_units_first(tmp_path):
    write_files(tmp_path, f"{CONFIG}\n[output]\nledger = true\n")
    arguments = ("prior", "survey.toml", "--runs", "50", "--json")
    first, again = (json.loads(run_in_process(*arguments, cwd=tmp_path).stdout) for _ in range(2))
    assert first["runs"] == 50
    assert first["runs_from_ledger"] == 0
    assert again["runs_from_ledger"] == 50
    assert first["conflicts"] == []
    assert first["observations"] == again["observations"]
    assert (tmp_path / "survey_prior.png").stat().st_size > 5000
    only = json.loads(run_in_process("prior", "survey.toml", "--runs", "0", "--json", cwd=tmp_path).stdout)
    assert only["runs"] == 0
    assert only["observations"] == []
    text = (tmp_path / "survey.toml").read_text()
    (tmp_path / "wrong.toml").write_text(text.replace("mean = 500", "mean = 500000"))
    wrong = run_in_process("prior", "wrong.toml", "--runs", "50", cwd=tmp_path)
    assert wrong.returncode == 0
    assert "Check the units of time" in wrong.stderr


@pytest.mark.processes
@pytest.mark.parametrize("first", ["import invgp\nimport xarray as xr", "import xarray as xr\nimport invgp"])
def test_that_the_accessor_does_not_depend_on_the_order_of_imports(first):
    code = f"import sys\n{first}\nprint('plot' in dir(xr.Dataset(attrs={{'invgp_latents': 'a'}}).invgp))"
    searched = (
        "import importlib.util, invgp, sys\nimportlib.util.find_spec('xarray')\nassert 'xarray' not in sys.modules"
    )
    for text in (code, f"{searched}\n{code}"):
        found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
        assert found.stdout == "True\n"


def test_that_posteriors_of_scalars_have_figures():
    posterior = invgp.invert(
        invgp.define(
            {"y": [1.0, 1.2]},
            observations={"y": "m"},
            latents={"a": {"unit": "m", "domain": "scalar", "mean": 0.0, "std": 2.0}},
            forward={"function": lambda a: np.stack([a, a], axis=-1), "kind": "field"},
            noise={"y": 0.1},
        )
    )
    assert len(posterior.invgp.plot().get_axes()) == len(posterior.invgp.scalars().get_axes()) == 1
    for draw in (posterior.invgp.section, posterior.invgp.map):
        with pytest.raises(
            invgp.InvgpError, match=r"needs a latent that is a field, but these are scalars: a\. Use plot_scalars"
        ):
            draw()


def test_that_posteriors_have_an_accessor():
    problem = linear_problem()
    posterior = invgp.invert(problem)
    own = posterior.invgp
    assert {"plot", "section", "map", "fit", "draws", "predict", "exceedance", "difference"} <= set(dir(own))
    assert own.latents == ["velocity", "depth"]
    assert set(own.draws().data_vars) == {"velocity", "depth"}
    assert own.draws("depth").dims == ("realization", "site")
    assert own.plot().get_axes()
    probability = own.exceedance("depth > 6 m", grid=50)
    assert probability.ndim == 2
    assert 0.0 <= float(probability.min()) <= float(probability.max()) <= 1.0
    assert float(abs(own.difference(posterior)["depth_change"]).max()) == 0.0
    with pytest.raises(invgp.InvgpError, match=r"^latent: must be one of velocity, depth, was 'dept'$"):
        own.draws("dept")
