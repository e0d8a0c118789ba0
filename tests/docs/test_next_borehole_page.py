"""The page on the way from a first posterior to the next borehole, with all its commands."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.documentation import run_page
from invgp.ledger import Ledger


@pytest.mark.slow
def test_that_the_page_runs_and_adds_no_runs_to_those_of_the_inversions(root, tmp_path, monkeypatch):
    study = tmp_path / "otway"
    (study / "data").mkdir(parents=True)
    for name in ("otway.toml", "make_survey.py"):
        shutil.copy(root / "case_studies" / "otway" / name, study)
    shutil.copy(root / "case_studies" / "command_line.py", tmp_path)
    subprocess.run([sys.executable, "make_survey.py"], cwd=study, check=True, capture_output=True)
    monkeypatch.chdir(study)
    run_page(root / "docs" / "next_borehole.md")
    with xr.open_dataset(study / "results" / "otway.design.nc") as design:
        names = design["candidate_label"].values.tolist()
        promised, error = (
            float(design[name].values[names.index("well 22.4 km"), 0]) for name in ("reduction", "reduction_error")
        )
    stds = []
    for name in ("otway.nc", "with_well.nc"):
        line = invgp.predict(study / "results" / name, "position=20000:30000:250", latents=["depth"])
        stds.append(float(np.sqrt((line["depth_std"].isel(layer=1) ** 2).mean())))
    assert error < 0.03
    assert promised == pytest.approx(1.0 - stds[1] / stds[0], abs=3.0 * error)
    posterior = invgp.open_posterior(study / "wells" / "posterior.nc")
    with Ledger(study / "wells" / "posterior.ledger.sqlite") as ledger:
        assert len(list(ledger.runs())) == int(posterior.attrs["invgp_runs"])
