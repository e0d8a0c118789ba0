"""A thousand runs of a simulator that fails in every way: each is accounted for once, and nothing stays behind."""

from __future__ import annotations

import faulthandler
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from campaign import damaged_inputs
from campaign.command import PARTS
from campaign.forks import start
from campaign.tally import table
from invgp.adapters import Evaluations, ExecutableModel, OutputFile, Quantity, RunContext, Status
from invgp.execution.evaluate import evaluate
from invgp.execution.run_directories import make_run_directory
from invgp.ledger import Ledger

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SOURCE = Path(__file__).with_name("faulty.c")
RUNS = 1_000
# What the whole part of the input does, modulo 16: how often, and what is to become of it.
ENDINGS = {
    1: (60, Status.EXIT_CODE),
    2: (60, Status.KILLED),
    3: (5, Status.TIMEOUT),
    4: (5, Status.TIMEOUT),  # with a child in a session of its own, all its files closed
    5: (60, Status.UNREADABLE),  # half a file
    6: (60, Status.NAN),
    7: (60, Status.UNREADABLE),  # no file
    8: (30, Status.OK),  # but a child outlives it
    9: (15, Status.OK),  # and that one is in a session of its own
    10: (20, Status.EXIT_CODE),  # after 2 MiB of standard error
    11: (60, Status.OK),  # but a daemon outlives it
    12: (20, Status.EXIT_CODE),  # with a pipe in the place of its standard error
}
# What each part of the small campaign must have tried.
FEWEST_CASES = {"runs": 300, "signals": 1, "moves": 1, "damage": sum(damaged_inputs.SMALL.values())}
TIMEOUT = 1.5  # s: a busy machine must not let a run of a millisecond take as long


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("faulty") / "faulty"
    subprocess.run(["cc", "-O1", "-o", str(built), str(SOURCE), "-lm"], check=True)
    return built


def inputs(rng: np.random.Generator) -> tuple[np.ndarray, list[Status]]:
    """Inputs (RUNS, 1), all different, in random order, and what is to become of each."""
    kinds = [kind for kind, (count, _) in ENDINGS.items() for _ in range(count)]
    kinds += [0] * (RUNS - len(kinds))
    order = rng.permutation(kinds)
    x = order + 16.0 * np.arange(RUNS) + rng.random(RUNS)
    return x[:, None], [ENDINGS[kind][1] if kind else Status.OK for kind in order.tolist()]


def half(model: ExecutableModel, values: np.ndarray, context: RunContext, ledger: Path) -> Evaluations:
    """What one of two threads runs; both have the same ledger, and the same directory for their runs."""
    with Ledger(ledger) as opened:
        return evaluate(model, values, context, recorder=opened.open_recorder(model))


def alive(program: Path) -> list[int]:
    """Processes of the program that still run."""
    found = []
    for process in psutil.process_iter(["exe", "status"]):
        if process.info["exe"] == str(program) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def test_that_all_runs_of_a_faulty_simulator_are_accounted_for(program: Path, tmp_path: Path) -> None:
    values, expected = inputs(np.random.default_rng(0))
    started, ledger, runs = tmp_path / "started", tmp_path / "runs.sqlite", tmp_path / "runs"
    model = ExecutableModel(
        (str(program), "{x}", str(started)),
        (Quantity("x", "m"),),
        (Quantity("y", "s", (1, 2)),),
        output_files=(OutputFile("times.txt"),),
        timeout=TIMEOUT,
    )
    labels = [f"run-{i}" for i in range(RUNS)]
    with make_run_directory(runs) as directory:
        tasks = [
            (model, values[rows], RunContext([labels[i] for i in rows], directory, more=True), ledger)
            for rows in np.array_split(np.arange(RUNS), 2)
        ]
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(lambda task: half(*task), tasks))
        outcome = Evaluations.concatenate(parts)
        # Of a run that failed the directory is kept, and of no other.
        failed = [label for label, status in zip(labels, expected, strict=True) if status is not Status.OK]
        assert sorted(p.name for p in directory.iterdir() if p.name in labels) == sorted(failed)

    assert list(outcome.status) == expected
    np.testing.assert_array_equal(outcome.outputs[outcome.ok], np.hstack([2 * values, values**2])[outcome.ok])
    assert np.isnan(outcome.outputs[~outcome.ok]).all()
    assert Counter(map(float, started.read_text().split())) == Counter(values[:, 0].tolist())
    assert alive(program) == []
    assert sorted(p.name for p in directory.iterdir()) == sorted(failed)
    with Ledger(ledger, read_only=True) as opened:
        recorded = list(opened.runs())
        assert list(opened.select("PRAGMA integrity_check")) == [("ok",)]
    assert Counter(run.inputs[0] for run in recorded) == Counter(values[:, 0].tolist())
    by_input = {run.inputs[0]: run for run in recorded}
    assert [by_input[x].status for x in values[:, 0].tolist()] == expected
    assert all((run.directory != "") == (run.status is not Status.OK) for run in recorded)


def test_that_the_ledger_contains_all_runs_of_the_campaign(program: Path, tmp_path: Path) -> None:
    values, expected = inputs(np.random.default_rng(1))
    quick = np.asarray([status is not Status.TIMEOUT for status in expected]).nonzero()[0][:100]
    started, ledger = tmp_path / "started", tmp_path / "runs.sqlite"
    model = ExecutableModel(
        (str(program), "{x}", str(started)),
        (Quantity("x", "m"),),
        (Quantity("y", "s", (1, 2)),),
        output_files=(OutputFile("times.txt"),),
        timeout=20.0,
        keep="none",
    )
    with make_run_directory(tmp_path / "runs") as directory:
        context = RunContext([f"run-{i}" for i in quick], directory, more=True)
        first, second = (half(model, values[quick], context, ledger) for _ in range(2))
    assert first.outputs.tobytes() == second.outputs.tobytes()
    assert (first.status, first.messages) == (second.status, second.messages)
    assert len(started.read_text().split()) == len(quick)
    assert not directory.exists()


def test_that_a_process_that_comes_to_no_case_is_ended_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*_: object, **places: Any) -> ForkServerProcess:
        return start(time.sleep, 3600.0, **places)

    monkeypatch.setattr(damaged_inputs, "start", hang)
    monkeypatch.setattr(damaged_inputs, "SECONDS", 0.05)
    tally = damaged_inputs.watch_group("npz", tmp_path, 5, 0)
    assert (tally.cases, tally.hangs, tally.faults) == (0, 1, 1)


def test_that_what_comes_before_the_first_case_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def cases(folder: Path, numbers: range, seed: int) -> Iterator[tuple[str, Callable[[], str]]]:
        events.append("project")
        for _ in numbers:
            yield "case", lambda: events.append("case") or ""

    monkeypatch.setitem(damaged_inputs.GROUPS, "npz", cases)
    monkeypatch.setattr(damaged_inputs.resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(damaged_inputs.tempfile, "tempdir", None)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *_, **__: events.append("watch"))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: events.append("end"))
    damaged_inputs.try_group("npz", tmp_path, 2, 0, 0)
    assert events == ["watch", "project", "watch", "case", "watch", "case", "end"]


@pytest.mark.parametrize("part", PARTS)
def test_that_the_small_campaign_finds_no_fault(part: str, tmp_path: Path) -> None:
    tally = PARTS[part](tmp_path, small=True, seed=0)
    assert tally.cases >= FEWEST_CASES[part]
    assert not tally.faults, "\n".join([table([tally]), *tally.notes])
