"""Whatever the standard streams are, a command finishes its files and ends with a documented exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import MODULE, PATIENCE, SCRIPT, invgp, with_program, write_files

pytestmark = pytest.mark.processes

# Each with the file that it makes.
COMMANDS = {
    "check": (["check", "survey.toml"], ""),
    "run": (["run", "survey.toml", "-o", "again.nc"], "again.nc"),
    "predict": (["predict", "posterior.nc", "--grid", "500"], "posterior.map.nc"),
    "plot": (["plot", "posterior.nc", "--dpi", "30"], "posterior.png"),
    "report": (["report", "posterior.nc"], "posterior.html"),
    "export": (["export", "posterior.nc", "--format", "csv", "--json"], "posterior.csv"),
    "calibrate": (["calibrate", "survey.toml", "--surveys", "1"], "posterior_calibration.nc"),
    "compare": (["compare", "posterior.nc", "--chains", "8", "--effective", "1", "-o", "c.nc"], "c.nc"),
    "doctor": (["doctor"], ""),
    "init": (["init", "python", "new"], "new/survey.toml"),
    "list of runs": (["runs", "list", "posterior.ledger.sqlite"], ""),
    "one run": (["runs", "show", "posterior.ledger.sqlite", "1"], ""),
    "export of runs": (["runs", "export", "posterior.ledger.sqlite", "-o", "runs.csv"], "runs.csv"),
    "help": (["--help"], ""),
    "help of a command": (["run", "--help"], ""),
    "version": (["--version"], ""),
}
CODES = {"full without a reader": 1, "full": 1, "closed": 0, "no reader": 0}
QUICK = ("doctor", "help", "init", "list of runs")  # where every state is tried
STATES = [(name, state) for name in COMMANDS for state in CODES if name in QUICK or state.startswith("full with")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A survey that was inverted by a program, two sites only."""
    directory = tmp_path_factory.mktemp("streams")
    write_files(directory, with_program(directory=directory).replace("sites.csv", "two_sites.csv"))
    assert invgp("run", "survey.toml", cwd=directory).returncode == 0
    return directory


@pytest.fixture(scope="module")
def outcomes(project: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """What became of every command, by its name and the state of its streams."""
    cases = [(COMMANDS[name][0], state, str(project)) for name, state in STATES]
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("streams_driver.py")],
        input=json.dumps(cases),
        cwd=tmp_path_factory.mktemp("states"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(found) == len(cases), result.stderr
    return dict(zip(STATES, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "state"), STATES)
def test_that_a_command_finishes_with_any_standard_streams(
    name: str, state: str, outcomes: dict[tuple[str, str], dict[str, Any]]
) -> None:
    found, made = outcomes[name, state], COMMANDS[name][1]
    assert found["raised"] == ""
    assert found["code"] == CODES[state]
    assert (Path(found["folder"]) / made).exists()
    if state == "full":
        sentence = "invgp: the standard output cannot be written: No space left on device"
        assert found["reported"].splitlines()[-1] == sentence


@pytest.mark.slow
def test_that_closed_streams_change_nothing(project: Path) -> None:
    line = f"{SCRIPT} runs list posterior.ledger.sqlite"
    for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        result = subprocess.run(
            ["sh", "-c", f"{line} {closed}"], cwd=project, capture_output=True, text=True, check=False
        )
        assert (result.returncode, result.stderr) == (0, "")
    closed_mistake = subprocess.run(["sh", "-c", f"{SCRIPT} rum >&- 2>&-"], cwd=project, check=False)
    assert closed_mistake.returncode == 2


def test_that_a_reader_that_stops_early_is_no_failure(project: Path) -> None:
    line = f"{SCRIPT} runs list posterior.ledger.sqlite | head -1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", line], cwd=project, capture_output=True, text=True, check=False)
    header, code = result.stdout.splitlines()
    assert (header.split()[0], code, result.stderr) == ("run", "0", "")


@pytest.mark.slow
def test_that_text_beyond_ascii_is_written_in_any_encoding(tmp_path: Path) -> None:
    plain = {"PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C", "TERM": "dumb", "COLUMNS": "0", "NO_COLOR": "1"}
    environment = {k: v for k, v in os.environ.items() if k != "HOME"} | plain | {"PYTHONOPTIMIZE": "2"}
    for options, read in (
        ([], bytes.decode),
        (["--json"], lambda reported: json.loads(reported.decode("ascii"))["directory"]),
    ):
        result = subprocess.run(
            [*MODULE, "init", "python", f"été{len(options)}", *options],
            cwd=tmp_path,
            capture_output=True,
            env=environment,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, b"")
        assert f"été{len(options)}" in read(result.stdout)
