from __future__ import annotations

import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invgp.adapters import (
    AdapterError,
    Evaluations,
    PersistentModel,
    Quantity,
    RunContext,
    Status,
    conversation,
    servers,
)
from invgp.adapters.lines import LostError, RequestWriter, line_limit, read_answer
from invgp.adapters.outcomes import RunError
from invgp.adapters.testing import check_forward_model
from invgp.config import load
from invgp.inference.evaluate import evaluate
from invgp.inference.pools import open_pool
from invgp.problem import InferenceSettings

from .conftest import MakeProgram

SPEED = Quantity("speed", "m s-1")
DEPTH = Quantity("depth", "m", (1, 2))
TIME = Quantity("time", "s", (1, 2))
OK = Status.OK

# It answers with the speed and its square; a body says what it does for a speed of 2.
SERVER = """\
import json, os, signal, subprocess, sys, time

def answer(time, **changes):
    print(json.dumps({"id": request["id"], "outputs": {"time": time}} | changes), flush=True)

for line in sys.stdin:
    request = json.loads(line)
    speed = request["inputs"]["speed"]
    if speed == 2.0:
        %s
    else:
        answer([speed, speed**2])
"""


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    servers.end_all()
    assert programs_of(tmp_path) == []


def programs_of(home: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get("INVGP_RUN_DIRECTORY", "")
            if Path(mark).is_relative_to(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def gone(home: Path, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while programs_of(home) and time.monotonic() < end:
        time.sleep(0.02)
    return programs_of(home) == []


def model(program: MakeProgram, folder: Path, body: str = "pass", **settings: Any) -> PersistentModel:
    command = program(SERVER % body, language="python")
    known = {"command": (command,), "inputs": (SPEED,), "outputs": (TIME,), "search_path": folder, "timeout": 20.0}
    return PersistentModel(**{**known, **settings})


def run(model: PersistentModel, folder: Path, speeds: Any = (1.0, 2.0, 3.0)) -> Evaluations:
    values = np.asarray(speeds, dtype=float).reshape(len(speeds), -1)
    return model.evaluate(values, RunContext([f"r{i}" for i in range(len(values))], folder / "runs"))


def test_that_a_persistent_program_conforms(program: MakeProgram, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    check_forward_model(model(program, tmp_path, "answer([2, 4])"), np.array([[1.5], [2.0], [3.0]]), tmp_path / "runs")


def test_that_one_program_serves_all_rows_and_all_batches(program: MakeProgram, tmp_path: Path) -> None:
    served = model(program, tmp_path, "answer([os.getpid(), request['id']])")
    first, again = run(served, tmp_path, [2.0, 2.0]), run(served, tmp_path, [2.0])
    assert first.outputs[:, 1].tolist() == [1, 2]
    assert again.outputs[0].tolist() == [first.outputs[0, 0], 3]
    servers.end_all()
    assert run(served, tmp_path, [2.0]).outputs[0, 0] != first.outputs[0, 0]


HANG = "time.sleep(60)"
TRICKLE = "[(os.write(1, b' '), time.sleep(0.01)) for _ in range(6000)]"


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
def test_that_a_row_that_fails_says_why_and_the_next_goes_on(
    body: str, status: Status, cause: str, program: MakeProgram, tmp_path: Path
) -> None:
    start = time.monotonic()
    got = run(model(program, tmp_path, body, timeout=3.0), tmp_path)
    assert time.monotonic() - start < 15.0
    assert got.status == (OK, status, OK)
    assert got.messages[1].startswith(f"run r1: {cause}")
    assert re.search(r'; asked: \{"id": \d, "inputs": \{"speed": 2\.0\}\}$', got.messages[1])
    np.testing.assert_array_equal(got.outputs, [[1, 1], [np.nan] * 2, [3, 9]])


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
def test_that_a_row_does_not_pay_for_what_the_program_did_before(
    body: str, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(model(program, tmp_path, body), tmp_path, [1.0, 2.0, 3.0, 2.0, 2.0])
    assert got.messages == ("",) * 5
    np.testing.assert_array_equal(got.outputs[:, 1], [1, 4, 9, 4, 4])


def test_that_a_row_that_is_not_finite_is_not_sent(program: MakeProgram, tmp_path: Path) -> None:
    got = run(model(program, tmp_path), tmp_path, [1.0, math.nan, -math.inf])
    assert got.status == (OK, Status.NAN, Status.NAN)
    assert got.messages[1:] == (
        "run r1: input speed is nan, so the program was not asked",
        "run r2: input speed is -inf, so the program was not asked",
    )


@pytest.mark.parametrize(
    ("body", "status", "cause"),
    [
        (
            "echo welcome; cat",
            Status.UNREADABLE,
            r"run r\d: the (answer is not JSON|program wrote without being asked)",
        ),
        ("sleep 0.05; exit 4", Status.EXIT_CODE, r"run r\d: exit code 4; asked"),
        ("echo licence >&2; exit 4", Status.EXIT_CODE, r"run r\d: exit code 4; standard error: licence; asked"),
        ("exec >&-; sleep 60", Status.UNREADABLE, r"run r\d: the program closed its standard output"),
    ],
)
def test_that_a_program_that_never_serves_fails_every_row(
    body: str, status: Status, cause: str, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(model(program, tmp_path, command=(program(body, name="other"),)), tmp_path)
    assert got.status == (status,) * 3
    assert all(re.match(cause, message) for message in got.messages)


def test_that_a_program_that_cannot_be_started_is_told(program: MakeProgram, tmp_path: Path) -> None:
    served = model(program, tmp_path)
    (tmp_path / "simulator").write_text("no first line\n")
    got = run(served, tmp_path)
    assert got.status == (Status.NOT_STARTED,) * 3
    assert "a script must start with a line such as #!/bin/sh" in got.messages[0]


def test_that_a_program_that_we_cannot_talk_to_does_not_stay(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(24, "Too many open files")

    served = model(program, tmp_path)
    monkeypatch.setattr(os, "set_blocking", full)
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
    assert line_limit((TIME,)) < 2 * 2**20 < line_limit((Quantity("x", "m", tuple(range(50_000))),))


def test_that_threads_environment_and_directory_reach_the_program(program: MakeProgram, tmp_path: Path) -> None:
    body = "answer([float(os.environ['OMP_NUM_THREADS']) + float(os.environ['LEVEL']), len(os.listdir())])"
    got = run(model(program, tmp_path, body, threads=3, environment={"LEVEL": "8"}), tmp_path, [2.0])
    assert got.outputs.tolist() == [[11.0, 0.0]]


def test_that_threads_do_not_share_a_program(program: MakeProgram, tmp_path: Path) -> None:
    served = model(program, tmp_path, "time.sleep(0.3); answer([os.getpid(), 0])")
    results: list[Evaluations] = []
    threads = [threading.Thread(target=lambda: results.append(run(served, tmp_path, [2.0]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({float(result.outputs[0, 0]) for result in results}) == 2


def test_that_the_programs_of_another_model_or_another_inversion_are_ended(
    program: MakeProgram, tmp_path: Path
) -> None:
    served = model(program, tmp_path)
    run(served, tmp_path, [1.0])
    [first] = programs_of(tmp_path)
    run(model(program, tmp_path, threads=2), tmp_path, [1.0])
    [second] = programs_of(tmp_path)
    run(model(program, tmp_path, threads=2), tmp_path / "another", [1.0])
    [third] = programs_of(tmp_path / "another")
    assert programs_of(tmp_path) == [third]
    assert len({first, second, third}) == 3


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_that_a_batch_that_is_stopped_ends_the_programs_of_its_workers(
    backend: str, program: MakeProgram, tmp_path: Path
) -> None:
    served = model(program, tmp_path, "time.sleep(60)", timeout=60.0)
    values = np.concatenate([np.linspace(3.0, 4.0, 64), np.linspace(1.0, 3.0, 129)[1:]])[:, None]  # one of them is 2

    def stop(part: Evaluations) -> None:
        raise InterruptedError

    start = time.monotonic()
    with pytest.raises(InterruptedError), open_pool(InferenceSettings(workers=2, backend=backend)) as pool:
        evaluate(served, values, RunContext([f"r{i}" for i in range(192)], tmp_path / "runs"), pool=pool, watch=stop)
    assert gone(tmp_path)
    time.sleep(1.0)  # in which a thread could start another
    assert programs_of(tmp_path) == []
    assert time.monotonic() - start < 30.0
    assert run(served, tmp_path, [1.0]).status == ((OK,) if backend == "loky" else (Status.NOT_STARTED,))
    with open_pool(InferenceSettings(workers=2, backend=backend)) as pool:
        again = evaluate(served, values[:1], RunContext(["again"], tmp_path / "runs"), pool=pool)
    assert again.status == (OK,)


def test_that_a_program_that_hangs_when_its_worker_is_killed_is_ended(program: MakeProgram, tmp_path: Path) -> None:
    once = f"os.path.exists({str(tmp_path / 'once')!r}) or (open({str(tmp_path / 'once')!r}, 'w'), "
    served = model(
        program, tmp_path, f"{once}os.kill(os.getppid(), signal.SIGKILL), time.sleep(60)); answer([2.0, 4.0])"
    )
    context = RunContext(["r0", "r1", "r2"], tmp_path / "runs")
    with open_pool(InferenceSettings(workers=2)) as pool:
        outcome = evaluate(served, np.array([[1.0], [2.0], [3.0]]), context, pool=pool)
    assert outcome.status == (OK,) * 3
    assert gone(tmp_path, 1.0)


def test_that_an_interrupt_ends_the_program_and_passes_through(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = model(program, tmp_path, HANG)
    run(served, tmp_path, [1.0])
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(served, tmp_path, [2.0])
    assert programs_of(tmp_path) == []


def test_that_workers_give_the_same_and_take_their_programs_with_them(program: MakeProgram, tmp_path: Path) -> None:
    served = model(program, tmp_path)
    values, context = np.arange(3.0, 9.0)[:, None], RunContext([f"r{i}" for i in range(6)], tmp_path / "runs")
    expected = served.evaluate(values, context)  # with a program of our own, which no worker may use
    with joblib.parallel_config(backend="loky", n_jobs=2, idle_worker_timeout=1):
        parts = joblib.Parallel()(
            joblib.delayed(served.evaluate)(values[i : i + 1], context.rows(i, i + 1)) for i in range(6)
        )
    np.testing.assert_array_equal(Evaluations.concatenate(parts).outputs, expected.outputs)
    joblib.externals.loky.get_reusable_executor().shutdown(wait=True)
    servers.end_all()
    assert gone(tmp_path)


WORKER = """
import os, pickle, sys
from pathlib import Path
import numpy as np
from invgp.adapters import RunContext
model = pickle.loads(Path(sys.argv[1]).read_bytes())
assert model.evaluate(np.array([[1.0]]), RunContext(["r"], Path(sys.argv[2]))).ok.all()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_that_a_program_does_not_outlive_the_process_that_keeps_it(
    end: str, program: MakeProgram, tmp_path: Path
) -> None:
    (tmp_path / "model").write_bytes(pickle.dumps(model(program, tmp_path)))
    command = [sys.executable, "-c", WORKER, str(tmp_path / "model"), str(tmp_path / "runs")]
    # A worker that is killed cannot remove its program's directory.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    assert len(programs_of(tmp_path)) == 1
    if end == "kill":
        worker.kill()
    worker.communicate(timeout=20)
    assert gone(tmp_path)


def test_that_a_child_process_uses_a_program_of_its_own(program: MakeProgram, tmp_path: Path) -> None:
    served = model(program, tmp_path, "answer([os.getppid(), request['id']])")
    assert run(served, tmp_path, [2.0]).outputs.tolist() == [[os.getpid(), 1]]
    child = os.fork()
    if child == 0:
        try:
            same = run(served, tmp_path, [2.0]).outputs.tolist() == [[os.getpid(), 1]]
            servers.end_all()
        finally:
            os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(served, tmp_path, [2.0]).outputs.tolist() == [[os.getpid(), 2]]


def test_that_no_descriptor_and_no_directory_leaks(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    served = model(program, tmp_path, "os._exit(1)")
    run(served, tmp_path, [1.0, 2.0])
    before = len(list(Path("/dev/fd").iterdir()))
    run(served, tmp_path, [1.0, 2.0] * 5)
    assert len(list(Path("/dev/fd").iterdir())) == before
    assert list((tmp_path / "temporary").iterdir()) == []


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
def test_that_settings_that_cannot_work_are_told(
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


# Several requests ahead.

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
    monkeypatch.setattr(conversation, "QUICK", math.inf)
    monkeypatch.setattr(conversation, "_one_at_a_time", set())


def hoarder(program: MakeProgram, folder: Path, body: str = "pass", seconds: float = 0.0) -> PersistentModel:
    return model(program, folder, command=(program(HOARDER % (body, seconds), "python", "hoarder"),))


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
def test_that_the_rows_beside_one_that_fails_go_well(
    body: str, status: Status, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(model(program, tmp_path, body, timeout=2.0), tmp_path, COMPANY)
    assert got.status == tuple(status if speed == 2.0 else OK for speed in COMPANY)
    assert got.messages[3].startswith("run r3: ")
    assert '"inputs": {"speed": 2.0}' in got.messages[3]
    np.testing.assert_array_equal(got.outputs[got.ok, 0], [speed for speed in COMPANY if speed != 2.0])


@pytest.mark.usefixtures("quick")
def test_that_a_quick_program_gets_several_requests_ahead_but_not_all(program: MakeProgram, tmp_path: Path) -> None:
    got = run(hoarder(program, tmp_path), tmp_path, np.arange(200.0))
    assert got.ok.all()
    assert 2 <= got.outputs[:, 1].max() <= conversation.AHEAD
    assert len(set(got.outputs[:, 0])) == 1


def test_that_a_program_that_takes_its_time_gets_one_request_at_a_time(program: MakeProgram, tmp_path: Path) -> None:
    got = run(hoarder(program, tmp_path, seconds=0.002), tmp_path, np.arange(20.0))
    assert got.outputs[:, 1].tolist() == [1] * 20


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("body", ["del requests[1:]", "assert len(requests) == 1"], ids=["swallows", "chokes"])
def test_that_a_program_that_cannot_do_with_company_is_left_alone(
    body: str, program: MakeProgram, tmp_path: Path
) -> None:
    served = replace(hoarder(program, tmp_path, body), timeout=2.0)
    got = run(served, tmp_path, np.arange(100.0))
    assert got.ok.all(), got.messages
    assert len(set(got.outputs[:, 0])) == 2


@pytest.mark.usefixtures("quick")
def test_that_each_row_in_company_has_its_own_time(program: MakeProgram, tmp_path: Path) -> None:
    served = replace(hoarder(program, tmp_path, seconds=0.25), timeout=2.0)
    started = time.monotonic()
    assert run(served, tmp_path, np.arange(12.0)).ok.all()
    assert time.monotonic() - started > 2.0


# The line protocol.

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.integers(1, 2**53), st.lists(FINITE, min_size=3, max_size=3))
def test_that_a_request_reads_back_exactly(number: int, values: list[float]) -> None:
    line = RequestWriter((SPEED, DEPTH)).write(number, values)
    assert line.count(b"\n") == 1
    request = json.loads(line)
    assert request == {"id": number, "inputs": {"speed": values[0], "depth": values[1:]}}
    assert math.copysign(1, request["inputs"]["speed"]) == math.copysign(1, values[0])


@given(st.integers(1, 2**53), st.lists(FINITE, min_size=3, max_size=3), st.booleans())
def test_that_an_answer_reads_back_exactly(number: int, values: list[float], single: bool) -> None:
    speed = values[:1] if single else values[0]
    answer = {"outputs": {"depth": values[1:], "speed": speed}, "id": number, "seconds": 0.1}
    assert read_answer(json.dumps(answer).encode(), number, (SPEED, DEPTH)) == values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "outputs", "error", "time", "x"]), inner),
)


def outcome_of(line: bytes) -> list[float] | RunError:
    try:
        return read_answer(line, 7, (TIME,))
    except RunError as error:
        return error


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_that_an_answer_raises_one_sentence_if_any(line: bytes) -> None:
    outcome = outcome_of(line)
    assert isinstance(outcome, list) or (str(outcome).isprintable() and len(str(outcome)) < 4000)


@given(JSON)
def test_that_the_outputs_may_be_anything_and_the_program_goes_on(value: Any) -> None:
    outcome = outcome_of(json.dumps({"id": 7, "outputs": {"time": value}}).encode())
    if isinstance(outcome, list):
        assert len(outcome) == 2
    else:
        assert not isinstance(outcome, LostError)
        assert outcome.status is Status.UNREADABLE


def test_that_a_number_of_many_digits_is_a_number() -> None:
    digits = "9" * 10_000
    answer = read_answer(f'{{"id": 1, "outputs": {{"time": [{digits}, 1]}}}}'.encode(), 1, (TIME,))
    np.testing.assert_array_equal(answer, [np.inf, 1.0])


# The documentation.


def server_of(page: str) -> str:
    [example] = re.findall(r"```python\n#!/usr/bin/env python3\n([^`]*for line in sys.stdin.*?)```", page, re.DOTALL)
    return f"#!{sys.executable}\n{example}"


@pytest.fixture
def guide(root: Path) -> str:
    return (root / "docs" / "simulators.md").read_text(encoding="utf-8")


def test_that_the_server_of_the_guide_conforms(guide: str, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(server_of(guide))
    (tmp_path / "server.py").chmod(0o755)
    quantities = DEPTH, Quantity("velocity", "m s-1", (1, 2))
    served = PersistentModel(("./server.py",), quantities, (TIME,), search_path=tmp_path)
    check_forward_model(served, np.array([[100.0, 200.0, 2000.0, 4000.0], [100.0, 200.0, 500.0, 800.0]]), tmp_path)
    [failed] = served.evaluate(np.array([[1.0, 2.0, 0.0, 1.0]]), RunContext(["r0"], tmp_path)).messages
    assert failed.startswith("run r0: the program says: float division by zero")


@pytest.mark.parametrize("adapter", ["callable", "executable", "persistent", "batched"])
def test_that_the_tables_of_the_guide_run(adapter: str, guide: str, otway: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(otway, tmp_path / "otway")
    (folder / "simulator.py").write_text("from invgp.forward_models import two_way_times\n")
    (folder / "server.py").write_text(server_of(guide))
    (folder / "server.py").chmod(0o755)
    tables = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    [table] = [table for table in tables if f'adapter = "{adapter}"' in table]
    config = (folder / "otway_c.toml").read_text()
    before, _, after = config.partition("[forward]")
    (folder / "guide.toml").write_text(f"{before}{table}\n[noise]{after.partition('[noise]')[2]}")
    forward = load(folder / "guide.toml").forward
    values = np.array([[200.0, 500.0, 1600.0, 2200.0, 1950.0, 2300.0, 2750.0, 3650.0]] * 2)
    got = forward.evaluate(values, RunContext(["a", "b"], tmp_path / "runs"))
    assert got.messages == ("", "")
    np.testing.assert_allclose(got.outputs[:, 0], 400.0 / 1950.0)
