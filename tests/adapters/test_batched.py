from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from helpers.executable_models import SPEED, TIME, MakeProgram
from invgp.adapters import AdapterError, BatchedModel, Evaluations, Quantity, RunContext, Status
from invgp.adapters.batched import ROWS_TRIED_SINGLY, read_rows
from invgp.adapters.testing import check_forward_model

OK = Status.OK

# It writes the speed and its square for each row, and keeps a count of its starts; a body may do more for a speed of 2.
PROGRAM = """\
import os, signal, sys, time
print("started", file=open(__file__ + ".starts", "a"))
speeds = [float(line.split()[-1]) for line in open("inputs.csv").read().splitlines()[1:]]
rows = [f"{speed!r}, {speed**2!r}" for speed in speeds]
for i, speed in enumerate(speeds):
    if speed == 2.0:
        %s
open("outputs.csv", "w").write("# time (s)\\n" + "\\n".join(rows) + "\\n")
"""


def model(program: MakeProgram, folder: Path, body: str = "pass", **settings: Any) -> BatchedModel:
    command = program(PROGRAM % body, language="python")
    known = {"command": (command,), "inputs": (SPEED,), "outputs": (TIME,), "search_path": folder, "timeout": 20.0}
    return BatchedModel(**{**known, **settings})


def run(model: BatchedModel, folder: Path, speeds: Any = (1.0, 2.0, 3.0)) -> Evaluations:
    values = np.asarray(speeds, dtype=float).reshape(len(speeds), -1)
    return model.evaluate(values, RunContext([f"r{i}" for i in range(len(values))], folder / "runs"))


def starts(folder: Path) -> int:
    return len((folder / "simulator.starts").read_text().splitlines())


def remaining_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "runs").iterdir())


@pytest.mark.parametrize("body", ["pass", "sys.exit(1)", "rows[i] = 'nan'"])
def test_that_a_batched_program_conforms(body: str, program: MakeProgram, tmp_path: Path) -> None:
    check_forward_model(model(program, tmp_path, body), np.array([[1.5], [2.0], [3.0]]), tmp_path / "runs")


def test_that_a_task_starts_the_program_once(program: MakeProgram, tmp_path: Path) -> None:
    batched = model(program, tmp_path, rows=10)
    got = run(batched, tmp_path, np.arange(10.0, 35.0))
    np.testing.assert_array_equal(got.outputs[:, 1], np.arange(10.0, 35.0) ** 2)
    assert starts(tmp_path) == 3
    assert remaining_files(tmp_path) == []
    assert (batched.name, batched.rows_per_task) == ("simulator", 10)


@pytest.mark.parametrize(
    ("body", "status", "cause"),
    [
        ("sys.exit('no good')", Status.EXIT_CODE, "exit code 1; standard error: no good"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Status.KILLED, "killed by signal SIGSEGV"),
        ("os._exit(0)", Status.UNREADABLE, "file 'outputs.csv' was not written"),
        ("del rows[-1]", Status.UNREADABLE, "file 'outputs.csv': expected 1 row, found 0"),
        ("rows.append('1 1')", Status.UNREADABLE, "file 'outputs.csv': expected 1 row, found 2"),
        ("rows[i] = '1'", Status.UNREADABLE, "file 'outputs.csv': line 2: expected 2 numbers, found 1"),
        ("rows[i] = '1 x'", Status.UNREADABLE, "file 'outputs.csv': line 2: 'x' is not a number"),
        ("os.mkfifo('outputs.csv'); os._exit(0)", Status.UNREADABLE, "file 'outputs.csv': is not a regular file"),
    ],
)
def test_that_one_bad_row_does_not_cost_the_others(
    body: str, status: Status, cause: str, program: MakeProgram, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        got = run(model(program, tmp_path, body), tmp_path)
    assert got.status == (OK, status, OK)
    assert got.messages[1] == f"run r1: {cause}; directory: {tmp_path / 'runs' / 'r1'}"
    np.testing.assert_array_equal(got.outputs, [[1, 1], [np.nan] * 2, [3, 9]])
    assert remaining_files(tmp_path) == ["r1"]
    assert starts(tmp_path) == 4
    assert "simulator failed for a batch of 3, whose rows now run singly" in caplog.text


@pytest.mark.parametrize("row", ["nan", "NaN", "nan nan", "1 nan", "inf, 1"])
def test_that_a_program_can_give_up_a_row(row: str, program: MakeProgram, tmp_path: Path) -> None:
    got = run(model(program, tmp_path, f"rows[i] = {row!r}"), tmp_path)
    assert got.status == (OK, Status.NAN, OK)
    assert got.messages[1].startswith("run r1: output time[")
    assert starts(tmp_path) == 1
    assert remaining_files(tmp_path) == []


@pytest.mark.slow
def test_that_a_batch_that_takes_too_long_is_ended_and_not_repeated(program: MakeProgram, tmp_path: Path) -> None:
    got = run(model(program, tmp_path, "time.sleep(60)", timeout=2.0), tmp_path)
    assert got.status == (Status.TIMEOUT,) * 3
    where = tmp_path / "runs" / "r0-batch"
    assert got.messages[2] == f"run r2 (in a batch of 3): timed out after 2 s; directory: {where}"
    assert starts(tmp_path) == 1


def test_that_a_hopeless_program_is_not_started_for_every_row(program: MakeProgram, tmp_path: Path) -> None:
    got = run(model(program, tmp_path, "sys.exit(1)"), tmp_path, [2.0] * (ROWS_TRIED_SINGLY + 5))
    assert starts(tmp_path) == 1 + ROWS_TRIED_SINGLY
    assert not got.ok.any()
    assert got.messages[-1] == "run r24: not run, since the batch failed and so did its first 20 rows"


def test_that_a_program_that_cannot_be_started_is_reported(program: MakeProgram, tmp_path: Path) -> None:
    batched = model(program, tmp_path)
    (tmp_path / "simulator").write_text("no first line\n")
    got = run(batched, tmp_path)
    assert got.status == (Status.NOT_STARTED,) * 3
    assert "a script must start with a line such as #!/bin/sh" in got.messages[0]


def test_that_a_row_that_is_not_finite_is_left_out(program: MakeProgram, tmp_path: Path) -> None:
    got = run(model(program, tmp_path), tmp_path, [np.nan, 3.0, np.inf])
    assert got.status == (Status.NAN, OK, Status.NAN)
    assert got.messages[0] == "run r0: input speed is nan, so the program was not run"
    assert got.outputs[1].tolist() == [3.0, 9.0]
    assert run(model(program, tmp_path), tmp_path, [np.nan]).status == (Status.NAN,)


@pytest.mark.parametrize(
    ("kind", "names"), [("csv", "speed,depth[1],depth[2]"), ("table", "# speed depth[1] depth[2]")]
)
def test_that_the_program_gets_a_table_with_names(kind: str, names: str, program: MakeProgram, tmp_path: Path) -> None:
    command = program('cp "$1" given; head -n 1 "$1" >&2; echo header > "$2"; tail -n +2 "$1" >> "$2"')
    quantities = (SPEED, Quantity("depth", "m", (1, 2)))
    batched = BatchedModel(
        (command, "in.txt", "out.txt"),
        quantities,
        quantities,
        input_file="in.txt",
        output_file="out.txt",
        format=kind,
        skip_lines=1,
        search_path=tmp_path,
    )
    values = np.random.default_rng(1).lognormal(size=(7, 3))
    np.testing.assert_array_equal(run(batched, tmp_path, values).outputs, values)
    failing = BatchedModel(
        (program("cat inputs.csv >&2; exit 1"),), quantities, (TIME,), format=kind, search_path=tmp_path
    )
    assert f"standard error: {names} | 1.0" in run(failing, tmp_path, np.ones((1, 3))).messages[0]


@pytest.mark.parametrize("label", ["", ".", "..", "../r", "a/b"])
def test_that_a_label_cannot_lead_out_of_the_directory(label: str, program: MakeProgram, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a directory"):
        model(program, tmp_path).evaluate(np.ones((1, 1)), RunContext([label], tmp_path))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"command": ("./simulatr",)}, r"command: there is no file .*/simulatr; did you mean 'simulator'\?"),
        ({"inputs": ()}, "inputs: must name at least one"),
        ({"inputs": (Quantity("a b", "m"),)}, "inputs: 'a b' cannot be the name of a column"),
        ({"rows": 0}, "rows: must be at least 1; it is 0"),
        ({"format": "xls"}, "format: must be 'csv' or 'table'; it is 'xls'"),
        ({"skip_lines": -1}, "skip_lines: must not be negative; it is -1"),
        ({"input_file": "../a"}, "input_file: '../a' must be the name of a file, without a directory"),
        ({"output_file": ""}, "output_file: '' must be the name of a file"),
        ({"output_file": "inputs.csv"}, "output_file: 'inputs.csv' is taken by another file"),
        ({"input_file": "standard_error.txt"}, "input_file: 'standard_error.txt' is taken"),
        ({"timeout": 0.0}, "timeout: must be a positive number of seconds; it is 0.0"),
        ({"threads": 0}, "threads: must be at least 1; it is 0"),
    ],
)
def test_that_settings_that_cannot_work_are_reported(
    settings: Any, sentence: str, program: MakeProgram, tmp_path: Path
) -> None:
    with pytest.raises(AdapterError, match=sentence):
        model(program, tmp_path, **settings)


def test_that_the_digest_sees_all_that_decides_the_outputs(program: MakeProgram, tmp_path: Path) -> None:
    batched = model(program, tmp_path)
    digests = [
        batched.digest,
        model(program, tmp_path, threads=2).digest,
        model(program, tmp_path, environment={"A": "1"}).digest,
        model(program, tmp_path, format="table").digest,
        model(program, tmp_path, skip_lines=1).digest,
        model(program, tmp_path, output_file="other").digest,
        model(program, tmp_path, "rows.sort()").digest,
    ]
    assert len(set(digests)) == len(digests)
    assert model(program, tmp_path, timeout=5.0, rows=7).digest == batched.digest


@given(
    arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.floats(allow_nan=True)),
    st.sampled_from([",", " ", "\t", " , "]),
)
def test_that_a_table_reads_back_exactly(table: np.ndarray, separator: str) -> None:
    lines = [separator.join(map(repr, row)) for row in table.tolist()]
    text = "# a comment\n\n" + "\n# another\n".join(lines)
    np.testing.assert_array_equal(read_rows(text, *table.shape), table)


def test_that_fortran_is_read_and_lines_are_passed_over() -> None:
    assert read_rows("time\n1.0D+01 2\n", 1, 2, skip_lines=1).tolist() == [[10.0, 2.0]]
