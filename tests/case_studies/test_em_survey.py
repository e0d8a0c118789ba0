"""The electromagnetic survey, small: its maker, its config and its scripts hang together."""

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import invgp
from invgp.adapters import RunContext


@pytest.fixture(scope="module")
def survey(root, tmp_path_factory):
    """The case study's folder, copied, with a survey of 120 soundings in it."""
    folder = tmp_path_factory.mktemp("case_studies") / "em_survey"
    made = shutil.ignore_patterns("data", "results", "runs", "__pycache__")
    shutil.copytree(root / "case_studies" / "em_survey", folder, ignore=made)
    shutil.copy(root / "case_studies" / "command_line.py", folder.parent)
    run(folder, "make_survey.py", "--soundings", "120")
    return folder


def run(folder, script, *arguments):
    command = [sys.executable, str(folder / script), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def problem(survey):
    return invgp.load(survey / "em_survey.toml")


def test_that_the_data_differ_from_the_truth_by_the_noise_of_the_config(survey, problem):
    truth = np.loadtxt(survey / "data" / "em_survey_truth.csv", delimiter=",", skiprows=1)[:, 2:]
    from_truth = problem.forward.evaluate(truth, RunContext([str(i) for i in range(len(truth))], survey)).outputs
    misfit = (problem.survey.Y - from_truth) / problem.noise_std
    np.testing.assert_allclose(misfit.std(axis=0), 1.0, atol=0.2)
    np.testing.assert_allclose(misfit.mean(axis=0), 0.0, atol=0.3)


def test_that_inducing_points_and_mini_batches_find_the_truth(survey, problem):
    settings = problem.inference.replace(inducing=60, batch=50)
    posterior = invgp.invert(replace(problem, inference=settings))
    assert posterior.attrs["invgp_converged"] == "yes"
    assert posterior.attrs["invgp_emulator"] != "none"
    posterior.to_netcdf(survey / "small.nc")
    printed = run(survey, "accuracy.py", str(survey / "small.nc"))
    inside = float(printed.splitlines()[-1].split()[-1].rstrip("%"))
    assert 85.0 < inside < 99.5
