"""Text for people, JSON for machines, less of it or more; and exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import CONFIG, FULL_GAUSSIAN, Command, with_inference, with_program, write_files
from invgp.cli import COMMANDS


def parse_json(result: subprocess.CompletedProcess[str]) -> Any:
    """The JSON object on standard output, which holds nothing else."""
    return json.loads(result.stdout)


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    write_files(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_that_check_and_run_and_plot_speak_json(survey: Path, invgp_here: Command) -> None:
    checked = parse_json(invgp_here("check", "survey.toml", "--json", cwd=survey))
    assert checked["sites"] == 6
    assert checked["latents"] == {"depth": 1}
    assert checked["outputs"]["time"] == {"unit": "s", "values": [0.5]}
    [time] = checked["data"]
    assert time["misfit"] == pytest.approx([0, 1, -0.5, -1.5, None, 0.5])
    assert checked["runs"] > 0
    ran = parse_json(invgp_here("run", "survey.toml", "--json", cwd=survey))
    assert ran["posterior"] == str(survey / "posterior.nc")
    assert ran["converged"] is True
    assert ran["runs_failed"] == 0
    plotted = parse_json(invgp_here("plot", "posterior.nc", "--json", cwd=survey))
    assert [Path(path).name for path in plotted["figures"]] == ["posterior.png", "posterior_fit.png"]


def test_that_doctor_and_init_speak_json(tmp_path: Path, invgp_here: Command) -> None:
    assert any("numpy" in line for line in parse_json(invgp_here("doctor", "--json", cwd=tmp_path))["libraries"])
    made = parse_json(invgp_here("init", "pest", "--json", cwd=tmp_path))
    assert "theis.pst" in made["files"]


@pytest.mark.slow
def test_that_compare_and_calibrate_speak_json(survey: Path, invgp_here: Command) -> None:
    (survey / "survey.toml").write_text(CONFIG.replace("sites.csv", "two_sites.csv"))
    invgp_here("run", "survey.toml", cwd=survey)
    compared = parse_json(
        invgp_here("compare", "posterior.nc", "--chains", "8", "--effective", "1", "--json", cwd=survey)
    )
    assert compared["latents"][0]["latent"] == "depth"
    assert isinstance(compared["converged"], bool)
    calibrated = parse_json(invgp_here("calibrate", "survey.toml", "--surveys", "2", "--json", cwd=survey))
    assert calibrated["surveys"] == 2
    assert len(calibrated["latents"]["depth"]["inside"]) == len(calibrated["intervals"])


def test_that_runs_speak_json(survey: Path, invgp_here: Command) -> None:
    (survey / "survey.toml").write_text(with_inference("max_runs = 40", config=with_program(directory=survey)))
    invgp_here("run", "survey.toml", cwd=survey)
    shown = parse_json(invgp_here("runs", "show", "posterior.ledger.sqlite", "1", "--json", cwd=survey))
    assert shown["status"] == "ok"
    assert shown["inputs"]["depth"]["unit"] == "m"
    exported = parse_json(
        invgp_here("runs", "export", "posterior.ledger.sqlite", "-o", "runs.csv", "--json", cwd=survey)
    )
    assert exported["runs"] >= 1
    again = ("runs", "rerun", "posterior.ledger.sqlite", "--failed", "--config", "survey.toml", "--json")
    assert parse_json(invgp_here(*again, cwd=survey))["runs"] == 0


def test_that_an_error_is_json_too(survey: Path, invgp_here: Command) -> None:
    (survey / "survey.toml").write_text(CONFIG.replace("samples = 16", "samples = 1").replace('t"]', 'tt"]'))
    result = invgp_here("check", "survey.toml", "--json", cwd=survey)
    answer = parse_json(result)
    assert answer["exit_code"] == result.returncode == 2
    assert [sentence.partition(":")[0] for sentence in answer["errors"]] == [
        "survey.observations.time.columns",
        "inference.samples",
    ]
    assert result.stderr.count("invgp: ") == 2
    wrong = invgp_here("run", "survey.toml", "--workers", "0", "--json", cwd=survey)
    assert parse_json(wrong)["errors"] == ["Invalid value for '--workers': 0 is not in the range x>=1."]


def test_that_warnings_are_in_the_json(survey: Path, invgp_here: Command) -> None:
    (survey / "survey.toml").write_text(with_program(directory=survey))
    result = invgp_here("check", "survey.toml", "--json", cwd=survey)
    assert parse_json(result)["warnings"] == ["forward.timeout is not set: invgp waits forever for a run that hangs"]
    assert result.stderr == f"invgp: warning: {parse_json(result)['warnings'][0]}\n"


@pytest.mark.slow
def test_that_quiet_leaves_warnings_and_errors(survey: Path, invgp_here: Command) -> None:
    for arguments in (["check", "survey.toml"], ["run", "survey.toml"], ["plot", "posterior.nc"]):
        result = invgp_here(*arguments, "--quiet", cwd=survey)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    (survey / "survey.toml").write_text(with_inference("max_evaluations = 1", FULL_GAUSSIAN))
    result = invgp_here("run", "survey.toml", "-q", cwd=survey)
    assert (result.stdout, result.stderr) == (
        "",
        "invgp: warning: the posterior has not converged; do not rely on its standard deviations yet\n",
    )
    assert invgp_here("run", "none.toml", "-q", cwd=survey).stderr.startswith("invgp: the config 'none.toml'")


def test_that_verbose_prints_the_log_of_adapters(tmp_path: Path, invgp_here: Command) -> None:
    invgp_here("init", "pest", cwd=tmp_path)
    # One parameter of the case is no input any more.
    config = (tmp_path / "survey.toml").read_text()
    config = re.sub(r"\[latents.storativity\].*?\n\n", "", config, flags=re.DOTALL)
    config = re.sub(r"inputs = .*", 'inputs = [{ name = "t", source = "transmissivity" }]', config)
    (tmp_path / "survey.toml").write_text(config)
    quiet, verbose = (invgp_here("check", "survey.toml", *option, cwd=tmp_path) for option in ([], ["-v"]))
    assert quiet.stderr == ""
    assert re.fullmatch(r"invgp: parameters of .*theis.pst that are no inputs .*: stor\n", verbose.stderr)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"serve"}))
def test_that_every_command_can_be_quiet_and_speak_json(name: str, tmp_path: Path, invgp_here: Command) -> None:
    commands = ["list", "show", "rerun", "export"] if name == "runs" else [""]
    for inner in commands:
        text = invgp_here(name, *([inner] if inner else []), "--help", cwd=tmp_path).stdout
        assert "--json" in text
        assert "--quiet" in text
        assert "--verbose" in text
        assert re.search(r"Examples:\n +invgp ", text), "an example on a line of its own"


@pytest.mark.parametrize("plain", [True, False])
def test_that_no_color_is_heeded(plain: bool, tmp_path: Path) -> None:
    code = "from invgp.progress import show_progress\nwith show_progress() as state:\n    state.start(3, 3)\n"
    code += "    state.start_batch('step', 3)\n"
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", **({"NO_COLOR": "1"} if plain else {})}
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stderr=theirs, env=environment, check=True)
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the end, on Linux
            while chunk := terminal.read(65536):
                shown += chunk
    assert b"inverting" in shown
    assert (b"36m" in shown) is not plain
