"""The run ledger: what it answers, what it refuses, and what it never loses."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import invgp.operating_system
from helpers.problems import map_problem
from invgp import invert
from invgp.adapters import Evaluations, ExecutableModel, InputFile, Quantity, RunContext, Status
from invgp.errors import ConfigError, LedgerError
from invgp.execution.evaluate import evaluate
from invgp.execution.pools.worker_processes import Processes
from invgp.execution.tasks import run_with_retries
from invgp.ledger import Ledger, Recorder
from invgp.ledger.sqlite_errors import translate_errors

SMALL_DISK = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=1m small /mnt && exec "$@"', "sh")
CAN_MOUNT = shutil.which("unshare") and subprocess.run([*SMALL_DISK, "true"], check=False).returncode == 0


@dataclass
class Model:
    """Doubles its input; fails at negative inputs a given number of times; records its inputs."""

    rows_per_task: int = 2
    digest: str = "5eed"
    name: str = "double"
    failures: int = 10**9
    asked: list[float] = field(default_factory=list)
    inputs: tuple[Quantity, ...] = (Quantity("x", "m"), Quantity("y", "m"))
    outputs: tuple[Quantity, ...] = (Quantity("z", "s"),)

    def evaluate(self, values, context: RunContext) -> Evaluations:
        outputs = 2.0 * values[:, :1] + values[:, 1:]
        failed = np.zeros(len(values), dtype=bool)
        for i, x in enumerate(values[:, 0].tolist()):
            failed[i] = x < 0 and self.asked.count(x) < self.failures
            self.asked.append(x)
        outputs[failed] = np.nan
        status = tuple(Status.EXIT_CODE if f else Status.OK for f in failed)
        messages = tuple(f"run {c} failed" if f else "" for c, f in zip(context.labels, failed, strict=True))
        return Evaluations(outputs, status, messages)


def rows(*x: float) -> np.ndarray:
    return np.asarray([[value, 0.1] for value in x])


def context(count: int, directory: Path) -> RunContext:
    return RunContext([f"label{i}" for i in range(count)], directory)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "runs.sqlite", patience=0.2) as opened:
        yield opened


def run(model: Model, values: np.ndarray, ledger: Ledger, **how) -> Evaluations:
    recorder = ledger.open_recorder(model, retries=how.get("retries", 0))
    return evaluate(model, values, context(len(values), ledger.path.parent), recorder=recorder, **how)


def are_equal(one: Evaluations, other: Evaluations) -> bool:
    kept = one.outputs.tobytes() == other.outputs.tobytes()
    return kept and (one.status, one.messages) == (other.status, other.messages)


def test_that_a_repeated_input_is_answered_to_the_bit_and_not_run(ledger: Ledger) -> None:
    model = Model()
    first = run(model, rows(1.1, -2.2, 3.3), ledger)
    again = run(model, rows(1.1, -2.2, 3.3), ledger)
    assert model.asked == [1.1, -2.2, 3.3]
    assert are_equal(first, again)
    assert again.status == (Status.OK, Status.EXIT_CODE, Status.OK)


def test_that_known_and_new_inputs_come_back_in_order(ledger: Ledger) -> None:
    model = Model()
    run(model, rows(1, 3, 5), ledger)
    model.asked.clear()
    recorder = ledger.open_recorder(model)
    values = rows(1, 2, 3, 4, 5, 6, 7)
    outcome = evaluate(model, values, context(7, ledger.path.parent), recorder=recorder)
    assert model.asked == [2, 4, 6, 7]
    assert recorder.reused == 3
    assert are_equal(outcome, Model().evaluate(values, context(7, ledger.path.parent)))


def test_that_another_model_is_not_answered(ledger: Ledger) -> None:
    run(Model(), rows(1), ledger)
    other = Model(digest="0dd")
    run(other, rows(1), ledger)
    assert other.asked == [1]
    assert [model.digest for model in ledger.models()] == ["5eed", "0dd"]


def program(folder: Path) -> ExecutableModel:
    return ExecutableModel(
        command=("./double.sh",),
        inputs=(Quantity("x", "m"),),
        outputs=(Quantity("z", "s"),),
        input_files=(InputFile(Path("input.template"), "input.txt"),),
        environment={"UNITS": (folder / "units").read_text()},
        search_path=folder,
    )


@pytest.mark.parametrize(
    ("file", "text"),
    [("double.sh", "#!/bin/sh\n# new\ncat input.txt"), ("input.template", "{x:.3f}"), ("units", "ft")],
    ids=["program", "template", "setting"],
)
def test_that_a_changed_simulator_is_another_model(file: str, text: str, ledger: Ledger) -> None:
    folder = ledger.path.parent
    (folder / "double.sh").write_text("#!/bin/sh\ncat input.txt")
    (folder / "double.sh").chmod(0o755)
    (folder / "input.template").write_text("{x}")
    (folder / "units").write_text("m")
    values = np.asarray([[1.5]])
    before = program(folder)
    evaluate(before, values, context(1, folder), recorder=ledger.open_recorder(before))
    assert ledger.open_recorder(program(folder)).look_up(values).found.all()
    (folder / file).write_text(text)
    assert not ledger.open_recorder(program(folder)).look_up(values).found.any()


class StoppedError(Exception):
    """In the middle of a batch."""


def test_that_a_resumed_batch_has_the_same_tasks(ledger: Ledger) -> None:
    class Rounding(Model):
        """Against the contract, as BLAS is: a row's last digits depend on the rows beside it."""

        def evaluate(self, values, context):
            outcome = super().evaluate(values, context)
            return replace(outcome, outputs=outcome.outputs + 1e-9 * len(values))

    def stop(part: Evaluations) -> None:
        raise StoppedError

    values = rows(*range(11))
    whole = Rounding(4).evaluate(values[:4], context(4, ledger.path.parent))
    with pytest.raises(StoppedError):
        run(Rounding(4), values, ledger, watch=stop)
    resumed = Rounding(4)
    outcome = run(resumed, values, ledger)
    assert resumed.asked == list(range(4, 11))
    assert outcome.outputs[:4].tobytes() == whole.outputs.tobytes()
    assert np.array_equal(outcome.outputs, evaluate(Rounding(4), values, context(11, ledger.path.parent)).outputs)


def test_that_an_interrupted_run_is_not_a_row(ledger: Ledger) -> None:
    class Interrupted(Model):
        def evaluate(self, values, context):
            if 3.0 in values:
                raise KeyboardInterrupt
            return super().evaluate(values, context)

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(1), rows(1, 2, 3, 4), ledger)
    assert [r.inputs[0] for r in ledger.runs()] == [1, 2]


@pytest.mark.slow
def test_that_a_run_is_recorded_when_it_finishes_though_one_before_it_has_not(ledger: Ledger) -> None:
    folder = ledger.path.parent
    # The first run waits for the last one, which starts when its worker has recorded those before it.
    wait = f'[ "$1" = 0.0 ] && until [ -e {folder}/last ]; do sleep 0.02; done\n[ "$1" = 5.0 ] && touch {folder}/last'
    (folder / "slow.sh").write_text(f'#!/bin/sh\n{wait}\necho "$1"')
    (folder / "slow.sh").chmod(0o755)
    model = ExecutableModel(("./slow.sh", "{x}"), (Quantity("x", "m"),), (Quantity("z", "s"),), search_path=folder)
    values = np.arange(6.0)[:, None]
    with Processes(2) as pool:
        outcome = evaluate(model, values, context(6, folder), recorder=ledger.open_recorder(model), pool=pool)
    assert np.array_equal(outcome.outputs, values)
    recorded = [(r.inputs[0], r.worker) for r in ledger.runs()]
    assert recorded[0][0] != 0.0
    assert len({worker for _, worker in recorded}) == 2


def test_that_a_run_that_fails_is_tried_again_and_its_attempts_counted(ledger: Ledger) -> None:
    model = Model(failures=2)
    outcome = run(model, rows(1, -1), ledger, retries=3)
    assert outcome.ok.all()
    assert model.asked == [1, -1, -1, -1]
    assert [(r.status, r.attempts) for r in ledger.runs()] == [(Status.OK, 1), (Status.OK, 3)]


def test_that_a_message_may_name_a_file_whose_name_is_no_text(ledger: Ledger) -> None:
    class Lost(Model):
        def evaluate(self, values, context: RunContext) -> Evaluations:
            outcome = super().evaluate(values, context)
            return replace(outcome, messages=tuple(f"{m}: no file caf\udce9" if m else "" for m in outcome.messages))

    assert run(Lost(), rows(1, -1), ledger).ok.tolist() == [True, False]
    assert [r.message for r in ledger.runs()] == ["", "run label1 failed: no file caf\\udce9"]


def test_that_more_retries_give_a_failed_run_another_chance(ledger: Ledger) -> None:
    model = Model(failures=3)
    assert not run(model, rows(-1), ledger, retries=1).ok.any()
    assert not run(model, rows(-1), ledger, retries=1).ok.any()
    assert len(model.asked) == 2
    assert run(model, rows(-1), ledger, retries=2).ok.all()
    [row] = ledger.runs()
    assert (row.status, row.attempts, row.message) == (Status.OK, 4, "")


def test_that_a_run_that_could_not_be_started_is_not_held_against_its_inputs(ledger: Ledger) -> None:
    class Unstarted(Model):
        def evaluate(self, values, context):
            outcome = super().evaluate(values, context)
            return replace(outcome, status=(Status.NOT_STARTED,) * len(values))

    run(Unstarted(), rows(1), ledger)
    assert [r.status for r in ledger.runs()] == [Status.NOT_STARTED]
    assert run(Model(), rows(1), ledger).ok.all()
    assert [r.status for r in ledger.runs()] == [Status.OK]


def test_that_a_run_that_went_well_is_never_replaced(ledger: Ledger) -> None:
    model = Model()
    run(model, rows(1), ledger)
    [before] = ledger.runs()
    outcome = Evaluations(np.asarray([[np.nan]]), (Status.TIMEOUT,), ("late",))
    finished = replace(finished_of(model), outcome=outcome)
    ledger.open_recorder(model).record(rows(1), context(1, ledger.path.parent), finished)
    [after] = ledger.runs()
    assert (after.status, after.attempts, after.outputs) == (before.status, before.attempts, before.outputs)


def finished_of(model: Model):
    return run_with_retries(model, rows(1), context(1, Path()))


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(invgp.operating_system, "TemporaryFile", fail)


@pytest.mark.parametrize(("full", "reason"), [(True, "the disk is full"), (False, "disk I/O error")])
def test_that_an_io_error_of_sqlite_on_a_full_disk_names_the_disk(ledger: Ledger, monkeypatch, full, reason) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    if full:
        fill_disk(monkeypatch)
    with pytest.raises(LedgerError, match=f"cannot be read or written: {reason};"), translate_errors(ledger.path):
        raise error


@pytest.mark.slow
@pytest.mark.skipif(not CAN_MOUNT, reason="mounting a file system is not permitted")
@pytest.mark.parametrize("used", [0, 1_024_000, 1_036_288, 1_040_384])
def test_that_a_ledger_on_a_full_disk_is_reported(used: int) -> None:
    code = f"""
        from pathlib import Path
        Path("/mnt/other").write_bytes(bytes({used}))
        from test_ledger import *
        model = Model(64)
        try:
            with Ledger("/mnt/runs.sqlite") as ledger:
                for i in range(100):
                    run(model, rows(*range(1000 * i, 1000 * (i + 1))), ledger)
        except LedgerError as error:
            print(error)
        """
    ended = subprocess.run(
        [*SMALL_DISK, sys.executable, "-c", textwrap.dedent(code)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2]))},
    )
    assert "the disk is full" in ended.stdout


def test_that_runs_that_fail_on_a_full_disk_are_not_taken_for_failures(ledger: Ledger, monkeypatch) -> None:
    fill_disk(monkeypatch)
    with pytest.raises(LedgerError, match=r"nothing more can be written in .* \(No space left on device\)"):
        run(Model(1), rows(1, -1, 2), ledger)
    assert [r.inputs[0] for r in ledger.runs()] == [1]
    monkeypatch.undo()
    assert run(Model(1, failures=0), rows(1, -1, 2), ledger).ok.all()


def test_that_a_full_disk_is_reported_and_loses_no_run(ledger: Ledger) -> None:
    model = Model(4096)
    run(model, rows(1), ledger)
    [(pages,)] = ledger.connection.execute("PRAGMA page_count")
    ledger.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(LedgerError, match=r"cannot be read or written: the disk is full; no run that it holds is lost"):
        run(model, rows(*range(1, 3000)), ledger)
    assert [r.inputs[0] for r in ledger.runs()] == [1]
    ledger.connection.execute("PRAGMA max_page_count = 100000")
    run(model, rows(*range(1, 3000)), ledger)
    assert len(list(ledger.runs())) == 2999


def test_that_a_ledger_locked_by_another_process_is_reported(ledger: Ledger) -> None:
    model = Model()
    run(model, rows(1), ledger)
    recorder = ledger.open_recorder(model)
    other = sqlite3.connect(ledger.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="another process has kept it locked for too long"):
        evaluate(model, rows(2), context(1, ledger.path.parent), recorder=recorder)
    other.close()
    assert evaluate(model, rows(2), context(1, ledger.path.parent), recorder=recorder).ok.all()


def test_that_a_file_that_is_no_ledger_is_left_alone(tmp_path: Path) -> None:
    text, foreign, late = tmp_path / "sites.csv", tmp_path / "foreign.sqlite", tmp_path / "late.sqlite"
    text.write_text("position,t\n" * 100)
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (a)")
    with Ledger(late) as ledger:
        ledger.connection.execute("PRAGMA user_version = 9")
    for path, reason in (
        (text, r"it is damaged, or no SQLite file \(file is not a database\)"),
        (foreign, "it is a SQLite file, but not a ledger of invgp"),
        (late, "its version is 9, and this invgp knows 2; a later invgp wrote it"),
    ):
        before = path.read_bytes()
        for read_only in (False, True):
            with pytest.raises(ConfigError, match=reason):
                Ledger(path, read_only=read_only)
        assert path.read_bytes() == before
    with pytest.raises(ConfigError, match="no such file"):
        Ledger(tmp_path / "none.sqlite", read_only=True)
    assert not (tmp_path / "none.sqlite").exists()


def test_that_a_damaged_ledger_is_reported_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with Ledger(path) as ledger:
        run(Model(4096), rows(*range(2000)), ledger)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    with pytest.raises(ConfigError, match="it is damaged"), Ledger(path) as ledger:
        run(Model(), rows(1), ledger)


def test_that_results_are_synchronised_with_the_disk_before_they_are_used(ledger: Ledger, monkeypatch) -> None:
    printed: list[str] = []
    for name in ("record", "sync"):
        plain = getattr(Recorder, name)
        monkeypatch.setattr(
            Recorder, name, lambda *a, plain=plain, name=name: (printed.append(name), plain(*a))[1]
        )  # fmt: skip
    run(Model(1), rows(1, 2, 3), ledger, watch=lambda part: printed.append("watched"))
    assert printed == ["record", "watched"] * 3 + ["sync"]
    with sqlite3.connect(ledger.path) as other:
        assert other.execute("SELECT COUNT(*) FROM runs").fetchone() == (3,)


def data(posterior: xr.Dataset) -> xr.Dataset:
    return posterior.drop_attrs()


@pytest.mark.slow
def test_that_runs_are_reused_after_a_change_of_noise_or_prior(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    problem = map_problem()
    first = invert(problem, ledger=path)
    assert first.attrs["invgp_runs_from_ledger"] == 0
    noisier = replace(problem.noise, std={name: 3.0 * std for name, std in problem.noise.std.items()})
    smoother = tuple(
        replace(latent, kernel=replace(latent.kernel, length_scale=2.0 * latent.kernel.length_scale))
        for latent in problem.latents
    )
    for changed in (replace(problem, noise=noisier), replace(problem, latents=smoother)):
        assert invert(changed, ledger=path).attrs["invgp_runs"] < invert(changed).attrs["invgp_runs"]
    again = invert(problem, ledger=path)
    assert again.attrs["invgp_runs_from_ledger"] == first.attrs["invgp_runs"]
    xr.testing.assert_identical(data(again), data(first))


def test_that_a_budget_counts_what_the_ledger_answers(tmp_path: Path) -> None:
    problem = map_problem(max_runs=400, emulator=False)
    plain = invert(problem)
    for answered in (0, plain.attrs["invgp_runs"]):
        kept = invert(problem, ledger=tmp_path / "runs.sqlite")
        assert kept.attrs["invgp_runs_from_ledger"] == answered
        assert kept.attrs["invgp_status"] == plain.attrs["invgp_status"]
        xr.testing.assert_identical(data(kept), data(plain))
