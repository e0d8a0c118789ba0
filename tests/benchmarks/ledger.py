"""What a run costs through adapter and ledger, beside a bare loop; and what the ledger costs, beside plain SQLite.

    python tests/benchmarks/ledger.py

A trivial program, which copies its input file to its output file, is spawned once a row: by hand in one directory,
through the adapter with a directory for each run, and through adapter and ledger, in turn, so that a busy machine slows
all three. Then rows are recorded and looked up in tasks of 4,096, as
those of a vectorised function are, beside plain SQLite with as many bytes a row.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from invgp.adapters import Evaluations, ExecutableModel, InputFile, OutputFile, Quantity, RunContext, Status
from invgp.execution.evaluate import evaluate
from invgp.ledger import FinishedRuns, Ledger

TURNS = 10
INPUT, OUTPUT = "input.txt", "output.txt"
COMMAND = ("/bin/cp", INPUT, OUTPUT)
TASK = 4096
INPUTS = (Quantity("x", "m", tuple(range(1, 9))),)
OUTPUTS = (Quantity("z", "s"),)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Measure and print; the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1_000, help="of the program (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=100_000, help="recorded and looked up (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="invgp-ledger-") as folder:
        ratios = programs(chosen.runs, Path(folder)) | tables(chosen.rows, Path(folder))
    for name, ratio in ratios.items():
        print(f"ratio {ratio:5.2f}  {name}")
    return ratios


def programs(runs: int, folder: Path) -> dict[str, float]:
    """Runs of a program that copies a file."""
    (folder / "x.tpl").write_text("{x}\n")
    model = ExecutableModel(
        COMMAND,
        (Quantity("x", "m"),),
        OUTPUTS,
        input_files=(InputFile(folder / "x.tpl", INPUT),),
        output_files=(OutputFile(OUTPUT),),
    )
    values = np.arange(float(runs))[:, None]
    with Ledger(folder / "programs.sqlite") as ledger:
        recorder = ledger.open_recorder(model)

        def with_adapter(rows: np.ndarray) -> None:
            evaluate(model, rows, context(len(rows), folder))

        def with_ledger(rows: np.ndarray) -> None:
            evaluate(model, rows, context(len(rows), folder), recorder=recorder)

        ways = {
            "bare loop": lambda rows: by_hand(rows, folder),
            "adapter": with_adapter,
            "adapter and ledger": with_ledger,
        }
        seconds = dict.fromkeys(ways, 0.0)
        for rows in np.array_split(values, min(TURNS, runs)):
            for name, way in ways.items():
                seconds[name] += measure_seconds(lambda way=way, rows=rows: way(rows))
    for name, spent in seconds.items():
        print(f"{runs:,} runs, {name}: {1e3 * spent / runs:.2f} ms each")
    bare = seconds["bare loop"]
    return {
        "adapter beside a bare loop": seconds["adapter"] / bare,
        "adapter and ledger beside a bare loop": seconds["adapter and ledger"] / bare,
    }


def by_hand(rows: np.ndarray, folder: Path) -> None:
    """Write, spawn and read, and no more."""
    for x in rows[:, 0].tolist():
        (folder / INPUT).write_text(f"{x}\n")
        subprocess.run(COMMAND, check=True, cwd=folder)
        float((folder / OUTPUT).read_text())


def tables(rows: int, folder: Path) -> dict[str, float]:
    """Rows recorded and looked up."""
    model = Rows()
    values = np.random.default_rng(0).standard_normal((rows, 8))
    parts = [values[a : a + TASK] for a in range(0, rows, TASK)]
    seconds = {}
    with Ledger(folder / "rows.sqlite") as ledger:
        recorder = ledger.open_recorder(model)
        seconds["recorded"] = measure_seconds(lambda: [record(recorder, part, folder) for part in parts])
        seconds["looked up"] = measure_seconds(lambda: recorder.look_up(values))
    seconds["inserted"], seconds["selected"] = plain(values, folder / "plain.sqlite")
    for name, spent in seconds.items():
        print(f"{rows:,} rows {name}: {1e6 * spent / rows:.1f} µs each")
    return {
        "recording beside plain SQLite": seconds["recorded"] / seconds["inserted"],
        "looking up beside plain SQLite": seconds["looked up"] / seconds["selected"],
    }


class Rows:
    """What a ledger asks of a model."""

    name, digest, inputs, outputs = "rows", "5eed", INPUTS, OUTPUTS


def record(recorder, part: np.ndarray, folder: Path) -> None:
    """One task that went well."""
    outcome = Evaluations(part[:, :1], (Status.OK,) * len(part), ("",) * len(part))
    finished = FinishedRuns(outcome, np.ones(len(part), dtype=np.int64), 1e-6, "here")
    recorder.record(part, context(len(part), folder), finished)


def plain(values: np.ndarray, path: Path) -> tuple[float, float]:
    """Seconds to insert and to select as many rows, of as many bytes, by a key of 16 random ones."""
    keys = [os.urandom(16) for _ in values]
    reported = [(key, row.tobytes(), row[:1].tobytes(), "x" * 60) for key, row in zip(keys, values, strict=True)]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, key BLOB UNIQUE, inputs BLOB, outputs BLOB, text TEXT)")

    def insert() -> None:
        for a in range(0, len(reported), TASK):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO t (key, inputs, outputs, text) VALUES (?, ?, ?, ?)", reported[a : a + TASK]
            )
            connection.execute("COMMIT")

    def select() -> None:
        for key in keys:
            connection.execute("SELECT outputs, text FROM t WHERE key = ?", (key,)).fetchone()

    spent = measure_seconds(insert), measure_seconds(select)
    connection.close()
    return spent


def context(count: int, folder: Path) -> RunContext:
    """Labels of a usual length."""
    return RunContext([f"evaluation-1-site{i}-sample1" for i in range(count)], folder / "runs", more=True)


def measure_seconds(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
