"""What a notebook shows, in a real kernel."""

import runpy

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

DEFINE = """
import numpy as np
import invgp

def time(depth):
    return depth / 1000.0

problem = invgp.define(
    {"x": [0.0, 100.0, 200.0], "t": [0.5, 0.52, 0.49]},
    coordinates={"x": "m"},
    observations={"time": {"unit": "s", "columns": ["t"]}},
    latents={"depth": {"unit": "m", "mean": 500, "std": 50, "kernel": {"length_scale": 200}}},
    forward=time,
    noise={"time": 0.01},
)
problem
"""


@pytest.fixture(scope="module")
def cells():
    """The outputs of each cell."""
    notebook = nbformat.v4.new_notebook()
    sources = [
        DEFINE,
        "posterior = invgp.invert(problem, progress=True)",
        "posterior",
        "invgp.plots.plot_section(posterior)",
    ]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


def test_that_a_problem_is_shown_as_tables(cells):
    [output] = cells[0]
    page = output.data["text/html"]
    assert page.count("<table") == 3
    assert "3 sites, 3 observations, 1 latent processes" not in page
    assert "3 sites, 3 observations, 1 latent process, " in page


def test_that_progress_is_drawn_in_one_place_without_widgets(cells):
    [output] = cells[1]  # drawn again and again, yet one; and nothing on standard error
    assert '<progress value="1.000">' in output.data["text/html"]
    assert output.data["text/plain"].startswith("finished\n")
    assert " left" not in output.data["text/plain"]
    assert "0 failed" in output.data["text/plain"]


def test_that_the_posterior_is_a_dataset(cells):
    [output] = cells[2]
    assert "xarray.Dataset" in output.data["text/html"]


def test_that_a_figure_is_shown_without_pyplot(cells):
    [output] = cells[3]
    assert output.data["image/png"]


@pytest.mark.parametrize("name", ["quick_start", "field_model", "reading_a_posterior"])
def test_that_a_notebook_of_the_documentation_runs_and_is_stored_with_its_outputs(name, root, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    path = root / "docs" / "notebooks" / f"{name}.ipynb"
    stored = nbformat.read(path, as_version=4)
    executed = runpy.run_path(str(root / "docs" / "make_notebooks.py"))["execute"](path)  # raises where a cell does
    for before, after in zip(stored.cells, executed.cells, strict=True):
        kinds = [[sorted(output.get("data", ())) for output in cell.get("outputs", ())] for cell in (before, after)]
        assert kinds[0] == kinds[1], before.source
