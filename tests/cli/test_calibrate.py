"""`invgp calibrate`: a table, a figure and a file, that survive an interruption."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
import xarray as xr

from helpers.command_line import CONFIG, SIMULATOR, run_in_process, with_few_runs, with_program, write_files
from helpers.compliance import complaints
from helpers.running_commands import interrupt, left_behind, own_words, start_command, wait_for
from invgp.errors import ConfigError
from invgp.validation.calibration import read_finished

COMMAND = ("calibrate", "survey.toml", "--workers", "1")
ROW = r"(?:[▼▲] )?\d+\.\d ± \d+\.\d\s+"


@pytest.mark.slow
def test_that_a_table_a_figure_and_a_file_come_out_and_that_more_surveys_continue_from_there(tmp_path: Path) -> None:
    write_files(tmp_path)
    result = run_in_process(*COMMAND, "--surveys", "3", "--check", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert re.search(rf"^depth\s+{ROW}{ROW}{ROW}\d\.\d\d\s+\d\.\d\d\s*$", result.stdout, re.MULTILINE)
    assert "3 simulated surveys of 6 sites, seed 3; ± is one standard error, across surveys." in result.stdout
    assert "0 of 6 coverages lie outside their bands" in result.stdout
    written = [tmp_path / "posterior_calibration.nc", tmp_path / "posterior_calibration.png"]
    assert result.stdout.split()[-2:] == [str(path) for path in written]
    assert all(path.exists() for path in written)
    with xr.open_dataset(written[0]) as first:
        assert first["depth_pit"].dims == ("survey", "site")
        assert first.attrs["invgp_config"] == CONFIG
        first.load()
    assert complaints(written[0]) == []

    (tmp_path / "was_called").unlink()
    fewer = run_in_process(*COMMAND, "--surveys", "2", cwd=tmp_path)
    assert fewer.returncode == 2
    assert f"--surveys: must be at least 3, was 2: '{written[0]}' is a calibration with 3 surveys;" in fewer.stderr
    with xr.open_dataset(written[0]) as still:
        xr.testing.assert_identical(still, first)
    written[0].unlink()
    again = run_in_process(*COMMAND, "--surveys", "2", "--plot", "figures/two.pdf", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert not (tmp_path / "was_called").exists()
    assert (tmp_path / "figures" / "two.pdf").exists()
    with xr.open_dataset(written[0]) as two:
        xr.testing.assert_equal(two["depth_pit"], first["depth_pit"][:2])
    folder = tmp_path / "posterior_calibration.surveys"
    assert set(read_finished(folder, first.attrs["invgp_calibration"])) == {1, 2, 3}
    with pytest.raises(ConfigError, match=rf"output: must not be that of another calibration, but '{folder}' keeps "):
        read_finished(folder, "that of another seed")


@pytest.mark.slow
def test_that_ctrl_c_keeps_and_reports_what_is_done(tmp_path: Path) -> None:
    config = with_few_runs(with_program(body=f"sleep 0.01; {SIMULATOR}", directory=tmp_path))
    write_files(tmp_path, config)
    command = ("calibrate", "survey.toml", "--workers", "2", "-o", "out.nc")
    with start_command(*command, "--surveys", "500", cwd=tmp_path) as (process, mark):
        for _ in range(3):  # workers start slowly on a busy machine
            with suppress(AssertionError):
                wait_for(tmp_path / "out.surveys" / "survey00001.nc", process)
        errors, _ = interrupt(process)
    assert process.returncode == 130
    printed = [line for line in own_words(errors) if line.startswith("invgp:")]
    assert re.fullmatch(r"invgp: interrupted after \d+ of 500 surveys", printed[0])
    assert printed[1] == "invgp: they are kept in out.surveys; the same command continues from there"
    assert left_behind(mark) == []
    assert not list((tmp_path / "tmp").glob("invgp-*"))
    assert (tmp_path / "out.interrupted.png").exists()
    done = len(list((tmp_path / "out.surveys").glob("*.nc")))
    with xr.open_dataset(tmp_path / "out.interrupted.nc") as kept:
        assert kept.sizes["survey"] == done


@pytest.mark.slow
def test_that_check_finds_a_posterior_wanting(tmp_path: Path) -> None:
    """The data do not show on which side of 500 m the depth is; a Gaussian is on one side.

    Its 95% intervals contain half of the truths. The sites of a survey are as dependent as two independent groups
    (`dependence_of_sites` is about 0.5), so that 8 surveys are 16 trials. For six tests the band begins at
    0.95 - 3.64 sqrt(0.95 0.05 / 16) = 0.752, with the quantile of Student's t. 13 of 16 trials or more, which would
    not be outside, have a probability of 1%.
    """
    write_files(tmp_path, CONFIG.replace("samples = 16", "samples = 16\nposterior = 'full gaussian'"))
    (tmp_path / "model.py").write_text("def time(depth):\n    return abs(depth - 500.0) / 100.0\n")
    result = run_in_process(*COMMAND, "--surveys", "8", "--check", cwd=tmp_path)
    assert result.returncode == 5, result.stderr
    assert "▼" in result.stdout


@pytest.mark.slow
def test_that_inversions_that_did_not_converge_are_counted(tmp_path: Path) -> None:
    """One evaluation leaves the posterior at its start, whatever the data."""
    write_files(tmp_path, CONFIG.replace("samples = 16", "samples = 16\nmax_evaluations = 1\nemulator = false"))
    result = run_in_process(*COMMAND, "--surveys", "3", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "invgp: warning: 3 of the inversions did not converge" in result.stderr


def test_that_a_mistake_is_a_sentence_before_any_run(tmp_path: Path) -> None:
    write_files(tmp_path)
    result = run_in_process(*COMMAND, "--plot", "figure.gif", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "invgp: --plot: must end in .png, .svg or .pdf, was 'figure.gif'\n"
    assert not (tmp_path / "was_called").exists()


def test_that_a_simulator_that_fails_at_all_truths_gets_one_message(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "model.py").write_text("def time(depth):\n    return 0.01 * depth if depth < 0 else None\n")
    result = run_in_process(*COMMAND, "--surveys", "2", cwd=tmp_path)
    assert result.returncode == 3
    lines = [line for line in result.stderr.splitlines() if line.startswith("invgp:")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("invgp: none of 100 truths drawn from the prior could be simulated: ")
