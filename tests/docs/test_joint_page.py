"""The page about boreholes: its configurations are loaded, and its Python is run."""

import contextlib
import io

import numpy as np
import pytest

import invgp
from helpers.documentation import blocks
from invgp.scaffolds import read_template, write_project

OTWAY = """
[survey]
file = "sites.csv"
[survey.coordinates.position]
column = "position_m"
unit = "m"
[survey.observations.time]
columns = ["t"]
unit = "s"
[dimensions]
layer = [1, 2]
[latents.depth]
unit = "m"
dimension = "layer"
mean = [200, 500]
std = "15%"
kernel = { length_scale = 4480 }
[forward]
adapter = "callable"
function = "simulator:time"
inputs = ["depth"]
outputs = ["time"]
[noise]
std.time = 0.1
"""


@pytest.fixture
def page(root):
    return root / "docs" / "joint.md"


def test_that_the_line_takes_the_borehole_of_the_page(page, tmp_path):
    write_project(read_template("python"), tmp_path / "line")
    well = next(text for _, text in blocks(page, "toml"))
    config = tmp_path / "line" / "survey.toml"
    config.write_text(config.read_text() + "\n" + well)
    problem = invgp.load(config)
    assert problem.sources[0].direct
    without = invgp.invert(problem.parts[0].problem)
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_runs"] == without.attrs["invgp_runs"]
    assert posterior["depth_std"].sel(layer=1).values[-1] < 2.1
    assert (np.abs(posterior["top_residual"].values[-1]) / 2.0 < 3.0).all()


def test_that_the_table_of_the_page_can_be_read(page, tmp_path):
    (tmp_path / "sites.csv").write_text("position_m,t\n0,0.2\n400,0.21\n")
    (tmp_path / "simulator.py").write_text("def time(depth):\n    return depth[:, 0] / 1000\n")
    table = next(text for _, text in blocks(page, "text"))
    (tmp_path / "wells.csv").write_text(table)
    wells = [text for _, text in blocks(page, "toml")][1]
    (tmp_path / "survey.toml").write_text(OTWAY + wells)
    part = invgp.load(tmp_path / "survey.toml").parts[1].problem
    np.testing.assert_array_equal(part.survey.Y, [[181.5, 462.0], [np.nan, 498.3]])
    np.testing.assert_array_equal(part.noise_std, [[5.0, 5.0], [5.0, 12.0]])


def test_that_a_second_data_set_can_be_added_to_the_line(page, tmp_path):
    write_project(read_template("python"), tmp_path / "line")
    source = next(text for _, text in blocks(page, "toml") if "[sources.mt.survey]" in text)
    (tmp_path / "line" / "mt.csv").write_text("station_m,r1\n500,0.31\n2100,0.33\n")
    (tmp_path / "line" / "mt.py").write_text("def response(depth):\n    return depth[:, 0] / 1000\n")
    config = tmp_path / "line" / "survey.toml"
    config.write_text(config.read_text() + "\n" + source)
    problem = invgp.load(config)
    assert [part.name for part in problem.parts] == ["survey", "mt"]
    assert [latent.name for latent in problem.parts[1].problem.latents] == ["depth", "velocity"]
    posterior = invgp.invert(problem.with_inference(posterior="coupled gaussian"))
    assert all(runs > 0 for runs in posterior.attrs["invgp_source_runs"])


def test_that_the_python_of_the_page_runs(page):
    code, _ = [text for _, text in blocks(page, "python")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "joint.md", "exec"), {})
    far, at, well = [float(number) for number in printed.getvalue().strip("[]\n ").split()]
    assert far > 10.0
    assert well < 2.1 < far
    assert at < far


def test_that_surveys_in_sequence_are_as_exact_as_the_page_states(page):
    _, code = [text for _, text in blocks(page, "python")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "joint.md", "exec"), {})
    assert float(printed.getvalue().split()[0]) < 1e-6
