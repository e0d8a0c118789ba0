"""Processes, threads and Dask: the same numbers, and no run lost, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from helpers.problems import map_problem
from helpers.worker_pools import PATIENCE, Program, cluster, context, rows, started_inputs
from invgp import invert
from invgp.adapters import Evaluations, ForwardModel, Quantity, Status
from invgp.errors import ConfigError, RunsFailedError
from invgp.execution.evaluate import BatchStopped, Concurrency, evaluate
from invgp.execution.pools import Loop, Pool, open_pool
from invgp.ledger import Ledger, LedgerAddress
from invgp.problem import InferenceSettings

pytestmark = pytest.mark.processes

KINDS = ("loky", "threading", "dask")
KILL_WORKER = "read _ _ _ worker _ < /proc/$PPID/stat; kill -9 $worker"  # the parent of a program is its supervisor


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pool(kind: str, request: pytest.FixtureRequest) -> Iterator[Pool]:
    scheduler = request.getfixturevalue("dask_file") if kind == "dask" else None
    settings = (
        InferenceSettings(workers=1)
        if kind == "loop"
        else InferenceSettings(backend=kind, workers=2, scheduler=scheduler)
    )
    with open_pool(settings) as opened:
        if kind == "dask":  # a nanny may still be starting one again that an earlier test killed
            opened.client.wait_for_workers(2, timeout=PATIENCE)
        yield opened


def run(model: ForwardModel, values: np.ndarray, pool: Pool, directory: Path, **how) -> Evaluations:
    with Ledger(directory / "runs.sqlite") as ledger:
        return evaluate(
            model, values, context(len(values), directory), pool=pool, recorder=ledger.open_recorder(model), **how
        )  # fmt: skip


def recorded_statuses(directory: Path) -> dict[float, Status]:
    with Ledger(directory / "runs.sqlite", read_only=True) as ledger:
        runs = list(ledger.runs())
    assert len({r.inputs[0] for r in runs}) == len(runs)
    return {float(r.inputs[0]): r.status for r in runs}


@pytest.mark.slow
def test_that_the_pool_does_not_change_the_result(program: Program, pool: Pool, tmp_path: Path) -> None:
    # Later runs finish first.
    model = program('sleep "$(awk "BEGIN { print (8 - $1) / 20 }")"')
    values = rows(*range(8))
    alone = evaluate(model, values, context(8, tmp_path))
    concurrency = Concurrency()
    outcome = run(model, values, pool, tmp_path, concurrency=concurrency)
    assert outcome.outputs.tobytes() == alone.outputs.tobytes()
    assert outcome.status == alone.status
    assert recorded_statuses(tmp_path) == dict.fromkeys(range(8), Status.OK)
    assert 0.0 < concurrency.average < 2.5
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize("kind", ["loky", "dask"], indirect=True)
def test_that_a_function_is_limited_to_one_thread(function, pool: Pool, tmp_path: Path) -> None:
    import_first = "import numpy, threadpoolctl; numpy.ones(2) @ numpy.ones(2)"
    most = "max([one['num_threads'] for one in threadpoolctl.threadpool_info()], default=1)"
    model = function(f"{import_first}; return float({most})")
    outcome = evaluate(model, rows(1, 2, 3), context(3, tmp_path), pool=pool)
    assert outcome.outputs.tolist() == [[1.0]] * 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loky", "dask"], indirect=True)
def test_that_a_worker_that_is_killed_loses_no_run(program: Program, pool: Pool, tmp_path: Path) -> None:
    # The first to come to run 3 kills its worker, and lives on; it must not spoil the second.
    model = program(
        f'if [ "$1" = 3.0 ] && mkdir {tmp_path}/once 2> /dev/null; then {KILL_WORKER}; sleep 60; exit 1; fi; sleep 0.05'
    )
    values = rows(*range(12))
    outcome = run(model, values, pool, tmp_path)
    assert outcome.ok.all(), outcome.messages
    assert outcome.outputs.tobytes() == evaluate(model, values, context(12, tmp_path)).outputs.tobytes()
    assert recorded_statuses(tmp_path) == dict.fromkeys(range(12), Status.OK)
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loky", "dask"], indirect=True)
def test_that_a_run_that_always_kills_its_worker_is_found(program: Program, pool: Pool, tmp_path: Path) -> None:
    model = program(f'[ "$1" = 3.0 ] && {{ {KILL_WORKER}; }}; sleep 0.05')
    outcome = run(model, rows(*range(9)), pool, tmp_path)
    assert outcome.ok.tolist() == [i != 3 for i in range(9)]
    assert outcome.status[3] is Status.KILLED
    assert outcome.messages[3].startswith("run run3: its worker process died, ")
    assert recorded_statuses(tmp_path) == dict.fromkeys(range(9), Status.OK) | {3: Status.KILLED}
    before = len(started_inputs(tmp_path))
    again = run(model, rows(*range(9)), pool, tmp_path)
    assert again.status == outcome.status
    assert len(started_inputs(tmp_path)) == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loky", "dask"], indirect=True)
def test_that_the_row_of_a_task_that_kills_its_worker_is_found(function, pool: Pool, tmp_path: Path) -> None:
    model = function("if x == 5.0: os.kill(os.getpid(), signal.SIGKILL)")
    assert model.rows_per_task > 7
    outcome = run(model, rows(*range(7)), pool, tmp_path)
    assert [s.value for s in outcome.status] == ["ok"] * 5 + ["killed", "ok"]
    assert recorded_statuses(tmp_path) == dict.fromkeys(range(7), Status.OK) | {5: Status.KILLED}


def test_that_rows_that_are_there_twice_are_run_once(program: Program, tmp_path: Path) -> None:
    model = program('[ "$1" = 2.0 ] && exit 1')
    parts: list[Evaluations] = []
    values = rows(1, 2, 1, 3, 2, 2, 1)
    outcome = evaluate(model, values, context(7, tmp_path), watch=parts.append)
    assert sorted(started_inputs(tmp_path)) == [1, 2, 3]
    assert outcome.ok.tolist() == [True, False, True, True, False, False, True]
    good = outcome.ok
    np.testing.assert_allclose(outcome.outputs[good], values[good] / 3, rtol=1e-5)
    together = Evaluations.concatenate(parts)
    assert (together.status, together.messages) == (outcome.status, outcome.messages)
    assert len(parts) == 3


@pytest.mark.slow
def test_that_workers_write_their_rows_themselves(program: Program, pool: Pool, tmp_path: Path) -> None:
    """Nobody takes the results, and still they are in the ledger."""
    model = program()
    taken = threading.Event()

    def dawdle(part: Evaluations) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(recorded_statuses(tmp_path)) < 3 and time.monotonic() < deadline:  # of this one, and of both workers
            time.sleep(0.02)
        taken.set()
        raise StopError

    class StopError(Exception):
        pass

    with pytest.raises(StopError):
        run(model, rows(*range(8)), pool, tmp_path, watch=dawdle)
    assert taken.is_set()
    assert len(recorded_statuses(tmp_path)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loky", "dask"], indirect=True)
def test_that_a_run_is_recorded_before_its_worker_returns_it(pool: Pool, tmp_path: Path) -> None:
    class Deadly(Evaluations):
        """An outcome that kills, the first time, whoever wants to send it away."""

        def __reduce__(self):
            if not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return Evaluations, (self.outputs, self.status, self.messages)

    class Model:
        # One task: a worker that dies while it makes other runs, as Dask lets it, cannot have recorded those.
        name, digest, rows_per_task = "deadly", "5eed", 6
        inputs, outputs = (Quantity("x", "m"),), (Quantity("z", "s"),)

        def evaluate(self, values, context):
            with (tmp_path / "started").open("a") as file:
                file.writelines(f"{x}\n" for x in values[:, 0])
            bad = values[:, 0] == 1.0
            status = tuple(Status.NAN if b else Status.OK for b in bad)
            messages = tuple("no number" if b else "" for b in bad)
            return Deadly(np.where(bad[:, None], np.nan, values / 3), status, messages)

    outcome = run(Model(), rows(*range(6)), pool, tmp_path)
    assert (tmp_path / "died").exists()
    assert sorted(started_inputs(tmp_path)) == list(range(6))
    assert outcome.ok.tolist() == [True, False, True, True, True, True]
    assert recorded_statuses(tmp_path) == dict.fromkeys(range(6), Status.OK) | {1: Status.NAN}


def test_that_a_ledger_out_of_reach_is_left_to_the_parent(tmp_path: Path, program: Program) -> None:
    model = program()
    with Ledger(tmp_path / "runs.sqlite") as ledger:
        address = LedgerAddress.from_recorder(ledger.open_recorder(model))
        assert address.open_recorder() is not None
        for other in (
            replace(address, host="elsewhere"),
            replace(address, inode=1),
            replace(address, path=tmp_path / "no"),
        ):
            assert other.open_recorder() is None
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("kind", ["loky", "dask"], indirect=True)
def test_that_what_a_worker_cannot_record_is_reported_in_one_sentence(
    program: Program, pool: Pool, tmp_path: Path
) -> None:
    model = program()
    with Ledger(tmp_path / "runs.sqlite") as ledger:
        recorder = ledger.open_recorder(model)
        ledger.connection.execute("DROP TABLE runs")
        ledger.connection.execute("CREATE TABLE runs (digest, outputs, status, attempts, message)")
        with pytest.raises(
            ConfigError, match=r"the ledger .* cannot be used: it is damaged \(table runs has no column"
        ):
            evaluate(model, rows(1, 2), context(2, tmp_path), pool=pool, recorder=recorder)


@pytest.mark.slow
def test_that_an_inversion_is_the_same_on_every_pool(kind: str, request: pytest.FixtureRequest) -> None:
    problem = map_problem()
    scheduler = request.getfixturevalue("dask_file") if kind == "dask" else None
    settings = problem.inference.replace(backend=kind, workers=2, scheduler=scheduler)
    alone, together = (invert(p).drop_attrs() for p in (problem, replace(problem, inference=settings)))
    assert alone.identical(together)


def assert_refused(sentence: str, **settings) -> None:
    with pytest.raises(ConfigError, match=sentence):
        open_pool(InferenceSettings(**settings))


def test_that_a_scheduler_that_is_not_there_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("invgp.execution.pools.dask_cluster.RESPONSE_TIME", 0.5)
    must = "inference.scheduler: must be the address or file of a running Dask scheduler"
    assert_refused(f"{must}, was 'tcp://127.0.0.1:1': ", backend="dask", scheduler="tcp://127.0.0.1:1")
    file = str(tmp_path / "none.json")
    assert_refused(f"{must}, was '{file}': No such file", backend="dask", scheduler=file)
    (tmp_path / "none.json").write_text("[]")
    assert_refused(f"{must}, was '{file}': the file is no JSON object", backend="dask", scheduler=file)
    assert_refused(f"{must.replace('running ', '')} with inference.backend = 'dask', was left out", backend="dask")


@pytest.mark.parametrize(
    ("scheduler", "why"),
    [
        ("nonsense://x", "unknown address scheme 'nonsense'"),
        ("nonsense", "missing port number in address 'nonsense'"),
        ("tcp://no.such.host.invalid:8786", "(Name or service not known|Temporary failure in name resolution)"),
    ],
)
def test_that_no_client_is_made_for_what_is_no_address(
    scheduler: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would go on for 20 s after the sentence, and then end with a traceback.
    monkeypatch.setattr("distributed.Client", None)
    assert_refused(f"of a running Dask scheduler, was '{scheduler}': {why}", backend="dask", scheduler=scheduler)


def test_that_dask_that_is_not_installed_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert_refused(
        r"inference.backend: 'dask' needs distributed, which is not installed: pip install 'invgp\[dask\]'",
        backend="dask",
        scheduler="tcp://127.0.0.1:1",
    )


@pytest.mark.slow
def test_that_a_cluster_without_workers_is_reported_in_one_sentence(program: Program, tmp_path: Path) -> None:
    """The one worker dies with the run, and nobody starts it again."""
    model = program(KILL_WORKER)
    with cluster(tmp_path, workers=1, nanny=False) as (file, _):
        settings = InferenceSettings(backend="dask", scheduler=str(file), worker_timeout=1.0)
        with open_pool(settings) as pool, pytest.raises(RunsFailedError, match="has had no worker for inference"):
            evaluate(model, rows(1, 2), context(2, tmp_path), pool=pool)


@pytest.mark.slow
def test_that_a_scheduler_that_dies_is_reported_in_one_sentence(program: Program, tmp_path: Path) -> None:
    model = program("sleep 1")
    with cluster(tmp_path, workers=1) as (file, scheduler):

        def kill(part: Evaluations) -> None:
            os.kill(scheduler.pid, signal.SIGKILL)

        settings = InferenceSettings(backend="dask", scheduler=str(file))
        with open_pool(settings) as pool, pytest.raises(RunsFailedError, match=r"the Dask scheduler .* has gone"):
            evaluate(model, rows(*range(20)), context(20, tmp_path), pool=pool, watch=kill)


def test_that_an_error_of_a_dask_worker_is_reported(function, dask_file: str, tmp_path: Path) -> None:
    model = function("pass")
    (tmp_path / "simulator.py").write_text("def run(x):\n    return x\n")  # not what was asked for
    with (
        open_pool(InferenceSettings(backend="dask", scheduler=dask_file)) as pool,
        pytest.raises(RunsFailedError, match=r"a Dask worker could not do its work .*has changed since the model was"),
    ):
        evaluate(model, rows(1), context(1, tmp_path), pool=pool)


@contextmanager
def nothing_left(directory: Path) -> Iterator[None]:
    yield
    deadline = time.monotonic() + PATIENCE
    while any(str(directory) in " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < deadline, "a program goes on"
        time.sleep(0.05)


@pytest.mark.slow
def test_that_a_batch_that_is_stopped_leaves_nothing_running(program: Program, pool: Pool, tmp_path: Path) -> None:
    def stop(part: Evaluations) -> None:
        raise KeyboardInterrupt

    model = program('[ "$1" = 0.0 ] || sleep 600')
    with nothing_left(tmp_path), pytest.raises(KeyboardInterrupt):
        run(model, rows(*range(6)), pool, tmp_path, watch=stop)
    assert recorded_statuses(tmp_path) == {0: Status.OK}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "loop"], indirect=True)
def test_that_runs_under_way_are_recorded_when_too_many_have_failed(
    program: Program, pool: Pool, tmp_path: Path
) -> None:
    """The first run fails when two have started, and the second ends later."""

    def stop(part: Evaluations) -> None:
        assert not part.ok.any()
        (tmp_path / "heard").touch()
        raise BatchStopped

    wait = f"until [ -e {tmp_path}/heard ]; do sleep 0.02; done"
    fail = f"until [ $(wc -l < {tmp_path}/started) = 2 ]; do sleep 0.02; done; exit 1"
    body = "exit 1" if isinstance(pool, Loop) and not pool.records_runs else f'[ "$1" = 0.0 ] && {{ {fail}; }}\n{wait}'
    with nothing_left(tmp_path), pytest.raises(BatchStopped):
        run(program(body), rows(*range(20)), pool, tmp_path, watch=stop)
    found = recorded_statuses(tmp_path)
    assert sorted(found) == sorted(started_inputs(tmp_path))
    assert [status for x, status in found.items() if x] == [Status.OK] * (len(found) - 1)
    assert len(found) == 1 if not pool.records_runs else 2 <= len(found) <= 4  # Dask has given out one more per worker


@pytest.mark.slow
def test_that_a_batch_after_one_that_was_stopped_runs(program: Program, pool: Pool, tmp_path: Path) -> None:
    def stop(part: Evaluations) -> None:
        raise KeyboardInterrupt

    model = program(f'[ "$1" = 0.0 ] || [ -e {tmp_path}/quick ] || sleep 600')
    with pytest.raises(KeyboardInterrupt):
        run(model, rows(*range(6)), pool, tmp_path, watch=stop)
    (tmp_path / "quick").touch()
    outcome = run(model, rows(*range(8)), pool, tmp_path)
    assert outcome.ok.all(), outcome.messages
    assert recorded_statuses(tmp_path) == dict.fromkeys(range(8), Status.OK)


def test_that_ctrl_c_in_the_finalizer_of_a_future_stops_the_batch(
    program: Program, dask_file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from distributed import Future  # noqa: PLC0415

    finalize, sent = Future.__del__, []

    def finalize_after_ctrl_c(future: Future) -> None:
        finalize(future)
        if not sent and threading.current_thread() is threading.main_thread():
            sent.append(future.key)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Future, "__del__", finalize_after_ctrl_c)
    with (
        open_pool(InferenceSettings(backend="dask", scheduler=dask_file)) as pool,
        pytest.raises(KeyboardInterrupt),
    ):
        run(program('[ "$1" = 1.0 ] || sleep 5'), rows(1.0, 2.0, 3.0), pool, tmp_path)
    assert sent
    assert 1.0 in recorded_statuses(tmp_path)


CTRL_C_AT_A_LOCK = """
import os, signal, sys, threading, time
from concurrent.futures import _base
from pathlib import Path
from invgp.execution.pools.worker_processes import Processes

def lock_and_interrupt(futures, lock=_base._AcquireFutures.__enter__):
    lock(futures)  # Python executes a signal handler after any call, such as that of the last lock
    raise KeyboardInterrupt

def interrupt_when(started):
    while not started.exists():
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

_base._AcquireFutures.__enter__ = lock_and_interrupt
started = Path(sys.argv[1]) / "started"
threading.Thread(target=interrupt_when, args=(started,), daemon=True).start()
command = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(300)"
try:
    with Processes(2) as pool:
        list(pool.run(exec, [command] * 4, Path(sys.argv[1])))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
def test_that_ctrl_c_while_a_future_is_locked_does_not_hang(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CTRL_C_AT_A_LOCK, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert ended.stdout == "interrupted\n"


def test_that_threads_are_kept_and_close_their_ledgers(program: Program, tmp_path: Path) -> None:
    def open_ledgers() -> int:
        return [file.resolve() for file in Path("/proc/self/fd").iterdir()].count(tmp_path / "runs.sqlite")

    model = program()
    before = set(threading.enumerate())
    with open_pool(InferenceSettings(backend="threading", workers=2)) as pool:
        run(model, rows(0, 1), pool, tmp_path)
        first = set(threading.enumerate()) - before
        run(model, rows(2, 3), pool, tmp_path)
        assert set(threading.enumerate()) - before == first != set()
    assert set(threading.enumerate()) <= before
    assert open_ledgers() == 0


def test_that_the_threads_of_a_stopped_batch_end_before_the_next(tmp_path: Path) -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(number: int) -> int:
        if number == 1:
            begun.set()
            goes_on.wait(PATIENCE)
            ended.set()
        return number

    with open_pool(InferenceSettings(backend="threading", workers=2)) as pool:
        batch = pool.run(slow, [0, 1], tmp_path)
        next(batch)
        assert begun.wait(PATIENCE)
        batch.close()
        threading.Timer(0.05, goes_on.set).start()
        assert list(pool.run(lambda _: ended.is_set(), [0], tmp_path)) == [(0, True)]


def test_that_one_worker_is_a_loop() -> None:
    assert isinstance(open_pool(InferenceSettings(backend="threading")), Loop)
