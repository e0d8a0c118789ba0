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

from helpers.command_line import CONFIG, SIMULATOR, here, with_inference, with_program, write_files
from helpers.running_commands import PROMPT, interrupt, left_behind, own_words, running, wait_for
from invgp import netcdf
from invgp.cli import app
from invgp.errors import ConfigError, PlotError

COMPARE = ("compare", "results/otway.nc", "--burn-in", "50", "--draws", "250")


@pytest.fixture(scope="module")
def compared(otway: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The first sites of the Otway line, inverted and compared. Look, do not touch."""
    folder = tmp_path_factory.mktemp("line")
    shutil.copy(otway / "otway.toml", folder)
    make = [sys.executable, str(otway / "make_survey.py"), "--sites", "10"]
    subprocess.run([*make, "--output", str(folder / "data" / "synthetic.csv")], check=True, capture_output=True)
    made = here("run", "otway.toml", cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder, here(*COMPARE, "-o", "draws.nc", cwd=folder)


@pytest.mark.slow
def test_that_a_posterior_is_compared_latent_by_latent(
    compared: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = compared
    assert result.returncode == 0, result.stderr
    table = [line.split() for line in result.stdout.splitlines() if line.startswith(("depth,", "velocity,"))]
    assert [line[:3] for line in table] == [
        [f"{name},", "layer", str(layer)] for name in ("depth", "velocity") for layer in (1, 2, 3, 4)
    ]
    for line in table:
        error, error_mcse, ratio, ratio_mcse, r_hat = map(float, line[3:8])
        assert error < 0.4
        assert 0.8 < ratio < 1.2
        assert 0.0 < error_mcse < 0.2
        assert 0.0 < ratio_mcse < 0.2
        assert 0.99 < r_hat < 1.1
    assert "Runs: posterior " in result.stdout
    assert result.stdout.splitlines()[-2:] == ["draws.nc", "results/otway_comparison.png"]
    assert (folder / "results" / "otway_comparison.png").stat().st_size > 10_000


def test_that_draws_and_diagnostics_are_in_the_file(
    compared: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    with xr.open_dataset(compared[0] / "draws.nc") as found:
        draws = found["depth_reference_draw"]
        assert draws.dims == ("chain", "draw", "site", "layer")
        assert draws.shape == (4, 250, 10, 4)
        np.testing.assert_allclose(draws.mean(("chain", "draw")), found["depth_reference"])
        assert found["depth_reference"].attrs["units"] == "m"
        for name in ("depth_error", "depth_ratio", "depth_reference_r_hat", "depth_reference_ess"):
            assert found[name].notnull().all()
        assert found.attrs["invgp_reference_draws"] == 250
        assert found.attrs["invgp_reference_runs"] > 4 * 300 * 10


@pytest.mark.slow
def test_that_few_draws_give_a_warning_and_more_draws_continue_the_chains(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder = shutil.copytree(finished[0], tmp_path / "survey")
    command = ("compare", "posterior.nc", "--burn-in", "20", "--draws")
    few = here(*command, "20", cwd=folder)
    assert few.returncode == 0
    assert "invgp: warning: the chains have not converged, and are no reference yet" in few.stderr
    assert (folder / "posterior.chains.npz").exists()
    more = here(*command, "300", cwd=folder)
    assert "Reference: the chains have converged" in more.stdout, more.stderr
    assert not (folder / "posterior.runs").exists()
    (folder / "was_called").unlink()
    again = here(*command, "300", cwd=folder)
    assert again.stdout.splitlines()[:4] == more.stdout.splitlines()[:4]
    assert not (folder / "was_called").exists(), "the same draws were paid for twice"


@pytest.mark.slow
def test_that_ctrl_c_keeps_the_chains_and_states_how_to_continue(tmp_path: Path) -> None:
    body = f"case $PWD in */chains9-*) touch ../../../samples;; esac; {SIMULATOR}"  # after the fit, of 8 steps
    config = with_program(body=body, directory=tmp_path)
    write_files(tmp_path, config.replace("sites.csv", "two_sites.csv").replace("samples = 16", "samples = 6"))
    assert here("run", "survey.toml", cwd=tmp_path).returncode == 0
    with running("compare", "posterior.nc", "--draws", "100000", cwd=tmp_path) as (process, mark):
        wait_for(tmp_path / "samples", process)
        errors, seconds = interrupt(process)
    assert process.returncode == 130
    said = own_words(errors)[-1]
    assert said.startswith("invgp: interrupted after ")
    kept = "the chains are kept in posterior.chains.npz, and the same command continues from there"
    assert said.endswith(f" runs; {kept}")
    assert "Traceback" not in errors
    assert seconds < PROMPT
    assert left_behind(mark) == []
    assert [path.name for path in tmp_path.glob("*.npz")] == ["posterior.chains.npz"]


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
    (["posterior.nc", "--chains", "1"], "1 is not in the range x>=2."),
]


@pytest.fixture(scope="module")
def folder(finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(finished[0], tmp_path_factory.mktemp("mistakes") / "survey")
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
def test_that_draws_on_an_emulator_cost_a_few_runs(compared: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, direct = compared
    result = here(*COMPARE, "--emulator", "--plot", "emulated.png", cwd=folder)
    assert result.returncode == 0, result.stderr

    def ratios(text: str) -> np.ndarray:
        rows = [line.split() for line in text.splitlines() if line.startswith(("depth,", "velocity,"))]
        return np.asarray([float(row[5]) for row in rows])

    np.testing.assert_allclose(ratios(result.stdout), ratios(direct.stdout), atol=0.2)
    runs = int(result.stdout.split("reference ")[1].split()[0].replace(",", ""))
    assert runs <= 10 * 10  # runs_per_site, at ten sites


def told_runs(stdout: str) -> tuple[int, int]:
    """Runs of the reference, and those that were made now."""
    said = re.search(r"reference ([\d,]+) \(.* draws, ([\d,]+) runs? and ", stdout)
    assert said is not None, stdout
    return int(said[1].replace(",", "")), int(said[2].replace(",", ""))


@pytest.mark.slow
def test_that_a_stopped_comparison_on_an_emulator_continues_with_the_runs_of_the_ledger(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    body = (
        f"echo $1 >> {calls}; case $PWD in */emulator-step-2-*) touch {tmp_path}/second; sleep 0.2;; esac; {SIMULATOR}"
    )
    write_files(tmp_path, with_program(with_inference("runs_per_site = 20"), body, directory=tmp_path))

    def called() -> list[str]:
        return calls.read_text().split()

    assert here("run", "survey.toml", "--ledger", "elsewhere.sqlite", cwd=tmp_path).returncode == 0
    paid = len(called())
    (tmp_path / "second").unlink()
    command = ("compare", "posterior.nc", "--emulator", "--workers", "1")
    with running(*command, "--draws", "40", cwd=tmp_path) as (process, _):
        wait_for(tmp_path / "second", process)
        errors, _ = interrupt(process)
    assert process.returncode == 130
    kept = "the runs are kept in posterior.ledger.sqlite, and the same command continues from there"
    assert own_words(errors)[-1].endswith(f", before the chains had started; {kept}")

    stopped = len(called())
    few = here(*command, "--draws", "40", cwd=tmp_path)
    assert few.returncode == 0, few.stderr
    runs, made = told_runs(few.stdout)
    assert made == len(called()) - stopped < runs
    assert len(called()) - paid <= runs + 1  # the one that Ctrl-C cut short

    before = len(called())
    more = here(*command, "--draws", "80", cwd=tmp_path)
    assert told_runs(more.stdout) == (runs, 0), more.stderr
    assert len(called()) == before


@pytest.mark.slow
def test_that_a_comparison_stopped_while_its_gaussian_is_fitted_repeats_no_run(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    body = f"echo $1 >> {calls}; case $PWD in */chains3-*) touch {tmp_path}/third; sleep 0.1;; esac; {SIMULATOR}"
    config = with_program(body=body, directory=tmp_path)
    write_files(tmp_path, config.replace("sites.csv", "two_sites.csv").replace("samples = 16", "samples = 6"))
    assert here("run", "survey.toml", cwd=tmp_path).returncode == 0
    calls.unlink()
    command = ("compare", "posterior.nc", "--draws", "10", "--burn-in", "0", "--chains", "2", "--workers", "1")
    with running(*command, cwd=tmp_path) as (process, _):
        wait_for(tmp_path / "third", process)
        errors, _ = interrupt(process)
    assert process.returncode == 130
    kept = "the runs are kept in posterior.ledger.sqlite, and the same command continues from there"
    assert own_words(errors)[-1].endswith(f", before the chains had started; {kept}")
    stopped = len(calls.read_text().split())
    result = here(*command, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    runs, made = told_runs(result.stdout)
    assert len(calls.read_text().split()) - stopped == made
    assert stopped + made <= runs + 1  # the one that Ctrl-C cut short
    assert stopped >= 2 * 8 * 2  # two steps of the fit at least, of eight runs at each of two sites


@pytest.mark.slow
def test_that_learnt_parameters_are_fixed_in_a_comparison(tmp_path: Path) -> None:
    config = CONFIG.replace("positive =", "learn = { length_scale = 2, std = 2 }\npositive =")
    assert config != CONFIG
    write_files(tmp_path, config)
    assert here("run", "survey.toml", cwd=tmp_path).returncode == 0
    result = here("compare", "posterior.nc", "--burn-in", "20", "--draws", "200", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    error, ratio = (float(result.stdout.split("depth")[1].split()[i]) for i in (0, 2))
    assert error < 0.3
    assert 0.8 < ratio < 1.2
