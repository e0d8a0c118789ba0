"""A field model behind the adapters that are not files and templates: the same posterior whichever way it is run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from helpers.command_line import run_in_process

from .test_field_programs import survey

KEEPS_RUNNING = """import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    depth = request["inputs"]["depth"]
    average = [(depth[2 * i] + depth[2 * i + 1]) / 2 for i in range(6)]
    print(json.dumps({"id": request["id"], "outputs": {"average": average}}), flush=True)
"""

TAKES_A_TABLE = """import csv

with open("inputs.csv") as file:
    runs = [[float(value) for value in row] for row in list(csv.reader(file))[1:]]
with open("outputs.csv", "w") as file:
    for depth in runs:
        print(*((depth[2 * i] + depth[2 * i + 1]) / 2 for i in range(6)), sep=",", file=file)
"""

SPEAKS_DAKOTA = """import json
import sys

with open(sys.argv[1]) as file:
    depth = {variable["label"]: variable["value"] for variable in json.load(file)["variables"]}
pairs = [(depth[f"depth_{2 * i + 1}"], depth[f"depth_{2 * i + 2}"]) for i in range(6)]
with open(sys.argv[2], "w") as file:
    json.dump({"functions": {f"average_{i + 1}": sum(pair) / 2 for i, pair in enumerate(pairs)}}, file)
"""


def with_adapter(folder: Path, program: str, lines: str) -> xr.Dataset:
    """The posterior with another program, behind another adapter."""
    survey(folder)
    config = (folder / "survey.toml").read_text(encoding="utf-8")
    start, end = config.index('adapter = "executable"'), config.index("[noise]")
    common = 'inputs = ["depth"]\noutputs = ["average"]\ntimeout = 60\n'
    (folder / "survey.toml").write_text(config[:start] + lines + common + config[end:], encoding="utf-8")
    (folder / "averages.sh").write_text(f"#!{sys.executable} -IS\n{program}", encoding="utf-8")
    done = run_in_process("run", "survey.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return xr.load_dataset(folder / "posterior.nc")


@pytest.fixture(scope="module")
def through_files(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    folder = survey(tmp_path_factory.mktemp("files") / "survey")
    done = run_in_process("run", "survey.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return xr.load_dataset(folder / "posterior.nc")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "lines"),
    [
        (KEEPS_RUNNING, 'adapter = "persistent"\ncommand = ["./averages.sh"]\n'),
        (
            TAKES_A_TABLE,
            'adapter = "batched"\ncommand = ["./averages.sh"]\ninput_file = "inputs.csv"\n'
            'output_file = "outputs.csv"\nrows = 50\n',
        ),
        (SPEAKS_DAKOTA, 'adapter = "dakota"\ndriver = ["./averages.sh"]\nformat = "json"\n'),
    ],
    ids=["persistent", "batched", "dakota"],
)
def test_that_a_field_is_the_same_behind_every_adapter(
    program: str, lines: str, through_files: xr.Dataset, tmp_path: Path
) -> None:
    found = with_adapter(tmp_path / "survey", program, lines)
    np.testing.assert_allclose(found["depth"], through_files["depth"], rtol=1e-4)
    np.testing.assert_allclose(found["depth_std"], through_files["depth_std"], rtol=1e-3)
    assert found.attrs["invgp_runs"] == through_files.attrs["invgp_runs"]
