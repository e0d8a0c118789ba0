"""Commands that read a posterior that has not converged."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.command_line import Command
from invgp import netcdf

WARNING = "invgp: warning: posterior.nc: the posterior has not converged (stopped early)"


@pytest.fixture
def unconverged(finished_run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> Path:
    """The folder of an inverted survey whose posterior states that it has not converged, beside one that has."""
    folder = shutil.copytree(finished_run[0], tmp_path / "survey")
    posterior = netcdf.read(folder / "posterior.nc")
    shutil.copy(folder / "posterior.nc", folder / "good.nc")
    netcdf.write(posterior.assign_attrs(invgp_converged="no", invgp_status="stopped early"), folder / "posterior.nc")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "posterior.nc", "--grid", "20"),
        ("export", "posterior.nc", "--format", "csv"),
        ("report", "posterior.nc"),
        ("plot", "posterior.nc"),
        ("influence", "posterior.nc"),
        ("difference", "good.nc", "posterior.nc"),
        ("weigh", "good.nc", "posterior.nc"),
        ("revise", "posterior.nc", "--set", "noise.std.time=0.03"),
    ],
    ids=lambda command: command[0],
)
def test_that_a_command_warns_once_about_a_posterior_that_has_not_converged(
    command: tuple[str, ...], unconverged: Path, invgp_here: Command
) -> None:
    result = invgp_here(*command, cwd=unconverged)
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stderr.splitlines() if "posterior.nc: the posterior has not converged" in line] == [
        WARNING
    ]
    assert "good.nc: the posterior" not in result.stderr


def test_that_weigh_names_the_models_whose_evidence_is_doubtful(unconverged: Path, invgp_here: Command) -> None:
    result = invgp_here("weigh", "good.nc", "posterior.nc", cwd=unconverged)
    line = "posterior.nc: The posterior has not converged (stopped early). Its evidence, and all probabilities in the"
    assert line in result.stdout
    assert json.loads(invgp_here("weigh", "good.nc", "posterior.nc", "--json", cwd=unconverged).stdout)[
        "not_converged"
    ] == ["posterior.nc"]
    assert "doubtful" not in invgp_here("weigh", "good.nc", cwd=unconverged).stdout
