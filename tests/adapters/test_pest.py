"""A PEST case with two templates and two instruction files, by control files of both styles, run as it is."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invgp.adapters import (
    AdapterError,
    Evaluations,
    ExecutableModel,
    LocalFile,
    Quantity,
    RunContext,
    Status,
    pest_model,
)
from invgp.adapters.testing import check_forward_model

CONDUCTIVITY = Quantity("hk", "m d-1", (1, 2))
RECHARGE = Quantity("recharge", "m d-1")
HEAD = Quantity("head", "m", (1, 2))
FLOW = Quantity("flow", "m3 d-1")
VALUES = np.array([[2.0, 4.0, 0.5], [3.0, 5.0, 0.25]])

OLD = """pcf
* control data
restart estimation
 6 4 2 0 1
 2 2 double point 1 0 0
 10.0 2.0 0.3 0.03 10
* parameter groups
 hk relative 0.01 0.0 switch 2.0 parabolic
* parameter data
 HK1      log   factor 1.0 1e-3 1e3 hk 1.0 0.0 1
 hk_2     none  factor 1.0 1e-3 1e3 hk 10.0 1.0 1
 recharge none  factor 0.1 1e-3 1e3 hk 1.0 0.0 1
 vk       tied  factor 0.2 1e-3 1e3 hk 1.0 0.0 1
 porosity fixed factor 0.3 1e-3 1e3 hk 1.0 0.0 1
 storage  log   factor 1D-1 1e-3 1e3 hk 1.0 0.0 1
 vk hk1
* observation groups
 heads
* observation data
 head1  10.0 1.0 heads
 head_2 10.0 1.0 heads
 flow   10.0 1.0 heads
 spare  10.0 0.0 heads
* model command line
 {command}
* model input/output
 k.tpl      model/k.txt
 'r.tpl'    r.txt
 heads.ins  heads.txt
 flow.ins   flow.txt
* prior information
++ noptmax(0)
"""
NEW = """pcf version=2
# a comment
* control data keyword
pestmode estimation
noptmax 0
* parameter data external
tables/par.csv
* observation data external
tables/obs.dat sep w
* model command line
{command}
* model input external
tables/tpl.csv
* model output external
tables/ins.csv
"""
TABLES = {
    "par.csv": "parnme,partrans,parval1,parubnd,parlbnd,pargp,scale,offset,partied\n"
    "HK1,log,1.0,1,1,hk,1.0,0.0,\nhk_2,none,1.0,1,1,hk,10.0,1.0,\nrecharge,none,0.1,1,1,hk,,,\n"
    "vk,tied,0.2,1,1,hk,1,0,hk1\nporosity,fixed,0.3,1,1,hk,1,0,\nstorage,log,0.1,1,1,hk,1,0,\n",
    "obs.dat": "obsnme obsval weight obgnme standard_deviation\n"
    "head1 1 1 h 1\nhead_2 1 1 h 1\nflow 1 1 h 1\nspare 1 0 h 1\n",
    "tpl.csv": "pest_file,model_file\nk.tpl,model/k.txt\nr.tpl,r.txt\n",
    "ins.csv": "pest_file,model_file\nheads.ins,heads.txt\nflow.ins,flow.txt\n",
}
FILES = {
    "k.tpl": "ptf ~\nhk1 ~hk1                  ~\nhk2 ~HK_2                 ~\nvk ~vk                   ~\n",
    "r.tpl": "ptf #\n#recharge               # #porosity               # #storage                #\n",
    "heads.ins": "pif @\n@HEADS@\nl1 @well@ w w !head1!\nl1 [head_2]9:32\n",
    "flow.ins": "pif %\nl1 %flow:% !flow! !spare!\n",
    "settings.txt": "100.0\n",
    # The heads are the conductivities as the model reads them; the flow depends on all the others.
    "model.py": """\
from pathlib import Path
k = dict(line.split() for line in Path("model/k.txt").read_text().splitlines())
recharge, porosity, storage = map(float, Path("r.txt").read_text().split())
if recharge < 0:
    raise SystemExit("no recharge")
Path("heads.txt").write_text(f"title\\nHEADS\\nwell 1 {float(k['hk1'])!r}\\nwell 2  {float(k['hk2'])!r}\\n")
flow = float(k["vk"]) + porosity + storage + recharge + float(Path("settings.txt").read_text())
Path("flow.txt").write_text(f"flow: {flow!r} 7\\n")
""",
}


@pytest.fixture(params=["old", "new"])
def control(request: Any, tmp_path: Path) -> Path:
    write_case(tmp_path, NEW if request.param == "new" else OLD)
    return tmp_path / "case.pst"


def write_case(folder: Path, control: str = OLD, command: str = f"{sys.executable} model.py") -> Path:
    (folder / "tables").mkdir(exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name, text in TABLES.items():
        (folder / "tables" / name).write_text(text)
    (folder / "case.pst").write_text(control.format(command=command))
    return folder / "case.pst"


def model_of(control: Path, **settings: Any) -> ExecutableModel:
    inputs = settings.pop("inputs", (CONDUCTIVITY, RECHARGE))
    outputs = settings.pop("outputs", (FLOW, HEAD))
    return pest_model(
        control, inputs, outputs, **{"files": (LocalFile(Path("settings.txt")),), "timeout": 20.0, **settings}
    )


def run(model: ExecutableModel, folder: Path, values: Any = VALUES) -> Evaluations:
    array = np.asarray(values)
    return model.evaluate(array, RunContext([f"r{i}" for i in range(len(array))], folder / "runs"))


def test_that_a_pest_case_conforms(control: Path, tmp_path: Path) -> None:
    check_forward_model(model_of(control), VALUES, tmp_path / "runs")


def test_that_scales_offsets_ties_and_initial_values_are_pests(control: Path, tmp_path: Path) -> None:
    got = run(model_of(control), tmp_path)
    assert got.ok.all(), got.messages
    hk1, hk2, recharge = VALUES.T
    flow = 0.2 * hk1 + 0.3 + 0.1 + recharge + 100.0
    np.testing.assert_allclose(got.outputs, np.stack([flow, hk1, 10 * hk2 + 1], axis=1), rtol=1e-14)


def test_that_both_styles_mean_the_same(tmp_path: Path) -> None:
    old = model_of(write_case(tmp_path, OLD))
    new = model_of(write_case(tmp_path, NEW))
    assert old.digest == new.digest


def test_that_parameters_that_are_left_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        model = model_of(write_case(tmp_path), inputs=(RECHARGE,), outputs=(HEAD,))
    assert "keep their initial value: hk1, hk_2, storage" in caplog.text
    np.testing.assert_allclose(run(model, tmp_path, [[0.5]]).outputs, [[1.0, 11.0]])


def test_that_a_fixed_parameter_may_come_from_the_survey(tmp_path: Path) -> None:
    model = model_of(write_case(tmp_path), inputs=(Quantity("Porosity", "1"),), outputs=(FLOW,))
    np.testing.assert_allclose(run(model, tmp_path, [[0.9]]).outputs, [[0.2 + 0.9 + 0.1 + 0.1 + 100.0]])


def test_that_a_failed_run_states_the_reason(tmp_path: Path) -> None:
    got = run(model_of(write_case(tmp_path)), tmp_path, [[1.0, 1.0, -1.0]])
    assert got.status == (Status.EXIT_CODE,)
    assert "exit code 1; standard error: no recharge; directory: " in got.messages[0]
    (tmp_path / "flow.ins").write_text("pif %\nl2 %flow:% !flow! !spare!\n")
    got = run(model_of(tmp_path / "case.pst"), tmp_path)
    assert got.messages[0].startswith(
        "run r0: files 'heads.txt', 'flow.txt': 'flow.txt': line 2: there is no text 'flow:'"
    )


def test_that_a_number_that_does_not_fit_fails_its_run_alone(tmp_path: Path) -> None:
    control = write_case(tmp_path)
    (tmp_path / "r.tpl").write_text("ptf #\n#recharge# 0 0\n")
    got = run(model_of(control), tmp_path, [[1.0, 1.0, 1e-300], [1.0, 1.0, -np.inf], [1.0, 1.0, 1.0]])
    assert got.status[2] is Status.OK
    (tmp_path / "k.tpl").write_text("ptf ~\nhk1 ~HK1~\nhk2 ~hk_2~\nvk 1")
    got = run(model_of(control), tmp_path, [[-1.5e-200, 1.0, 1.0], [1.0, 1.0, 1.0]])
    assert got.status == (Status.NOT_STARTED, Status.OK)
    assert "'hk1' is -1.5e-200, of which no digit fits in 5 characters" in got.messages[0]


def test_that_a_program_next_to_the_control_file_is_found(tmp_path: Path) -> None:
    control = write_case(tmp_path, command="model.py")
    (tmp_path / "model.py").write_text(f"#!{sys.executable}\n{FILES['model.py']}")
    (tmp_path / "model.py").chmod(0o755)
    assert run(model_of(control), tmp_path).ok.all()


@pytest.mark.parametrize(
    "command",
    [
        "cat input.dat | {python} model.py > log.txt 2>&1",
        "test -f input.dat && '{python}' model.py; echo done",
        '"{python}" model.py < model\\k.txt > log{{1}}.txt',
        "./run.sh > nul",
    ],
)
def test_that_a_command_with_characters_of_a_shell_is_run_by_a_shell(command: str, tmp_path: Path) -> None:
    control = write_case(tmp_path, command=command.format(python=sys.executable))
    (tmp_path / "input.dat").write_text("1\n")
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\n{sys.executable} model.py\n")
    (tmp_path / "run.sh").chmod(0o755)
    # The script names the program, which the command line does not.
    names = ["settings.txt", *(["model.py"] if "run.sh" in command else [])]
    model = model_of(control, files=tuple(LocalFile(Path(name)) for name in names))
    assert model.command[:2] == ("/bin/sh", "-c")
    assert run(model, tmp_path).ok.all()
    features = dict(model.case.features)
    assert features["1 model command line with characters of a shell"] == "run by /bin/sh, as by PEST"


def test_that_a_shell_finds_a_program_outside_of_the_directory_of_the_case(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    control = write_case(tmp_path / "case", command="../run.sh > log.txt")
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\n{sys.executable} model.py\n")
    (tmp_path / "run.sh").chmod(0o755)
    model = model_of(control, files=(LocalFile(Path("settings.txt")), LocalFile(Path("model.py"))))
    got = run(model, tmp_path)
    assert got.ok.all(), got.messages


def test_that_numbers_of_the_control_data_may_be_too_small(tmp_path: Path) -> None:
    control = write_case(tmp_path)
    control.write_text(control.read_text().replace(" 6 4 2 0 1", " 5 3 2 0 1"))
    features = dict(model_of(control).case.features)
    assert "line 4 says 3 observations (NPAR and NOBS), but the file has 4: all are read" in features["control data"]
    assert run(model_of(control), tmp_path).ok.all()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("pcf\n", "pcx\n", "is no control file: its first line must start with 'pcf'"),
        (
            "pcf\n",
            "pcf version=3\n",
            "must be of version 2, or of the older style, .*; its first line is 'pcf version=3'",
        ),
        (" 6 4 2 0 1", " 7 4 2 0 1", r"line 4: says 7 parameters \(NPAR and NOBS\), but the file has 6"),
        (" spare  10.0 0.0 heads\n", "", r"line 4: says 4 observations \(NPAR and NOBS\), but the file has 3"),
        (" 2 2 double", " 2 3 double", "line 5: says 5 template and instruction files .*, but the file has 4"),
        (" 6 4 2 0 1", " six", "line 4: must start with the whole numbers NPAR and NOBS, was 'six'"),
        (" vk hk1\n", " vk hk9\n", "'vk' is tied to 'hk9', which must be a parameter that is not tied"),
        (" vk hk1\n", " vk porosity\n vk vk\n", "'vk' is tied to 'vk', which must be a parameter that is not tied"),
        ("porosity fixed factor 0.3", "porosity frozen factor 0.3", "the transform of 'porosity' is 'frozen'"),
        ("porosity fixed factor 0.3", "porosity fixed factor x", "parameter 'porosity', parval1: 'x' is not a number"),
        (" k.tpl      model/k.txt", " k.tpl", "line 27: must have the columns pest_file, model_file"),
        (" k.tpl      model/k.txt", " q.tpl model/k.txt", r"control: there is no file .*/q.tpl"),
        (" k.tpl      model/k.txt", " k.tpl ../k.txt", "'../k.txt' must be a file inside the run's directory"),
        (" flow.ins   flow.txt", " flow.ins   r.txt", "'r.txt' is taken by input_files"),
        (" recharge none", " rechrge none", "inputs: 'recharge' is not a parameter of .*; did you mean 'rechrge'"),
        (" porosity fixed", " porous fixed", "r.tpl: 'porosity' is no parameter"),
        (" head1 ", " haed1 ", r"outputs: 'head\[1\]' is not an observation of .*case.pst"),
        ("* model command line\n", "* model command line\nfirst\n", "no program 'first' on PATH"),
        (f" {sys.executable} model.py\n", "", "has no model command line; it must have at least one"),
        ("* observation data", "* parameter data\n* observation data", r"line 19: .* parameter data' comes twice"),
        (" head1  10.0", " head1  ten", "observation 'head1', obsval: 'ten' is not a number"),
        (
            "* prior information\n",
            "* prior information\np1 1.0 * log(hk9) = 0 1 g\n",
            "'p1': 'hk9' is no parameter; did",
        ),
        ("* prior information\n", "* prior information\np1 1.0 * log(hk1) 1 g\n", "'p1': has no '='"),
        (f"{sys.executable} model.py", "./nothing", "there is no file .*/nothing"),
        (f"{sys.executable} model.py", "'model.py", "has a quote without its partner"),
    ],
)
def test_that_a_case_that_cannot_work_is_reported_in_one_sentence(
    old: str, new: str, sentence: str, tmp_path: Path
) -> None:
    control = write_case(tmp_path)
    text = control.read_text()
    assert old in text
    control.write_text(text.replace(old, new, 1))
    with pytest.raises(AdapterError, match=sentence) as caught:
        model_of(control)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"inputs": (Quantity("vk", "1"),)}, "inputs: 'vk' is tied in .*; it follows 'hk1': name that"),
        ({"outputs": (Quantity("spare", "m"), Quantity("heat", "m"))}, "outputs: 'heat' is not an observation"),
        ({"files": (LocalFile(Path("../case.pst"), "../x"),)}, "files"),
        ({"bounds": {"flw": (0, 1)}}, "bounds: 'flw' is no output; did you mean 'flow'"),
    ],
)
def test_that_wrong_settings_are_reported_in_one_sentence(settings: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=sentence):
        model_of(write_case(tmp_path), **settings)


def test_that_a_parameter_in_no_template_is_reported(tmp_path: Path) -> None:
    control = write_case(tmp_path)
    (tmp_path / "r.tpl").write_text("ptf #\n1 1 1\n")
    with pytest.raises(AdapterError, match=r"inputs: 'recharge' is a parameter of .*, but in none of its templates"):
        model_of(control)


def test_that_files_of_earlier_runs_next_to_the_control_file_are_harmless(tmp_path: Path) -> None:
    control = write_case(tmp_path, command=f"{sys.executable} model.py r.txt flow.txt")
    (tmp_path / "r.txt").write_text("old")
    (tmp_path / "flow.txt").write_text("old")
    assert run(model_of(control), tmp_path).ok.all()


def test_that_an_observation_of_two_instruction_files_is_reported(tmp_path: Path) -> None:
    control = write_case(tmp_path)
    (tmp_path / "flow.ins").write_text("pif %\nl1 %flow:% !flow! !head1!\n")
    with pytest.raises(AdapterError, match="the observation 'head1' is read 2 times"):
        model_of(control)
