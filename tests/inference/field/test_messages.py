"""Messages about field models: their grid, their correlation range, weakly constrained fields, and their maps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import invgp
from invgp import plots
from invgp.cli.check import describe_extents
from invgp.errors import ConfigError
from invgp.formatting import convergence_advice
from invgp.inference import field_solution
from invgp.reports.findings import assess_convergence

SITES = np.array([[5.0, 5.0], [20.0, 12.0], [33.0, 3.0], [12.0, 18.0], [38.0, 17.0]])
NODES = np.stack(np.meshgrid(np.arange(0.0, 41.0, 8.0), np.arange(0.0, 21.0, 5.0)), axis=-1).reshape(-1, 2)

CONFIG = """
[survey]
file = "sites.csv"
coordinates.x.unit = "m"
coordinates.y.unit = "m"
observations.height = { columns = ["height"], unit = "m" }

[grid]
file = "nodes.csv"
coordinates.x.unit = "m"
coordinates.y.unit = "m"

[latents.level]
unit = "m"
mean = 0
std = 1
kernel = { length_scale = 15 }

[forward]
kind = "field"
adapter = "callable"
function = "levels:heights"
inputs = ["level", "x", "y"]
outputs = ["height"]

[noise]
std.height = 0.1

[inference]
kept_variance = 0.99
max_runs = 24
"""

FUNCTION = """
import numpy as np

NODES = np.loadtxt({nodes!r}, delimiter=",", skiprows=1)


def heights(level, x, y):
    away = np.hypot(x[0][:, None] - NODES[:, 0], y[0][:, None] - NODES[:, 1])
    return level @ np.exp(-0.5 * (away / 6.0) ** 2).T
"""

Load = Callable[..., invgp.Problem]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load the config with something replaced, and with other nodes."""
    heights = 0.1 * np.arange(5.0)[:, None]
    nodes = tmp_path / "nodes.csv"
    np.savetxt(tmp_path / "sites.csv", np.hstack([SITES, heights]), delimiter=",", header="x,y,height", comments="")
    np.savetxt(nodes, NODES, delimiter=",", header="x,y", comments="")
    (tmp_path / "levels.py").write_text(FUNCTION.format(nodes=str(nodes)), encoding="utf-8")
    monkeypatch.delitem(sys.modules, "levels", raising=False)

    def load_edited(old: str = "", new: str = "", at: np.ndarray = NODES) -> invgp.Problem:
        assert old in CONFIG
        np.savetxt(nodes, at, delimiter=",", header="x,y", comments="")
        (tmp_path / "survey.toml").write_text(CONFIG.replace(old, new, 1) if old else CONFIG, encoding="utf-8")
        return invgp.load(tmp_path / "survey.toml")

    return load_edited


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        (
            np.where(np.arange(len(NODES))[:, None] == 2, [np.nan, 0.0], NODES),
            "grid.coordinates.x.column: must be one finite number a node, was nan at node 3",
        ),
        (
            np.concatenate([NODES, NODES[4:5]]),
            f"grid.file: must hold no node twice, nodes 5 and {len(NODES) + 1} are at the same place",
        ),
        (NODES[:0], "it has a header, and no row below it"),
    ],
)
def test_that_a_bad_node_is_named(load: Load, at: np.ndarray, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(at=at)
    assert sentence in str(caught.value)
    assert "file of sites" not in str(caught.value)


def test_that_a_reach_without_a_node_is_reported_in_one_sentence(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load("max_runs = 24", "localisation = 2.0")
    assert str(caught.value) == (
        "inference.localisation: must reach a node of the grid from every site that has data, was 2.0, and from site 2 "
        "the nearest node is 2.24 times as far"
    )
    assert load("max_runs = 24", "localisation = 20").inference.localisation is not None


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.eye(5) + np.eye(5, k=1), "must be symmetric, was not: 1 in row 1, column 2, but 0 in row 2, column 1"),
        (np.diag([1.0, 1.0, np.nan, 1.0, 1.0]), "wherever there are observations, was nan in row 3, column 3"),
        (np.eye(5, dtype=complex), "must hold a matrix of real numbers, was complex128 of shape (5, 5)"),
    ],
)
def test_that_the_wrong_entry_of_a_covariance_is_reported(
    load: Load, tmp_path: Path, matrix: np.ndarray, sentence: str
) -> None:
    np.save(tmp_path / "noise.npy", matrix)
    with pytest.raises(ConfigError) as caught:
        load("std.height = 0.1", 'covariance = "noise.npy"')
    assert sentence in str(caught.value)


def test_that_the_map_circles_sites_not_nodes(load: Load) -> None:
    problem = load()
    posterior = invgp.invert(problem)
    figure = plots.plot_map(posterior)
    assert isinstance(figure, Figure)
    [circles] = figure.axes[0].lines
    assert len(np.asarray(circles.get_xdata())) == len(SITES)
    assert problem.grid is not None
    assert describe_extents(problem.grid.coordinates) == "x 0 to 40 m, y 0 to 20 m"


def test_that_a_note_about_modes_is_added_only_if_there_are_too_few(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = load()
    assert "modes" not in invgp.invert(problem).attrs["invgp_diagnostics"]
    monkeypatch.setattr("invgp.latent_model.prior_field.MOST_MODES", 3)
    monkeypatch.setattr(field_solution, "MOST_MODES", 3)
    posterior = invgp.invert(problem)
    assert "3 modes, the largest number allowed, omit 0." in posterior.attrs["invgp_diagnostics"]


def test_that_a_field_that_has_not_converged_is_wide_rather_than_wrong(load: Load) -> None:
    posterior = invgp.invert(load("max_runs = 24", "max_runs = 8"))
    assert posterior.attrs["invgp_converged"] == "no"
    assert convergence_advice(posterior) == "more runs may change its mean and reduce its standard deviations"
    assert assess_convergence(posterior).words.endswith(
        "More runs may change its mean and reduce its standard deviations."
    )
