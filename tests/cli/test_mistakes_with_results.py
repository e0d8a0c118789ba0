"""Wrong commands on right files: of a posterior, a map and a calibration."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import xarray as xr

from helpers.command_line import Command

Finished = tuple[Path, subprocess.CompletedProcess[str]]
NO_POSTERIOR = "invgp: POSTERIOR: must be a file that `invgp run` wrote, was "
MISTAKES = {
    "plot posterior.nc --size nan 5": "Error: Invalid value for '--size': nan is not a finite number.",
    "plot posterior.nc --limits depth 0 inf": (
        "invgp: --limits: the lower must be below the upper, was 0 and inf for 'depth'"
    ),
    "plot posterior.nc --site 3": "invgp: --site: must be left out unless --kind contains correlation, was 3",
    "plot map.nc --kind fit": "invgp: --kind: fit is not in a map of `invgp predict`, but in what `invgp run` wrote",
    "plot map.nc --at position 100": "invgp: --at: must leave a coordinate to draw along, was all of position",
    "predict posterior.nc --memory nan": "Error: Invalid value for '--memory': nan is not a finite number.",
    "predict posterior.nc --grid position=0:9:1,position=3": (
        "invgp: --grid: must contain every coordinate once, contained 'position' twice, was 'position=0:9:1,position=3'"
    ),
    "predict posterior.nc --derive 'x = depth' --derive 'x_std = depth'": (
        "invgp: --derive: must give a new name, was 'x_std', as 'x_std' is taken"
    ),
    "predict posterior.nc --derive 'depth_exceedance = 2 * depth' --exceed 'depth > 500'": (
        "invgp: --derive: must give a new name, was 'depth_exceedance', as 'depth_exceedance' is taken"
    ),
    "predict posterior.nc --derive 'survey_position = depth'": (
        "invgp: --derive: must give a new name, was 'survey_position', as 'survey_position' is taken"
    ),
    "predict posterior.nc --derive 'crs = depth'": (
        "invgp: --derive: must give a new name, was 'crs', as 'crs' is taken"
    ),
    "predict posterior.nc --derive 'x = depth ** 1e9'": (
        "invgp: --derive: 'm' to the power of 1e+09 is not a unit, in 'x = depth ** 1e9'"
    ),
    "compare map.nc": f"{NO_POSTERIOR}a map",
    **{
        f"{command} calibration.nc{options}": (
            f"{NO_POSTERIOR}'calibration.nc', a calibration: `invgp calibrate` makes its table and figure"
        )
        for command, options in (("predict", ""), ("plot", ""), ("report", ""), ("export", " --format csv"))
    },
}


@pytest.fixture(scope="module")
def folder(finished_run: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for name in ("survey.toml", "sites.csv", "model.py", "posterior.nc"):
        shutil.copy(finished_run[0] / name, folder)
    with xr.open_dataset(folder / "posterior.nc") as posterior:
        posterior.assign_attrs(invgp_calibration="of some config").to_netcdf(folder / "calibration.nc")
    return folder


@pytest.mark.parametrize("line", MISTAKES)
def test_that_a_mistake_is_reported_and_nothing_is_written(line: str, folder: Path, invgp_here: Command) -> None:
    if "map.nc" in line and not (folder / "map.nc").exists():
        assert invgp_here("predict", "posterior.nc", "--grid", "500", "-o", "map.nc", cwd=folder).returncode == 0
    before = sorted(folder.iterdir())
    result = invgp_here(*shlex.split(line), cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    *usage, sentence = result.stderr.rstrip("\n").split("\n")
    assert sentence == MISTAKES[line]
    assert not usage or sentence.startswith("Error: ")
    assert sorted(folder.iterdir()) == before
