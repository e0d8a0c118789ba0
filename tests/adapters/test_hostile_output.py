"""Whatever a program writes, a reader gives the numbers that were asked for or one error, soon and in little memory."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.executable_models import MakeProgram
from invgp.adapters import (
    CsvFile,
    JsonFile,
    NetcdfFile,
    OutputFile,
    PersistentModel,
    PythonFile,
    Quantity,
    Reader,
    RegexFile,
    RunContext,
    Status,
    TableFile,
)
from invgp.adapters.batched import read_rows
from invgp.adapters.dakota import DakotaResults
from invgp.adapters.readers import read_numbers

Y = (Quantity("y", "s", (1, 2)),)
DAKOTA = {form: DakotaResults(form, ("y_1", "y_2")) for form in ("json", "text")}
READERS: dict[str, Reader] = {
    "numbers": OutputFile("out"),
    "table": TableFile("out"),
    "csv": CsvFile("out", column="y"),
    "json": JsonFile("out", key="y"),
    "regex": RegexFile("out", pattern=r"y = (\S+)"),
    "netcdf": NetcdfFile("out", variable="y"),
    "dakota's json": DAKOTA["json"],
    "dakota's text": DAKOTA["text"],
}
FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["y", "functions", "y_1", "y_2", "fail"]), inner),
).map(lambda value: json.dumps(value).encode())


def read(reader: Reader, content: bytes) -> np.ndarray:
    with TemporaryDirectory() as folder:
        [path] = reader.paths
        (Path(folder) / str(path)).write_bytes(content)
        return reader.read(Path(folder), Y)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@settings(deadline=None)
@given(content=st.binary() | ANY_JSON)
@example(content=b'{"y": [' + b"9" * 400 + b", 1]}")
@example(content=b'{"y": [' + b"9" * 5000 + b", 1]}")
@example(content=b'{"functions": {"y_1": ' + b"9" * 400 + b', "y_2": 1}}')
@example(content=b"[" * 100_000)
@example(content=b"\x89HDF\r\n\x1a\n" + bytes(100))
def test_that_no_file_does_worse_than_an_error(name: str, content: bytes) -> None:
    try:
        numbers = read(READERS[name], content)
    except (ValueError, OSError) as error:
        numbers, printed = np.zeros(2), str(error)
    else:
        printed = ""
    assert numbers.shape == (2,)
    assert numbers.dtype == np.float64
    assert len(printed) < 2000


def test_that_empty_lines_without_end_are_refused_before_they_are_read() -> None:
    with pytest.raises(ValueError, match="holds 1000004 lines, over the limit of 1000003 lines"):
        read_numbers("\n" * 1_000_004, 2, skip_lines=1)
    with pytest.raises(ValueError, match="holds 1000003 lines, over the limit of 1000002 lines"):
        read_rows("\n" * 1_000_003, 2, 1)
    assert read_numbers("\n" * 1000 + "1\n2\n", 2).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", [name for name in READERS if name != "netcdf"])
def test_that_a_large_file_costs_little_time_and_memory(name: str) -> None:
    for word in (b"1 ", b"y = 1\n", b'"', b"[", b"y1,"):
        content = word * (2**18 // len(word))
        tracemalloc.start()
        started = time.monotonic()
        with pytest.raises((ValueError, OSError)) as refused:
            read(READERS[name], content)
        seconds, (_, peak) = time.monotonic() - started, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(str(refused.value)) < 2000
        assert seconds < 20
        assert peak < 400 * len(content)


@settings(deadline=None)
@given(st.tuples(FINITE, FINITE))
def test_that_what_a_dakota_driver_writes_reads_back_exactly(numbers: tuple[float, float]) -> None:
    labelled = dict(zip(("y_1", "y_2"), numbers, strict=True))
    text = "".join(f"{number!r} {label}\n" for label, number in labelled.items())
    for form, content in (("json", json.dumps({"functions": labelled})), ("text", text)):
        np.testing.assert_array_equal(read(DAKOTA[form], content.encode()), numbers)


@settings(deadline=None)
@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=5), st.sampled_from([",", " ", "  ,  "]))
def test_that_a_table_of_many_rows_reads_back_exactly(rows: list[tuple[float, float]], separator: str) -> None:
    text = "# a b\n" + "".join(separator.join(map(repr, row)) + "\n" for row in rows)
    np.testing.assert_array_equal(read_rows(text, len(rows), 2), rows)


@settings(deadline=None)
@given(st.tuples(FINITE, FINITE))
def test_that_a_reader_in_python_reads_back_exactly(numbers: tuple[float, float]) -> None:
    reader = PythonFile("out", function="numpy:loadtxt")
    np.testing.assert_array_equal(read(reader, " ".join(map(repr, numbers)).encode()), numbers)


@pytest.mark.slow
def test_that_a_program_that_drips_its_answer_is_cut_off_in_time(program: MakeProgram, tmp_path: Path) -> None:
    body = "read line; while true; do printf 1; sleep 0.05; done"
    model = PersistentModel((program(body),), (Quantity("x", "m"),), Y, 0.5, search_path=tmp_path)
    started = time.monotonic()
    got = model.evaluate(np.ones((1, 1)), RunContext(["r0"], tmp_path / "runs"))
    assert got.status == (Status.TIMEOUT,)
    assert time.monotonic() - started < 15.0
