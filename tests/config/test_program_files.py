"""Programs with files of many formats, PEST's models and Dakota's drivers, from the config."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.config_files import CALLABLE, WriteSurvey
from invgp.adapters import RunContext
from invgp.config import load
from invgp.errors import ConfigError
from invgp.problem import Problem

INPUTS = 'inputs = ["depth", "velocity", "elevation"]\n'
CONTROL = f"""pcf
* parameter data
depth1 none factor 1 1 1 g 1 0 1
depth2 none factor 1 1 1 g 1 0 1
velocity log factor 1 1 1 g 1 0 1
elevation fixed factor 1 1 1 g 1 0 1
* observation data
time_1 0 1 g
time_2 0 1 g
* model command line
{sys.executable} times.py
* model input/output
in.tpl in.txt
out.ins out.txt
"""
MODEL = """\
from pathlib import Path
a, b, velocity, elevation = map(float, Path("in.txt").read_text().split())
Path("out.txt").write_text(f"times {2 * (a + elevation) / velocity!r} {2 * (b + elevation) / velocity!r}\\n")
"""
DRIVER = f"""#!{sys.executable}
import json, sys
x = {{v["label"]: v["value"] for v in json.load(open(sys.argv[1]))["variables"]}}
times = {{f"t{{i}}": 2 * (x[f"d{{i}}"] + x["elevation"]) / x["velocity"] for i in (1, 2)}}
json.dump({{"functions": times}}, open(sys.argv[2], "w"))
"""


def write_programs(folder: Path) -> None:
    (folder / "case.pst").write_text(CONTROL)
    names = ("depth1", "depth2", "velocity", "elevation")
    (folder / "in.tpl").write_text("ptf ~\n" + " ".join(f"~{name:<22}~" for name in names))
    (folder / "out.ins").write_text("pif @\nl1 @times@ !time_1! !time_2!\n")
    (folder / "times.py").write_text(MODEL)
    (folder / "driver.py").write_text(DRIVER.replace("t{i}", "time{i}").replace("d{i}", "depth{i}"))
    (folder / "driver.py").chmod(0o755)
    (folder / "own.py").write_text("def read(path):\n    return [float(w) for w in path.read_text().split()[1:]]\n")


def load_with(forward: str, write_survey: WriteSurvey) -> Problem:
    path = write_survey({CALLABLE: forward + INPUTS})
    write_programs(path.parent)
    return load(path)


EXECUTABLE = f'adapter = "executable"\ncommand = ["{sys.executable}", "times.py"]\n' + (
    'files = [{ source = "times.py" }]\ninput_files = [{ template = "in.tpl", path = "in.txt", format = "tpl" }]\n'
    'bounds = { time = { min = 0 } }\nkeep = "none"\n'
)
FORWARDS = {
    "pest": 'adapter = "pest"\ncontrol = "case.pst"\n',
    "dakota": 'adapter = "dakota"\ndriver = ["./driver.py"]\ndescriptor = "{name}{label}"\n',
    "ins": EXECUTABLE + 'output_files = [{ path = "out.txt", format = "ins", instructions = "out.ins" }]\n',
    "python": EXECUTABLE + 'output_files = [{ path = "out.txt", format = "python", function = "own:read" }]\n',
    "regex": EXECUTABLE + "output_files = [{ path = 'out.txt', format = 'regex', pattern = '^times (\\S+) (\\S+)' }]\n",
}


@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
def test_that_each_way_to_a_program_gives_the_same_times(
    forward: str, write_survey: WriteSurvey, tmp_path: Path
) -> None:
    model = load_with(forward, write_survey).forward
    values = np.array([[200.0, 500.0, 2000.0, 10.0]])
    got = model.evaluate(values, RunContext(["r0"], tmp_path / "runs"))
    assert got.messages == ("",)
    np.testing.assert_allclose(got.outputs, [[0.21, 0.51]], rtol=1e-14)


READERS = {
    "numbers": "{ skip_lines = 1 }",
    "table": '{ format = "table", column = 2, row = [1, -1] }',
    "csv": '{ path = "o.csv", format = "csv", column = "t", row = 3, outputs = ["time"] }',
    "json": '{ path = "o.json", format = "json", key = "a.b[0]" }',
    "netcdf": '{ path = "o.nc", format = "netcdf", variable = "t", row = -1 }',
    "eclipse": '{ path = "CASE.UNSMRY", format = "eclipse", vectors = ["WOPR:P1"], row = [1, -1] }',
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_that_each_format_can_be_configured(reader: str, write_survey: WriteSurvey) -> None:
    forward = EXECUTABLE + f"output_files = [{reader}]\n"
    assert load_with(forward, write_survey).forward.name.startswith("python")


@pytest.mark.parametrize(
    ("forward", "sentence"),
    [
        (
            EXECUTABLE + 'output_files = [{ format = "cvs" }]\n',
            "forward.output_files[0].format: must be 'numbers', 'table', 'csv', 'json', 'regex', 'netcdf', "
            "'eclipse', 'ins' or 'python', was 'cvs'; did you mean 'csv'?",
        ),
        (
            EXECUTABLE + 'output_files = [{ path = "out.txt", column = 3 }]\n',
            "forward.output_files[0].format: must be given, since 'column' is a key of 'table' or 'csv' only, was left "
            "out",
        ),
        (
            EXECUTABLE + 'output_files = [{ format = "csv" }]\n',
            "forward.output_files[0].column: is missing; it must be the column's name, or its number from 1",
        ),
        (
            EXECUTABLE + 'output_files = [{ format = "csv", column = 0 }]\n',
            "forward.output_files[0].column: must be a name, or a whole number from 1, was 0",
        ),
        (
            EXECUTABLE + 'output_files = [{ format = "table", row = 0 }]\n',
            "forward.output_files[0].row: must be 1 for the first, -1 for the last, any other whole number but 0, or "
            "a list of them, was 0",
        ),
        (
            EXECUTABLE + 'output_files = [{ format = "regex", pattern = "(" }]\n',
            "forward.output_files[0].pattern: '(' is no regular expression: missing ), unterminated subpattern at "
            "position 0",
        ),
        (
            EXECUTABLE + 'output_files = [{ format = "ins", instructions = "no.ins" }]\n',
            "forward.output_files[0].instructions: there is no file <here>/no.ins",
        ),
        (
            EXECUTABLE + 'output_files = [{ format = "json", key = "a", colum = 1 }]\n',
            "forward.output_files[0].colum: unknown key; valid: 'format', 'key', 'path' and 'outputs'",
        ),
        (
            EXECUTABLE + 'output_files = [{ path = "CASE.DATA", format = "eclipse", vectors = ["FOPT"] }]\n',
            "forward.output_files[0].path: must be a file that ends with .UNSMRY; it is 'CASE.DATA'",
        ),
        (EXECUTABLE + 'output_files = ["out.txt"]\n', None),
        (
            EXECUTABLE.replace("min = 0", "mim = 0"),
            "forward.bounds.time.mim: unknown key; valid: 'min' and 'max'; did you mean 'min'?",
        ),
        (
            EXECUTABLE.replace('"none"', '"never"'),
            "forward.keep: must be 'failed', 'all' or 'none', was 'never'",
        ),
        (
            EXECUTABLE.replace('source = "times.py"', 'source = "tims.py"'),
            "forward.files[0].source: there is no file <here>/tims.py; did you mean 'times.py'?",
        ),
        (
            'adapter = "pest"\n',
            "forward.control: is missing; it must be the path of the .pst file, relative to the config",
        ),
        (
            'adapter = "pest"\ncontrol = "no.pst"\n',
            "forward.control: there is no file <here>/no.pst",
        ),
        (
            'adapter = "dakota"\ndriver = ["./driver.py"]\nformat = "xml"\n',
            "forward.format: must be 'json', 'text' or 'aprepro', was 'xml'",
        ),
        ('adapter = "dakota"\ndriver = ["./drive"]\n', "forward.driver: there is no file <here>/drive"),
    ],
)
def test_that_a_mistake_gives_one_error_message(forward: str, sentence: str | None, write_survey: WriteSurvey) -> None:
    with pytest.raises(ConfigError) as caught:
        load_with(forward, write_survey)
    printed = str(caught.value).replace(str(write_survey().parent), "<here>")
    if sentence is None:
        sentence = "forward.output_files[0]: must be a table such as { path = \"times.txt\" }, was 'out.txt'"
    assert printed == sentence
