"""Directories of runs are removed, and nothing that a program has put a link to."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import psutil
import pytest

from invgp.adapters import ExecutableModel, OutputFile, Quantity, RunContext, Status
from invgp.adapters.directories import RunDirectory
from invgp.adapters.protocol import RUN_DIRECTORY_VARIABLE
from invgp.execution.evaluate import evaluate
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import end_programs, remove_run_directory
from invgp.problem import InferenceSettings


def test_that_the_directories_of_a_run_are_removed(tmp_path: Path) -> None:
    for name in ("r0", "r0-batch", "r1"):
        RunDirectory(tmp_path / name).make()
        (tmp_path / name / "file").touch()
    remove_run_directory(tmp_path, "r0")
    assert [p.name for p in tmp_path.iterdir()] == ["r1"]


def test_that_a_spare_directory_that_was_taken_over_is_removed(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path / "r0")
    first.make()
    first.remove(keep_spare=True)
    RunDirectory(tmp_path / "r1").make()
    remove_run_directory(tmp_path, "r1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("copied", [False, True], ids=["moved", "copied"])
def test_that_another_directory_in_the_place_of_that_of_a_run_is_left(copied: bool, tmp_path: Path) -> None:
    RunDirectory(tmp_path / "r0").make()
    (tmp_path / "r0").rename(tmp_path / "old")
    if copied:
        shutil.copytree(tmp_path / "old", tmp_path / "r0")
    else:
        (tmp_path / "r0").mkdir()
    (tmp_path / "r0" / "precious").touch()
    remove_run_directory(tmp_path, "r0")
    assert (tmp_path / "r0" / "precious").exists()


def test_that_a_file_in_the_place_of_the_directory_of_a_run_is_left(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "r0").make()
    (tmp_path / "r0").rename(tmp_path / "old")
    (tmp_path / "r0").write_text("precious")
    remove_run_directory(tmp_path, "r0")
    assert (tmp_path / "r0").exists()


def test_that_programs_that_do_not_die_are_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Undying:
        pid = 12345

        def environ(self) -> dict[str, str]:
            return {RUN_DIRECTORY_VARIABLE: str(tmp_path / "r0")}

        def status(self) -> str:
            return "disk-sleep"

        def kill(self) -> None:
            pass

    monkeypatch.setattr(psutil, "process_iter", lambda: [Undying()])
    end_programs(tmp_path, patience=0.01)
    assert "have been killed, but have not ended: [12345]" in caplog.text


@pytest.mark.parametrize("what", ["run", "home", "parent"])
def test_that_nothing_is_removed_through_a_link(what: str, tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "runs" / "home", tmp_path / "elsewhere"
    precious = elsewhere / {"run": "file", "home": "r0/file", "parent": "home/r0/file"}[what]
    precious.parent.mkdir(parents=True)
    precious.touch()
    link = {"run": home / "r0", "home": home, "parent": home.parent}[what]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    remove_run_directory(home, "r0")
    assert precious.exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_that_runs_in_workers_do_not_follow_a_link_in_the_place_of_their_home(workers: int, tmp_path: Path) -> None:
    program, elsewhere, home = tmp_path / "program", tmp_path / "elsewhere", tmp_path / "home"
    program.write_text(f"#!/bin/sh\n[ -L {home} ] || {{ mv {home} {home}-moved; ln -s {elsewhere} {home}; }}\necho 1\n")
    program.chmod(0o755)
    labels = [f"r{i}" for i in range(8)]
    for label in labels:
        (elsewhere / label).mkdir(parents=True)
        (elsewhere / label / "precious").touch()
    home.mkdir()
    x, y = Quantity("x", "m"), Quantity("y", "s")
    model = ExecutableModel((str(program), "{x}"), (x,), (y,), output_files=(OutputFile(),), timeout=20.0)
    with open_pool(InferenceSettings(workers=workers)) as pool:
        got = evaluate(model, np.arange(8.0)[:, None], RunContext(labels, home, more=True), pool=pool)
    assert not got.ok.any()
    assert set(got.status[2:]) == {Status.NOT_STARTED}
    assert all("replaced by a link" in message for message in got.messages[2:])
    assert sorted(str(p.relative_to(elsewhere)) for p in elsewhere.rglob("precious")) == [
        f"{n}/precious" for n in labels
    ]
