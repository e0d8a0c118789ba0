"""Readers of output files: each format, what it reads back, and what it says of a file that it cannot read."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from invgp.adapters import (
    AdapterError,
    CsvFile,
    InstructionFile,
    JsonFile,
    NetcdfFile,
    OutputFile,
    PythonFile,
    Quantity,
    Reader,
    RegexFile,
    TableFile,
    load_instructions,
)

NUMBERS = st.lists(st.floats(allow_nan=False), min_size=1, max_size=6)
SAME_FOLDER = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(reader: Reader, folder: Path, count: int = 1) -> list[float]:
    labels = tuple(range(1, count + 1))
    return reader.read(folder, (Quantity("time", "s", labels),)).tolist()


@given(NUMBERS)
@SAME_FOLDER
def test_that_tables_read_back_exactly(tmp_path: Path, numbers: list[float]) -> None:
    (tmp_path / "out.txt").write_text("title 1\n# x y\n\n" + "".join(f"7 {number!r}, 8\n" for number in numbers))
    assert read(TableFile("out.txt", column=2, skip_lines=1), tmp_path, len(numbers)) == numbers
    assert read(TableFile("out.txt", column=2, row=-1, skip_lines=1), tmp_path) == numbers[-1:]


@given(NUMBERS, st.sampled_from(",;\t|"))
@SAME_FOLDER
def test_that_csv_reads_back_exactly(tmp_path: Path, numbers: list[float], delimiter: str) -> None:
    with (tmp_path / "out.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows([["site", "t (s)"], *(["a b", number] for number in numbers)])
    column = CsvFile("out.csv", column="t (s)", delimiter=delimiter)
    assert read(column, tmp_path, len(numbers)) == numbers
    assert read(CsvFile("out.csv", column=2, row=(1, -1), delimiter=delimiter), tmp_path, 2) == [
        numbers[0],
        numbers[-1],
    ]


@given(NUMBERS)
@SAME_FOLDER
def test_that_json_reads_back_exactly(tmp_path: Path, numbers: list[float]) -> None:
    (tmp_path / "out.json").write_text(json.dumps({"runs": [{"t": 0}, {"t": numbers}]}))
    assert read(JsonFile("out.json", key="runs[1].t"), tmp_path, len(numbers)) == numbers
    assert read(JsonFile("out.json", key="runs[-1].t[0]"), tmp_path) == numbers[:1]


@given(NUMBERS)
@SAME_FOLDER
def test_that_matches_read_back_exactly(tmp_path: Path, numbers: list[float]) -> None:
    (tmp_path / "log").write_text("".join(f"iteration {i}: misfit = {n!r} m\n" for i, n in enumerate(numbers)))
    pattern = r"misfit = (\S+) m$"
    assert read(RegexFile("log", pattern=pattern), tmp_path, len(numbers)) == numbers
    assert read(RegexFile("log", pattern=pattern, row=-1), tmp_path) == numbers[-1:]


@given(NUMBERS)
@settings(SAME_FOLDER, max_examples=20)
def test_that_netcdf_reads_back_exactly(tmp_path: Path, numbers: list[float]) -> None:
    with netCDF4.Dataset(tmp_path / "out.nc", "w") as file:
        file.createDimension("step", 2)
        file.createDimension("site", len(numbers))
        file.createGroup("g").createVariable("t", "f8", ("step", "site"))[:] = [[0.0] * len(numbers), numbers]
    assert read(NetcdfFile("out.nc", variable="g/t", row=-1), tmp_path, len(numbers)) == numbers


def test_that_what_is_missing_is_nan(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "out.nc", "w") as file:
        file.createDimension("site", 2)
        file.createVariable("t", "i4", ("site",), fill_value=-9)[:] = [-9, 3]
        file.createVariable("scalar", "f4")[...] = 1.5
    np.testing.assert_array_equal(read(NetcdfFile("out.nc", variable="t"), tmp_path, 2), [np.nan, 3.0])
    assert read(NetcdfFile("out.nc", variable="scalar"), tmp_path) == [1.5]
    (tmp_path / "out.json").write_text('{"t": [null, "nan", NaN, "1e3"]}')
    got = read(JsonFile("out.json", key="t"), tmp_path, 4)
    np.testing.assert_array_equal(got, [np.nan, np.nan, np.nan, 1000.0])


def test_that_a_function_may_read(tmp_path: Path) -> None:
    (tmp_path / "own_reader.py").write_text(
        "def first(path):\n    return float(path.read_text().split()[0])\n"
        "def named(path):\n    return {'time': [1, 2], 'other': 3}\n"
        "def raises(path):\n    raise KeyError('t')\n"
    )
    (tmp_path / "out.txt").write_text("4.5 x")
    assert read(PythonFile("out.txt", function="own_reader:first", search_path=tmp_path), tmp_path) == [4.5]
    assert read(PythonFile("out.txt", function="own_reader:named", search_path=tmp_path), tmp_path, 2) == [1.0, 2.0]
    with pytest.raises(ValueError, match="reader 'own_reader:raises' raised KeyError: 't'"):
        read(PythonFile("out.txt", function="own_reader:raises", search_path=tmp_path), tmp_path)
    with pytest.raises(AdapterError, match=r"function: module 'own_reader' has no 'frist'; did you mean 'first'\?"):
        PythonFile("out.txt", function="own_reader:frist", search_path=tmp_path)


def test_that_instructions_may_read(tmp_path: Path) -> None:
    (tmp_path / "out.ins").write_text("pif @\nl1 @=@ !TIME_1! !dum! !time2!\n")
    (tmp_path / "out.txt").write_text("times = 1.5 x 2.5\n")
    reader = InstructionFile(((load_instructions("instructions", tmp_path / "out.ins"), "out.txt"),))
    reader.check((Quantity("time", "s", (1, 2)),))
    assert read(reader, tmp_path, 2) == [1.5, 2.5]
    with pytest.raises(AdapterError, match=r"outputs: 'time\[3\]' is not an observation of the instructions"):
        reader.check((Quantity("time", "s", (3,)),))


@pytest.mark.parametrize(
    ("reader", "content", "sentence"),
    [
        (TableFile("out", column=3), "1 2\n", "line 1: has no column 3, only 2"),
        (TableFile("out", row=3), "1\n2\n", "has no row 3, only 2 of them"),
        (TableFile("out"), "1\n2\n", "expected 1 number, found 2"),
        (TableFile("out", row=2), "1\nx\n", "line 2, column 1: 'x' is not a number"),
        (CsvFile("out", column="t"), "", "has no header"),
        (CsvFile("out", column="t"), "time,u\n1,2\n", r"has no column 't'; there is 'time', 'u'"),
        (CsvFile("out", column="t"), "t,t\n1,2\n", "has 2 columns 't'"),
        (CsvFile("out", column="t", skip_lines=1), "x\nt\n\nhigh\n", "line 4, column 't': 'high' is not a number"),
        (JsonFile("out", key="a.b"), '{"a": {"c": 1}}', "has no 'b'; there is 'c'"),
        (JsonFile("out", key="a.b"), '{"a": [1]}', "has a list where 'b' was to be looked up"),
        (JsonFile("out", key="a[1]"), '{"a": [1]}', "has no entry 1 in a list of 1"),
        (JsonFile("out", key="a[1]"), '{"a": 1}', "has an int where entry 1 was to be looked up"),
        (JsonFile("out", key="a"), '{"a": true}', "a: a bool is not a number"),
        (JsonFile("out", key="a"), "{", "is not JSON: "),
        (JsonFile("out", key="a"), "[" * 100_000, "is nested too deeply|is not JSON"),
        (JsonFile("out", key="a"), '{"a": [[1], [2, 3]]}', "expected 1 number, found 3"),
        (RegexFile("out", pattern="x=(.*)"), "y=1", "has no match of 'x=(.*)'"),
        (RegexFile("out", pattern="x=(.*)", row=-1), "y=1", "has no match of 'x=(.*)'"),
        (RegexFile("out", pattern="x=(.*)", row=2), "x=1", "has no match 2, only 1 of them"),
        (RegexFile("out", pattern="x=(.*)"), "\n\nx=abc", "line 3: 'abc' is not a number"),
        (OutputFile("out"), "1 2", "expected 1 number, found 2"),
    ],
)
def test_that_a_file_that_cannot_be_read_states_the_reason(
    reader: Any, content: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read(reader, tmp_path)


def test_that_a_netcdf_file_that_cannot_be_read_states_the_reason(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "out.nc", "w") as file:
        file.createDimension("huge", 2_000_000_000)
        file.createVariable("t", "f8", ("huge",), zlib=True)
        file.createVariable("name", str, ())
    for variable, sentence in (
        ("x", "has no variable 'x'"),
        ("g/t", "has no group 'g'"),
        ("t", "expected 1 number, found 2000000000"),
        ("name", "variable 'name' holds no numbers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            read(NetcdfFile("out.nc", variable=variable), tmp_path)
    (tmp_path / "bad.nc").write_text("no netCDF")
    with pytest.raises(OSError, match="Unknown file format"):
        read(NetcdfFile("bad.nc", variable="t"), tmp_path)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TableFile(column=0), "column: must be at least 1, the first column; it is 0"),
        (lambda: TableFile(row=0), "row: must be 1 for the first, -1 for the last, or a list of such; it is 0"),
        (lambda: CsvFile(row=()), "row: must be 1"),
        (lambda: CsvFile(column=0), "column: must be a name, or at least 1"),
        (lambda: CsvFile(delimiter=";;"), "delimiter: must be a single character; it is ';;'"),
        (lambda: JsonFile(key="a..b["), "key: must be a path such as"),
        (lambda: RegexFile(pattern="("), r"pattern: '\(' is no regular expression: missing \)"),
        (RegexFile, "pattern: must be a regular expression such as"),
        (lambda: NetcdfFile(variable="t"), "path: must name a file: standard output cannot be netCDF"),
        (lambda: NetcdfFile("x.nc"), "variable: must name a variable"),
        (lambda: PythonFile(function="reader"), "function: 'reader' must read 'package.module:function'"),
        (lambda: load_instructions("instructions", Path("/no.ins")), "instructions: there is no file /no.ins"),
    ],
)
def test_that_a_wrong_setting_is_reported_in_one_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(AdapterError, match=sentence):
        make()


@pytest.mark.slow
def test_that_the_size_of_what_is_read_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("1\n" * 1_000_001)
    for reader in (TableFile("out", row=1), CsvFile("out", row=1)):
        with pytest.raises(ValueError, match="holds 1000001 lines, over the limit of 1000000 lines"):
            read(reader, tmp_path)
    with pytest.raises(ValueError, match="holds more than 1000000 matches"):
        read(RegexFile("out", pattern="1", row=1), tmp_path)


def test_that_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("42")
    run = tmp_path / "run"
    run.mkdir()
    (run / "out").symlink_to(tmp_path / "secret")
    for reader in (OutputFile("out"), TableFile("out"), JsonFile("out"), RegexFile("out", pattern=".*")):
        with pytest.raises(ValueError, match="is a link that leads out of the run's directory"):
            read(reader, run)


def test_that_deeply_nested_lists_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: list[Any] = [1.0]
    for _ in range(5000):
        deep = [deep]
    (tmp_path / "out").touch()
    monkeypatch.setattr(json, "loads", lambda _: [deep, [2.0, [3.0]]])  # not all Pythons parse it
    assert read(JsonFile("out"), tmp_path, 3) == [1.0, 2.0, 3.0]
