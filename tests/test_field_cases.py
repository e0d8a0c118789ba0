"""The case studies of field models, in small."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import invgp
from tests.forward_models.test_seismic import needs_compiler


def copied(root: Path, folder: Path, name: str) -> Path:
    """A case study in a copy of its own, so that a check leaves nothing in the repository."""
    made = shutil.ignore_patterns("build", "data", "results", "__pycache__")
    for part in (f"case_studies/{name}", "forward_models"):
        shutil.copytree(root / part, folder / part, ignore=made)
    return folder / "case_studies" / name


@pytest.fixture(autouse=True)
def own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case has a module of that name."""
    monkeypatch.delitem(sys.modules, "model", raising=False)


def test_that_the_basin_below_a_profile_is_found(root: Path, tmp_path: Path) -> None:
    case = copied(root, tmp_path, "basin")
    subprocess.run([sys.executable, "make_survey.py"], cwd=case, check=True)
    posterior = invgp.invert(invgp.load(case / "profile.toml"))
    truth = np.loadtxt(case / "data" / "profile_truth.csv", delimiter=",", skiprows=1)[:, 1]
    assert posterior.attrs["invgp_settled"] == "yes"
    assert posterior.attrs["invgp_runs"] <= 150
    low, high = (posterior["depth_quantile"].sel(quantile=level) for level in (0.025, 0.975))
    assert float(((low < truth) & (truth < high)).mean()) > 0.7
    assert float(posterior["depth_information"].median()) > 0.9
    assert 0.4 < float(posterior["gravity_chi_square"]) < 1.5


def test_that_an_unknown_contrast_leaves_the_depth_less_certain(root: Path, tmp_path: Path) -> None:
    case = copied(root, tmp_path, "basin")
    subprocess.run([sys.executable, "make_survey.py"], cwd=case, check=True)
    spread = {}
    for name in ("profile", "contrast"):
        problem = invgp.load(case / f"{name}.toml")
        spread[name] = invgp.invert(replace(problem, inference=replace(problem.inference, max_runs=60)))["depth_std"]
    assert float((spread["contrast"] / spread["profile"]).median()) > 1.5


@needs_compiler
def test_that_the_aquifer_is_inverted_through_its_pest_case(root: Path, tmp_path: Path) -> None:
    case = copied(root, tmp_path, "aquifer")
    subprocess.run(["bash", "setup.sh"], cwd=case, check=True, env={**os.environ, "PYTHON": sys.executable})
    by_pest, by_python = (invgp.load(case / f"{name}.toml") for name in ("aquifer", "aquifer_python"))
    few = replace(by_pest.inference, max_runs=40, workers=1)
    found = [invgp.invert(replace(problem, inference=few)) for problem in (by_pest, by_python)]
    assert found[0].attrs["invgp_runs_failed"] == 0
    # Twelve digits go through the files.
    np.testing.assert_allclose(found[0]["k"], found[1]["k"], rtol=0.05)
    before = np.mean((by_pest.survey.Y[:, 0] - 18.0) ** 2)
    assert float((found[0]["head_residual"] ** 2).mean()) < 0.2 * before
