"""Names of single numbers in the files of PEST and Dakota: lists, patterns and columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from invgp.adapters import ExecutableModel
from invgp.config import load
from invgp.errors import ConfigError

CONFIG = """
[survey]
file = "survey.csv"
coordinates.x.unit = "m"
observations.head = {{ columns = ["head"], unit = "m" }}

[grid]
file = "nodes.csv"
coordinates.x.unit = "m"

[latents.k]
unit = "m d-1"
mean = 1
std = 1
kernel = {{ length_scale = 10 }}

[forward]
kind = "field"
adapter = "executable"
command = ["true"]
inputs = [{{ name = "k"{inputs} }}]
outputs = [{{ name = "head"{outputs} }}]
input_files = [{{ template = "k.tpl", path = "k.txt", format = "tpl" }}]
output_files = [{{ path = "head.txt", format = "ins", instructions = "head.ins" }}]

[noise]
std.head = 0.1
"""


def model_of(folder: Path, inputs: str, outputs: str, parameters: str = "hk_01 hk_02") -> ExecutableModel:
    first, second = parameters.split()
    files = {
        "survey.csv": "x,head,well\n0,1,MW-1\n5,2,MW-2\n",
        "nodes.csv": "x,pilot\n0,hk_01\n5,hk_02\n",
        "k.tpl": f"ptf ~\n~{first}          ~ ~{second}          ~\n",
        "head.ins": "pif @\nl1 !mw-1! !mw-2!\n",
        "survey.toml": CONFIG.format(inputs=inputs, outputs=outputs),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    model = load(folder / "survey.toml").forward
    assert isinstance(model, ExecutableModel)
    return model


WELLS = ', names = { column = "well" }'


@pytest.mark.parametrize(
    "names", ["'hk_{:02d}'", '["hk_01", "hk_02"]', '{ column = "pilot" }', "'hk_{number:02d}'", "'hk_0{}'"]
)
def test_that_names_may_be_a_list_a_pattern_or_a_column(names: str, tmp_path: Path) -> None:
    model = model_of(tmp_path, f", names = {names}", WELLS)
    assert model.inputs[0].names == ("hk_01", "hk_02")
    assert model.outputs[0].names == ("MW-1", "MW-2")


@pytest.mark.parametrize(
    ("inputs", "outputs", "sentence"),
    [
        (", names = ['hk_01']", WELLS, "forward.inputs[0].names: must be 2 names, one for each number, was 1"),
        (", names = 'hk'", WELLS, "forward.inputs[0].names: must be a list of names, a column such as"),
        (", names = 'hk_{x}'", WELLS, "forward.inputs[0].names: must be a list of names, a column such as"),
        (", names = ['a b', 'c']", WELLS, "forward.inputs[0].names: must be names without white space, was 'a b'"),
        (", names = { column = 'pilots' }", WELLS, "forward.inputs[0].names.column: must be a column of nodes.csv"),
        (", names = 'hk_{:02d}'", ", names = { column = 'wells' }", "forward.outputs[0].names.column: must be a"),
        (", names = 'hk_{:03d}'", WELLS, "'hk_01' names no input; did you mean 'hk_001'"),
    ],
)
def test_that_wrong_names_are_reported(inputs: str, outputs: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        model_of(tmp_path, inputs, outputs)
    assert any(sentence in found for found in caught.value.sentences), caught.value.sentences


def test_that_a_python_function_takes_no_names(tmp_path: Path) -> None:
    model_of(tmp_path, ", names = 'hk_{:02d}'", WELLS)
    text = (tmp_path / "survey.toml").read_text().replace('"executable"', '"callable"')
    lines = [line for line in text.splitlines() if not line.startswith(("command", "input_files", "output_files"))]
    (tmp_path / "survey.toml").write_text("\n".join(lines).replace("[forward]", "[forward]\nfunction = 'math:sin'"))
    with pytest.raises(ConfigError, match=r"must be left out with forward.adapter = 'callable'"):
        load(tmp_path / "survey.toml")
