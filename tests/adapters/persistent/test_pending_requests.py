"""Several requests under way at once."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.executable_models import MakeProgram
from helpers.persistent_models import HANG, OK, model, run
from invgp.adapters import PersistentModel, Status, persistent
from invgp.adapters.persistent_process import PersistentProcess

pytestmark = pytest.mark.processes

COMPANY = [1.0, 3.0, 5.0, 2.0, *range(7, 50)]
# It takes whatever lies in wait, and says how many requests there were; a body says what it does with them.
HOARDER = """\
import json, os, sys, time

while text := os.read(0, 2**16):
    requests = [json.loads(line) for line in text.splitlines()]
    %s
    for request in requests:
        time.sleep(%s)
        print(json.dumps({"id": request["id"], "outputs": {"time": [os.getpid(), len(requests)]}}), flush=True)
"""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program counts as quick, however busy the machine is."""
    monkeypatch.setattr(persistent, "QUICK", math.inf)
    monkeypatch.setattr(persistent, "_one_at_a_time", set())


def hoarder(program: MakeProgram, folder: Path, body: str = "pass", seconds: float = 0.0) -> PersistentModel:
    return model(program, folder, command=(program(HOARDER % (body, seconds), "python", "hoarder"),))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("os._exit(3)", Status.EXIT_CODE),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Status.KILLED),
        ("os.write(1, b'{\"id\"'); os._exit(0)", Status.UNREADABLE),
        (HANG, Status.TIMEOUT),
        ("print('1.0 4.0', flush=True)", Status.UNREADABLE),
        ("answer([1, 4], id=request['id'] + 1)", Status.UNREADABLE),
        ("[os.write(1, b'1' * 65536) for _ in range(10**6)]", Status.UNREADABLE),
        ("answer([1, 4], error='too fast')", Status.RAISED),
        ("answer([1, None])", Status.NAN),
    ],
)
def test_that_the_other_rows_of_a_failing_row_succeed(
    body: str, status: Status, program: MakeProgram, tmp_path: Path
) -> None:
    seconds = 5.0 if status is Status.TIMEOUT else 60.0
    got = run(model(program, tmp_path, body, timeout=seconds), tmp_path, COMPANY)
    assert got.status == tuple(status if speed == 2.0 else OK for speed in COMPANY)
    assert got.messages[3].startswith("run r3: ")
    assert '"inputs": {"speed": 2.0}' in got.messages[3]
    np.testing.assert_array_equal(got.outputs[got.ok, 0], [speed for speed in COMPANY if speed != 2.0])


@pytest.mark.usefixtures("quick")
def test_that_a_quick_program_gets_several_requests_ahead_but_not_all(program: MakeProgram, tmp_path: Path) -> None:
    got = run(hoarder(program, tmp_path), tmp_path, np.arange(200.0))
    assert got.ok.all()
    assert 2 <= got.outputs[:, 1].max() <= persistent.MOST_AHEAD
    assert len(set(got.outputs[:, 0])) == 1


def test_that_a_slow_program_gets_one_request_at_a_time(program: MakeProgram, tmp_path: Path) -> None:
    got = run(hoarder(program, tmp_path, seconds=0.002), tmp_path, np.arange(20.0))
    assert got.outputs[:, 1].tolist() == [1] * 20


def test_that_a_slow_program_is_not_taken_for_a_quick_one_if_this_process_is_slower(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = PersistentProcess.send

    def send_and_wait(self: PersistentProcess, data: bytes, count: int) -> None:
        send(self, data, count)
        time.sleep(0.05)  # as if other processes had the processor: the answer has come when it is expected

    monkeypatch.setattr(PersistentProcess, "send", send_and_wait)
    got = run(hoarder(program, tmp_path, seconds=0.002), tmp_path, np.arange(8.0))
    assert got.outputs[:, 1].tolist() == [1] * 8


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("body", ["del requests[1:]", "assert len(requests) == 1"], ids=["swallows", "chokes"])
def test_that_a_program_that_fails_with_several_requests_gets_one_at_a_time(
    body: str, program: MakeProgram, tmp_path: Path
) -> None:
    served = replace(hoarder(program, tmp_path, body), timeout=5.0)
    got = run(served, tmp_path, np.arange(100.0))
    assert got.ok.all(), got.messages
    assert len(set(got.outputs[:, 0])) == 2


@pytest.mark.usefixtures("quick")
def test_that_each_of_several_pending_rows_has_its_own_time_limit(program: MakeProgram, tmp_path: Path) -> None:
    served = replace(hoarder(program, tmp_path, seconds=0.5), timeout=5.0)
    started = time.monotonic()
    assert run(served, tmp_path, np.arange(12.0)).ok.all()
    assert time.monotonic() - started > 5.0
