"""Joint inversions on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr

from helpers.command_line import Command
from invgp.posterior.contents import sites_of_observation, summarise_sources
from invgp.scaffolds import read_template, write_project

MORE = """
[sources.logs.survey]
file = "logs.csv"
[sources.logs.survey.coordinates.position]
unit = "m"
[sources.logs.survey.observations.speed]
columns = ["speed"]
unit = "m s-1"
[sources.logs.forward]
adapter = "callable"
function = "logs:speed"
inputs = ["velocity"]
outputs = ["speed"]
[sources.logs.noise]
std.speed = 40

[direct.well]
coordinates = { position = 2500 }
[direct.well.values.top]
quantity = "depth[1]"
value = 318
std = 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(read_template("python"), tmp_path / "line")
    folder = tmp_path / "line"
    (folder / "logs.csv").write_text("position,speed\n600,1810\n3100,1790\n5200,1850\n")
    (folder / "logs.py").write_text("def speed(velocity):\n    return velocity[:, 0]\n")
    config = (
        (folder / "survey.toml")
        .read_text()
        .replace("[output]", '[inference]\nposterior = "coupled gaussian"\n\n[output]')
    )
    (folder / "survey.toml").write_text(config + MORE)
    return folder


def test_that_all_sources_are_checked(project: Path, invgp_here: Command) -> None:
    printed = invgp_here("check", "survey.toml", "--no-pilot", cwd=project)
    assert "logs: data at 3 sites: speed" in printed.stdout
    assert "well: direct data at 1 place: top" in printed.stdout
    assert "One run of 'speed' (logs) at the prior mean" in printed.stdout
    assert "top: gaussian noise, standard deviation 2 m" in printed.stdout


def test_that_a_source_can_be_left_out(project: Path, invgp_here: Command) -> None:
    printed = invgp_here("run", "survey.toml", "--ledger", "runs.sqlite", cwd=project)
    assert "logs: 3 sites" in printed.stdout
    assert "well: 1 place, direct data" in printed.stdout
    left_out = ("--without", "logs", "--without", "well", "--ledger", "runs.sqlite")
    assert invgp_here("run", "survey.toml", *left_out, cwd=project).returncode == 0
    with (
        xr.open_dataset(project / "posterior.nc") as whole,
        xr.open_dataset(project / "posterior_without_logs_well.nc") as part,
    ):
        assert whole.sizes["site"] == part.sizes["site"] + 4
        assert part.attrs["invgp_without"] == "logs well"
        assert part.attrs["invgp_runs"] == 0  # all runs are in the ledger
        assert float(whole["velocity_std"][0, 0]) < float(part["velocity_std"][0, 0])


def test_that_an_unknown_source_is_reported(project: Path, invgp_here: Command) -> None:
    failed = invgp_here("run", "survey.toml", "--without", "log", cwd=project)
    assert failed.returncode == 2
    assert "--without: must be a source, was 'log'; valid: 'survey', 'logs' and 'well'; did you mean" in failed.stderr


def test_that_the_report_and_the_fit_figure_have_all_sources(project: Path, invgp_here: Command) -> None:
    assert invgp_here("run", "survey.toml", cwd=project).returncode == 0
    with xr.open_dataset(project / "posterior.nc") as posterior:
        survey, logs, well = summarise_sources(posterior)
        assert survey.runs + logs.runs == posterior.attrs["invgp_runs"]
        assert (well.direct, well.sites, well.runs, well.emulator_error) == (True, 1, 0, None)
        assert logs.emulator_error is not None
        assert list(sites_of_observation(posterior, "speed")) == [16, 17, 18]
        assert list(sites_of_observation(posterior, "time")) == list(range(16))  # also where a datum is missing
    assert invgp_here("report", "posterior.nc", cwd=project).returncode == 0
    page = (project / "posterior.html").read_text()
    assert '<tr><th scope="row">logs</th><td>3 sites</td>' in page
    assert '<tr><th scope="row">well</th><td>1 place</td><td>none, direct data</td>' in page
