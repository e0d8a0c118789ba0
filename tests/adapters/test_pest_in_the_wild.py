"""PEST cases as they are found: written on Windows, in odd spellings, with short column names and several commands."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from invgp.adapters import AdapterError, ExecutableModel, LocalFile, Quantity, RunContext, Status, pest_model
from invgp.adapters.pest.control import read_control
from invgp.adapters.pest.control_sections import split_words
from invgp.adapters.pest.instructions import Instructions

CONTROL = r"""
# written by hand

PCF version=2   # in upper case
* control data keyword
noptmax 0
additional_ins_delimiters |
* parameter data external
.\tables\PAR.CSV
* observation data external
tables/obs.csv
* model command line
{first}
{second}
* model input
.\in\K.tpl   .\in\k.txt
* model output
out.ins   'my out.txt'
* prior information
pi1 1.0 * log(K'1) - 2.5D-1 * k2
& + log(k'1) = 1.5 2.0 expert
"""
PARAMETERS = """name, transform, value, lower_bound, upper_bound, group, x
K'1, log, 2.0, 1e-3, 1e3, hk, 10.0
k2, none, 3.0, 0, 10, hk, nan
"""
COPY = "from pathlib import Path\nPath('mid.txt').write_text(Path('in/k.txt').read_text())\n"
REPORT = """\
from pathlib import Path
one, two = map(float, Path("mid.txt").read_text().split())
if one < 0:
    print("ERROR: conductivity must be positive\\nSTOP")
    raise SystemExit(3)
Path("my out.txt").write_text(f"h|{one!r}|{two!r}|\\n")
"""
K = Quantity("k", "m d-1", (1, 2), ("K'1", "k2"))
HEAD = Quantity("head", "m", (1, 2), ("h.1", "h.2"))


def write_case(folder: Path, control: str = CONTROL) -> Path:
    files = {
        "tables/par.csv": PARAMETERS,
        "tables/obs.csv": "name,value,group,standard_deviation\nh.1,1.0,heads,0.5\nh.2,2.0,heads,\n",
        "in/k.tpl": "ptf ~\n~K'1              ~ ~ k2              ~\n",
        "out.ins": "pif @\nl1 w !h.1! !h.2!\n",
        "copy.py": COPY,
        "bin/report.py": REPORT,
        "case.pst": control.format(first=f"{sys.executable} copy.py", second=rf'"{sys.executable}" bin\report.py'),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / "case.pst"


@pytest.mark.parametrize("option", ["missing_value", "missing_values"])
def test_that_the_word_for_a_missing_entry_is_no_entry(option: str, tmp_path: Path) -> None:
    path = write_case(tmp_path, CONTROL.replace("PAR.CSV", f"PAR.CSV {option} none_given"))
    (tmp_path / "tables/par.csv").write_text(PARAMETERS.replace("hk, nan", "none_given, nan"))
    assert [p.group for p in read_control(path).parameters.values()] == ["hk", ""]


def test_that_an_unknown_option_of_an_external_table_is_named(tmp_path: Path) -> None:
    path = write_case(tmp_path, CONTROL.replace("PAR.CSV", "PAR.CSV seperator w"))
    with pytest.raises(AdapterError, match="line 9: an external table has the options sep and missing_value, not 'sep"):
        read_control(path)


def evaluate(model: ExecutableModel, folder: Path, values: list[list[float]]) -> tuple[np.ndarray, tuple[str, ...]]:
    context = RunContext([f"r{i}" for i in range(len(values))], folder / "runs")
    got = model.evaluate(np.asarray(values), context)
    return got.outputs, got.messages


def test_that_a_row_of_an_external_table_without_its_file_is_named(tmp_path: Path) -> None:
    text = CONTROL.replace("* model output\nout.ins   'my out.txt'", "* model output external\nins.csv")
    control = write_case(tmp_path, text)
    (tmp_path / "ins.csv").write_text("pest_file,model_file\nout.ins,out.txt\nmore.ins\n")
    with pytest.raises(AdapterError, match=r"line 18: row 2 of the table 'ins.csv' has no 'model_file'"):
        read_control(control)


def test_that_a_binary_file_is_refused(tmp_path: Path) -> None:
    control = write_case(tmp_path)
    control.write_bytes(control.read_bytes() + b"\0")
    with pytest.raises(AdapterError, match="is not a text file: it contains a null character"):
        read_control(control)


def test_that_a_target_of_a_group_is_no_file(tmp_path: Path) -> None:
    groups = "* observation groups\nheads 0.5\nflows 0.5 flows.cov\nlevels levels.cov\n"
    case = read_control(write_case(tmp_path, CONTROL.replace("* prior information", f"{groups}* prior information")))
    assert case.observation_groups == {"heads": "", "flows": "flows.cov", "levels": "levels.cov"}


def test_that_a_case_of_windows_with_odd_names_runs_unchanged(tmp_path: Path) -> None:
    model = pest_model(write_case(tmp_path), (K,), (HEAD,))
    outputs, messages = evaluate(model, tmp_path, [[4.0, 5.0], [-1.0, 5.0]])
    assert np.array_equal(outputs[0], [4.0, 5.0])
    assert "command 2 of 2" in messages[1]
    assert "exit code 3; end of standard output: ERROR: conductivity must be positive | STOP; directory" in messages[1]


def test_that_every_part_of_the_control_file_is_read(tmp_path: Path) -> None:
    case = read_control(write_case(tmp_path))
    first, second = case.parameters["k'1"], case.parameters["k2"]
    assert (first.transform, first.value, first.lower, first.upper, first.group) == ("log", 2.0, 1e-3, 1e3, "hk")
    assert first.columns == {"x": "10.0"}
    assert second.columns == {}
    assert (case.observations["h.1"].std, case.observations["h.2"].weight) == (0.5, 1.0)
    (equation,) = case.equations
    assert [(t.factor, t.parameter, t.log) for t in equation.terms] == [
        (1.0, "k'1", True), (-0.25, "k2", False), (1.0, "k'1", True),
    ]  # fmt: skip
    assert (equation.name, equation.value, equation.weight, equation.group) == ("pi1", 1.5, 2.0, "expert")
    assert case.options["noptmax"] == "0"
    assert len(case.commands) == 2


def test_that_only_the_first_command_is_run_if_others_are_for_derivatives(tmp_path: Path) -> None:
    control = write_case(tmp_path, CONTROL.replace("* control data keyword\nnoptmax 0\nadditional_ins_delimiters |\n",
        "* control data\nrestart estimation\n2 2 1 1 1\n1 1 double point 2 0 0\n"))  # fmt: skip
    case = read_control(control)
    assert len(case.commands) == 1
    assert "report.py" in case.unused_commands[0]


def test_that_options_of_pestpp_are_read(tmp_path: Path) -> None:
    options = "++# a comment\n++ ies_num_reals(50) parcov(prior.unc)\n++Tikhonov_Off( true )  # why\n"
    case = read_control(write_case(tmp_path, CONTROL + options))
    assert case.options["ies_num_reals"] == "50"
    assert case.options["parcov"] == "prior.unc"
    assert case.options["tikhonov_off"] == "true"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a 'b c'  \"d e\" # f", ["a", "b c", "d e"]),
        ("o'neill 5' \"x", ["o'neill", "5'", '"x']),
        (r"..\bin\mf6.exe  x#1", [r"..\bin\mf6.exe", "x#1"]),
    ],
)
def test_that_quotes_hold_words_together_only_at_their_start(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_that_additional_delimiters_separate_numbers_but_not_markers() -> None:
    instructions = Instructions("pif @\n@h|x@ !a! !b!\n", "|;")
    assert instructions.read("h|x 1.5;2.5|\n") == {"a": 1.5, "b": 2.5}
    with pytest.raises(ValueError, match="is not a number"):
        Instructions("pif @\n@h|x@ !a!\n").read("h|x 1.5;2.5|\n")


@pytest.mark.parametrize("command", ["run.bat", "run.BAT > log.txt"])
def test_that_a_batch_file_of_windows_is_refused_with_advice(command: str, tmp_path: Path) -> None:
    control = write_case(tmp_path, CONTROL.replace("{first}", command))
    with pytest.raises(
        AdapterError, match=rf"'{command}' is a batch file of Windows; write its commands into a script"
    ):
        pest_model(control, (K,), (HEAD,))


@pytest.mark.parametrize("name", [r"bin\copy.EXE", r".\bin\Copy.exe", r".\bin\COPY"])
def test_that_a_program_is_found_without_exe_and_with_other_letters(name: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "copy"
    control = write_case(tmp_path, CONTROL.replace("{first}", name))
    program.write_text(f"#!{sys.executable}\n{COPY}")
    program.chmod(0o755)
    outputs, _ = evaluate(pest_model(control, (K,), (HEAD,)), tmp_path, [[4.0, 5.0]])
    assert np.array_equal(outputs, [[4.0, 5.0]])


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("k'1", "K'1"), "the names of 'k' must differ, but"),
        (("k'1",), "the names of 'k' must be 2, but are 1"),
        (("k'1", "k3"), r"'k3 \(k\[2\]\)' is not a parameter of .*; there is"),
    ],
)
def test_that_wrong_names_are_reported(names: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=sentence):
        pest_model(write_case(tmp_path), (Quantity("k", "m d-1", (1, 2), names),), (HEAD,))


def test_that_names_and_labels_lead_to_the_same_runs(tmp_path: Path) -> None:
    control = write_case(tmp_path)
    by_name = pest_model(control, (K,), (HEAD,))
    by_label = pest_model(control, (Quantity("p", "1", ("k'1", "k2")),), (Quantity("h", "1", ("h.1", "h.2")),))
    assert np.array_equal(evaluate(by_name, tmp_path, [[4, 5]])[0], evaluate(by_label, tmp_path, [[4, 5]])[0])
    # A quantity without names has the same text in a digest as before there were names.
    assert repr(Quantity("p", "1", (1,))) == "Quantity(name='p', unit='1', labels=(1,))"
    assert repr(Instructions("pif @\n")) == "Instructions(text='pif @\\n')"


def test_that_files_may_be_patterns(tmp_path: Path) -> None:
    for name in ("a.dat", "b.dat", "c.txt"):
        (tmp_path / name).write_text(name)
    program = tmp_path / "list"
    program.write_text("#!/bin/sh\nls data | wc -l\n# $1\n")
    program.chmod(0o755)
    x, n = (Quantity("x", "1"),), (Quantity("n", "1"),)
    model = ExecutableModel(("./list", "{x}"), x, n, files=(LocalFile(Path("*.dat"), "data"),), search_path=tmp_path)
    got = model.evaluate(np.ones((1, 1)), RunContext(["r"], tmp_path / "runs"))
    assert got.status == (Status.OK,)
    assert got.outputs[0, 0] == 2.0
    with pytest.raises(AdapterError, match=r"files\[0\].source: no file matches '.*/\*\.csv'"):
        ExecutableModel(("./list", "{x}"), x, n, files=(LocalFile(Path("*.csv")),), search_path=tmp_path)
