"""A field model that is a program: a whole layer in a file goes in, a whole table comes out."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from helpers.command_line import run_in_process
from helpers.running_commands import start_command

pytestmark = pytest.mark.processes

PATIENCE = 60.0  # s, for a busy machine
OF_ONE_INVERSION_ONLY = ("history", "invgp_runs_at_once", "invgp_runs_from_ledger", "invgp_survey")

CONFIG = """
[survey]
file = "survey.csv"
coordinates.position.unit = "m"
observations.average = {{ columns = ["average"], unit = "m" }}

[grid.coordinates]
position = {{ unit = "m", start = 0, stop = 22, step = 2 }}

[latents.depth]
unit = "m"
mean = 20
std = 4
kernel = {{ kind = "matern 5/2", length_scale = 10 }}

[forward]
kind = "field"
adapter = "executable"
command = ["./averages.sh"]
timeout = 60
inputs = ["depth"]
outputs = ["average"]
input_files = [{{ template = "layer.tpl", path = "layer.txt" }}]
output_files = [{{ path = "table.txt", format = "table", column = 2, skip_lines = 1 }}]
{forward}

[noise]
std.average = 0.3

[inference]
{inference}
"""

AVERAGES = """#!/bin/sh
echo run >> "$(dirname "$0")/started"
sleep 0.05
awk '{
  depth[NR] = $1
} END {
  print "station average"
  for (i = 1; i <= 6; i++) print i, EXPRESSION
}' layer.txt > table.txt
"""
MEAN = "(depth[2 * i - 1] + depth[2 * i]) / 2"


def survey(folder: Path, expression: str = MEAN, *, forward: str = "", inference: str = "max_runs = 40") -> Path:
    folder.mkdir(exist_ok=True)
    rows = [f"{2 + 4 * n},{20 + 3 * np.sin(n):.4f}" for n in range(6)]
    (folder / "survey.csv").write_text("\n".join(["position,average", *rows]) + "\n", encoding="utf-8")
    (folder / "survey.toml").write_text(CONFIG.format(forward=forward, inference=inference), encoding="utf-8")
    (folder / "layer.tpl").write_text("{depth[*]:.17g}\n", encoding="utf-8")
    program = folder / "averages.sh"
    program.write_text(AVERAGES.replace("EXPRESSION", expression), encoding="utf-8")
    program.chmod(0o755)
    return folder


def count_started(folder: Path) -> int:
    file = folder / "started"
    return len(file.read_text(encoding="utf-8").split()) if file.exists() else 0


def posterior(folder: Path) -> xr.Dataset:
    return xr.load_dataset(folder / "posterior.nc").assign_attrs(dict.fromkeys(OF_ONE_INVERSION_ONLY, ""))


@pytest.fixture(scope="module")
def reference_posterior(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    folder = survey(tmp_path_factory.mktemp("field") / "undisturbed")
    done = run_in_process("run", "survey.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = posterior(folder)
    assert count_started(folder) == found.attrs["invgp_runs"] <= 40
    return found


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_that_a_killed_inversion_resumes_bit_identically(
    reference_posterior: xr.Dataset, workers: str, tmp_path: Path
) -> None:
    folder = survey(tmp_path / "killed")
    for runs in (5, 20):
        with start_command("run", "survey.toml", "--workers", workers, cwd=folder) as (process, _):
            deadline = time.monotonic() + PATIENCE
            while count_started(folder) < runs and process.poll() is None:
                assert time.monotonic() < deadline, "no run was started"
                time.sleep(0.005)
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=PATIENCE)
    done = run_in_process("run", "survey.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    xr.testing.assert_identical(posterior(folder), reference_posterior)
    # Of each kill, the run under way of each worker, and one that was not handed over yet, are made again.
    assert count_started(folder) <= reference_posterior.attrs["invgp_runs"] + 2 * 2 * int(workers)


def test_that_runs_with_missing_outputs_are_used(reference_posterior: xr.Dataset, tmp_path: Path) -> None:
    lacking = f'(depth[1] > 21 && i == 3) ? "nan" : {MEAN}'
    folder = survey(tmp_path / "partial", lacking, forward="partial = true")
    done = run_in_process("run", "survey.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = posterior(folder)
    assert found.attrs["invgp_runs_failed"] == 0
    assert "gave only some of their outputs" in found.attrs["invgp_diagnostics"]
    np.testing.assert_allclose(found["depth"], reference_posterior["depth"], atol=0.05)
    np.testing.assert_allclose(found["depth_std"], reference_posterior["depth_std"], rtol=0.05)


def test_that_an_output_missing_in_all_runs_is_reported(tmp_path: Path) -> None:
    folder = survey(tmp_path / "never", f'i == 3 ? "nan" : {MEAN}', forward="partial = true")
    done = run_in_process("run", "survey.toml", cwd=folder)
    assert done.returncode != 0
    assert "no run gave the output that was observed at site 3: leave the datum empty" in done.stderr
    assert "Traceback" not in done.stderr


def test_that_a_table_with_too_few_rows_is_reported(tmp_path: Path) -> None:
    folder = survey(tmp_path / "few")
    program = folder / "averages.sh"
    program.write_text(program.read_text(encoding="utf-8").replace("i <= 6", "i <= 5"), encoding="utf-8")
    done = run_in_process("run", "survey.toml", cwd=folder)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "table.txt" in done.stderr
    assert "6" in done.stderr


def test_that_some_failures_are_left_out_and_the_budget_holds(reference_posterior: xr.Dataset, tmp_path: Path) -> None:
    failing = f'(depth[1] > 26) ? "nan" : {MEAN}'
    folder = survey(tmp_path / "failing", failing, inference="max_runs = 30\nmax_failed_share = 0.3")
    done = run_in_process("run", "survey.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = posterior(folder)
    assert found.attrs["invgp_runs_failed"] > 0
    assert count_started(folder) <= 30
    np.testing.assert_allclose(found["depth"], reference_posterior["depth"], atol=0.2)
