"""GMT's talwani2d, a program that nobody here wrote, behind a template and a reader."""

import json
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import invgp
from invgp.adapters import RunContext

pytestmark = pytest.mark.skipif(shutil.which("gmt") is None, reason="GMT is not installed here (apt-get install gmt)")


@pytest.fixture(scope="module")
def valley(root, tmp_path_factory):
    """The case study's folder, copied, with ten profiles in it."""
    folder = tmp_path_factory.mktemp("case_studies") / "gmt_valley"
    made = shutil.ignore_patterns("data", "results", "runs", "__pycache__")
    shutil.copytree(root / "case_studies" / "gmt_valley", folder, ignore=made)
    for shared in ("command_line.py", "recording.py"):
        shutil.copy(root / "case_studies" / shared, folder.parent)
    command = [sys.executable, str(folder / "make_survey.py"), "--profiles", "10"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_that_the_template_describes_the_valley_that_the_survey_was_made_with(valley):
    problem = invgp.load(valley / "valley.toml")
    truth = np.loadtxt(valley / "data" / "profiles_truth.csv", delimiter=",", skiprows=1)[:, 1:]
    wrapped = problem.forward.evaluate(truth, RunContext([str(i) for i in range(len(truth))], valley / "runs"))
    misfit = (problem.survey.Y - wrapped.outputs) / problem.noise_std
    assert 0.8 < np.sqrt(np.mean(misfit**2)) < 1.2


def test_that_the_formulas_in_python_are_those_of_the_program(valley):
    program, python = (invgp.load(valley / name) for name in ("valley.toml", "valley_python.toml"))
    values = np.random.default_rng(0).uniform([20.0, 150.0, 50.0, 300.0], [200.0, 450.0, 140.0, 500.0], (3, 4))
    labels = [str(i) for i in range(len(values))]
    wrapped, computed = (p.forward.evaluate(values, RunContext(labels, valley / "runs")) for p in (program, python))
    np.testing.assert_allclose(computed.outputs, wrapped.outputs, rtol=1e-6)
    same, other = (tomllib.loads((valley / name).read_text()) for name in ("valley.toml", "valley_python.toml"))
    for section in ("survey", "dimensions", "latents", "noise"):
        assert other[section] == same[section]


@pytest.fixture(scope="module")
def problem(valley):
    return invgp.load(valley / "valley.toml")


@pytest.fixture(scope="module")
def posterior(problem):
    return invgp.invert(problem.with_inference(runs_per_site=20, max_runs=120))


def test_that_the_valley_is_found_within_the_budget(valley, problem, posterior):
    assert posterior.attrs["invgp_runs"] <= 120
    assert posterior.attrs["invgp_runs_failed"] == 0
    misfit = (posterior["gravity_residual"] / problem.noise_std).values
    assert 0.7 < np.sqrt(np.mean(misfit**2)) < 1.3
    posterior.to_netcdf(valley / "small.nc")
    command = [sys.executable, str(valley / "accuracy.py"), str(valley / "small.nc")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.startswith("10 profiles, ")
    # Ten profiles are hardly more than one draw of the truth: the share must be correct, not near 95%.
    errors = {line.split()[0]: float(line.split()[2]) for line in printed.splitlines()[2:]}
    truth = np.genfromtxt(valley / "data" / "profiles_truth.csv", delimiter=",", names=True)
    floor = posterior["half_width"].isel(edge=posterior["edge_label"].values.tolist().index("floor"))
    for name, found in (("thickness_m", posterior["thickness"]), ("half_width_floor_m", floor)):
        assert errors[name] == pytest.approx(np.sqrt(np.mean((found.values - truth[name]) ** 2)), abs=0.06)


def test_that_the_results_are_saved_and_drawn_with_the_truth(valley, posterior):
    (valley / "results.json").unlink(missing_ok=True)
    (valley / "results").mkdir()
    posterior.to_netcdf(valley / "results" / "valley.nc")
    for script in (["accuracy.py", "--record"], ["figure.py"]):
        subprocess.run([sys.executable, *script], check=True, capture_output=True, cwd=valley)
    [kept] = json.loads((valley / "results.json").read_text())
    shares = [row["ours"] for row in kept["rows"] if row["measure"] == "truths inside 95%, %"]
    settings = [row["setting"] for row in kept["rows"]]
    assert settings[::3] == ["thickness", "half-width, top", "half-width, floor", "contrast", "all fields"]
    assert len(shares) == 4
    assert all(0.0 <= share <= 100.0 for share in shares)
    assert kept["rows"][-1]["ours"] == posterior.attrs["invgp_runs"] / 10
    assert (valley / "results" / "valley_truth.png").stat().st_size > 10_000
