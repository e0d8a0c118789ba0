"""Ctrl-C ends an inversion within seconds, with the best posterior so far, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import xarray as xr

from helpers.command_line import (
    CONFIG,
    FULL_GAUSSIAN,
    SIMULATOR,
    with_few_runs,
    with_inference,
    with_program,
    write_files,
)
from helpers.running_commands import PATIENCE, PROMPT, interrupt, left_behind, own_words, start_command, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.parametrize(("workers", "group"), [("1", True), ("2", True), ("2", False)])
def test_that_ctrl_c_in_the_first_evaluation_ends_at_once(workers: str, group: bool, tmp_path: Path) -> None:
    write_files(tmp_path, with_program(body="touch ../../../started; sleep 60", directory=tmp_path))
    with start_command("run", "survey.toml", "--workers", workers, cwd=tmp_path) as (process, mark):
        wait_for(tmp_path / "started", process)
        errors, seconds = interrupt(process, group=group)
    assert process.returncode == 130
    assert own_words(errors) == [
        "invgp: interrupted after 0 runs, before the first evaluation of the bound was done; nothing was kept"
    ]
    assert seconds < PROMPT
    assert left_behind(mark) == []
    assert not (tmp_path / "posterior.runs").exists()
    assert not list(tmp_path.glob("*.nc"))


@pytest.mark.parametrize(
    ("send", "asked", "workers"), [(os.kill, signal.SIGTERM, "1"), (os.killpg, signal.SIGHUP, "2")]
)
def test_that_a_batch_system_or_a_closed_terminal_ends_it_as_ctrl_c_does(
    send: Callable[[int, int], None], asked: signal.Signals, workers: str, tmp_path: Path
) -> None:
    """A closed terminal signals the whole process group, with the processes in which loky tracks its semaphores."""
    write_files(tmp_path, with_program(body="touch ../../../started; sleep 60", directory=tmp_path))
    with start_command("run", "survey.toml", "--workers", workers, cwd=tmp_path) as (process, mark):
        wait_for(tmp_path / "started", process)
        send(process.pid, asked)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert len(own_words(errors)) == 1
    assert "Traceback" not in errors
    assert left_behind(mark) == []


def test_that_nohup_is_respected(tmp_path: Path) -> None:
    write_files(tmp_path, with_program(body="touch ../../../started; sleep 60", directory=tmp_path))
    with start_command("run", "survey.toml", cwd=tmp_path, ignored=signal.SIGHUP) as (process, _):
        wait_for(tmp_path / "started", process)
        process.send_signal(signal.SIGHUP)
        time.sleep(1.0)
        assert process.poll() is None
        interrupt(process)


def test_that_workers_whose_inversion_was_killed_start_no_more_runs(tmp_path: Path) -> None:
    config = with_program(body=f"echo >> {tmp_path}/started; sleep 0.3; {SIMULATOR}", directory=tmp_path)
    write_files(tmp_path, with_inference(FULL_GAUSSIAN, config=config))  # its batch of 96 runs would go on for long
    with start_command("run", "survey.toml", "--workers", "2", cwd=tmp_path) as (process, _):
        wait_for(tmp_path / "started", process)
        process.kill()
        process.communicate(timeout=PATIENCE)
        time.sleep(1.0)
        started = (tmp_path / "started").stat().st_size
        time.sleep(1.5)
        assert (tmp_path / "started").stat().st_size == started


@pytest.mark.parametrize(
    ("workers", "lines", "first"),
    [
        ("1", [FULL_GAUSSIAN], "evaluation 1"),
        ("2", ["emulator = false"], "evaluation 1"),
        ("2", [], "emulator step 1"),
    ],
    ids=["full gaussian", "simulator", "emulator"],
)
def test_that_ctrl_c_later_keeps_the_best_posterior(workers: str, lines: list[str], first: str, tmp_path: Path) -> None:
    # Nothing after the first batch comes to an end by itself.
    body = f'case "$PWD" in */{first.replace(" ", "-")}-site*) ;; *) sleep 60 ;; esac; {SIMULATOR}'
    config = with_few_runs(with_program(body=body, directory=tmp_path))
    write_files(tmp_path, with_inference(*lines, config=config))
    with start_command("run", "survey.toml", "--workers", workers, cwd=tmp_path) as (process, mark):
        assert process.stderr is not None
        # On a slow machine, lines about single runs come before.
        assert any(line.startswith(f"{first} | iteration 1 | ELBO ") for line in process.stderr)
        errors, seconds = interrupt(process)
    assert process.returncode == 130
    printed = own_words(errors)[-1]
    kept = tmp_path / "posterior.interrupted.nc"
    assert printed.startswith("invgp: interrupted after ")
    assert printed.endswith(f" runs; the best posterior so far was kept in {kept}")
    assert errors.count("interrupted after") == 1
    assert "Traceback" not in errors
    assert seconds < PROMPT
    assert left_behind(mark) == []
    with xr.open_dataset(kept) as posterior:
        assert posterior.attrs["invgp_status"] == "interrupted before it converged"
        assert posterior["depth"].notnull().all()
    assert not (tmp_path / "posterior.nc").exists()


def test_that_ctrl_c_ends_a_slow_function(tmp_path: Path) -> None:
    write_files(tmp_path, CONFIG.replace('"model:time"', '"model:time"\nvectorised = false'))
    (tmp_path / "model.py").write_text(
        "import time as clock\nfrom pathlib import Path\n\n\n"
        "def time(depth):\n    Path(__file__).with_name('started').touch()\n    clock.sleep(60)\n"
    )
    with start_command("run", "survey.toml", "--workers", "2", cwd=tmp_path) as (process, mark):
        wait_for(tmp_path / "started", process)
        errors, seconds = interrupt(process)
    assert process.returncode == 130
    assert own_words(errors)[-1].startswith("invgp: interrupted after 0 runs, ")
    assert seconds < PROMPT
    assert left_behind(mark) == []


def test_that_ctrl_c_ends_a_check(tmp_path: Path) -> None:
    write_files(tmp_path, with_program(body="touch ../../../started; sleep 60", directory=tmp_path))
    with start_command("check", "survey.toml", cwd=tmp_path) as (process, mark):
        wait_for(tmp_path / "started", process)
        errors, seconds = interrupt(process)
    assert (process.returncode, errors) == (130, "\ninvgp: interrupted\n")  # the first line ends that of the ^C
    assert seconds < PROMPT
    assert left_behind(mark) == []
    assert not list((tmp_path / "tmp").iterdir())
