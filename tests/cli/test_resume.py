"""An inversion that was stopped, however it was, goes on where it was and ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import xarray as xr

from helpers.command_line import SIMULATOR, Command, invgp, run_in_process, with_inference, with_program, write_files
from helpers.forked_commands import fork_command
from helpers.running_commands import start_command
from invgp.ledger import Ledger

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PATIENCE = 60.0  # s, for a busy machine
STOPS = 2
KILLS = 20
RERUN_BY_A_KILL = 2  # runs a worker: the one under way, and one that was not yet handed over
RUNS = 42  # of the inversion, undisturbed
LEDGER = "posterior.ledger.sqlite"
COUNTED = f'echo "$1" >> "$(dirname "$0")/started"; sleep 0.1; {SIMULATOR}'
OF_ONE_INVERSION_ONLY = ("history", "invgp_runs_at_once", "invgp_runs_from_ledger", "invgp_survey")


def survey(directory: Path, *lines: str, body: str = COUNTED) -> Path:
    directory.mkdir(exist_ok=True)
    write_files(directory, with_inference(*lines, config=with_program(body=body, directory=directory)))
    return directory


def started_inputs(directory: Path) -> list[float]:
    """The inputs of all runs that were ever started, in order, by the simulator's own count."""
    file = directory / "started"
    return [float(line) for line in file.read_text().split()] if file.exists() else []


def recorded_inputs(directory: Path) -> set[float]:
    """The inputs of the runs in the ledger."""
    with Ledger(directory / LEDGER, read_only=True) as ledger:
        return {run.inputs[0] for run in ledger.runs()}


def posterior(path: Path) -> xr.Dataset:
    dataset = xr.load_dataset(path)
    return dataset.assign_attrs(dict.fromkeys(OF_ONE_INVERSION_ONLY, ""))


@pytest.fixture(scope="module")
def reference_posterior(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    directory = survey(tmp_path_factory.mktemp("undisturbed"))
    result = run_in_process("run", "survey.toml", cwd=directory)
    assert result.returncode == 0, result.stderr
    assert len(started_inputs(directory)) == RUNS
    return posterior(directory / "posterior.nc")


def stop_after(runs: int, pause: float, workers: str, how: signal.Signals, directory: Path) -> str:
    """Start the inversion, send a signal shortly after a given number of runs has started, and return the output."""
    before = len(started_inputs(directory))
    with start_command("run", "survey.toml", "--workers", workers, cwd=directory) as (process, _):
        deadline = time.monotonic() + PATIENCE
        while len(started_inputs(directory)) < before + runs and process.poll() is None:
            assert time.monotonic() < deadline, "no run was started"
            time.sleep(0.005)
        time.sleep(pause)
        if process.poll() is None:
            os.killpg(process.pid, how)
        return process.communicate(timeout=PATIENCE)[1]


@pytest.mark.parametrize(("workers", "how"), [("1", signal.SIGKILL), ("2", signal.SIGKILL), ("2", signal.SIGINT)])
def test_that_a_stopped_inversion_continues_where_it_was(
    workers: str, how: signal.Signals, reference_posterior: xr.Dataset, tmp_path: Path
) -> None:
    directory = survey(tmp_path / "survey")
    moments = random.Random(f"{workers} {how.name}")
    known: set[float] = set()
    for _ in range(STOPS):
        printed = stop_after(moments.randint(1, 5), moments.uniform(0.0, 0.1), workers, how, directory)
        before, known = known, recorded_inputs(directory)
        assert before <= known
        seen = len(started_inputs(directory))
        if how is signal.SIGINT and known:
            assert f"the runs are kept in {directory / LEDGER}; the same command continues from there" in printed
    assert 0 < len(known) < RUNS
    result = run_in_process("run", "survey.toml", "--workers", workers, cwd=directory)
    assert result.returncode == 0, result.stderr
    assert f"{RUNS} runs ({len(known)} from the ledger), 0 failed" in result.stdout
    assert known.isdisjoint(started_inputs(directory)[seen:])
    assert len(started_inputs(directory)) <= RUNS + STOPS * RERUN_BY_A_KILL * int(workers)
    xr.testing.assert_identical(posterior(directory / "posterior.nc"), reference_posterior)


QUICK = f'echo "$1" >> "$(dirname "$0")/started"; sleep 0.02; {SIMULATOR}'


def kill_after(runs: int, seconds: float, directory: Path) -> None:
    """Start the inversion, and kill it once so many runs have started, and that much later."""
    before = len(started_inputs(directory))
    process = fork_command("run", "survey.toml", cwd=directory)
    deadline = time.monotonic() + PATIENCE
    while len(started_inputs(directory)) < before + runs and process.is_alive():
        assert time.monotonic() < deadline, "no run was started"
        time.sleep(0.005)
    process.join(seconds)
    if process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
    process.join(PATIENCE)


def test_that_twenty_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    """Each of ten surveys is killed twice, and then resumed: after some runs, and after some time, whatever it does."""
    moments = random.Random(0)
    began = time.monotonic()
    assert run_in_process("run", "survey.toml", cwd=survey(tmp_path / "undisturbed", body=QUICK)).returncode == 0
    whole = time.monotonic() - began  # s that an inversion takes on this machine, as busy as it is
    reference_posterior = posterior(tmp_path / "undisturbed" / "posterior.nc")
    cut_short = 0
    for number in range(KILLS // 2):
        directory = survey(tmp_path / f"survey{number}", body=QUICK)
        kill_after(moments.randint(2, RUNS // 2), 0.0, directory)
        known = recorded_inputs(directory)
        kill_after(0, moments.uniform(0.0, whole), directory)
        assert known <= recorded_inputs(directory)
        known, seen = recorded_inputs(directory), len(started_inputs(directory))
        cut_short += 0 < len(known) < RUNS
        result = run_in_process("run", "survey.toml", cwd=directory)
        assert result.returncode == 0, result.stderr
        assert known.isdisjoint(started_inputs(directory)[seen:])
        assert len(started_inputs(directory)) <= RUNS + 2 * RERUN_BY_A_KILL
        xr.testing.assert_identical(posterior(directory / "posterior.nc"), reference_posterior)
    assert cut_short > 0


def share(name: str) -> list[str]:
    return ["run", "survey.toml", "-o", f"{name}.nc", "--ledger", LEDGER]


def test_that_two_inversions_at_once_share_a_ledger_and_its_runs(
    reference_posterior: xr.Dataset, tmp_path: Path
) -> None:
    directory = survey(tmp_path / "survey")
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda name: invgp(*share(name), cwd=directory), ("one", "two")))
    for result in results:
        assert result.returncode == 0, result.stderr
    for name in ("one", "two"):
        xr.testing.assert_identical(posterior(directory / f"{name}.nc"), reference_posterior)
    assert sorted(started_inputs(directory)) == sorted(recorded_inputs(directory))
    with Ledger(directory / LEDGER) as ledger:
        assert list(ledger.select("PRAGMA integrity_check")) == [("ok",)]
        assert len(list(ledger.runs())) == RUNS


def test_that_one_of_two_inversions_that_is_killed_does_not_hold_up_the_other(
    reference_posterior: xr.Dataset, tmp_path: Path
) -> None:
    held = f'while [ ! -e "$(dirname "$0")/go" ]; do sleep 0.05; done; {SIMULATOR}'
    directory = survey(tmp_path / "survey", body=COUNTED.replace(SIMULATOR, held))
    with start_command(*share("one"), cwd=directory) as (first, _):
        deadline = time.monotonic() + PATIENCE
        while not started_inputs(directory):
            assert time.monotonic() < deadline, "no run was started"
            time.sleep(0.005)
        with start_command(*share("two"), cwd=directory) as (second, _):
            while "waiting for process" not in (printed := second.stderr.readline()):
                assert printed, "the second has not waited for the first"
            assert f"waiting for process {first.pid} to make" in printed
            os.killpg(first.pid, signal.SIGKILL)
            (directory / "go").touch()
            assert second.wait(PATIENCE) == 0
    xr.testing.assert_identical(posterior(directory / "two.nc").drop_attrs(), reference_posterior.drop_attrs())
    assert len(started_inputs(directory)) == RUNS + 1  # the one that was under way


def test_that_an_inversion_continues_after_a_full_disk(
    reference_posterior: xr.Dataset, invgp_here: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = survey(tmp_path / "survey")
    with sqlite3.connect(directory / LEDGER) as small_pages:  # so that every few rows need a new one
        small_pages.execute("PRAGMA page_size = 512")
        small_pages.execute("VACUUM")
    sync = Ledger.sync

    def fill(ledger: Ledger) -> None:
        sync(ledger)
        [(pages,)] = ledger.connection.execute("PRAGMA page_count")
        ledger.connection.execute(f"PRAGMA max_page_count = {pages}")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "sync", fill)
        stopped = invgp_here("run", "survey.toml", cwd=directory)
    assert stopped.returncode == 1
    sentence = f"invgp: the ledger '{directory / LEDGER}' cannot be read or written: the disk is full"
    assert stopped.stderr.splitlines()[-1].startswith(sentence)
    assert recorded_inputs(directory)
    result = invgp_here("run", "survey.toml", cwd=directory)
    assert result.returncode == 0, result.stderr
    assert len(started_inputs(directory)) <= RUNS + 1
    xr.testing.assert_identical(posterior(directory / "posterior.nc"), reference_posterior)


def test_that_failures_are_answered_as_failures(tmp_path: Path) -> None:
    failing = f'[ "${{1%%.*}}" -gt 620 ] && exit 3; {COUNTED}'
    directory = tmp_path / "survey"
    directory.mkdir()
    config = with_program(body=failing, directory=directory)
    write_files(directory, with_inference("max_failed_share = 0.9", "retries = 1", config=config))
    first, second = (
        run_in_process("run", "survey.toml", "-o", f"{i}.nc", "--ledger", LEDGER, cwd=directory) for i in (1, 2)
    )
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    one, two = (xr.load_dataset(directory / f"{i}.nc") for i in (1, 2))
    assert one.attrs["invgp_runs_failed"] == two.attrs["invgp_runs_failed"] > 0
    assert two.attrs["invgp_runs_from_ledger"] == two.attrs["invgp_runs"]
    xr.testing.assert_identical(one.drop_attrs(), two.drop_attrs())
    with Ledger(directory / LEDGER, read_only=True) as ledger:
        assert {run.attempts for run in ledger.runs(failed=True)} == {2}


def test_that_a_vectorised_function_has_a_ledger_only_on_request(invgp_here: Command, tmp_path: Path) -> None:
    config = write_files(tmp_path)
    assert invgp_here("run", "survey.toml", cwd=tmp_path).returncode == 0
    assert not (tmp_path / LEDGER).exists()
    config.write_text(config.read_text() + "\n[output]\nledger = true\n")
    assert invgp_here("run", "survey.toml", cwd=tmp_path).returncode == 0
    again = invgp_here("run", "survey.toml", cwd=tmp_path)
    assert f"{RUNS} runs ({RUNS} from the ledger)" in again.stdout


def test_that_the_ledger_of_a_program_can_be_disabled(invgp_here: Command, tmp_path: Path) -> None:
    config = write_files(tmp_path, with_program(directory=tmp_path) + "\n[output]\nledger = false\n")
    assert invgp_here("run", config, cwd=tmp_path).returncode == 0
    assert not (tmp_path / LEDGER).exists()


def test_that_a_file_that_is_no_ledger_is_reported_before_the_first_run(invgp_here: Command, tmp_path: Path) -> None:
    directory = survey(tmp_path / "survey")
    before = (directory / "sites.csv").read_bytes()
    result = invgp_here("run", "survey.toml", "--ledger", "sites.csv", cwd=directory)
    assert result.returncode == 2
    assert result.stderr.startswith("invgp: the ledger 'sites.csv' cannot be used: it is damaged, or no SQLite file")
    assert (directory / "sites.csv").read_bytes() == before
    assert started_inputs(directory) == []
