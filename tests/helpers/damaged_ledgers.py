"""Ledgers that are damaged in as many ways as wanted, and what the commands that read them make of it.

    PYTHONPATH=tests python -m helpers.damaged_ledgers --files 2000

Each file is a real ledger with bytes, pages or rows changed by a seeded generator. `invgp runs list`, `show` and
`export` read it, and then an inversion's recorder opens it to write and looks up all runs. None of them may fail with
anything but a sentence, take long, or give a value that was not written.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import numpy as np
import pandas as pd

from helpers.command_line import run_in_process
from invgp.adapters import Evaluations, Quantity, RunContext, Status
from invgp.errors import ConfigError, LedgerError
from invgp.execution.evaluate import evaluate
from invgp.ledger import Ledger

PAGE = 512  # bytes, so that even a small ledger has trees of several levels
RUNS = 60
PATIENCE = 60  # s, for one file, on a busy machine
SENTENCES = (0, 1, 2)  # exit codes of a command that has understood what is wrong


@dataclass
class Model:
    """Doubles its input and fails at negative ones."""

    digest: str = "5eed5eed5eed5eed"
    name: str = "double"
    rows_per_task: int = 8
    inputs: tuple[Quantity, ...] = (Quantity("x", "m"), Quantity("y", "m", (1, 2)))
    outputs: tuple[Quantity, ...] = (Quantity("z", "s"),)

    def evaluate(self, values: np.ndarray, context: RunContext) -> Evaluations:
        failed = values[:, 0] < -1.0
        outputs = np.where(failed[:, None], np.nan, 2.0 * values[:, :1])
        status = tuple(Status.EXIT_CODE if f else Status.OK for f in failed)
        return Evaluations(outputs, status, tuple(f"exit code 3{'!' * 200}" if f else "" for f in failed))


VALUES = np.random.default_rng(0).standard_normal((RUNS, 3))
MODELS = (Model(), Model("0dd0dd0dd0dd0dd0", "another"))


def make_ledger(path: Path) -> None:
    """Write a ledger with the runs of two models, a claim and an inversion."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("VACUUM")
    with Ledger(path) as ledger:
        for model in MODELS:
            context = RunContext([f"evaluation-1-site{i}" for i in range(RUNS)], path.parent)
            evaluate(model, VALUES, context, recorder=ledger.open_recorder(model))
            ledger.open_recorder(model).read_earlier_runs(f"inversion of {model.name}", "", 10)
        ledger.connection.execute("INSERT INTO claims VALUES (x'00', 'here/ 1 0.0 me')")


ROWS = ("label", "inputs", "outputs", "status", "attempts", "seconds", "worker", "finished", "message", "directory")
VIEW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"
COLUMNS = "i AS run, x'00' AS digest, 1 AS model, " + ", ".join(f"'' AS {name}" for name in ROWS) + ", x'' AS checksum"
STATEMENTS = (
    "DROP TABLE runs",
    "DROP TABLE models",
    "DROP TABLE claims",
    "DROP TABLE inversions",
    "DROP TABLE synced",
    "DROP INDEX failed",
    "DELETE FROM models",
    "DELETE FROM synced",
    "ALTER TABLE runs RENAME COLUMN outputs TO gave",
    "ALTER TABLE runs ADD COLUMN more DEFAULT 1",
    "ALTER TABLE runs RENAME TO jobs",
    f"DROP TABLE runs; CREATE VIEW runs AS {VIEW.format(COLUMNS)}",
    "DROP TABLE models; CREATE VIEW models AS "
    + VIEW.format("i AS model, 'a' AS digest, '{}' AS about, x'' AS checksum"),
    "DROP TABLE runs; CREATE TABLE runs (digest)",
    f"CREATE TRIGGER t AFTER INSERT ON synced BEGIN SELECT * FROM ({VIEW.format('i')}); END",
    "CREATE TABLE other (a)",
    "CREATE VIEW other AS SELECT * FROM runs",
    "CREATE INDEX other ON runs (abs(model))",
    "PRAGMA user_version = 1",
    "PRAGMA user_version = 77",
    "PRAGMA user_version = -3",
    "PRAGMA application_id = 5",
    "PRAGMA journal_mode = DELETE",
    "VACUUM",
    "ANALYZE",
    "UPDATE models SET about = '{'",
    "UPDATE models SET about = '[]', checksum = NULL",
    "UPDATE models SET model = model + 7",
    "UPDATE models SET digest = digest || 'f' WHERE model = 1",
    "UPDATE inversions SET last = last + 9",
    "UPDATE claims SET owner = CAST(x'ff00fe' AS TEXT)",
    "UPDATE runs SET model = 9 WHERE run % 2",
    "UPDATE runs SET checksum = NULL WHERE run % 3 = 0",
    "UPDATE runs SET outputs = x'00'",
    "UPDATE runs SET outputs = x'0000000000000840' WHERE status = 'ok'",
    "UPDATE runs SET status = 'ok' WHERE status <> 'ok'",
    "UPDATE runs SET status = CAST(x'ff' AS TEXT), label = CAST(x'c328' AS TEXT) WHERE run % 2",
    "UPDATE runs SET attempts = 'many', seconds = 'long', finished = 1e300",
    "UPDATE runs SET seconds = 1e999, finished = -1e999",
    "UPDATE runs SET message = char(27) || '[2J' || label",
    "UPDATE runs SET digest = randomblob(16)",
    "UPDATE runs SET run = run + 4611686018427387904",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 2 WHERE name = 'runs'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'runs'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'rubbish' WHERE name = 'runs'",
    "PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE name LIKE 'sqlite_auto%'",
)


def edit(path: Path, statement: str) -> None:
    """Change a ledger by SQL, as anybody may."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(statement)


def spoil(data: bytes, chance: random.Random) -> bytes:
    """Change the bytes of a file."""
    out, pages = bytearray(data), len(data) // PAGE
    place, page = chance.randrange(len(data)), chance.randrange(pages)
    length = min(chance.choice((1, 4, 16, 100, PAGE)), len(data) - place)

    def flip(count: int, start: int = 0, stop: int = len(data)) -> None:
        for _ in range(count):
            out[chance.randrange(start, stop)] ^= 1 << chance.randrange(8)

    def fill() -> None:
        out[place : place + length] = chance.choice((bytes(length), b"\xff" * length, chance.randbytes(length)))

    def put(other: int) -> None:
        out[page * PAGE : (page + 1) * PAGE] = data[other * PAGE : (other + 1) * PAGE]

    def swap() -> None:
        other = chance.randrange(pages)
        put(other)
        out[other * PAGE : (other + 1) * PAGE] = data[page * PAGE : (page + 1) * PAGE]

    def point() -> None:  # the pages that an inner page leads to, and where the cells of a page are
        start = page * PAGE + chance.choice((0, 1, 3, 5, 8, 8, 8, 10, 12, 14))
        out[start : start + 2] = chance.choice((0, 1, page + 1, chance.randrange(pages), 0xFFFF)).to_bytes(2, "big")

    def set_page_size() -> None:
        out[16:18] = chance.choice((0, 1, 2, 500, 1024, 4096, 0x8000, 0xFFFF)).to_bytes(2, "big")

    ways: Sequence[Callable[[], object]] = (
        lambda: flip(1),
        lambda: flip(chance.randrange(2, 30)),
        lambda: flip(1, 0, 100),
        lambda: flip(3, page * PAGE, page * PAGE + 16),
        fill,
        lambda: out.__delitem__(slice(place, None)),
        lambda: out.__delitem__(slice(page * PAGE, None)),
        lambda: out.__delitem__(slice(place, place + length)),
        lambda: out.__setitem__(slice(place, place), chance.randbytes(length)),
        lambda: out.extend(chance.randbytes(length)),
        swap,
        lambda: put(chance.randrange(pages)),
        point,
        set_page_size,
    )
    chance.choice(ways)()
    return bytes(out)


def damage(path: Path, number: int, seed: int) -> str:
    """Damage a ledger; what was done to it."""
    chance = random.Random(f"{seed} {number}")
    if number < len(STATEMENTS):
        edit(path, STATEMENTS[number])
        return STATEMENTS[number]
    log = path.with_name(f"{path.name}-wal")
    if number % 10 == 0:
        log.write_bytes(chance.choice((b"", chance.randbytes(4000), spoil(path.read_bytes(), chance))))
        return "a log that is none"
    path.write_bytes(spoil(path.read_bytes(), chance))
    return "bytes"


@dataclass
class Truth:
    """What the ledger held before, by model and label: SQLite numbers the rows, and nothing depends on that."""

    rows: dict[tuple[object, object], dict[str, object]]
    table: pd.DataFrame

    @staticmethod
    def of(path: Path) -> Truth:
        rows = {(row["model"], row["label"]): row | {"run": 0} for row in list_runs(path)[1]}
        return Truth(rows, export(path, 0)[1].drop(columns="run"))


def list_runs(path: Path) -> tuple[int, list[dict[str, object]], str]:
    """Exit code, runs and standard error of `invgp runs list --json`."""
    printed = run_in_process("runs", "list", path.name, "--json", cwd=path.parent)
    return printed.returncode, json.loads(printed.stdout) if printed.returncode == 0 else [], printed.stderr


def export(path: Path, model: int) -> tuple[int, pd.DataFrame]:
    """Exit code and table of `invgp runs export`."""
    target = path.with_name("runs.csv")
    target.unlink(missing_ok=True)
    start = MODELS[model].digest[:4]
    printed = run_in_process("runs", "export", path.name, "-o", target.name, "--model", start, cwd=path.parent)
    return printed.returncode, pd.read_csv(target) if printed.returncode == 0 else pd.DataFrame()


def judge(path: Path, truth: Truth) -> tuple[str, bool]:
    """What the commands say of a ledger, and whether runs are missing without a word of it.

    Raises
    ------
    AssertionError
        An exit code or a value is wrong.
    """
    code, listed, reported = list_runs(path)
    assert code in SENTENCES, reported
    assert code == 0 or reported.startswith("invgp: the ledger ") or reported.startswith("invgp: the indexes"), reported
    for row in listed:
        key = row["model"], row["label"]
        assert truth.rows.get(key) == row | {"run": 0}, f"{row} for {truth.rows.get(key)}"
    silent = code == 0 and len(listed) < len(truth.rows) and "damage" not in reported
    code, table = export(path, 0)
    assert code in SENTENCES
    if len(table):
        table = table.drop(columns="run").sort_values("label", ignore_index=True)
        expected = truth.table.set_index("label").loc[table["label"]].reset_index()[list(table.columns)]
        pd.testing.assert_frame_equal(table, expected, check_exact=True, check_dtype=False)
    shown = run_in_process("runs", "show", path.name, "17", cwd=path.parent)
    assert shown.returncode in SENTENCES, shown.stderr
    try:
        with Ledger(path, patience=1.0) as ledger:
            for model in MODELS:
                recorder = ledger.open_recorder(model)
                recorder.read_earlier_runs(f"inversion of {model.name}", "", 10)
                known = recorder.look_up(VALUES)
                expected = model.evaluate(VALUES, RunContext([], path.parent))
                right = expected.outputs[known.found].tobytes() == known.outcome.outputs[known.found].tobytes()
                assert right, "an output that was never written"
                assert all(known.outcome.status[i] == expected.status[i] for i in np.flatnonzero(known.found))
                context = RunContext([f"run-{i}" for i in range(RUNS)], path.parent)
                made = evaluate(model, VALUES, context, recorder=recorder)
                assert made.outputs.tobytes() == expected.outputs.tobytes()
    except (ConfigError, LedgerError):
        return "refused", silent
    code, listed, reported = list_runs(path)
    assert code == 0, reported
    return "used" if listed else "used, with no run left", silent


class SlowError(Exception):
    """Reading a file takes for ever."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `SlowError` in what takes longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def campaign(files: int, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """Damage so many ledgers; what became of them, and what went wrong."""
    whole, path = folder / "whole.sqlite", folder / "runs.sqlite"
    make_ledger(whole)
    data, truth = whole.read_bytes(), Truth.of(whole)
    assert len(truth.rows) == RUNS * len(MODELS)
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    for number in range(files):
        for old in folder.glob(f"{path.name}*"):
            old.unlink()
        path.write_bytes(data)
        how = damage(path, number, seed)
        try:
            with time_limit(PATIENCE):
                outcome, silent = judge(path, truth)
        except (Exception, SystemExit):
            faults.append(f"file {number}, {how}:\n{traceback.format_exc()}")
        else:
            outcomes[outcome] += 1
            outcomes["runs missing without a word"] += silent
    return outcomes, faults


def main(arguments: Sequence[str] | None = None) -> None:
    """Damage many ledgers, print a table and all faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="invgp-damaged-") as folder:
        outcomes, faults = campaign(chosen.files, chosen.seed, Path(folder))
    print(*faults, sep="\n")
    for name, count in outcomes.items():
        print(f"{count:6,}  {name}")
    print(f"{len(faults):6,}  faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
