"""Runs that give only some of their outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.executable_models import MakeProgram
from invgp.adapters import (
    BatchedModel,
    CallableModel,
    CsvFile,
    Evaluations,
    ExecutableModel,
    JsonFile,
    OutputFile,
    PersistentModel,
    Quantity,
    Reader,
    RegexFile,
    RunContext,
    Status,
    TableFile,
)
from invgp.adapters.testing import check_forward_model
from invgp.execution.evaluate import evaluate
from invgp.ledger import Ledger

X, Y, Z = Quantity("x", "m"), Quantity("y", "s", (1, 2, 3)), Quantity("z", "s")
NAN = np.nan


def model(program: str, folder: Path, *, partial: bool = True, **settings: object) -> ExecutableModel:
    given = {"outputs": (Y,), "search_path": folder, "timeout": 20.0, "partial": partial, **settings}
    return ExecutableModel((program, "{x}"), (X,), **given)


def run(model: object, folder: Path) -> Evaluations:
    return model.evaluate(np.array([[4.0]]), RunContext(["r0"], folder / "runs"))


@pytest.mark.parametrize(
    ("reader", "text", "expected"),
    [
        (OutputFile(), "1 nan 3", [1, NAN, 3]),
        (OutputFile(), "1 inf 3", [1, NAN, 3]),
        (OutputFile(), "1 ***** 3", [1, NAN, 3]),
        (OutputFile(), "1 2", [1, 2, NAN]),
        (TableFile(column=2), "0 1\n0 2", [1, 2, NAN]),
        (TableFile(column=2), "0 1\n0\n0 3", [1, NAN, 3]),
        (CsvFile(column="b"), "a,b\n0,1\n0,\n0,3", [1, NAN, 3]),
        (CsvFile(column="b"), "a,b\n0,1", [1, NAN, NAN]),
        (JsonFile(key="t"), '{"t": [1, null, 3]}', [1, NAN, 3]),
        (RegexFile(pattern=r"t = (\S+)"), "t = 1\nt = 2", [1, 2, NAN]),
    ],
)
def test_that_what_can_be_read_is_used(
    reader: Reader, text: str, expected: list[float], program: MakeProgram, tmp_path: Path
) -> None:
    sh = program(f"cat <<'END'\n{text}\nEND\n")
    got = run(model(sh, tmp_path, output_files=(reader,)), tmp_path)
    np.testing.assert_array_equal(got.outputs, [expected])
    assert got.status == (Status.PARTIAL,)
    assert got.ok.all()
    assert got.messages[0].startswith("run r0: ")
    assert "of 3 outputs are missing: output y[" in got.messages[0]
    assert list((tmp_path / "runs").iterdir()) == []
    strict = run(model(sh, tmp_path, partial=False, output_files=(reader,)), tmp_path)
    assert strict.status[0] in (Status.NAN, Status.UNREADABLE)
    assert np.isnan(strict.outputs).all()


def test_that_a_number_that_may_have_been_cut_short_is_not_used(program: MakeProgram, tmp_path: Path) -> None:
    got = run(model(program("printf '1.25 2.5'"), tmp_path), tmp_path)
    np.testing.assert_array_equal(got.outputs, [[1.25, NAN, NAN]])


def test_that_one_file_of_two_may_be_missing(program: MakeProgram, tmp_path: Path) -> None:
    files = (OutputFile(outputs=("y",)), OutputFile("z.txt", ("z",)))
    got = run(model(program("echo 1 2 3"), tmp_path, outputs=(Z, Y), output_files=files), tmp_path)
    np.testing.assert_array_equal(got.outputs, [[NAN, 1, 2, 3]])
    assert got.status == (Status.PARTIAL,)


@pytest.mark.parametrize(("body", "status"), [("echo", Status.UNREADABLE), ("echo nan nan nan", Status.NAN)])
def test_that_a_run_without_any_output_has_failed(
    body: str, status: Status, program: MakeProgram, tmp_path: Path
) -> None:
    assert run(model(program(body), tmp_path), tmp_path).status == (status,)


def test_that_a_number_out_of_bounds_is_a_failure_all_the_same(program: MakeProgram, tmp_path: Path) -> None:
    bounded = model(program("echo 1 nan 30"), tmp_path, bounds={"y": (0.0, 10.0)})
    assert run(bounded, tmp_path).status == (Status.OUT_OF_BOUNDS,)


def test_that_a_program_with_missing_outputs_conforms(program: MakeProgram, tmp_path: Path) -> None:
    partial = model(program("echo $1 nan $1"), tmp_path)
    check_forward_model(partial, np.array([[1.5], [2.5]]), tmp_path / "runs")
    assert partial.digest != model(program("echo $1 nan $1"), tmp_path, partial=False).digest


def test_that_programs_for_many_rows_can_omit_outputs(program: MakeProgram, tmp_path: Path) -> None:
    answer = 'read line; echo "{\\"id\\": 1, \\"outputs\\": {\\"y\\": [1, null, 3]}}"; cat > /dev/null'
    asked = run(PersistentModel((program(answer),), (X,), (Y,), partial=True, search_path=tmp_path), tmp_path)
    table = program("printf '1 nan 3\\n' > outputs.csv")
    tabled = run(BatchedModel((table,), (X,), (Y,), partial=True, search_path=tmp_path), tmp_path)
    for got in (asked, tabled):
        assert got.status == (Status.PARTIAL,), got.messages
        np.testing.assert_array_equal(got.outputs, [[1, NAN, 3]])


def test_that_a_ledger_keeps_what_there_is(program: MakeProgram, tmp_path: Path) -> None:
    partial, context = model(program("echo $1 nan 3"), tmp_path), RunContext(["r0"], tmp_path / "runs")
    with Ledger(tmp_path / "runs.sqlite") as ledger:
        recorder = ledger.open_recorder(partial)
        first, second = (evaluate(partial, np.array([[4.0]]), context, recorder=recorder) for _ in range(2))
        assert recorder.reused == 1
        assert first.outputs.tobytes() == second.outputs.tobytes()
        assert (first.status, first.messages) == (second.status, second.messages)
        [kept] = ledger.runs()
        assert kept.status is Status.PARTIAL
        np.testing.assert_array_equal(kept.outputs, [4, NAN, 3])
        assert list(ledger.runs(failed=True)) == []


@pytest.mark.parametrize("vectorised", [True, False])
def test_that_a_function_can_omit_outputs(vectorised: bool, tmp_path: Path) -> None:
    """The first run lacks one, the second all, the third none."""

    def function(x: np.ndarray) -> np.ndarray:
        lacking = np.stack([x > 0.0, x > 1.0, x > 0.0], axis=-1)
        return np.where(lacking, np.stack([x, 2.0 * x, 3.0 * x], axis=-1), NAN)

    values, context = np.asarray([[1.0], [-1.0], [2.0]]), RunContext(["a", "b", "c"], tmp_path)
    got = CallableModel(function, (X,), (Y,), vectorised=vectorised, partial=True).evaluate(values, context)
    assert got.status == (Status.PARTIAL, Status.NAN, Status.OK)
    np.testing.assert_array_equal(got.outputs, [[1, NAN, 3], [NAN, NAN, NAN], [2, 4, 6]])
    assert got.messages[0] == "run a: 1 of 3 outputs are missing: output y[2] is nan"
    whole = CallableModel(function, (X,), (Y,), vectorised=vectorised).evaluate(values, context)
    assert whole.status == (Status.NAN, Status.NAN, Status.OK)
    assert np.isnan(whole.outputs[0]).all()
