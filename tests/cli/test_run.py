from __future__ import annotations

import hashlib
import os
import pty
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from helpers.command_line import (
    CONFIG,
    FULL_GAUSSIAN,
    MODULE,
    SCRIPT,
    SITES,
    Command,
    invgp,
    run_in_process,
    with_inference,
    with_program,
    write_files,
)
from invgp.config.variable_names import RESERVED, SUFFIXES
from invgp.formatting import format_duration
from invgp.progress import ProgressState, TerminalDisplay, format_rate

Finished = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_that_run_writes_a_posterior_and_prints_its_path(finished_run: Finished) -> None:
    directory, result = finished_run
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(
        rf"{directory}/posterior\.nc: the draws have converged; ELBO [\d.]+ nats, [\d,]+ runs, 0 failed, [\d.]+ m?s"
        r"(, [\d.]+ runs at once)?\n",
        result.stdout,
    )
    with xr.open_dataset(directory / "posterior.nc") as posterior:
        assert posterior["depth"].dims == ("site",)
        assert posterior.attrs["invgp_config"] == CONFIG
        # A missing observation leaves the site with a wider posterior than its mirror image has, not without one.
        assert posterior["depth_std"][4] > posterior["depth_std"][1]
        assert np.isfinite(posterior["depth"]).all()
    assert not (directory / "posterior.runs").exists()


def test_that_log_lines_hold_bound_runs_rate_and_time_left(finished_run: Finished) -> None:
    # A slow machine prints further lines, on computations without runs.
    lines = [line for line in finished_run[1].stderr.splitlines() if not line.startswith("search for modes")]
    assert len(lines) > 2
    steps = []
    for i, line in enumerate(lines, start=1):
        printed = re.fullmatch(
            rf"emulator step (\d) \| iteration {i} \| ELBO -?[\d.]+ \| (\d+) runs, 0 failed \| "
            r"[\d,.]+ runs/s \| (?:[\d.]+ \S+, at most|up to) [\d.]+ \S+ of runs",
            line,
        )
        assert printed is not None, line
        step, runs = map(int, printed.groups())
        assert runs == 12 * step
        steps.append(step)
    assert (steps[0], steps) == (1, sorted(steps))
    assert steps[-1] > 1


def test_that_log_lines_of_the_full_gaussian_count_its_evaluations(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path, with_inference(FULL_GAUSSIAN))
    result = invgp_here("run", "survey.toml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{tmp_path}/posterior.nc: the posterior has converged; ")
    lines = result.stderr.splitlines()
    assert len(lines) > 1
    for i, line in enumerate(lines, start=1):
        start = rf"evaluation {i} \| iteration {i} \| ELBO -?[\d.]+ \| {96 * i:,} runs, 0 failed \| "
        assert re.match(start, line), line
    with xr.open_dataset(tmp_path / "posterior.nc") as posterior:
        assert posterior.attrs["invgp_posterior"] == "full gaussian"
        assert posterior.attrs["invgp_emulator"] == "none"


def test_that_every_variable_of_a_posterior_is_a_name_that_the_config_guards(finished_run: Finished) -> None:
    with xr.open_dataset(finished_run[0] / "posterior.nc") as posterior:
        written = {str(name) for name in posterior.variables}
    derived = {"depth" + suffix for suffix in SUFFIXES["latents"]}
    derived |= {"time" + suffix for suffix in SUFFIXES["survey.observations"]}
    guarded = {"position", "position_inducing", "depth", *derived, *RESERVED}
    elsewhere = {"crs", "position_inducing", "inducing", "process", "other_process", "other_site"}
    elsewhere |= {"shape_error", "draw", "depth_std_factor_sample", "time_noise_factor_sample"}
    elsewhere |= {"whitened_mean", "whitened_factor", "depth_exceedance", "depth_threshold"}
    elsewhere |= {"node", "depth_few_runs_std", "whitened_root", "whitened", "other_whitened"}  # of field models
    elsewhere |= {"mesh", "mesh_x", "mesh_y", "mesh_z", "mesh_vertex", "mesh_cells", "mesh_corner", "mesh_cell_type"}
    elsewhere |= {"source", "bounds"}  # of joint inversions
    elsewhere |= {"depth_process", "depth_map_mean", "depth_map_scale", "process_mixing"}  # of maps and correlations
    elsewhere |= {"emulator_run", "output_number"}  # dimensions without coordinates
    assert written == guarded - elsewhere


def test_that_what_is_written_is_in_the_documentation(finished_run: Finished, root: Path) -> None:
    page = (root / "docs" / "result.md").read_text(encoding="utf-8")
    with xr.open_dataset(finished_run[0] / "posterior.nc") as posterior:
        names = {str(name) for name in posterior.data_vars} - {"elbo", "runs"}
        attributes = {name for name in posterior.attrs if name.startswith("invgp_")}
    assert [name for name in sorted(names | attributes) if f"`{name}`" not in page] == []


@pytest.mark.slow
def test_that_plot_draws_a_posterior(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    result = invgp_here("plot", finished_run[0] / "posterior.nc", "-o", "figures/line.svg", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["figures/line.svg", "figures/line_fit.svg"]
    assert all((tmp_path / name).stat().st_size > 0 for name in result.stdout.split())


@pytest.mark.slow
def test_that_options_win_over_the_config(finished_run: Finished, tmp_path: Path) -> None:
    config = write_files(tmp_path / "tmp")
    (tmp_path / "line.csv").write_text(SITES.replace("2000,0.51", "2000,0.61"))
    options = ["--data", "line.csv", "-o", "new/line.nc", "--seed", "7", "--workers", "2", "--device", "auto"]
    result = invgp("run", config, *options, cwd=tmp_path, program=[str(SCRIPT)])
    assert result.returncode == 0, result.stderr
    with (
        xr.open_dataset(tmp_path / "new/line.nc") as changed,
        xr.open_dataset(finished_run[0] / "posterior.nc") as plain,
    ):
        assert (changed.attrs["invgp_seed"], plain.attrs["invgp_seed"]) == (7, 3)
        assert (float(changed["time_observed"][5]), float(plain["time_observed"][5])) == (0.61, 0.51)
        assert changed["depth"][5] > plain["depth"][5]
        assert changed.attrs["invgp_survey"] == "line.csv"
        assert changed.attrs["invgp_survey_digest"] == hashlib.sha256((tmp_path / "line.csv").read_bytes()).hexdigest()
    assert not (config.parent / "posterior.nc").exists()


def posteriors(directory: Path) -> list[xr.Dataset]:
    """Of one and of two workers, without what says when it was."""
    for count in ("1", "2"):
        result = run_in_process("run", "survey.toml", "-o", f"workers{count}.nc", "--workers", count, cwd=directory)
        assert result.returncode == 0, result.stderr
    return [xr.load_dataset(directory / f"workers{count}.nc").drop_attrs() for count in ("1", "2")]


@pytest.mark.slow
def test_that_the_number_of_workers_does_not_change_the_result_with_a_function(tmp_path: Path) -> None:
    write_files(tmp_path, CONFIG.replace('"model:time"', '"model:time"\nvectorised = false'))
    one, two = posteriors(tmp_path)
    xr.testing.assert_identical(one, two)


@pytest.mark.slow
def test_that_the_number_of_workers_does_not_change_the_result_with_a_program(tmp_path: Path) -> None:
    write_files(tmp_path, with_inference(FULL_GAUSSIAN, "max_evaluations = 2", config=with_program(directory=tmp_path)))
    one, two = posteriors(tmp_path)
    xr.testing.assert_identical(one, two)


def read_until_closed(terminal: int) -> str:
    text = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux says so when the other side has closed
            break
        if not part:
            break
        text += part
    return text.decode()


@pytest.mark.slow
def test_that_a_terminal_shows_a_live_display(tmp_path: Path) -> None:
    write_files(tmp_path, with_inference(FULL_GAUSSIAN, "max_evaluations = 2", config=with_program(directory=tmp_path)))
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [*MODULE, "run", "survey.toml"], cwd=tmp_path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        text = read_until_closed(ours)
    os.close(ours)
    assert process.returncode == 0, text
    assert "inverting" in text
    assert re.search(r"evaluation 1, \d+ of 96 runs", text)
    assert "iteration 0 | ELBO -" in text
    left = r"(?:[\d.]+ [mµ]?s, at most|up to) [\d.]+ (?:[mµ]?s|min) of runs"
    assert re.search(rf"runs, 0 failed \| [\d,]+ runs/s \| {left}", text)
    assert "\x1b[2K" in text  # a line was drawn again
    drawn = re.split(r"\r|\n|\x1b\[\d*[AK]", text)
    plain = [re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line) for line in drawn]
    display = [line for line in plain if "posterior.nc" not in line and not line.startswith("invgp:")]
    assert max(len(line) for line in display) <= 80
    assert any(line.startswith(f"{tmp_path}/posterior.nc: stopped at inference.max_evaluations = 2") for line in plain)
    assert any(
        re.match(r"invgp: warning: the posterior has not converged; do not rely on its standard deviations yet", line)
        for line in plain
    )


def test_that_a_display_shows_time_left_while_runs_follow() -> None:
    """Ten runs are planned and made in a second; the simulator then has to make more."""
    state = ProgressState()
    state.start(10, 1000)
    state.start_batch("step 1", 10)
    state.add_runs(5, 0)
    state.running = 0.5
    assert state.text[2].endswith("| 500 ms, at most 99.5 s of runs")
    state.add_runs(5, 0)
    state.running = 1.0
    assert "of runs" not in state.text[2]  # all planned runs are made
    state.start_batch("step 2", 20)
    assert state.text[2].endswith("| up to 99 s of runs")  # 990 runs at 0.1 s
    state.start(5, 5)  # as of a monitor that knows no more
    assert state.text[2].endswith("| up to 2 s of runs")


def test_that_a_display_fits_a_terminal() -> None:
    live = TerminalDisplay(purpose="emulator step 12", batch_size=123_456, batch_done=12_345, elbo=-1234567.89)
    live.evaluations, live.done, live.failed, live.most_runs = 1234, 1_234_567, 123_456, 9_999_999
    live.running = 1e6  # s
    lines = re.sub(r"\[/?[a-z ]*\]", "", live.__rich__()).split("\n")
    assert max(len(line) for line in lines) <= 80


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((3.4e-7, "0.34 µs"), (0.012, "12 ms"), (5, "5 s"), (150, "2 min"), (9000, "2.5 h"), (864000, "10 days")),
        *((0.9996, "1 s"), (0.99962e-3, "1 ms"), (0.99, "990 ms"), (99.97, "2 min")),  # not 1e+03 ms
    ],
)
def test_that_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (123456, "123,456 runs/s"),
        (2.5, "2.5 runs/s"),
        (0.5, "30 runs/min"),
        (1 / 1800, "2 runs/h"),
        (1e-5, "0.036 runs/h"),
    ],
)
def test_that_rates_are_in_a_unit_that_fits(per_second: float, text: str) -> None:
    assert format_rate(per_second) == text


def test_that_the_survey_and_the_config_are_never_overwritten(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path, CONFIG)
    before = (tmp_path / "sites.csv").read_bytes()
    (tmp_path / "survey.nc").symlink_to(tmp_path / "sites.csv")
    result = invgp_here("run", "survey.toml", "-o", "survey.nc", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "invgp: --output: must be a file of its own, was 'survey.nc', which is the survey's file\n"
    assert (tmp_path / "sites.csv").read_bytes() == before
