"""What the commands make of a field posterior on grids of one to three dimensions, and on points."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import invgp
from helpers.command_line import Command
from invgp import netcdf

AXES = {
    "easting": np.arange(0.0, 101.0, 20.0),
    "northing": np.arange(0.0, 61.0, 20.0),
    "depth": np.arange(5.0, 36.0, 10.0),
}

CONFIG = """
[survey]
file = "survey.csv"
coordinates.station.unit = "1"
observations.mass = {{ columns = ["mass"], unit = "kg" }}

{grid}

[latents.density]
unit = "kg m-3"
mean = 2000
std = 100
link = "log"
kernel = {{ length_scale = 40 }}

[forward]
kind = "field"
adapter = "callable"
function = "masses:mass"
inputs = ["density"]
outputs = ["mass"]

[noise]
std.mass = 5

[inference]
posterior = "coupled gaussian"
kept_variance = 0.99
max_runs = 40
"""

FUNCTION = """
import numpy as np
import pandas as pd

WEIGHTS = np.random.default_rng(5).dirichlet(np.full({nodes}, 0.3), size=8)


def mass(density):
    return density @ WEIGHTS.T
"""


class Case(NamedTuple):
    """A folder with a posterior."""

    folder: Path
    names: list[str]
    regular: bool


@pytest.fixture(scope="module", params=["line", "map", "volume", "points of a map", "points of a volume"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The inverted problem."""
    kind, rng = request.param, np.random.default_rng(1)
    names = list(AXES)[: 1 + ["line", "map", "volume"].index(kind.rsplit(maxsplit=1)[-1])]
    regular = not kind.startswith("points")
    folder = tmp_path_factory.mktemp("grid")
    X = np.stack([part.ravel() for part in np.meshgrid(*(AXES[n] for n in names), indexing="ij")], axis=-1)
    if regular:
        lines = ["[grid.coordinates]"]
        lines += [
            f'{n} = {{ unit = "m", start = {AXES[n][0]}, stop = {AXES[n][-1]}, step = {AXES[n][1] - AXES[n][0]} }}'
            for n in names
        ]
    else:
        X = X[rng.permutation(len(X))] + rng.uniform(-5.0, 5.0, X.shape)
        np.savetxt(folder / "nodes.csv", X, delimiter=",", header=",".join(names), comments="", fmt="%.6f")
        lines = ["[grid]", 'file = "nodes.csv"', *(f'coordinates.{n}.unit = "m"' for n in names)]
    (folder / "survey.toml").write_text(CONFIG.format(grid="\n".join(lines)), encoding="utf-8")
    (folder / "masses.py").write_text(FUNCTION.format(nodes=len(X)), encoding="utf-8")
    rows = [f"{n},{2000 + 30 * rng.standard_normal():.2f}" for n in range(8)]
    (folder / "survey.csv").write_text("\n".join(["station,mass", *rows]) + "\n", encoding="utf-8")
    sys.modules.pop("masses", None)
    netcdf.write(invgp.invert(invgp.load(folder / "survey.toml")), folder / "posterior.nc")
    return Case(folder, names, regular)


@pytest.fixture
def ran(case: Case, invgp_here: Command) -> Callable[..., None]:
    """Run a command in the folder."""

    def run(*arguments: str | Path) -> None:
        done = invgp_here(*arguments, cwd=case.folder)
        assert done.returncode == 0, done.stderr

    return run


@pytest.mark.slow
def test_that_all_figures_are_drawn(case: Case, ran: Callable[..., None], tmp_path: Path) -> None:
    ran("plot", "posterior.nc", "--kind", "all", "-o", tmp_path / "figure.png")
    assert all(figure.stat().st_size > 5000 for figure in tmp_path.glob("*.png"))
    assert len(list(tmp_path.glob("*.png"))) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("quantity", ["information", "few-runs"])
def test_that_a_quantity_is_drawn(quantity: str, case: Case, ran: Callable[..., None], tmp_path: Path) -> None:
    kind = "section" if len(case.names) == 1 else "map"
    ran("plot", "posterior.nc", "--kind", kind, "--show", quantity, "-o", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


@pytest.mark.slow
def test_that_keeping_the_posterior_gives_no_note(case: Case) -> None:
    assert "modes" not in netcdf.read(case.folder / "posterior.nc").attrs["invgp_diagnostics"]


@pytest.mark.slow
def test_that_a_report_is_made(case: Case, ran: Callable[..., None], tmp_path: Path) -> None:
    ran("report", "posterior.nc", "-o", tmp_path / "page.html")
    assert "density" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_that_a_table_has_every_node(case: Case, ran: Callable[..., None], tmp_path: Path) -> None:
    ran("export", "posterior.nc", "--format", "csv", "-o", tmp_path / "nodes.csv")
    table = pd.read_csv(tmp_path / "nodes.csv").rename(columns=lambda name: name.partition(" (")[0])
    posterior = netcdf.read(case.folder / "posterior.nc")
    row, node = (np.lexsort([of[name] for name in case.names]) for of in (table, posterior))
    for name in (*case.names, "density", "density_std", "density_information"):
        np.testing.assert_allclose(table[name].values[row], posterior[name].values[node], rtol=1e-6, err_msg=name)


@pytest.mark.slow
def test_that_another_grid_is_predicted(case: Case, ran: Callable[..., None], tmp_path: Path) -> None:
    grid = ",".join(f"{n}={AXES[n][0]:g}:{AXES[n][-1]:g}:{AXES[n][1] - AXES[n][0]:g}" for n in case.names)
    ran("predict", "posterior.nc", "--grid", grid, "-o", tmp_path / "map.nc")
    found, posterior = netcdf.read(tmp_path / "map.nc"), netcdf.read(case.folder / "posterior.nc")
    assert float(found["density_information"].max()) <= 1.0
    if case.regular:
        for name in ("density", "density_std", "density_information"):
            values = found[name].transpose(*case.names).values.ravel()
            np.testing.assert_allclose(values, posterior[name].values, rtol=1e-4, err_msg=name)
