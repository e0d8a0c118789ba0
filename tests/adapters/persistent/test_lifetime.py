"""When programs are started and ended, and by whom."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest

from helpers.executable_models import MakeProgram
from helpers.persistent_models import HANG, OK, model, programs_of, run
from invgp.adapters import Evaluations, RunContext, Status, persistent_process
from invgp.execution.evaluate import evaluate
from invgp.execution.pools import open_pool
from invgp.problem import InferenceSettings

pytestmark = pytest.mark.processes

PATIENCE = 120.0  # s, for a busy machine


def gone(home: Path) -> bool:
    end = time.monotonic() + PATIENCE
    while programs_of(home) and time.monotonic() < end:
        time.sleep(0.02)
    return programs_of(home) == []


def test_that_threads_do_not_share_a_program(program: MakeProgram, tmp_path: Path) -> None:
    # Each answers when it has seen the other.
    folder = tmp_path / "seen"
    folder.mkdir()
    see = f"open(f'{folder}/{{os.getpid()}}', 'w').close()"
    wait = f"[time.sleep(0.01) for _ in iter(lambda: len(os.listdir({str(folder)!r})) > 1, True)]"
    served = model(program, tmp_path, f"{see}; {wait}; answer([os.getpid(), 0])")
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loky", "threading"])
def test_that_a_batch_that_is_stopped_ends_the_programs_of_its_workers(
    kind: str, program: MakeProgram, tmp_path: Path
) -> None:
    served = model(program, tmp_path, "time.sleep(3600)", timeout=3600.0)
    values = np.concatenate([np.linspace(3.0, 4.0, 64), np.linspace(1.0, 3.0, 129)[1:]])[:, None]  # one of them is 2

    def stop(part: Evaluations) -> None:
        raise InterruptedError

    start = time.monotonic()
    with pytest.raises(InterruptedError), open_pool(InferenceSettings(workers=2, backend=kind)) as pool:
        evaluate(served, values, RunContext([f"r{i}" for i in range(192)], tmp_path / "runs"), pool=pool, watch=stop)
    assert gone(tmp_path)
    time.sleep(1.0)  # in which a thread could start another
    assert programs_of(tmp_path) == []
    assert time.monotonic() - start < 2 * PATIENCE
    assert run(served, tmp_path, [1.0]).status == ((OK,) if kind == "loky" else (Status.NOT_STARTED,))
    with open_pool(InferenceSettings(workers=2, backend=kind)) as pool:
        again = evaluate(served, values[:1], RunContext(["again"], tmp_path / "runs"), pool=pool)
    assert again.status == (OK,)


@pytest.mark.slow
def test_that_a_program_that_hangs_when_its_worker_is_killed_is_ended(program: MakeProgram, tmp_path: Path) -> None:
    worker = "int(open(f'/proc/{os.getppid()}/stat').read().split()[3])"  # the parent of a program is its supervisor
    once = f"os.path.exists({str(tmp_path / 'once')!r}) or (open({str(tmp_path / 'once')!r}, 'w'), "
    served = model(program, tmp_path, f"{once}os.kill({worker}, signal.SIGKILL), time.sleep(3600)); answer([2.0, 4.0])")
    context = RunContext(["r0", "r1", "r2"], tmp_path / "runs")
    with open_pool(InferenceSettings(workers=2)) as pool:
        outcome = evaluate(served, np.array([[1.0], [2.0], [3.0]]), context, pool=pool)
    assert outcome.status == (OK,) * 3
    assert gone(tmp_path)


def test_that_an_interrupt_ends_the_program_and_passes_through(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    served = model(program, tmp_path, f"open({str(asked)!r}, 'w').close(); {HANG}", timeout=PATIENCE)
    run(served, tmp_path, [1.0])

    def interrupt() -> None:
        while not asked.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(served, tmp_path, [2.0])
    assert programs_of(tmp_path) == []


@pytest.mark.slow
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
    persistent_process.end_all()
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
    worker.communicate(timeout=PATIENCE)
    assert gone(tmp_path)


def test_that_a_child_process_uses_a_program_of_its_own(program: MakeProgram, tmp_path: Path) -> None:
    grandparent = "int(open(f'/proc/{os.getppid()}/stat').read().split()[3])"
    served = model(program, tmp_path, f"answer([{grandparent}, request['id']])")
    assert run(served, tmp_path, [2.0]).outputs.tolist() == [[os.getpid(), 1]]
    child = os.fork()
    if child == 0:
        try:
            same = run(served, tmp_path, [2.0]).outputs.tolist() == [[os.getpid(), 1]]
            persistent_process.end_all()
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
