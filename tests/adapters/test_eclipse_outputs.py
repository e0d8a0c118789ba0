"""Summary files of Eclipse, written by two other packages."""

from __future__ import annotations

import re
import struct
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import resfo
from resdata.summary import Summary

from invgp.adapters import AdapterError, EclipseFile, ExecutableModel, Quantity, RunContext, Status

DAYS = (31.0, 45.0, 59.0)
REPORTS = (1, 2, 2)  # day 45 is a step between the reports
RATES = np.array([100.0, 80.0, 60.5])
PRESSURES = np.array([250.0, 240.0, 231.25])


def write_summary(case: Path) -> None:
    """Write a case of three steps with resdata."""
    writer = Summary.writer(str(case), datetime(2020, 1, 1), 4, 3, 2)
    writer.add_variable("FOPR", unit="SM3/DAY")
    writer.add_variable("WOPR", wgname="PROD", unit="SM3/DAY")
    writer.add_variable("BPR", num=4 * 3 + 4 + 2, unit="BARSA")  # cell 2, 2, 2
    for report, day, rate, pressure in zip(REPORTS, DAYS, RATES, PRESSURES, strict=True):
        step = writer.add_t_step(report, day)
        step["FOPR"], step["WOPR:PROD"], step["BPR:2,2,2"] = 2.0 * rate, rate, pressure
    writer.fwrite()


def read(reader: EclipseFile, directory: Path, count: int) -> list[float]:
    return reader.read(directory, (Quantity("y", "1", tuple(range(count))),)).tolist()


def test_that_vectors_of_a_summary_are_read(tmp_path: Path) -> None:
    write_summary(tmp_path / "CASE")
    path = "CASE.UNSMRY"
    both = EclipseFile(path, vectors=("WOPR:PROD", "BPR:2,2,2"))
    assert read(both, tmp_path, 4) == [*RATES[[0, 2]], *PRESSURES[[0, 2]]]
    assert read(EclipseFile(path, vectors=("FOPR",), row=-1), tmp_path, 1) == [121.0]
    assert read(EclipseFile(path, vectors=("FOPR",), times=(45.0, 31.0)), tmp_path, 2) == [160.0, 200.0]
    assert read(EclipseFile(path, vectors=("TIME",), row=(2, 1)), tmp_path, 2) == [59.0, 31.0]


def test_that_the_values_are_those_that_another_package_reads(tmp_path: Path) -> None:
    write_summary(tmp_path / "CASE")
    other = Summary(str(tmp_path / "CASE"))
    for vector in ("TIME", "FOPR", "WOPR:PROD", "BPR:2,2,2"):
        assert read(EclipseFile("CASE.UNSMRY", vectors=(vector,), times=DAYS), tmp_path, 3) == [
            *other.numpy_vector(vector)
        ]


def test_that_place_holders_between_the_vectors_are_skipped(tmp_path: Path) -> None:
    names = ["TIME", "WOPR", "WOPR", "FOPT"]
    resfo.write(
        tmp_path / "case.smspec",
        [
            ("DIMENS  ", np.array([4, 10, 10, 1, 0, -1], np.int32)),
            ("KEYWORDS", [name.ljust(8) for name in names]),
            ("WGNAMES ", [":+:+:+:+", ":+:+:+:+", "PROD    ", ":+:+:+:+"]),
            ("NUMS    ", np.zeros(4, np.int32)),
            ("UNITS   ", ["DAYS    ", "SM3/DAY ", "SM3/DAY ", "SM3     "]),
            ("STARTDAT", np.array([1, 1, 2020, 0, 0, 0], np.int32)),
        ],
    )
    row = np.array([10.0, 0.0, 5.0, 50.0], np.float32)
    header = ("SEQHDR  ", np.array([1], np.int32)), ("MINISTEP", np.array([0], np.int32))
    resfo.write(tmp_path / "case.unsmry", [*header, ("PARAMS  ", row)])
    assert read(EclipseFile("case.unsmry", vectors=("WOPR:PROD", "FOPT")), tmp_path, 2) == [5.0, 50.0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"vectors": ("WOPR:PRD",)}, "has no vector 'WOPR:PRD'; did you mean 'WOPR:PROD'?"),
        ({"vectors": ("FOPR",), "row": 3}, "has no report step 3, only 2 of them"),
        ({"vectors": ("FOPR",), "times": (50.0,)}, "has no step at time 50; the nearest is at 45"),
        ({"vectors": ("FOPR",)}, "expected 5 numbers, found 2"),
    ],
)
def test_that_a_wrong_vector_or_step_gives_a_sentence(settings: dict, sentence: str, tmp_path: Path) -> None:
    write_summary(tmp_path / "CASE")
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read(EclipseFile("CASE.UNSMRY", **settings), tmp_path, 5)


def test_that_a_damaged_summary_is_an_error_of_the_run(tmp_path: Path) -> None:
    write_summary(tmp_path / "CASE")
    whole = {name: (tmp_path / name).read_bytes() for name in ("CASE.SMSPEC", "CASE.UNSMRY")}
    backwards = struct.pack(">i8si4si", 16, b"PARAMS  ", -9, b"REAL", 16)  # a length that leads back
    damaged = {"empty": b"", "cut": None, "no summary": b"not a summary" * 9, "backwards": backwards}
    for name, content in whole.items():
        for bad in damaged.values():
            (tmp_path / name).write_bytes(content[: len(content) // 2] if bad is None else bad)
            with pytest.raises(ValueError, match=r"damaged|has no|number"):
                read(EclipseFile("CASE.UNSMRY", vectors=("FOPR",), row=-1, timeout=2.0), tmp_path, 2)
            (tmp_path / name).write_bytes(content)
    (tmp_path / "CASE.SMSPEC").unlink()
    with pytest.raises(FileNotFoundError):
        read(EclipseFile("CASE.UNSMRY", vectors=("FOPR",)), tmp_path, 2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"path": None}, "path: must be a file that ends with .UNSMRY"),
        ({"path": "CASE.DATA"}, "path: must be a file that ends with .UNSMRY"),
        ({"vectors": ()}, "vectors: must name vectors such as 'WOPR:PROD'"),
        ({"row": 0}, "row: must be 1 for the first"),
        ({"row": 1, "times": (1.0,)}, "times: must be left out if `row` is given"),
    ],
)
def test_that_wrong_settings_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(AdapterError, match=sentence):
        EclipseFile(**{"path": "CASE.UNSMRY", "vectors": ("FOPR",)} | settings)


def test_that_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resfo_utilities", None)
    with pytest.raises(AdapterError, match=r"format: 'eclipse' needs resfo-utilities.*pip install 'invgp\[eclipse\]'"):
        EclipseFile("CASE.UNSMRY", vectors=("FOPR",))


PROGRAM = """
import sys
from datetime import datetime
from resdata.summary import Summary
writer = Summary.writer("RUN", datetime(2020, 1, 1), 1, 1, 1)
writer.add_variable("WOPR", wgname="P1", unit="SM3/DAY")
for report in (1, 2):
    writer.add_t_step(report, 30.0 * report)["WOPR:P1"] = float(sys.argv[1]) / report
writer.fwrite()
"""


@pytest.mark.processes
def test_that_a_program_with_a_summary_is_a_simulator(tmp_path: Path) -> None:
    (tmp_path / "reservoir.py").write_text(PROGRAM)
    model = ExecutableModel(
        command=(sys.executable, str(tmp_path / "reservoir.py"), "{k}"),
        inputs=(Quantity("k", "1"),),
        outputs=(Quantity("rate", "m3 d-1", (1, 2)),),
        output_files=(EclipseFile("RUN.UNSMRY", vectors=("WOPR:P1",)),),
        timeout=60.0,
    )
    got = model.evaluate(np.array([[8.0], [3.0]]), RunContext(["a", "b"], tmp_path / "runs"))
    assert got.status == (Status.OK, Status.OK), got.messages
    np.testing.assert_allclose(got.outputs, [[8.0, 4.0], [3.0, 1.5]], rtol=1e-7)
