from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from helpers.command_line import Command

Finished = tuple[Path, subprocess.CompletedProcess[str]]


def test_that_predict_writes_a_map_and_prints_its_path(
    finished_run: Finished, invgp_here: Command, tmp_path: Path
) -> None:
    posterior, output = finished_run[0] / "posterior.nc", tmp_path / "line.nc"
    result = invgp_here("predict", posterior, "--grid", "100", "--draws", "3", "-o", output, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{output}: depth at 21 points; 3 draws (exact)\n"
    with xr.open_dataset(output) as line, xr.open_dataset(posterior) as sites:
        at_sites = line.sel(position=sites["position"].values)
        np.testing.assert_allclose(at_sites["depth"], sites["depth"], rtol=1e-6)
        np.testing.assert_allclose(at_sites["depth_std"], sites["depth_std"], rtol=1e-6)
        assert line["depth"].attrs["positive"] == "down"
        assert line["depth_sample"].dims == ("realization", "position")
        # Between sites less is known.
        assert line["depth_std"].sel(position=200) > line["depth_std"].sel(position=400)


def test_that_a_map_may_do_without_quantiles(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    arguments = ("--grid", "500", "--quantiles", "none", "-o", tmp_path / "line.nc")
    assert invgp_here("predict", finished_run[0] / "posterior.nc", *arguments, cwd=tmp_path).returncode == 0
    with xr.open_dataset(tmp_path / "line.nc") as line:
        assert "depth_std" in line
        assert "quantile" not in line.variables
        assert "depth_quantile" not in line


def test_that_the_same_seed_gives_the_same_draws(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    draws = []
    for number, seed in enumerate(("5", "5", "6")):
        arguments = ("--grid", "500", "--draws", "2", "--seed", seed, "-o", tmp_path / f"{number}.nc")
        assert invgp_here("predict", finished_run[0] / "posterior.nc", *arguments, cwd=tmp_path).returncode == 0
        with xr.open_dataset(tmp_path / f"{number}.nc") as line:
            draws.append(line["depth_sample"].values)
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.allclose(draws[0], draws[2])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--grid", "position=0:10"],
            "--grid: must be position=start:stop:step with a step that is greater than 0, was '0:10'",
        ),
        (["--latent", "dept"], "--latent: must be a latent of the posterior, was 'dept'; valid: 'depth'"),
        (["--quantiles", "0.5,high"], "--quantiles: must be numbers separated by commas, was '0.5,high'"),
        (["--quantiles", "0,0.5"], "--quantiles: must be between 0 and 1, were 0, 0.5"),
        (["--derive", "elbo = depth"], "--derive: must give a new name, was 'elbo', as 'elbo' is taken"),
        (["--exceed", "depth < 500"], "--exceed: must be 'name > number unit', was 'depth < 500'"),
        (
            ["--exceed", "depth[1] > 500 m"],
            "--exceed: must be 'name > number unit', was 'depth[1] > 500 m'; it applies to",
        ),
        (["--exceed", "depth > 1e999 m"], "--exceed: must have a finite number, was '1e999'"),
        (["--derive", "x = depth / 0"], "--derive: it divides by 0, in 'x = depth / 0'"),
        (["--draws", "100000000000"], "--draws: must fit in memory, was 100,000,000,000, which need "),
        (["-o", "map.tif"], "--output: must end in .nc, was 'map.tif'"),
    ],
)
def test_that_a_mistake_is_reported_in_one_sentence(
    arguments: list[str], sentence: str, finished_run: Finished, invgp_here: Command, tmp_path: Path
) -> None:
    result = invgp_here("predict", finished_run[0] / "posterior.nc", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"invgp: {sentence}")
    assert result.stderr.count("\n") == 1


def test_that_a_posterior_is_not_overwritten_by_its_own_map(
    finished_run: Finished, invgp_here: Command, tmp_path: Path
) -> None:
    posterior = finished_run[0] / "posterior.nc"
    for command in (["predict"], ["export", "--format", "arviz"]):
        result = invgp_here(*command, posterior, "-o", posterior, cwd=tmp_path)
        assert result.returncode == 2
        assert "must be a file of its own" in result.stderr


def test_that_neither_survey_nor_another_posterior_is_overwritten(
    finished_run: Finished, invgp_here: Command, tmp_path: Path
) -> None:
    posterior, survey = finished_run[0] / "posterior.nc", tmp_path / "kept.csv"
    shutil.copy(finished_run[0] / "sites.csv", survey)
    before = survey.read_bytes()
    result = invgp_here("export", posterior, "--format", "csv", "-o", survey, cwd=tmp_path)
    assert (result.returncode, survey.read_bytes()) == (2, before)
    assert result.stderr.startswith("invgp: --output: must be a file of its own, was ")
    assert result.stderr.endswith("which is the survey\n")
    other = shutil.copy(posterior, tmp_path / "other.nc")
    result = invgp_here("predict", posterior, "-o", other, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.endswith("which is a posterior\n")


def test_that_invalid_expressions_are_reported(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    derive = ("--derive", 'x = log((depth - quantity(5000, "m")) / quantity(1, "m"))')
    result = invgp_here("predict", finished_run[0] / "posterior.nc", *derive, "-o", "map.nc", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stderr.startswith("invgp: warning: x is not a number at some points")
    assert result.stderr.count("\n") == 1


def test_that_export_names_the_files_that_it_wrote(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    result = invgp_here(
        "export", finished_run[0] / "posterior.nc", "--format", "aseg-gdf2", "-o", tmp_path / "line.dfn", cwd=tmp_path
    )
    assert result.returncode == 0
    assert result.stdout.split() == [str(tmp_path / "line.dfn"), str(tmp_path / "line.dat")]
    assert len((tmp_path / "line.dat").read_text().splitlines()) == 6
