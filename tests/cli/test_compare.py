"""`invgp compare`: from a posterior file to a table, a figure and the draws behind them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import xarray as xr

from helpers.command_line import CONFIG, SIMULATOR, run_in_process, with_program, write_files
from helpers.running_commands import PROMPT, interrupt, left_behind, own_words, start_command, wait_for
from invgp import netcdf
from invgp.cli import app
from invgp.errors import ConfigError, PlotError

COMPARE = ("compare", "results/otway.nc", "--chains", "32", "--effective", "100")


@pytest.fixture(scope="module")
def comparison(otway: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The first sites of the Otway line, inverted and compared. Look, do not touch."""
    folder = tmp_path_factory.mktemp("line")
    shutil.copy(otway / "otway.toml", folder)
    make = [sys.executable, str(otway / "make_survey.py"), "--sites", "10"]
    subprocess.run([*make, "--output", str(folder / "data" / "synthetic.csv")], check=True, capture_output=True)
    made = run_in_process("run", "otway.toml", cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder, run_in_process(*COMPARE, "-o", "draws.nc", cwd=folder)


@pytest.mark.slow
def test_that_a_posterior_is_compared_latent_by_latent(
    comparison: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = comparison
    assert result.returncode == 0, result.stderr
    table = [line.split() for line in result.stdout.splitlines() if line.startswith(("depth,", "velocity,"))]
    assert [line[:3] for line in table] == [
        [f"{name},", "layer", str(layer)] for name in ("depth", "velocity") for layer in (1, 2, 3, 4)
    ]
    for line in table:
        error, error_mcse, ratio, ratio_mcse = map(float, line[3:7])
        inside, r_hat = float(line[7].removesuffix("%")), float(line[8])
        assert error < 0.4
        assert 85.0 < inside < 99.9
        assert 0.8 < ratio < 1.2
        assert 0.0 < error_mcse < 0.2
        assert 0.0 < ratio_mcse < 0.2
        assert 0.99 < r_hat < 1.1
    assert "Runs: posterior " in result.stdout
    assert result.stdout.splitlines()[-2:] == ["draws.nc", "results/otway_comparison.png"]
    assert (folder / "results" / "otway_comparison.png").stat().st_size > 10_000


def test_that_draws_and_diagnostics_are_in_the_file(
    comparison: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    with xr.open_dataset(comparison[0] / "draws.nc") as found:
        draws = found["depth_reference_draw"]
        assert draws.dims == ("chain", "draw", "site", "layer")
        assert draws.shape == (4, 8 * found.attrs["invgp_reference_draws"], 10, 4)
        np.testing.assert_allclose(draws.mean(("chain", "draw")), found["depth_reference"], rtol=1e-5)
        assert found["depth_reference"].attrs["units"] == "m"
        for name in ("depth_error", "depth_ratio", "depth_inside", "depth_reference_r_hat", "depth_reference_ess"):
            assert found[name].notnull().all()
        assert found.attrs["invgp_reference_chains"] == 32
        assert 32 * 10 * found.attrs["invgp_reference_draws"] < found.attrs["invgp_reference_runs"] <= 300_000


@pytest.mark.slow
def test_that_few_runs_give_a_warning_or_a_message_and_more_converge(
    finished_run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder = shutil.copytree(finished_run[0], tmp_path / "survey")
    command = ("compare", "posterior.nc", "--chains", "32", "--runs")
    none = run_in_process(*command, "1000", cwd=folder)
    assert none.returncode == 2
    assert "--runs: must be larger than 1,000 here: the chains, which start at the prior, did not reach" in none.stderr
    enough = int(re.search(r"by the progress so far, about ([\d,]+) may be enough", none.stderr)[1].replace(",", ""))
    assert 1000 < enough <= 16_000
    few = run_in_process(*command, "8000", cwd=folder)
    assert few.returncode == 0, few.stderr
    assert "invgp: warning: the chains have not converged, and are no reference yet" in few.stderr
    more = run_in_process(*command, "200000", cwd=folder)
    assert "Reference: the chains have converged" in more.stdout, more.stderr
    assert not (folder / "posterior.runs").exists()


def with_counted_program(folder: Path, mark: str, pause: str = "0.05") -> Path:
    """Write a survey of two sites with a program that lists its calls, and marks the first of a batch of the chains."""
    calls = folder / "calls"
    body = f"echo $1 >> {calls}; case $PWD in */{mark}-*) touch {folder}/reached; sleep {pause};; esac; {SIMULATOR}"
    config = with_program(body=body, directory=folder)
    write_files(folder, config.replace("sites.csv", "two_sites.csv").replace("samples = 16", "samples = 6"))
    assert run_in_process("run", "survey.toml", cwd=folder).returncode == 0
    calls.unlink()
    return calls


@pytest.mark.slow
def test_that_ctrl_c_keeps_the_runs_and_no_run_is_repeated(tmp_path: Path) -> None:
    calls = with_counted_program(tmp_path, "chains5")
    command = ("compare", "posterior.nc", "--chains", "8", "--effective", "1", "--runs", "1200", "--workers", "1")
    with start_command(*command, cwd=tmp_path) as (process, mark):
        wait_for(tmp_path / "reached", process)
        errors, seconds = interrupt(process)
    assert process.returncode == 130
    printed = own_words(errors)[-1]
    assert printed.startswith("invgp: interrupted after ")
    assert printed.endswith(
        " runs; the runs are kept in posterior.ledger.sqlite, and the same command continues from there"
    )
    assert "Traceback" not in errors
    assert seconds < PROMPT
    assert left_behind(mark) == []
    stopped = len(calls.read_text().split())
    result = run_in_process(*command, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    runs, made = told_runs(result.stdout)
    called = calls.read_text().split()
    assert len(called) - stopped == made
    assert len(called) <= runs + 1  # the one that Ctrl-C cut short
    again = run_in_process(*command, cwd=tmp_path)
    assert told_runs(again.stdout) == (runs, 0)
    assert again.stdout.splitlines()[:3] == result.stdout.splitlines()[:3]
    assert len(calls.read_text().split()) == len(called)


def told_runs(stdout: str) -> tuple[int, int]:
    """Runs of the reference, and those that were made now."""
    printed = re.search(r"reference ([\d,]+) \(.* draws, ([\d,]+) runs? and ", stdout)
    assert printed is not None, stdout
    return int(printed[1].replace(",", "")), int(printed[2].replace(",", ""))


MISTAKES = [
    (["none.nc"], "the posterior 'none.nc' cannot be read: no such file"),
    (["posterior.nc", "--config", "none.toml"], "the config 'none.toml' cannot be read: No such file or directory"),
    (
        ["lost.nc"],
        "--config: must be given, because the config of 'lost.nc' was not found beside or above it",
    ),
    (
        ["posterior.nc", "--data", "two_sites.csv"],
        "--data: must be the survey of the posterior, which was {survey!r}, was 'two_sites.csv'",
    ),
    (
        ["posterior.nc", "--config", "other.toml"],
        "--config: must have the latents of the posterior, 'depth', had 'thickness'",
    ),
    (["posterior.nc", "--plot", "line.txt"], "--plot: must end in .png, .svg or .pdf, was 'line.txt'"),
    (["posterior.nc", "-o", "line.txt"], "--output: must end in .nc, was 'line.txt'"),
    (
        ["posterior.nc", "-o", "posterior.nc"],
        "--output: must be a file of its own, was 'posterior.nc', which is the posterior",
    ),
    (["posterior.nc", "--chains", "1"], "1 is not in the range x>=8."),
    (["posterior.nc", "--chains", "9"], "--chains: must be a multiple of 4, was 9"),
]


@pytest.fixture(scope="module")
def folder(
    finished_run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = shutil.copytree(finished_run[0], tmp_path_factory.mktemp("mistakes") / "survey")
    write_files(folder)
    (folder / "was_called").unlink(missing_ok=True)
    (folder / "other.toml").write_text(CONFIG.replace("depth", "thickness").replace("model:time", "other:time"))
    (folder / "other.py").write_text("def time(thickness):\n    return thickness\n")
    posterior = netcdf.read(folder / "posterior.nc")
    netcdf.write(posterior.assign_attrs(invgp_config="lost"), folder / "lost.nc")
    return folder


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_that_a_mistake_is_reported_before_any_run(
    arguments: list[str], sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises((ConfigError, PlotError, click.UsageError)) as failure:
        app.main(["compare", *arguments], standalone_mode=False)
    message = failure.value.message if isinstance(failure.value, click.UsageError) else str(failure.value)
    assert message == sentence.format(survey=netcdf.read("posterior.nc").attrs["invgp_survey"])
    assert not (folder / "was_called").exists()


@pytest.mark.slow
def test_that_learnt_parameters_are_fixed_in_a_comparison(tmp_path: Path) -> None:
    config = CONFIG.replace("positive =", "learn = { length_scale = 2, std = 2 }\npositive =")
    assert config != CONFIG
    write_files(tmp_path, config)
    assert run_in_process("run", "survey.toml", cwd=tmp_path).returncode == 0
    result = run_in_process("compare", "posterior.nc", "--chains", "32", "--effective", "200", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "The reference has the learnt hyperparameters fixed at their values in the posterior" in result.stdout
    error, ratio = (float(result.stdout.split("depth")[1].split()[i]) for i in (0, 2))
    assert error < 0.3
    assert 0.8 < ratio < 1.2
