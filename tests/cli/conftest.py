"""The command line and a project that was inverted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.command_line import Command, invgp, run_in_process, write_files


@pytest.fixture
def invgp_here() -> Command:
    """The command line in this process."""
    return run_in_process


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder of an inverted survey, and the output of the command. Tests must not change the folder."""
    directory = tmp_path_factory.mktemp("finished")
    write_files(directory)
    return directory, invgp("run", "survey.toml", cwd=directory)


@pytest.fixture(autouse=True)
def _no_leftovers_in_the_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command leaves in the temporary directory must not outlive the tests."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
