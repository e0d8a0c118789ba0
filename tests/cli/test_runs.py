"""`invgp runs` shows what is in a ledger, repeats what failed, and hands it all to other programs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from helpers.command_line import MODULE, SIMULATOR, Command, invgp, with_inference, with_program, write_files
from invgp import invert, load
from invgp.adapters import Status
from invgp.errors import RunsFailedError
from invgp.ledger import Ledger, RecordedRun

LEDGER = "posterior.ledger.sqlite"
# It fails at some inputs as long as there is no licence, which is not part of the simulator.
LICENSED = f"""\
if [ ! -e "$(dirname "$0")/licence" ] && [ "${{1%%.*}}" -gt 520 ]; then echo "no licence" >&2; exit 7; fi
{SIMULATOR}"""


@pytest.fixture
def directory(tmp_path: Path, invgp_here: Command) -> Path:
    """A survey that was inverted with some failures."""
    config = with_inference(
        'posterior = "coupled gaussian"',
        "max_failed_share = 0.9",
        config=with_program(body=LICENSED, directory=tmp_path),
    )
    write_files(tmp_path, config)
    result = invgp_here("run", "survey.toml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    return tmp_path


def runs(directory: Path, *, failed: bool = False) -> list[RecordedRun]:
    with Ledger(directory / LEDGER, read_only=True) as ledger:
        return list(ledger.runs(failed=failed))


def test_that_runs_are_listed(directory: Path, invgp_here: Command) -> None:
    every, failed = runs(directory), runs(directory, failed=True)
    assert 0 < len(failed) < len(every)
    result = invgp_here("runs", "list", LEDGER, cwd=directory)
    assert result.returncode == 0, result.stderr
    header, *lines, counts = result.stdout.splitlines()
    assert header.split()[:3] == ["run", "model", "status"]
    assert [int(line.split()[0]) for line in lines] == [run.run for run in every]
    assert f"{len(failed)} exit code" in counts
    listed = invgp_here("runs", "list", LEDGER, "--failed", cwd=directory).stdout.splitlines()
    assert [int(line.split()[0]) for line in listed[1:-1]] == [run.run for run in failed]


def test_that_a_list_can_be_json(directory: Path, invgp_here: Command) -> None:
    result = invgp_here("runs", "list", LEDGER, "--failed", "--json", cwd=directory)
    listed = json.loads(result.stdout)
    assert len(listed) == len(runs(directory, failed=True))
    assert listed[0]["status"] == "exit code"
    assert "exit code 7; standard error: no licence; directory: " in listed[0]["message"]
    assert Path(listed[0]["directory"]).is_dir()
    assert listed[0]["simulator"] == "simulator.sh"


def test_that_a_reader_may_stop_before_the_end_of_a_list(directory: Path) -> None:
    command = f"{' '.join(MODULE)} runs list {LEDGER} | head -n 1"
    result = subprocess.run(command, shell=True, cwd=directory, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_that_a_run_is_shown(directory: Path, invgp_here: Command) -> None:
    run = runs(directory, failed=True)[0]
    result = invgp_here("runs", "show", LEDGER, str(run.run), cwd=directory)
    assert result.returncode == 0, result.stderr
    assert "status: exit code\nattempts: 1\n" in result.stdout
    assert f"  in  depth = {run.inputs[0]:.6g} m" in result.stdout
    assert "out  time" not in result.stdout
    missing = invgp_here("runs", "show", LEDGER, "999", cwd=directory)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == f"invgp: RUN: must be the number of a run in {LEDGER!r}, was 999\n"


def test_that_no_removed_directory_is_named(
    tmp_path: Path, invgp_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invgp.execution.simulator.DIRECTORIES_KEPT", 2)
    config = with_inference(
        'posterior = "coupled gaussian"',
        "max_failed_share = 0.9",
        config=with_program(body=LICENSED, directory=tmp_path),
    )
    problem = load(write_files(tmp_path, config))
    invert(problem, ledger=tmp_path / LEDGER, run_directory=tmp_path / "kept")
    listed = json.loads(invgp_here("runs", "list", LEDGER, "--failed", "--json", cwd=tmp_path).stdout)
    there = [run for run in listed if run["directory"]]
    assert len(there) == 2 < len(listed)
    assert all(Path(run["directory"]).is_dir() and run["directory"] in run["message"] for run in there)
    removed = next(run for run in listed if not run["directory"])
    assert removed["message"].endswith("exit code 7; standard error: no licence; its directory was removed")
    shown = invgp_here("runs", "show", LEDGER, str(removed["run"]), cwd=tmp_path).stdout
    assert "its directory was removed" in shown
    assert str(tmp_path) not in shown
    (tmp_path / LEDGER).unlink()
    with pytest.raises(RunsFailedError, match="its directory was removed"):
        invert(
            load(write_files(tmp_path, with_program(body="exit 7", directory=tmp_path)))
        )  # no run has a place to stay


def test_that_failed_runs_are_made_again(directory: Path, invgp_here: Command) -> None:
    failed = runs(directory, failed=True)
    command = ("runs", "rerun", LEDGER, "--failed", "--config", "survey.toml")
    still = invgp_here(*command, cwd=directory)
    assert still.returncode == 3
    assert f"{len(failed)} of {len(failed)} runs failed again; the first: run run-{failed[0].run}: exit code 7" in (
        still.stderr
    )
    assert {run.attempts for run in runs(directory, failed=True)} == {2}
    (directory / "licence").touch()
    result = invgp_here(*command, "--workers", "2", cwd=directory)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{len(failed)} runs repeated: {len(failed)} succeeded, 0 failed\n"
    again = {run.run: run for run in runs(directory)}
    assert [again[run.run].status for run in failed] == [Status.OK] * len(failed)
    assert [again[run.run].attempts for run in failed] == [3] * len(failed)
    assert all(np.isclose(run.outputs, run.inputs / 1000, rtol=1e-5) for run in again.values())
    assert invgp_here(*command, cwd=directory).stdout == "no failed run to make again\n"
    assert ", 0 failed, " in invgp_here("run", "survey.toml", cwd=directory).stdout


def test_that_runs_of_another_simulator_are_not_made_again(directory: Path, invgp_here: Command) -> None:
    (directory / "simulator.sh").write_text(f"#!/bin/sh\n# changed\n{SIMULATOR}\n")
    result = invgp_here("runs", "rerun", LEDGER, "--failed", "--config", "survey.toml", cwd=directory)
    assert (result.returncode, result.stdout) == (0, "no failed run to make again\n")
    assert "as of another simulator, template or setting: 3 failed runs" in result.stderr


def test_that_an_export_reads_back_as_it_was(directory: Path, invgp_here: Command) -> None:
    kept = runs(directory)
    for name in ("runs.csv", "runs.nc"):
        result = invgp_here("runs", "export", LEDGER, "-o", name, cwd=directory)
        assert result.stdout == f"{name}: {len(kept)} runs of 'simulator.sh'\n", result.stderr
    table = pd.read_csv(directory / "runs.csv")
    dataset = xr.load_dataset(directory / "runs.nc")
    for numbers, expected in (
        ("input_depth", [run.inputs[0] for run in kept]),
        ("output_time", [run.outputs[0] for run in kept]),
    ):
        np.testing.assert_array_equal(table[numbers], expected)
        np.testing.assert_array_equal(dataset[numbers], expected)
    assert list(table["status"]) == list(dataset["status"].values) == [run.status.value for run in kept]
    assert dataset["input_depth"].attrs["units"] == "m"
    assert list(dataset["run"]) == list(table["run"]) == [run.run for run in kept]


def test_that_an_export_of_several_models_asks_which(directory: Path, invgp_here: Command) -> None:
    (directory / "simulator.sh").write_text(f"#!/bin/sh\n# changed\n{SIMULATOR}\n")
    assert invgp_here("run", "survey.toml", cwd=directory).returncode == 0
    new = runs(directory)[-1].model.digest
    result = invgp_here("runs", "export", LEDGER, "-o", "runs.csv", cwd=directory)
    assert result.returncode == 2
    assert result.stderr.startswith("invgp: --model: must be the start of one of ")
    chosen = invgp_here("runs", "export", LEDGER, "-o", "runs.csv", "--model", new[:10], cwd=directory)
    assert chosen.returncode == 0, chosen.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "none.sqlite"], "the ledger 'none.sqlite' cannot be used: no such file"),
        (["list", "."], "the ledger '.' cannot be used: it is a directory\n"),
        (["show", "survey.toml", "1"], "the ledger 'survey.toml' cannot be used: it is damaged, or no SQLite file"),
        (["export", "none.sqlite", "-o", "runs.txt"], "--output: must end in .csv or .nc, was 'runs.txt'"),
        (["rerun", "none.sqlite", "--failed", "--config", "survey.toml"], "the ledger 'none.sqlite' cannot be used"),
    ],
)
def test_that_mistakes_are_reported(arguments: list[str], sentence: str, invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path)
    result = invgp_here("runs", *arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"invgp: {sentence}")
    assert not (tmp_path / "none.sqlite").exists()


def test_that_a_ledger_is_all_that_is_left(directory: Path, invgp_here: Command) -> None:
    """No log of SQLite's beside it, whoever closed it last."""
    asked = [
        ["runs", "list", LEDGER],
        ["run", "survey.toml", "--workers", "2"],
        ["runs", "export", LEDGER, "-o", "a.csv"],
    ]
    for arguments in asked:
        assert [path.name for path in directory.glob("*.sqlite*")] == [LEDGER]
        assert invgp_here(*arguments, cwd=directory).returncode == 0
    assert [path.name for path in directory.glob("*.sqlite*")] == [LEDGER]
    reported = invgp_here("runs", "list", ".", cwd=directory).stderr
    assert reported == f"invgp: the ledger '.' cannot be used: it is a directory; did you mean '{LEDGER}'?\n"


def test_that_a_ledger_that_may_not_be_written_is_read(directory: Path, invgp_here: Command) -> None:
    listed = invgp_here("runs", "list", LEDGER, cwd=directory).stdout
    (directory / LEDGER).chmod(0o444)
    assert invgp_here("runs", "list", LEDGER, cwd=directory).stdout == listed


def test_that_the_help_lists_the_commands(tmp_path: Path) -> None:
    result = invgp("runs", "--help", cwd=tmp_path)
    assert all(name in result.stdout for name in ("list", "show", "rerun", "export"))
