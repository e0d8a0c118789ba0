"""A person's mistake is a sentence and an exit code; a fault of ours is a traceback and exit code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.command_line import CONFIG, Command, invgp, write_files
from invgp.api.output_paths import check_writable
from invgp.errors import ConfigError

MISTAKES = [
    (["run", "none.toml"], 2, "invgp: the config 'none.toml' cannot be read: No such file or directory"),
    (["check", "wrong.toml"], 2, "invgp: title: must be text in quotes, was 5"),
    (
        ["run", "survey.toml", "--data", "none.csv"],
        2,
        "invgp: --data: must be a file that can be read, was 'none.csv', which does not exist",
    ),
    (["run", "survey.toml", "-o", "line.hdf"], 2, "invgp: --output: must end in .nc, was 'line.hdf'"),
    (["run", "survey.toml", "-o", "a.nc"], 2, "invgp: --output: must be a file, was 'a.nc', which is a directory"),
    (
        ["run", "survey.toml", "-o", "sites.csv/line.nc"],
        2,
        "invgp: --output: must be in a directory that can be written, was 'sites.csv/line.nc', "
        "and nothing can be written in 'sites.csv' (Not a directory)",
    ),
    (
        ["check", "unwritable.toml"],
        2,
        "invgp: output.file: must be in a directory that can be written, was '/proc/line/posterior.nc', "
        "and nothing can be written in '/proc' (No such file or directory)",
    ),
    (
        ["plot", "none.nc"],
        2,
        "invgp: the posterior 'none.nc' cannot be read: no such file",
    ),
    (["plot", "sites.csv"], 2, "invgp: the posterior 'sites.csv' cannot be read: it is not a netCDF file"),
    (["rum", "survey.toml"], 2, "Error: No such command 'rum'; did you mean 'run'?"),
    (["run", "survey.toml", "--workers", "0"], 2, "Error: Invalid value for '--workers': 0 is not in the range x>=1."),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mistakes")
    write_files(directory)
    (directory / "a.nc").mkdir()
    (directory / "wrong.toml").write_text(CONFIG.replace('"A short line"', "5"))
    (directory / "unwritable.toml").write_text(CONFIG + '[output]\nfile = "/proc/line/posterior.nc"\n')
    return directory


@pytest.mark.parametrize(("arguments", "code", "sentence"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_that_a_mistake_is_reported_before_any_run_with_a_remedy(
    arguments: list[str], code: int, sentence: str, invgp_here: Command, directory: Path
) -> None:
    result = invgp_here(*arguments, cwd=directory)
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.rstrip("\n").split("\n")[-1] == sentence
    if sentence.startswith("invgp:"):
        assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert not (directory / "was_called").exists(), "the simulator was paid for before the mistake was found"


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia"), reason="there may be a GPU")  # noqa: PTH110
def test_that_a_missing_device_is_exit_code_4(invgp_here: Command, directory: Path) -> None:
    (directory / "cuda.toml").write_text(CONFIG + 'device = "cuda"\n')
    for arguments in (["run", "survey.toml", "--device", "cuda"], ["check", "cuda.toml"]):
        result = invgp_here(*arguments, cwd=directory)
        assert (result.returncode, result.stdout) == (4, "")
        assert result.stderr.startswith("invgp: device 'cuda' needs ")
    assert not (directory / "was_called").exists()


def test_that_a_figure_of_another_kind_is_refused(
    finished_run: tuple[Path, subprocess.CompletedProcess[str]], invgp_here: Command, tmp_path: Path
) -> None:
    result = invgp_here("plot", finished_run[0] / "posterior.nc", "-o", "line.txt", cwd=tmp_path)
    assert result.returncode == 2
    assert ".txt" in result.stderr
    assert "Traceback" not in result.stderr


def test_that_several_mistakes_give_a_line_each(tmp_path: Path) -> None:
    write_files(tmp_path, CONFIG.replace("samples = 16", "samples = 0").replace('std = "15%"', "std = -1"))
    result = invgp("run", "survey.toml", cwd=tmp_path)
    assert result.returncode == 2
    assert [line.split(":")[1] for line in result.stderr.splitlines()] == [" latents.depth.std", " inference.samples"]


def test_that_an_internal_error_prints_a_traceback(tmp_path: Path) -> None:
    write_files(tmp_path)
    code = (
        "import invgp.config\n"
        "def broken(*arguments, **options): raise ValueError('a fault of ours')\n"
        "invgp.config.load = broken\n"
        "from invgp.cli import main\nmain()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "check", "survey.toml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "ValueError: a fault of ours" in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_that_a_directory_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match=r"nothing can be written in .* \(Permission denied\)"):
        check_writable(tmp_path / "new/line.nc", "--output")
    tmp_path.chmod(0o700)
