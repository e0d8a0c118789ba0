"""What surrounds a command: names of files, limits of the machine, signals. Each case ends in a sentence and a code."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from helpers.command_line import CONFIG, MODULE, PATIENCE, Command, invgp, with_program, write_files

pytestmark = pytest.mark.processes

NOT_UTF8 = os.fsdecode(b"caf\xe9")


def test_that_names_that_are_not_utf8_work_everywhere(invgp_here: Command, tmp_path: Path) -> None:
    folder = tmp_path / NOT_UTF8
    folder.mkdir()
    write_files(folder, with_program(directory=folder).replace("sites.csv", "two_sites.csv"))
    posterior = f"{NOT_UTF8}.nc"
    for command in (
        ["run", "survey.toml", "-o", posterior],
        ["predict", posterior, "--grid", "200", "-o", f"map_{NOT_UTF8}.nc"],
        ["export", posterior, "--format", "csv"],
        ["runs", "export", f"{NOT_UTF8}.ledger.sqlite", "-o", f"runs_{NOT_UTF8}.nc"],
        ["runs", "list", f"{NOT_UTF8}.ledger.sqlite"],
    ):
        result = invgp_here(*command, cwd=folder)
        assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
    made = {file.name for file in folder.iterdir()}
    assert {posterior, f"map_{NOT_UTF8}.nc", f"{NOT_UTF8}.csv", f"runs_{NOT_UTF8}.nc"} <= made
    (folder / posterior).rename(folder / "plain.nc")  # a UTF-8 name in a directory whose name is not
    result = invgp_here("export", "plain.nc", "--format", "csv", cwd=folder)
    assert result.returncode == 0, result.stderr


def test_that_a_name_that_is_not_utf8_is_printed(tmp_path: Path) -> None:
    result = invgp("init", "python", NOT_UTF8, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "caf\\udce9/survey.toml" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["run", "survey.toml", "-o", f"{'a' * 300}.nc"], 2, "aaa...: File name too long."),
        (["run", "survey.toml", "-o", f"{'a' * 245}.nc"], 2, "--output: must be a name that the file system takes"),
        (["check", "survey.toml", "--data", "a" * 300], 2, "aaa...: File name too long."),
        (["check", "a" * 300], 2, "aaa...: File name too long."),
        (["predict", "posterior.nc", "-o", f"{'a' * 300}.nc"], 2, "aaa...: File name too long."),
        (["plot", "."], 2, "'.': it names no file."),
        (["report", "/"], 2, "'/': it names no file."),
        (["run", ""], 2, "'.': it names no file."),
        (["check", "long.toml"], 2, "survey.file: must be a file that can be read, was "),
        (["check", "long_output.toml"], 2, "output.file: must be a name that the file system takes"),
    ],
)
def test_that_a_name_that_no_file_can_have_is_reported_in_one_sentence(
    arguments: list[str], code: int, sentence: str, invgp_here: Command, tmp_path: Path
) -> None:
    write_files(tmp_path)
    (tmp_path / "long.toml").write_text(CONFIG.replace("sites.csv", "a" * 300))
    (tmp_path / "long_output.toml").write_text(f'{CONFIG}\n[output]\nfile = "{"a" * 300}.nc"\n')
    result = invgp_here(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (code, "")
    assert sentence in result.stderr
    assert len(result.stderr) < 1000
    assert not (tmp_path / "was_called").exists()


@pytest.mark.parametrize("limit", [16, 32])
def test_that_too_few_open_files_are_reported_in_one_sentence(limit: int, tmp_path: Path) -> None:
    line = f"ulimit -n {limit}; exec {' '.join(MODULE)} doctor"
    result = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"invgp: the limit of open files must be at least 64, was {limit}: raise it by `ulimit -n 1024`\n"
    )


def test_that_a_limit_of_open_files_that_may_be_raised_is_raised(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    line = f"ulimit -S -n 16; exec {' '.join(MODULE)} --version"
    result = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, ""), most


@pytest.mark.slow
def test_that_a_limit_of_processor_time_asks_any_command_to_end(tmp_path: Path) -> None:
    write_files(tmp_path, with_program(body="touch ../../started; sleep 60", directory=tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*MODULE, "check", "survey.toml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        while not (tmp_path / "started").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGXCPU)
        _, reported = process.communicate(timeout=PATIENCE)
    assert (process.returncode, reported.strip().splitlines()[-1]) == (130, "invgp: interrupted")
    assert "Traceback" not in reported
