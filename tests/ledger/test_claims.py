"""Several that use one ledger at once: a run is made by one of them, and the others wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from invgp.adapters import Evaluations, Quantity, RunContext, Status
from invgp.execution.evaluate import evaluate
from invgp.ledger import Ledger, LookupResult, Recorder, claims
from invgp.progress import SilentMonitor

pytestmark = pytest.mark.processes

PATIENCE = 60.0  # s, for a busy machine
INPUTS, OUTPUTS = (Quantity("x", "m"),), (Quantity("z", "s"),)


@dataclass
class Slow:
    """A simulator that counts its runs."""

    asked: Counter[float] = field(default_factory=Counter)
    seconds: float = 0.02
    name, digest, rows_per_task, inputs, outputs = "slow", "5eed", 1, INPUTS, OUTPUTS

    def evaluate(self, values, context):
        self.asked.update(values[:, 0].tolist())
        time.sleep(self.seconds)
        bad = values[:, 0] < 0
        return Evaluations(
            np.where(bad[:, None], np.nan, 2 * values),
            tuple(Status.NAN if b else Status.OK for b in bad),
            tuple("lost" if b else "" for b in bad),
        )


class Listening(SilentMonitor):
    """Records the processes that it has to wait for."""

    def __init__(self) -> None:
        self.makers: list[str] = []
        self.reported = threading.Event()

    def report_waiting(self, runs: int, owner: str) -> None:
        self.makers.append(owner)
        self.reported.set()


def run(model: Slow, values: list[float], folder: Path, **how) -> Evaluations:
    context = RunContext([f"run-{i}" for i in range(len(values))], folder / "runs")
    with Ledger(folder / "runs.sqlite") as ledger:
        return evaluate(model, np.asarray(values)[:, None], context, recorder=ledger.open_recorder(model), **how)


def count_claims(folder: Path) -> int:
    with Ledger(folder / "runs.sqlite") as ledger:
        return len(list(ledger.select("SELECT * FROM claims")))


OTHER = """
import sys, time
from pathlib import Path
import numpy as np
from invgp.adapters import Quantity
from invgp.ledger import Ledger

class Model:
    name, digest, inputs, outputs = "slow", "5eed", (Quantity("x", "m"),), (Quantity("z", "s"),)

with Ledger(Path(sys.argv[1]) / "runs.sqlite") as ledger:
    recorder = ledger.open_recorder(Model())
    assert recorder.claim(np.array([[1.0], [2.0], [3.0]])).ours.all()
    print("claimed", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process_with_claims(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed the rows 1, 2 and 3, and does nothing about it."""
    command = [sys.executable, "-c", OTHER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "claimed\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("values", [([1, 2, 3, 4, 5, -6],) * 3, ([1, 2, 3, 4], [4, 3, 2, 5], [5, 6, 1, 3])])
def test_that_each_run_is_made_once_by_whoever_comes_first(values, tmp_path: Path) -> None:
    model = Slow()
    with ThreadPoolExecutor(len(values)) as pool:
        outcomes = list(pool.map(lambda some: run(model, some, tmp_path), values))
    assert set(model.asked.values()) == {1}
    for some, outcome in zip(values, outcomes, strict=True):
        assert outcome.ok.tolist() == [x > 0 for x in some]
        np.testing.assert_array_equal(outcome.outputs[outcome.ok, 0], [2.0 * x for x in some if x > 0])
    assert count_claims(tmp_path) == 0


def test_that_claims_of_a_killed_process_are_released(tmp_path: Path) -> None:
    with another_process_with_claims(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":  # nobody has taken note of its end
            time.sleep(0.01)
        assert run(Slow(), [1, 2, 4], tmp_path).ok.all()
    assert count_claims(tmp_path) == 0


def test_that_a_process_that_lives_is_waited_for_until_it_ends(tmp_path: Path) -> None:
    model, listening = Slow(), Listening()
    with another_process_with_claims(tmp_path) as process, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, model, [3, 4, 1], tmp_path, monitor=listening)
        assert listening.reported.wait(PATIENCE)
        time.sleep(0.2)
        assert model.asked == {4: 1}
        assert set(listening.makers) == {f"process {process.pid}"}
        process.kill()
        assert waiting.result(PATIENCE).outputs[:, 0].tolist() == [6, 8, 2]
    assert model.asked == {1: 1, 3: 1, 4: 1}


@pytest.mark.parametrize(
    "forged", [("elsewhere", None, None), (None, "1", None), (None, None, "0.0")], ids=["machine", "number", "start"]
)
def test_that_a_claim_of_no_process_of_this_machine_is_released(forged, tmp_path: Path) -> None:
    with another_process_with_claims(tmp_path), Ledger(tmp_path / "runs.sqlite") as ledger:
        [(owner,)] = ledger.select("SELECT DISTINCT owner FROM claims")
        parts = owner.split(" ")
        changed = [new or old for new, old in zip((*forged, None), parts, strict=True)]
        ledger.connection.execute("UPDATE claims SET owner = ?", (" ".join(changed),))
        assert run(Slow(), [1, 2], tmp_path).ok.all()


def test_that_a_batch_that_is_stopped_leaves_no_claim(tmp_path: Path) -> None:
    def stop(part: Evaluations) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run(Slow(), [1, 2, 3], tmp_path, watch=stop)
    assert count_claims(tmp_path) == 0
    model = Slow()
    assert run(model, [1, 2, 3], tmp_path).ok.all()
    assert model.asked == {2: 1, 3: 1}


def test_that_a_run_that_finished_between_lookup_and_claim_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, look = Slow(), Recorder.look_up

    def interrupted_look(recorder: Recorder, values: np.ndarray) -> LookupResult:
        known = look(recorder, values)
        monkeypatch.setattr(Recorder, "look_up", look)
        run(model, [1, 2], tmp_path)  # by another, who has let go of it as well
        return known

    monkeypatch.setattr(Recorder, "look_up", interrupted_look)
    assert run(model, [1, 2, 3], tmp_path).ok.all()
    assert model.asked == {1: 1, 2: 1, 3: 1}


def test_that_a_claim_that_could_not_be_released_does_not_block_its_own_process(tmp_path: Path) -> None:
    model = Slow()
    with Ledger(tmp_path / "runs.sqlite") as ledger:
        recorder = ledger.open_recorder(model)
        assert recorder.claim(np.array([[1.0]])).ours.all()
        claims._owners.clear()  # as if the file had been out of reach when they were to be given up
        assert run(model, [1.0], tmp_path).ok.all()


FULL = """
import sys, time
from pathlib import Path
import numpy as np
from invgp.adapters import Quantity
from invgp.errors import LedgerError
from invgp.ledger import Ledger

class Model:
    name, digest, inputs, outputs = "slow", "5eed", (Quantity("x", "m"),), (Quantity("z", "s"),)

here = Path(sys.argv[1])
with Ledger(here / "runs.sqlite", patience=0.1) as ledger:
    recorder = ledger.open_recorder(Model())
    recorder.claim(np.array([[1.0]]))
    print("claimed", flush=True)
    while not (here / "full").exists():
        time.sleep(0.01)
    try:
        recorder.release()
    except LedgerError:
        print("not released", flush=True)
time.sleep(600)
"""


def test_that_a_claim_that_could_not_be_released_is_released_later(tmp_path: Path) -> None:
    """By a process that lives on: others must not wait for it for ever."""
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ThreadPoolExecutor(1) as pool:
        try:
            assert process.stdout.readline() == "claimed\n"
            with Ledger(tmp_path / "runs.sqlite") as ledger, ledger.transaction():  # it cannot be written meanwhile
                (tmp_path / "full").touch()
                assert process.stdout.readline() == "not released\n"
            waiting = pool.submit(run, Slow(), [1.0], tmp_path)
            assert waiting.result(PATIENCE).ok.all()
            assert process.poll() is None
        finally:
            process.kill()


def test_that_more_retries_than_anothers_are_made(tmp_path: Path) -> None:
    model = Slow()
    with Ledger(tmp_path / "runs.sqlite") as ledger, ThreadPoolExecutor(1) as pool:
        first = pool.submit(run, model, [-1, -2], tmp_path)
        context = RunContext(["a", "b"], tmp_path / "runs")
        evaluate(model, np.array([[-1.0], [-2.0]]), context, retries=1, recorder=ledger.open_recorder(model, retries=1))
        first.result(PATIENCE)
        assert {r.attempts for r in ledger.runs()} <= {2, 3}
