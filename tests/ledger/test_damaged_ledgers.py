"""A damaged ledger is reported in one sentence, and damaged rows are never used as results."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.command_line import run_in_process, with_program, write_files
from helpers.damaged_ledgers import MODELS, RUNS, STATEMENTS, VALUES, Model, campaign, edit, make_ledger
from invgp.adapters import RunContext
from invgp.errors import ConfigError, LedgerError
from invgp.execution.evaluate import evaluate
from invgp.ledger import Ledger, schema
from invgp.ledger import sqlite_errors as interrupted_statements
from invgp.ledger.rows import INTACT

BYTES_CHANGED = 60  # files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_ledger(tmp_path / "runs.sqlite")
    return tmp_path / "runs.sqlite"


@pytest.mark.slow
def test_that_damage_causes_no_traceback_no_hang_and_no_wrong_result(tmp_path: Path) -> None:
    outcomes, faults = campaign(len(STATEMENTS) + BYTES_CHANGED, 0, tmp_path)
    assert faults == []
    assert outcomes["refused"] > 0
    assert outcomes["used"] > 0
    assert outcomes["runs missing without a word"] == 0


class Counting(Model):
    """Knows how many runs it was asked for."""

    made: int = 0

    def evaluate(self, values, context):
        self.made += len(values)
        return super().evaluate(values, context)


def use(path: Path) -> tuple[int, np.ndarray]:
    """How many runs were made for a batch that the ledger holds, and its outputs."""
    model = Counting()
    with Ledger(path) as ledger:
        context = RunContext([f"run-{i}" for i in range(RUNS)], path.parent)
        outcome = evaluate(model, VALUES, context, recorder=ledger.open_recorder(model))
    return model.made, outcome.outputs


def flip(path: Path, content: bytes, *, copy: int = 0) -> None:
    """Flip a bit of some content of the file, where it is for the first time or again."""
    data, place = bytearray(path.read_bytes()), -1
    for _ in range(copy + 1):
        place = data.index(content, place + 1)
    data[place + 2] ^= 4
    path.write_bytes(data)


def test_that_a_run_with_a_flipped_bit_is_made_again_and_no_other(path: Path, caplog) -> None:
    expected = MODELS[0].evaluate(VALUES, RunContext([], path.parent)).outputs
    good = np.flatnonzero(np.isfinite(expected[:, 0]))[:3]
    for i in good:
        flip(path, expected[i].tobytes())
    with Ledger(path, read_only=True) as ledger, caplog.at_level(logging.WARNING):
        listed = [run.label for run in ledger.runs(model=ledger.models()[0])]
    assert len(listed) == RUNS - 3
    assert "3 runs of the ledger" in caplog.text
    caplog.clear()
    made, outputs = use(path)
    assert made == 3
    assert outputs.tobytes() == expected.tobytes()
    assert "3 runs of the ledger" in caplog.text
    assert "damaged: made again" in caplog.text
    caplog.clear()
    assert use(path)[0] == 0
    assert caplog.text == ""
    with Ledger(path, read_only=True) as ledger:
        assert {run.attempts for run in ledger.runs()} == {1}


@pytest.mark.parametrize("copy", [0, 1])
def test_that_a_damaged_index_is_rebuilt_and_costs_no_run(copy: int, path: Path, caplog) -> None:
    with closing(sqlite3.connect(path)) as connection:
        [(digest,)] = connection.execute("SELECT digest FROM runs WHERE run = 7")
    flip(path, digest, copy=copy)
    made, outputs = use(path)
    assert made <= 1  # the key itself is damaged, or its entry in the index
    assert outputs.tobytes() == MODELS[0].evaluate(VALUES, RunContext([], path.parent)).outputs.tobytes()
    assert "have been rebuilt" in caplog.text
    assert use(path)[0] == 0


def test_that_the_description_of_a_model_is_restored(path: Path) -> None:
    edit(path, "UPDATE models SET digest = 'x' || digest, about = replace(about, 'double', 'tribble') WHERE model = 1")
    with Ledger(path, read_only=True) as ledger:
        assert [model.name for model in ledger.models()] == ["another"]
    assert use(path)[0] == 0
    with Ledger(path, read_only=True) as ledger:
        assert [model.name for model in ledger.models()] == ["double", "another"]
        assert len(list(ledger.runs())) == 2 * RUNS


def to_version_1(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table in ("models", "runs", "inversions"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        connection.execute("DROP TABLE claims")  # which early files lack
        connection.execute("PRAGMA user_version = 1")


def test_that_rows_of_the_version_before_get_their_checksums_on_first_use(path: Path) -> None:
    to_version_1(path)
    before = path.read_bytes()
    with Ledger(path, read_only=True) as ledger:
        assert len(list(ledger.runs())) == 2 * RUNS
    assert path.read_bytes() == before
    assert use(path)[0] == 0
    with Ledger(path) as ledger:
        assert list(ledger.select(f"SELECT COUNT(*) FROM runs WHERE {INTACT}")) == [(2 * RUNS,)]
    with Ledger(path, read_only=True) as ledger:
        assert len(list(ledger.runs())) == 2 * RUNS


class Clock(SimpleNamespace):
    """A clock on which much time passes between two looks, of which the processor works a share; it may call first."""

    def __init__(self, share: float = 1.0, call=lambda: None) -> None:
        times = {"wall": 0.0, "processor": 0.0}

        def look(which: str) -> float:
            call()
            times["wall"] += 1e6
            times["processor"] = share * times["wall"]
            return times[which]

        super().__init__(monotonic=lambda: look("wall"), thread_time=lambda: look("processor"))


@pytest.fixture
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupted_statements, "_INSTRUCTIONS", 10)


@pytest.mark.usefixtures("looked_at_often")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_that_a_signal_while_a_ledger_is_checked_is_no_damage(number: int, path: Path, monkeypatch) -> None:
    calls = iter(range(1000))
    signalled = lambda: signal.raise_signal(number) if next(calls) == 3 else None  # noqa: E731
    before = signal.signal(number, signal.default_int_handler)
    try:
        monkeypatch.setattr(schema, "time", Clock(0.0, signalled))
        monkeypatch.setattr(schema, "_SECONDS", 1e20)
        with pytest.raises(KeyboardInterrupt):
            Ledger(path)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_that_a_signal_while_a_ledger_is_migrated_is_no_damage(path: Path, monkeypatch) -> None:
    to_version_1(path)
    checksum = schema.run_checksum
    monkeypatch.setattr(schema, "run_checksum", lambda *row: signal.raise_signal(signal.SIGINT) or checksum(*row))
    with pytest.raises(KeyboardInterrupt):
        Ledger(path)
    monkeypatch.undo()
    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.execute("PRAGMA user_version")) in ([(1,)], [(2,)])
    assert use(path)[0] == 0


@pytest.mark.usefixtures("looked_at_often")
def test_that_a_slow_disk_is_not_damage(path: Path, monkeypatch) -> None:
    monkeypatch.setattr(schema, "time", Clock(0.0))
    with pytest.raises(LedgerError, match="its disk is too slow"):
        Ledger(path)
    monkeypatch.setattr(schema, "time", Clock(1.0))
    with pytest.raises(ConfigError, match="refer to each other without end"):
        Ledger(path)


def test_that_a_sound_ledger_is_scanned_once(path: Path) -> None:
    statements: list[str] = []
    with closing(sqlite3.connect(path)) as connection:
        connection.set_trace_callback(statements.append)
        assert schema.check_file(connection, path) == (2, True)
    assert [s for s in statements if "_check" in s] == ["PRAGMA integrity_check(100)"]


def test_that_statistics_of_analyze_are_allowed(path: Path) -> None:
    edit(path, "CREATE TABLE other(tbl,idx,neq,nlt,ndlt,sample)")
    edit(
        path,
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET name = 'sqlite_stat4', tbl_name = 'sqlite_stat4', "
        "sql = replace(sql, 'other', 'sqlite_stat4') WHERE name = 'other'",
    )
    assert use(path)[0] == 0


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DROP TABLE runs", "it is damaged (it has no table 'runs')"),
        ("DROP TABLE runs; CREATE VIEW runs AS SELECT 1", "it is damaged (it contains the view 'runs'"),
        ("ALTER TABLE runs RENAME COLUMN outputs TO gave", "it is damaged (its table 'runs' has other columns"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END", "it is damaged (it contains the trigger 't'"),
    ],
)
def test_that_other_tables_than_those_of_a_ledger_are_refused(statement: str, reason: str, path: Path) -> None:
    edit(path, statement)
    printed = run_in_process("runs", "list", path.name, cwd=path.parent)
    assert (printed.returncode, printed.stdout) == (2, "")
    assert printed.stderr.startswith(f"invgp: the ledger 'runs.sqlite' cannot be used: {reason}")
    assert "no run that it holds is lost" not in printed.stderr
    with pytest.raises(ConfigError, match="it is damaged"):
        Ledger(path)


def test_that_a_truncated_ledger_ends_an_inversion_before_the_first_run(tmp_path: Path) -> None:
    make_ledger(tmp_path / "posterior.ledger.sqlite")
    data = (tmp_path / "posterior.ledger.sqlite").read_bytes()
    (tmp_path / "posterior.ledger.sqlite").write_bytes(data[: len(data) // 2])
    write_files(tmp_path, with_program(body="touch $(dirname $0)/was_called", directory=tmp_path))
    printed = run_in_process("run", "survey.toml", cwd=tmp_path)
    assert printed.returncode == 2
    assert "posterior.ledger.sqlite' cannot be used: it is damaged (" in printed.stderr
    assert not (tmp_path / "was_called").exists()
    assert (tmp_path / "posterior.ledger.sqlite").read_bytes() == data[: len(data) // 2]


def test_that_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read_only in (False, True):
        with pytest.raises(ConfigError, match="it is no regular file"):
            Ledger(tmp_path / "pipe", read_only=read_only)
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="it is empty"):
        Ledger(tmp_path / "empty", read_only=True)


def test_that_control_characters_in_a_ledger_are_escaped(path: Path) -> None:
    with Ledger(path) as ledger:
        model = Model("feedfeedfeedfeed", "\x1b[31mred")
        context = RunContext(["\x1b[2Jlabel"], path.parent)
        evaluate(model, VALUES[:1], context, recorder=ledger.open_recorder(model))
    for arguments in (("list", path.name), ("show", path.name, str(2 * RUNS + 1))):
        printed = run_in_process("runs", *arguments, cwd=path.parent).stdout
        assert "\\x1b[2Jlabel" in printed
        assert "\x1b" not in printed
