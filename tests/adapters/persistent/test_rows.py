"""A program that serves row after row, and what becomes of rows that fail."""

from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.executable_models import TIME, MakeProgram
from helpers.persistent_models import HANG, OK, model, programs_of, run
from invgp.adapters import AdapterError, PersistentModel, Quantity, Status, persistent_process
from invgp.adapters.persistent import longest_answer
from invgp.adapters.testing import check_forward_model

pytestmark = pytest.mark.processes


def test_that_a_persistent_program_conforms(program: MakeProgram, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    check_forward_model(model(program, tmp_path, "answer([2, 4])"), np.array([[1.5], [2.0], [3.0]]), tmp_path / "runs")


def test_that_one_program_serves_all_rows_and_all_batches(program: MakeProgram, tmp_path: Path) -> None:
    served = model(program, tmp_path, "answer([os.getpid(), request['id']])")
    first, again = run(served, tmp_path, [2.0, 2.0]), run(served, tmp_path, [2.0])
    assert first.outputs[:, 1].tolist() == [1, 2]
    assert again.outputs[0].tolist() == [first.outputs[0, 0], 3]
    persistent_process.end_all()
    assert run(served, tmp_path, [2.0]).outputs[0, 0] != first.outputs[0, 0]


TRICKLE = "[(os.write(1, b' '), time.sleep(0.01)) for _ in range(6000)]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "status", "cause"),
    [
        ("os._exit(3)", Status.EXIT_CODE, "exit code 3"),
        ("sys.stderr.write('no good\\n'); os._exit(3)", Status.EXIT_CODE, "exit code 3; standard error: no good"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Status.KILLED, "killed by signal SIGSEGV"),
        ("os._exit(0)", Status.UNREADABLE, "the program ended without an answer"),
        (
            "os.write(1, b'{\"id\"'); os._exit(0)",
            Status.UNREADABLE,
            "the program ended without an answer in the middle",
        ),
        ("os.close(1); time.sleep(60)", Status.UNREADABLE, "the program closed its standard output"),
        ("subprocess.Popen(['sleep', '60']); os._exit(3)", Status.EXIT_CODE, "exit code 3"),
        (HANG, Status.TIMEOUT, "timed out after 3 s"),
        ("subprocess.run(['setsid', 'sleep', '60'])", Status.TIMEOUT, "timed out after 3 s"),
        (TRICKLE, Status.TIMEOUT, "timed out after 3 s"),
        ("print('1.0 4.0', flush=True)", Status.UNREADABLE, "the answer is not JSON (Extra data"),
        ("os.write(1, b'\\xff\\xfe\\n')", Status.UNREADABLE, "the answer is not JSON ('utf-8'"),
        ("print('[1, 4]', flush=True)", Status.UNREADABLE, "the answer must be a JSON object, not a list"),
        ("answer([1, 4], id=request['id'] + 1)", Status.UNREADABLE, "the answer must have id 1"),
        ("answer([1, 4], id='1')", Status.UNREADABLE, "the answer must have id 1"),
        ("answer([1, 4], id=True)", Status.UNREADABLE, "the answer must have id 1"),
        ("os.write(1, b'[' * 60000); os.write(1, b'\\n')", Status.UNREADABLE, "the answer is nested too deeply"),
        ("[os.write(1, b'1' * 65536) for _ in range(10**6)]", Status.UNREADABLE, "the answer is a line of more than"),
        ("answer([1, 4], error='too fast')", Status.RAISED, "the program says: too fast"),
        ("answer([1, 4], error=None)", Status.RAISED, "the program says: None"),
        ("answer([1, None])", Status.NAN, "output time[2] is nan"),
        ("answer([float('nan'), 4])", Status.NAN, "output time[1] is nan"),
        ("answer([1e400, 4])", Status.NAN, "output time[1] is inf"),
        ("answer([1])", Status.UNREADABLE, "output time must be a list of 2, but is a list of 1"),
        ("answer(1)", Status.UNREADABLE, "output time must be a list of 2, but is a float"),
        ("answer([1, '4'])", Status.UNREADABLE, "output time must hold numbers, but holds a str"),
        ("answer([1, True])", Status.UNREADABLE, "output time must hold numbers, but holds a bool"),
        (
            "answer(0, outputs={'tim': [1, 4]})",
            Status.UNREADABLE,
            "'outputs' must be an object of ['time'], but is one of ['tim']",
        ),
        ("answer(0, outputs=[1, 4])", Status.UNREADABLE, "'outputs' must be an object of ['time'], but is a list"),
    ],
)
def test_that_a_failing_row_states_the_reason_and_the_next_row_continues(
    body: str, status: Status, cause: str, program: MakeProgram, tmp_path: Path
) -> None:
    start = time.monotonic()
    got = run(model(program, tmp_path, body, timeout=3.0), tmp_path)
    assert time.monotonic() - start < 15.0
    assert got.status == (OK, status, OK)
    assert got.messages[1].startswith(f"run r1: {cause}")
    assert re.search(r'; request: \{"id": \d, "inputs": \{"speed": 2\.0\}\}$', got.messages[1])
    np.testing.assert_array_equal(got.outputs, [[1, 1], [np.nan] * 2, [3, 9]])


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "answer([2, 4]); print('what else?', flush=True)",
        "answer([2, 4]); answer([2, 4])",
        "answer([2, 4]); os._exit(1)",
        "print('?', flush=True) if request['id'] > 1 else answer([2, 4])",
        "os._exit(1) if request['id'] > 1 else answer([2, 4])",
    ],
    ids=["chatter", "two answers", "ends after an answer", "confused by earlier rows", "crashes by earlier rows"],
)
def test_that_a_row_does_not_fail_for_an_earlier_error_of_the_program(
    body: str, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(model(program, tmp_path, body), tmp_path, [1.0, 2.0, 3.0, 2.0, 2.0])
    assert got.messages == ("",) * 5
    np.testing.assert_array_equal(got.outputs[:, 1], [1, 4, 9, 4, 4])


def test_that_a_row_that_is_not_finite_is_not_sent(program: MakeProgram, tmp_path: Path) -> None:
    got = run(model(program, tmp_path), tmp_path, [1.0, math.nan, -math.inf])
    assert got.status == (OK, Status.NAN, Status.NAN)
    assert got.messages[1:] == (
        "run r1: input speed is nan, so the program was not run",
        "run r2: input speed is -inf, so the program was not run",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "status", "cause"),
    [
        (
            "echo welcome; cat",
            Status.UNREADABLE,
            r"run r\d: the (answer is not JSON|program wrote without a request)",
        ),
        ("sleep 0.05; exit 4", Status.EXIT_CODE, r"run r\d: exit code 4; request"),
        ("echo licence >&2; exit 4", Status.EXIT_CODE, r"run r\d: exit code 4; standard error: licence; request"),
        ("exec >&-; sleep 60", Status.UNREADABLE, r"run r\d: the program closed its standard output"),
    ],
)
def test_that_a_program_that_never_serves_fails_every_row(
    body: str, status: Status, cause: str, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(model(program, tmp_path, command=(program(body, name="other"),)), tmp_path)
    assert got.status == (status,) * 3
    assert all(re.match(cause, message) for message in got.messages)


def test_that_a_program_that_cannot_be_started_is_reported(program: MakeProgram, tmp_path: Path) -> None:
    served = model(program, tmp_path)
    (tmp_path / "simulator").write_text("no first line\n")
    got = run(served, tmp_path)
    assert got.status == (Status.NOT_STARTED,) * 3
    assert "a script must start with a line such as #!/bin/sh" in got.messages[0]


def test_that_a_program_that_we_cannot_talk_to_does_not_stay(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_too_many_files(*_: object) -> None:
        raise OSError(24, "Too many open files")

    served = model(program, tmp_path)
    monkeypatch.setattr(os, "set_blocking", raise_too_many_files)
    got = run(served, tmp_path, [1.0])
    assert got.status == (Status.NOT_STARTED,)
    assert got.messages[0].endswith("could not be started: [Errno 24] Too many open files")
    assert programs_of(tmp_path) == []


def test_that_many_numbers_go_both_ways_at_once(program: MakeProgram, tmp_path: Path) -> None:
    labels = tuple(range(50_000))
    echo = program(
        "import sys\nfor line in sys.stdin:\n    print(line.replace('in', 'out', 1), end='', flush=True)", "python"
    )
    served = PersistentModel(
        (echo,), (Quantity("x", "m", labels),), (Quantity("x", "m", labels),), 60.0, search_path=tmp_path
    )
    values = np.random.default_rng(1).normal(size=(2, len(labels)))
    np.testing.assert_array_equal(run(served, tmp_path, values).outputs, values)


def test_that_a_program_that_does_not_read_is_not_waited_for(program: MakeProgram, tmp_path: Path) -> None:
    served = PersistentModel(
        (program("sleep 60"),), (Quantity("x", "m", tuple(range(50_000))),), (TIME,), 0.5, search_path=tmp_path
    )
    assert run(served, tmp_path, np.ones((1, 50_000))).status == (Status.TIMEOUT,)


EARLY = """\
import os, re, sys
seen = b""
while True:
    while not (begun := re.match(rb'{"id": (\\d+),', seen)):
        seen += os.read(0, 4096) or sys.exit()
    os.write(1, b'{"id": %s, "outputs": {"time": [1, 2]}}\\n' % begun[1])
    while b"\\n" not in seen:
        seen += os.read(0, 4096) or sys.exit()
    seen = seen.split(b"\\n", 1)[1]
"""


def test_that_a_program_may_answer_before_it_has_read_all(program: MakeProgram, tmp_path: Path) -> None:
    many = Quantity("depth", "m", tuple(range(30_000)))
    served = PersistentModel((program(EARLY, language="python"),), (many,), (TIME,), search_path=tmp_path, timeout=20.0)
    for _ in range(2):  # the second batch meets what the first has left unread
        outcome = run(served, tmp_path, np.full((3, 30_000), 1.2345678901234567))
        assert outcome.status == (OK,) * 3, outcome.messages
        assert outcome.outputs.tolist() == [[1.0, 2.0]] * 3


def test_that_a_flood_on_standard_error_is_drained(program: MakeProgram, tmp_path: Path) -> None:
    body = "[os.write(2, b'complaint ' * 1000) for _ in range(1000)]; answer([2, 4])"
    assert run(model(program, tmp_path, body), tmp_path).ok.all()
    got = run(model(program, tmp_path, body.replace("answer([2, 4])", "os._exit(1)")), tmp_path)
    assert got.status[1] is Status.EXIT_CODE
    assert len(got.messages[1]) < 3000


def test_that_the_answer_may_have_no_more_bytes_than_its_numbers_need(program: MakeProgram, tmp_path: Path) -> None:
    assert longest_answer((TIME,)) < 2 * 2**20 < longest_answer((Quantity("x", "m", tuple(range(50_000))),))


def test_that_threads_environment_and_directory_reach_the_program(program: MakeProgram, tmp_path: Path) -> None:
    body = "answer([float(os.environ['OMP_NUM_THREADS']) + float(os.environ['LEVEL']), len(os.listdir())])"
    got = run(model(program, tmp_path, body, threads=3, environment={"LEVEL": "8"}), tmp_path, [2.0])
    assert got.outputs.tolist() == [[11.0, 0.0]]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"command": ("./simulatr",)}, r"command: there is no file .*/simulatr; did you mean 'simulator'\?"),
        ({"inputs": ()}, "inputs: must name at least one"),
        ({"outputs": ()}, "outputs: must name at least one"),
        ({"timeout": 0.0}, "timeout: must be a positive number of seconds; it is 0.0"),
        ({"timeout": math.inf}, "timeout: must be a positive number of seconds; it is inf"),
        ({"threads": 0}, "threads: must be at least 1; it is 0"),
        ({"environment": {"A=B": "1"}}, "environment: 'A=B' = '1' cannot be"),
    ],
)
def test_that_settings_that_cannot_work_are_reported(
    settings: Any, sentence: str, program: MakeProgram, tmp_path: Path
) -> None:
    with pytest.raises(AdapterError, match=sentence):
        model(program, tmp_path, **settings)


def test_that_the_digest_sees_all_that_decides_the_outputs(program: MakeProgram, tmp_path: Path) -> None:
    served = model(program, tmp_path)
    digests = [
        served.digest,
        model(program, tmp_path, threads=2).digest,
        model(program, tmp_path, environment={"A": "1"}).digest,
        model(program, tmp_path, command=("./simulator", "-v")).digest,
        model(program, tmp_path, "answer([0, 0])").digest,
    ]
    assert len(set(digests)) == len(digests)
    assert model(program, tmp_path, timeout=5.0).digest == served.digest
    assert (served.name, served.rows_per_task) == ("simulator", 64)
