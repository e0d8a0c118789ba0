"""Simulators that cannot be found, wired or run: one sentence each."""

from __future__ import annotations

import pytest

from helpers.config_files import CALLABLE, WriteSurvey
from helpers.config_mistakes import Case, by_mistake, sentence_of

WRONG_WIRES = [
    Case(
        "latent that is no input",
        {'"depth", "velocity", "elevation"': '"depth", "elevation"'},
        "forward.inputs: must name 'velocity' of [latents] once, was not named",
    ),
    Case(
        "input that is nothing",
        {'"velocity", "elevation"]': '"velosity", "elevation"]'},
        "forward.inputs[1]: must be a latent, a covariate or a coordinate, was 'velosity'; valid: 'depth', "
        "'velocity', 'elevation', 'easting' and 'northing'; did you mean 'velocity'?",
    ),
    Case(
        "observation that is no output",
        {'["time"]': '["times"]'},
        "forward.outputs[0]: must be an observation of the survey, was 'times'; valid: 'time'; did you mean 'time'?",
    ),
    Case(
        "output twice",
        {'["time"]': '["time", { name = "again", observation = "time" }]'},
        "forward.outputs: must name 'time' of [survey.observations] once, was named 2 times",
    ),
    Case(
        "input twice",
        {'"elevation"]': '"elevation", "elevation"]'},
        "forward.inputs: names must differ, but 'elevation' comes twice",
    ),
    Case(
        "misspelt function",
        {"simulator:times": "simulator:tims"},
        "forward.function: module 'simulator' has no 'tims'; did you mean 'times'?",
    ),
    Case(
        "misspelt module",
        {"simulator:times": "simulater:times"},
        "forward.function: there is no module 'simulater' on <here> and the rest of sys.path; did you mean "
        "'simulator'?",
    ),
    Case(
        "function without a module",
        {"simulator:times": "times"},
        "forward.function: 'times' must read 'package.module:function'",
    ),
    Case(
        "module far from any",
        {"simulator:times": "gravity:times"},
        "forward.function: there is no module 'gravity' on <here> and the rest of sys.path; <here> has 'simulator'",
    ),
    Case(
        "input by a name that the function does not know",
        {'"elevation"]': '{ name = "height", source = "elevation" }]'},
        "forward.inputs: must have the names that the function 'times' knows: it takes 'depth', 'velocity', "
        "'elevation', was given 'depth', 'velocity', 'height' (missing a required argument: 'elevation')",
    ),
    Case(
        "not a function",
        {"simulator:times": "simulator:ANSWER"},
        "forward.function: 'simulator:ANSWER' is an int, which cannot be called",
    ),
]
WRONG_PROGRAMS = [
    Case(
        "program missing",
        {"./simulator.sh": "./simulater.sh"},
        "forward.command: there is no file <here>/simulater.sh; did you mean 'simulator.sh'?",
    ),
    Case(
        "program not on PATH",
        {"./simulator.sh": "no-such-program"},
        "forward.command: no program 'no-such-program' on PATH",
    ),
    Case(
        "program beside the config",
        {"./simulator.sh": "simulator.sh"},
        "forward.command: no program 'simulator.sh' on PATH; for the file beside the config, write './simulator.sh'",
    ),
    Case(
        "program far from any",
        {"./simulator.sh": "./inverter.sh"},
        "forward.command: there is no file <here>/inverter.sh",
    ),
    Case(
        "template missing",
        {"model.tpl": "modl.tpl"},
        "forward.input_files[0].template: there is no file <here>/modl.tpl; did you mean 'model.tpl'?",
    ),
    Case(
        "argument with an unknown field",
        {"{elevation}": "{elevaton}"},
        "forward.command[1]: line 1: {elevaton} names no input; did you mean 'elevation'? (a brace that is meant "
        "literally is doubled, {{ or }})",
    ),
    Case(
        "input that never reaches the program",
        {', "{elevation}"': ""},
        "forward.inputs: elevation never reaches the program: write {elevation} in the template of an input "
        "file, or in an argument of the command",
    ),
    Case(
        "command as one text",
        {'["./simulator.sh", "{elevation}"]': '"./simulator.sh {elevation}"'},
        'forward.command: must be a list of words, such as ["./simulator.sh", "{elevation}"], was '
        "'./simulator.sh {elevation}'",
    ),
    Case("timeout of zero", {"timeout = 10": "timeout = 0"}, "forward.timeout: must be greater than 0, was 0"),
]


@by_mistake(WRONG_WIRES)
def test_that_a_mistake_about_a_simulator_variable_gives_one_error_message(
    case: Case, write_survey: WriteSurvey
) -> None:
    assert sentence_of(write_survey(case.config)) == case.sentence


@by_mistake(WRONG_PROGRAMS)
def test_that_a_mistake_about_a_program_gives_one_error_message(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config, executable=True)) == case.sentence


PERSISTENT = """\
adapter = "persistent"
command = ["./simulator.sh"]
inputs = ["depth", "velocity", "elevation"]
"""
BATCHED = PERSISTENT.replace('"persistent"', '"batched"')


@pytest.mark.parametrize(
    ("table", "line", "sentence"),
    [
        (
            PERSISTENT,
            "rows = 5",
            "forward.rows: unknown key; valid: 'adapter', 'command', 'timeout', 'partial', 'threads', 'environment', "
            "'kind', 'inputs', 'outputs' and 'coarse'",
        ),
        (PERSISTENT, "timeout = 0", "forward.timeout: must be greater than 0, was 0"),
        (PERSISTENT, 'threads = "two"', "forward.threads: must be a whole number, was 'two'"),
        (
            PERSISTENT,
            'environment = { "A=B" = "1" }',
            "forward.environment: 'A=B' = '1' cannot be an environment variable",
        ),
        (BATCHED, "rows = 0", "forward.rows: must be at least 1, was 0"),
        (BATCHED, 'format = "csw"', "forward.format: must be 'csv' or 'table', was 'csw'; did you mean 'csv'?"),
        (BATCHED, "skip_lines = -1", "forward.skip_lines: must be at least 0, was -1"),
        (
            BATCHED,
            'input_file = "../a.csv"',
            "forward.input_file: '../a.csv' must be the name of a file, without a directory",
        ),
        (BATCHED, 'output_file = "inputs.csv"', "forward.output_file: 'inputs.csv' is taken by another file"),
    ],
)
def test_that_a_mistake_about_a_program_for_many_rows_gives_one_error_message(
    table: str, line: str, sentence: str, write_survey: WriteSurvey
) -> None:
    assert sentence_of(write_survey({CALLABLE: f"{table}{line}\n"})) == sentence


def test_that_a_template_with_an_unknown_field_names_its_line(write_survey: WriteSurvey) -> None:
    path = write_survey(executable=True)
    (path.parent / "model.tpl").write_text("{depth[1]} {depth[2]}\n{velocty}\n")
    assert sentence_of(path).startswith(
        "forward.input_files[0].template: <here>/model.tpl, line 2: {velocty} names no input; did you mean 'velocity'?"
    )


def test_that_a_simulator_that_cannot_be_imported_gives_one_line(write_survey: WriteSurvey) -> None:
    path = write_survey()
    (path.parent / "simulator.py").write_text('raise RuntimeError("no licence:\\n  ask for one")\n')
    assert sentence_of(path) == ("forward.function: importing 'simulator' raised RuntimeError: no licence: ask for one")
