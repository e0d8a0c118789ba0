"""What the commands make of a field model: two latents, one far smoother, on a grid with the survey's axes turned."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import invgp
from helpers.command_line import Command
from helpers.compliance import complaints
from invgp import netcdf

CONFIG = """
[survey]
file = "survey.csv"
crs = "EPSG:28354"
coordinates.easting.unit = "m"
coordinates.northing.unit = "m"
observations.anomaly = { columns = ["anomaly"], unit = "m" }

[grid.coordinates]
northing = { unit = "m", start = 0, stop = 60, step = 10 }
easting = { unit = "m", start = 0, stop = 100, step = 10 }

[latents.depth]
unit = "m"
mean = 20
std = 4
kernel = { kind = "matern 5/2", length_scale = [30, 60] }

[latents.contrast]
unit = "1"
mean = 1
std = 0.2
link = "log"
kernel = { length_scale = 500 }

[forward]
kind = "field"
adapter = "callable"
function = "weighted:anomaly"
inputs = ["depth", "contrast", "easting", "northing"]
outputs = ["anomaly"]

[noise]
std.anomaly = 0.3

[inference]
kept_variance = 0.99
max_runs = 30
"""

FUNCTION = """
import numpy as np
import pandas as pd

NORTHING, EASTING = (part.ravel() for part in np.meshgrid(np.arange(0.0, 61.0, 10.0), np.arange(0.0, 101.0, 10.0),
                                                          indexing="ij"))


def anomaly(depth, contrast, easting, northing):
    off = ((easting[0][:, None] - EASTING) ** 2 + (northing[0][:, None] - NORTHING) ** 2) / 20.0**2
    weights = np.exp(-0.5 * off)
    weights /= weights.sum(axis=1, keepdims=True)
    return (depth @ weights.T) * (1.0 + 0.1 * contrast @ weights.T)
"""


@pytest.fixture(scope="module")
def field_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a config and its posterior."""
    folder = tmp_path_factory.mktemp("field")
    rng = np.random.default_rng(0)
    easting, northing = rng.uniform(0.0, 100.0, 40), rng.uniform(0.0, 60.0, 40)
    data = 22.0 + 3.0 * np.sin(easting / 20.0) + 0.3 * rng.standard_normal(40)
    rows = [f"{a:.3f},{b:.3f},{c:.4f}" for a, b, c in zip(easting, northing, data, strict=True)]
    (folder / "survey.csv").write_text("\n".join(["easting,northing,anomaly", *rows]) + "\n", encoding="utf-8")
    (folder / "survey.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "weighted.py").write_text(FUNCTION, encoding="utf-8")
    sys.modules.pop("weighted", None)
    netcdf.write(invgp.invert(invgp.load(folder / "survey.toml")), folder / "posterior.nc")
    return folder


@pytest.mark.slow
def test_that_a_map_at_the_nodes_is_the_posterior(field_folder: Path, invgp_here: Command, tmp_path: Path) -> None:
    grid = "easting=0:100:10,northing=0:60:10"
    done = invgp_here("predict", "posterior.nc", "--grid", grid, "-o", tmp_path / "map.nc", cwd=field_folder)
    assert done.returncode == 0, done.stderr
    posterior, found = netcdf.read(field_folder / "posterior.nc"), netcdf.read(tmp_path / "map.nc")
    for name in ("depth", "depth_std", "contrast", "contrast_std", "depth_information"):
        on_nodes = found[name].transpose("northing", "easting").values.ravel()
        scale = posterior[f"{name.split('_')[0]}_std"].values  # both come from draws, of other random numbers
        np.testing.assert_array_less(np.abs(on_nodes - posterior[name].values) / scale, 0.03, err_msg=name)
    assert complaints(field_folder / "posterior.nc") == []
    assert complaints(tmp_path / "map.nc") == []


def test_that_a_table_has_one_row_per_node(field_folder: Path, invgp_here: Command, tmp_path: Path) -> None:
    done = invgp_here("export", "posterior.nc", "--format", "csv", "-o", tmp_path / "nodes.csv", cwd=field_folder)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "nodes.csv").rename(columns=lambda name: name.partition(" (")[0])
    posterior = netcdf.read(field_folder / "posterior.nc")
    for name in ("easting", "northing", "depth", "depth_std"):
        np.testing.assert_allclose(table[name], posterior[name].values, rtol=1e-6)


@pytest.mark.slow
def test_that_all_figures_are_drawn(field_folder: Path, invgp_here: Command, tmp_path: Path) -> None:
    done = invgp_here("plot", "posterior.nc", "--kind", "all", "-o", tmp_path / "figure.png", cwd=field_folder)
    assert done.returncode == 0, done.stderr
    drawn = {path.stem.removeprefix("figure") for path in tmp_path.glob("*.png")}
    assert drawn == {"", "_fit", "_correlation", "_draws", "_convergence"}


@pytest.mark.slow
def test_that_the_report_is_of_nodes(field_folder: Path, invgp_here: Command, tmp_path: Path) -> None:
    done = invgp_here("report", "posterior.nc", "-o", tmp_path / "page.html", cwd=field_folder)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "on 77 nodes, from 40 observations" in page
    assert "each for the whole field" in page
