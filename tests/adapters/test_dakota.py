"""A Dakota driver, in JSON and in text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.executable_models import DEPTH, SPEED, TIME, MakeProgram
from invgp.adapters import (
    AdapterError,
    Evaluations,
    ExecutableModel,
    Quantity,
    RunContext,
    Status,
    dakota_model,
    split_jacobian,
)
from invgp.adapters.dakota import DakotaParameters, DakotaResults
from invgp.adapters.testing import check_forward_model

VALUES = np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 8.0]])

JSON_DRIVER = """\
import json, sys
with open(sys.argv[1]) as file:
    params = json.load(file)
x = {v["label"]: v["value"] for v in params["variables"]}
assert [r["active_set"] for r in params["responses"]] == [1, 1]
if x["speed"] < 0:
    results = {"fail": "true"}
else:
    results = {"functions": {"time_2": x["depth_2"] / x["speed"], "time_1": x["depth_1"] / x["speed"]}}
with open(sys.argv[2], "w") as file:
    json.dump(results, file)
"""
TEXT_DRIVER = """\
import sys
with open(sys.argv[1]) as file:
    rows = [line.split() for line in file]
count = int(rows[0][0])
assert rows[0][1] == "variables" and rows[count + 1] == ["2", "functions"]
x = {label: float(value) for value, label in rows[1:count + 1]}
asv = [label for value, label in rows[count + 2:count + 4]]
assert asv == ["ASV_1:time_1", "ASV_2:time_2"], asv
with open(sys.argv[2], "w") as file:
    if x["speed"] < 0:
        file.write("FAIL: no speed\\n")
    else:
        file.write(f"  {x['depth_1'] / x['speed']!r} time_1\\n  {x['depth_2'] / x['speed']!r} time_2\\n")
"""
DRIVERS = {"json": JSON_DRIVER, "text": TEXT_DRIVER}


def model_of(driver: str, folder: Path, **settings: Any) -> ExecutableModel:
    return dakota_model((driver,), (DEPTH, SPEED), (TIME,), **{"search_path": folder, "timeout": 20.0, **settings})


def run(model: ExecutableModel, folder: Path, values: Any = VALUES) -> Evaluations:
    array = np.asarray(values)
    return model.evaluate(array, RunContext([f"r{i}" for i in range(len(array))], folder / "runs"))


@pytest.mark.parametrize("format_", DRIVERS)
def test_that_a_driver_conforms(format_: Any, program: MakeProgram, tmp_path: Path) -> None:
    model = model_of(program(DRIVERS[format_], "python"), tmp_path, format=format_)
    check_forward_model(model, VALUES, tmp_path / "runs")
    np.testing.assert_array_equal(run(model, tmp_path).outputs, VALUES[:, :2] / VALUES[:, 2:])


@pytest.mark.parametrize("format_", DRIVERS)
def test_that_a_failure_that_the_driver_reports_is_reported(format_: Any, program: MakeProgram, tmp_path: Path) -> None:
    model = model_of(program(DRIVERS[format_], "python"), tmp_path, format=format_)
    got = run(model, tmp_path, [[1.0, 2.0, -1.0], [1.0, 2.0, 1.0]])
    assert got.status == (Status.UNREADABLE, Status.OK)
    assert got.messages[0].startswith("run r0: file 'results.out': the driver reports a failure")


@given(st.lists(st.floats(allow_nan=False), min_size=3, max_size=3))
def test_that_parameters_read_back_exactly(numbers: list[float]) -> None:
    values: Any = {"depth": {1: numbers[0], 2: numbers[1]}, "speed": numbers[2]}
    labels = ("depth_1", "depth_2", "speed")
    parsed = json.loads(DakotaParameters("json", labels, ("t",)).render(values))
    assert [(v["label"], v["value"]) for v in parsed["variables"]] == list(zip(labels, numbers, strict=True))
    lines = DakotaParameters("text", labels, ("t",)).render(values).splitlines()
    assert lines[0].split() == ["3", "variables"]
    assert [float(line.split()[0]) for line in lines[1:4]] == numbers
    assert lines[-1].split() == ["1", "eval_id"]
    fields = [
        line.strip("{ }").split(" = ")
        for line in DakotaParameters("aprepro", labels, ("t",)).render(values).splitlines()
    ]
    named = {name.strip(): value.strip() for name, value in fields}
    assert [float(named[label]) for label in labels] == numbers
    assert (named["DAKOTA_VARS"], named["DAKOTA_FNS"], named["ASV_1:t"]) == ("3", "1", "1")


@pytest.mark.parametrize(
    ("format_", "text", "outcome"),
    [
        ("text", "1.5\n2.5\n", [1.5, 2.5]),
        ("text", "2.5 time_2\n1.5 time_1\n[ 1.0 2.0 ]\n[[ 1.0 ]]\n", [1.5, 2.5]),
        ("text", "1.5 time_1\n2.5 tme_2", "has no response 'time_2'; did you mean 'tme_2'"),
        ("text", "1.5", "expected 2 numbers, found 1"),
        ("text", "1.5 time_1 2.5 time_2\n", [1.5, 2.5]),
        ("text", "1.5 2.5\n", [1.5, 2.5]),
        ("text", "1.5 f1\n2.5 f2\n", [1.5, 2.5]),  # foreign labels: in order
        ("text", "2.5 time_2\n1.5 time_1\n0.3 cpu_seconds\n7 iterations\n", [1.5, 2.5]),  # metadata
        (
            "text",
            "1.5 f1\n2.5 f2\n0.3 cpu_seconds\n",
            "expected 2 numbers, found 3, and no label is one of 'time_1', 'time_2'; set `names` of the output",
        ),
        ("aprepro", "1.5 time_1\n2.5D0 time_2\n", [1.5, 2.5]),
        ("text", "1.5 time_1\n2.5 time_1\n", "has the response 'time_1' twice"),
        ("text", "1.5\nx\ny\n", "must hold numbers with or without labels, such as '1.5 time_2': 'y' is not a number"),
        ("text", "hello there\n2.5 time_2\n", "such as '1.5 time_1': 'hello' is not a number"),
        ("json", '{"functions": {"time_1": 1.5, "time_2": "2.5", "more": []}}', [1.5, 2.5]),
        ("json", '{"functions": {"time_1": 1.5}}', "has no response 'time_2'"),
        ("json", '{"fail": "True"}', "the driver reports a failure"),
        ("json", "fail", "the driver reports a failure"),
        ("json", "{}", "has no object 'functions'"),
        ("json", "[]", "must be a JSON object with 'functions'"),
        ("json", "{", "is not JSON"),
    ],
)
def test_that_results_are_read_as_dakota_reads_them(format_: Any, text: str, outcome: Any, tmp_path: Path) -> None:
    (tmp_path / "results.out").write_text(text)
    reader = DakotaResults(format_, ("time_1", "time_2"))
    if isinstance(outcome, list):
        assert reader.read(tmp_path, (TIME,)).tolist() == outcome
        return
    with pytest.raises(ValueError, match=outcome):
        reader.read(tmp_path, (TIME,))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"descriptor": "{name}"}, r"descriptor: must be such as '\{name\}_\{label\}'"),
        ({"descriptor": "{label} {name}"}, "descriptor: must be such as"),
        ({"descriptor": "{label.x}{label}"}, "descriptor: must be such as"),
        ({"jacobian": True, "partial": True}, "partial: must be false with jacobian = true"),
        ({"jacobian_cost": -1.0}, "jacobian_cost: must be a number of runs"),
        ({"format": "xml"}, "format: must be 'json', 'text' or 'aprepro'; it is 'xml'"),
    ],
)
def test_that_wrong_settings_are_reported_in_one_sentence(
    settings: Any, sentence: str, program: MakeProgram, tmp_path: Path
) -> None:
    with pytest.raises(AdapterError, match=sentence):
        model_of(program(JSON_DRIVER, "python"), tmp_path, **settings)


def test_that_a_driver_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="driver: there is no file"):
        model_of("./driver", tmp_path)
    with pytest.raises(AdapterError, match="driver: must name a program, but is empty"):
        dakota_model((), (SPEED,), (TIME,))
    twins = (Quantity("a", "m", ("top",)), Quantity("b", "m", ("top",)))
    with pytest.raises(AdapterError, match=r"descriptor: '\{label\}' calls two of the inputs 'top'"):
        dakota_model(("true",), twins, (TIME,), descriptor="{label}")


def test_that_a_report_of_failure_may_be_nested_deeply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    (tmp_path / "results.out").touch()
    monkeypatch.setattr(json, "loads", lambda _: {"fail": deep, "functions": {"a": 1.0}})  # not all Pythons parse it
    assert DakotaResults("json", ("a",)).read(tmp_path, (Quantity("a", "m"),)).tolist() == [1.0]


def test_that_labels_may_be_in_the_next_line_and_comments_are_refused(tmp_path: Path) -> None:
    reader, times = DakotaResults("text", ("b", "a")), (Quantity("a", "m"), Quantity("b", "m"))
    (tmp_path / "results.out").write_text("1.5\n  a\n2.5\nb 0.5\tmeta\n")
    assert reader.read(tmp_path, times).tolist() == [2.5, 1.5]
    (tmp_path / "results.out").write_text("# by model 3\n1.5 a\n2.5 b\n")
    with pytest.raises(ValueError, match="and no comments, as for Dakota: '#' is not a number"):
        reader.read(tmp_path, times)
    numbered = DakotaResults("text", ("2", "1"))
    (tmp_path / "results.out").write_text("1.5\n2\n")
    assert numbered.read(tmp_path, times).tolist() == [1.5, 2.0]


# Derivatives of time_i = depth_i / speed by depth_1, depth_2 and speed.
GRADIENT_DRIVER = """\
import json, re, sys
text = open(sys.argv[1]).read()
if text.startswith("{ DAKOTA"):
    x = {k: float(v) for k, v in re.findall(r"\\{ (\\S+) += +(\\S+) \\}", text)}
    assert x["ASV_1:time_1"] == 3
elif text.startswith("{"):
    x = {v["label"]: v["value"] for v in json.loads(text)["variables"]}
    assert [r["active_set"] for r in json.loads(text)["responses"]] == [3, 3]
else:
    x = {label: float(value) for value, label in (line.split() for line in text.splitlines())}
    assert x["ASV_2:time_2"] == 3
d1, d2, v = x["depth_1"], x["depth_2"], x["speed"]
values = {"time_1": d1 / v, "time_2": d2 / v}
gradients = {"time_1": [1 / v, 0.0, -d1 / v**2], "time_2": [0.0, 1 / v, -d2 / v**2]}
if v == 8.0:
    gradients["time_2"][0] = float("nan")
with open(sys.argv[2], "w") as file:
    if text.startswith("{") and not text.startswith("{ DAKOTA"):
        json.dump({"functions": values, "gradients": gradients}, file)
    else:
        file.write("".join(f"{value!r} {label}\\n" for label, value in values.items()))
        file.write("".join(f"[ {' '.join(map(repr, row))} ]\\n" for row in gradients.values()) + "[[ 1.0 ]]\\n")
"""


@pytest.mark.parametrize("format_", ["json", "text", "aprepro"])
def test_that_gradients_are_requested_and_read(format_: Any, program: MakeProgram, tmp_path: Path) -> None:
    driver = program(GRADIENT_DRIVER, "python")
    model = model_of(driver, tmp_path, format=format_, jacobian=True)
    evaluated = run(model, tmp_path)
    outputs, jacobians = split_jacobian(model, evaluated.outputs)
    assert jacobians is not None
    (d1, d2, v), _ = VALUES
    np.testing.assert_array_equal(outputs[0], [d1 / v, d2 / v])
    np.testing.assert_array_equal(jacobians[0], [[1 / v, 0.0, -d1 / v**2], [0.0, 1 / v, -d2 / v**2]])
    assert evaluated.status == (Status.OK, Status.NAN)
    assert np.isnan(outputs[1]).all()
    assert "the Jacobian has a number that is not finite" in evaluated.messages[1]
    assert model.digest != model_of(driver, tmp_path, format=format_).digest


@pytest.mark.parametrize(
    ("format_", "text", "sentence"),
    [
        ("text", "1.5\n2.5\n", "must have 2 gradients in brackets, has 0"),
        ("text", "1.5\n2.5\n[1 2 3]\n[1 2]\n", "the gradient of 'time_2' must have 3 numbers, has 2"),
        ("text", "1.5\n2.5\n[1 2 3]\n[1 2 x]\n", "the gradient of 'time_2': 'x' is not a number"),
        ("json", '{"functions": {"time_1": 1, "time_2": 2}}', "the gradient of 'time_1' must have 3 numbers, has none"),
    ],
)
def test_that_missing_gradients_are_reported(format_: Any, text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "results.out").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        DakotaResults(format_, ("time_1", "time_2"), gradient_size=3).read(tmp_path, (TIME,))
