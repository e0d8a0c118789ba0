"""Workers, as a person meets them: what Ctrl-C says while they start, what is printed, what a kill can cost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import xarray as xr

from helpers.command_line import SIMULATOR, Command, with_few_runs, with_inference, with_program, write_files
from helpers.running_commands import left_behind, start_command
from invgp.ledger import Ledger
from invgp.progress import ProgressState

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PATIENCE = 120.0  # s, for a busy machine
LEDGER = "posterior.ledger.sqlite"


def until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def a_worker_starts(process: subprocess.Popen[str]) -> bool:
    try:
        children = psutil.Process(process.pid).children()
        return any("popen_loky_posix" in " ".join(child.cmdline()) for child in children)
    except psutil.Error:
        return False


@pytest.mark.parametrize("command", [["run"], ["calibrate", "--surveys", "4"]], ids=["run", "calibrate"])
def test_that_ctrl_c_while_workers_start_prints_no_traceback(command: list[str], tmp_path: Path) -> None:
    write_files(tmp_path, with_program(directory=tmp_path))
    with start_command(command[0], "survey.toml", *command[1:], "--workers", "2", cwd=tmp_path) as (process, mark):
        until(lambda: a_worker_starts(process), process)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "KeyboardInterrupt" not in errors
    assert left_behind(mark) == []


def recorded_runs(directory: Path) -> int:
    with Ledger(directory / LEDGER, read_only=True) as ledger:
        return len(list(ledger.runs()))


def started_inputs(directory: Path) -> list[str]:
    file = directory / "started"
    return file.read_text().split() if file.exists() else []


def test_that_a_run_whose_inversion_is_killed_before_it_hears_of_it_is_not_made_again(
    invgp_here: Command, tmp_path: Path
) -> None:
    body = f'echo "$1" >> {tmp_path}/started; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; {SIMULATOR}'
    write_files(tmp_path, with_few_runs(with_program(body=body, directory=tmp_path)))
    with start_command("run", "survey.toml", "--workers", "2", cwd=tmp_path) as (process, _):
        until(lambda: len(started_inputs(tmp_path)) == 2, process)
        process.send_signal(signal.SIGSTOP)  # it can hear of nothing any more
        (tmp_path / "go").touch()
        until(lambda: recorded_runs(tmp_path) == 2, process)
        os.killpg(process.pid, signal.SIGKILL)
    result = invgp_here("run", "survey.toml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "(2 from the ledger)" in result.stdout
    assert len(set(started_inputs(tmp_path))) == len(started_inputs(tmp_path))


def test_that_the_number_of_simultaneous_runs_is_printed_and_saved(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path, with_inference('backend = "threading"', config=with_program(directory=tmp_path)))
    for workers in ("1", "2"):
        result = invgp_here("run", "survey.toml", "--workers", workers, "-o", f"{workers}.nc", cwd=tmp_path)
        printed = re.search(r", (\d\.\d) runs at once$", result.stdout.strip())
        assert printed is not None, result.stdout + result.stderr
        with xr.open_dataset(tmp_path / f"{workers}.nc") as posterior:
            reached = posterior.attrs["invgp_runs_at_once"]
        assert printed[1] == f"{reached:.1f}"
        assert 0.0 < reached < 1.05 * int(workers)
    one, two = (xr.load_dataset(tmp_path / f"{workers}.nc").drop_attrs() for workers in ("1", "2"))
    xr.testing.assert_identical(one, two)
    again = invgp_here("run", "survey.toml", "-o", "2.nc", cwd=tmp_path)
    assert "runs at once" not in again.stdout  # the ledger knew them all


def test_that_answers_of_the_ledger_are_no_speed() -> None:
    state = ProgressState()
    state.start(1000, 1000)
    state.start_batch("step 1", 500)
    state.add_runs(100, 0, reused=100)
    assert state.text[2].startswith("100 runs, 0 failed | - runs/s | up to - of runs")
    state.running, state.since = 0.0, state.since - 10.0
    state.add_runs(20, 0)
    assert state.text[2] == "120 runs, 0 failed | 2 runs/s | up to 7 min of runs"


def test_that_what_is_computed_between_runs_is_not_taken_for_their_time() -> None:
    state = ProgressState()
    state.start(1000, 1000)
    for step in range(2):
        state.start_batch(f"step {step + 1}", 50)
        state.since -= 5.0  # s: as if the runs had taken so long
        state.add_runs(50, 0)
        state.started, state.since = state.started - 3600.0, state.since - 3600.0  # and the algebra an hour
    assert state.text[2] == "100 runs, 0 failed | 10 runs/s | up to 90 s of runs"


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        (['backend = "dask"'], [], "inference.scheduler: must be the address or file of a Dask scheduler with"),
        (['backend = "dask"', 'scheduler = "none.json"'], [], "inference.scheduler: must be the address or file of"),
        ([], ["--scheduler", "nonsense://x"], "inference.scheduler: must be the address or file of a running Dask"),
        (['scheduler = "tcp://x:1"'], [], "inference.scheduler: must be left out with inference.backend = 'loky', was"),
    ],
    ids=["left out", "no file", "no address", "unused"],
)
def test_that_a_scheduler_that_cannot_be_used_is_reported_in_one_sentence(
    lines: list[str], options: list[str], sentence: str, invgp_here: Command, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("invgp.execution.pools.dask_cluster.RESPONSE_TIME", 0.5)
    write_files(tmp_path, with_inference(*lines))
    result = invgp_here("run", "survey.toml", *options, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"invgp: {sentence}")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "was_called").exists()
