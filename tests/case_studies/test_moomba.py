"""The granite from four kinds of data: its simulators, the reader of the real survey, and the inversion in small."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import invgp
from invgp.forward_models import boxes_gravity, magnetotelluric_sounding

pytestmark = pytest.mark.study

MU_0 = 4e-7 * np.pi


@pytest.fixture
def case(root: Path, tmp_path: Path) -> Path:
    """A copy of the case study, with its survey."""
    made = shutil.ignore_patterns("data", "results", "__pycache__")
    folder = shutil.copytree(root / "case_studies" / "moomba", tmp_path / "case_studies" / "moomba", ignore=made)
    for script in ("beside_truth.py", "command_line.py"):
        shutil.copy(root / "case_studies" / script, tmp_path / "case_studies")
    subprocess.run([sys.executable, "make_survey.py"], cwd=folder, check=True)
    return folder


@pytest.fixture
def modules(case: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Its modules; other case studies have modules of the same names."""
    monkeypatch.syspath_prepend(case)
    names = ("model", "make_survey", "real_data", "contributions")
    for name in (*names, "beside_truth", "command_line"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = {name: importlib.import_module(name) for name in names}
    for name in (*names, "beside_truth", "command_line"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return found


def test_that_the_readings_of_the_twin_are_those_of_its_layers(case: Path, modules: dict[str, ModuleType]) -> None:
    """Differences of gravity between stations by boxes, and a sounding above the centre of a column."""
    model = modules["model"]
    basin, rocks = model.TWIN, model.ROCKS
    top = np.full((1, 144), 5000.0)
    top[0, 65] = 2000.0  # above the basement: the granite ends at its top
    layers = basin.layers(top)
    centre = 0.5 * (basin.east_edges[5] + basin.east_edges[6])
    places = np.array([[centre, centre], [9000.0, 31_000.0]])
    gravity = model.gravity(top, *places.T[:, None])

    edges = basin.east_edges.copy()
    edges[0], edges[-1] = edges[0] - model.PADDING, edges[-1] + model.PADDING
    ends = np.append(layers[0, 1:], np.full((1, 144), basin.base), axis=0)
    boxes = [
        (*edges[[c // 12, c // 12 + 1]], *edges[[c % 12, c % 12 + 1]], -ends[layer, c], -layers[0, layer, c])
        for layer in range(6)
        for c in range(144)
    ]
    exact = boxes_gravity(*places.T, [0.5, 0.5], boxes, np.repeat(rocks.density, 144))
    np.testing.assert_allclose(np.diff(gravity[0]), np.diff(exact), rtol=0.0, atol=1e-9)

    thickness = np.diff(layers[0, :, 65])
    assert thickness[-1] == 0.0
    apparent, phase = magnetotelluric_sounding(rocks.resistivity, thickness, basin.frequency)
    found = model.magnetotellurics(top, *places.T[:, None])
    for values, expected in zip(found, (np.log10(apparent), np.degrees(phase)), strict=True):
        np.testing.assert_allclose(values.reshape(2, 9)[0], expected, rtol=1e-10)


def test_that_a_shallow_granite_is_warm_light_and_weakly_magnetic(modules: dict[str, ModuleType]) -> None:
    model = modules["model"]
    top = np.full((2, 144), 8000.0)
    top[1, 65] = 3600.0  # below the first station
    above = 0.5 * (model.TWIN.east_edges[5] + model.TWIN.east_edges[6])
    places = np.array([[[above, 33_000.0]], [[above, 3000.0]]])
    gravity, magnetics, warmth = (
        np.diff(values, axis=0)[0]
        for values in (
            model.gravity(top, *places),
            model.magnetics(top, *places),
            model.temperatures(top, *places, np.array([[2500.0, 2500.0]])),
        )
    )
    assert gravity[0] < gravity[1]
    assert np.ptp(magnetics) > 1.0
    assert warmth[0] > 1.0 > warmth[1] > -0.1


def test_that_an_unknown_contrast_replaces_the_known_one(modules: dict[str, ModuleType]) -> None:
    model = modules["model"]
    top = np.full((1, 144), 8000.0)
    top[0, 65] = 3600.0
    places = np.array([[[16_000.0, 33_000.0]], [[16_000.0, 3000.0]]])
    for function, values in ((model.gravity, model.ROCKS.density), (model.magnetics, model.ROCKS.susceptibility)):
        known = function(top, *places)
        same = function(top, *places, np.full((1, 144), values[-1] - values[-2]))
        np.testing.assert_allclose(same, known, rtol=1e-12)
        assert np.max(np.abs(function(top, *places, np.zeros((1, 144))) - known)) > 0.1 * np.max(np.abs(known))


@pytest.mark.slow
def test_that_the_twin_is_found_from_all_data(case: Path) -> None:
    sys.modules.pop("model", None)
    try:
        posterior = invgp.invert(
            invgp.load(case / "twin.toml").with_inference(max_runs=400, posterior="coupled gaussian")
        )
    finally:
        sys.modules.pop("model", None)
    truth = pd.read_csv(case / "data" / "truth.csv")["granite_top_m"].to_numpy()
    low, high = (posterior["granite_top_quantile"].sel(quantile=level).values for level in (0.025, 0.975))
    assert np.mean((low < truth) & (truth < high)) > 0.8
    assert float(posterior["granite_top_information"].mean()) > 0.85
    assert np.sqrt(np.mean((posterior["granite_top"].values - truth) ** 2)) < 900.0


@pytest.mark.slow
def test_that_soundings_alone_leave_the_granite_less_certain(modules: dict[str, ModuleType], case: Path) -> None:
    sys.path.insert(0, str(case))
    contributions = modules["contributions"]
    left_out = {name: contributions.combinations()[f"{name} only"] for name in ("gravity", "magnetotellurics")}
    try:
        found = {name: contributions.invert(names, 100) for name, names in left_out.items()}
    finally:
        sys.path.remove(str(case))
        sys.modules.pop("model", None)
    spread = {name: float(ds["granite_top_std"].mean()) for name, ds in found.items()}
    assert spread["gravity"] < 0.7 * spread["magnetotellurics"]
    assert "gravity_observed" in found["gravity"]
    assert "gravity_observed" not in found["magnetotellurics"]


def write_survey(folder: Path) -> np.ndarray:
    """Files in the format of the real survey, with invented numbers; returns the lowest top, first row north."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    names = [f"layer_{number}" for number in range(6)]
    lowest = 3000.0 + 500.0 * rng.random((4, 4))
    for number, name in enumerate(names):
        rows = lowest if number == 5 else np.full((4, 4), 500.0 * number)
        pd.DataFrame(rows, columns=[f"column_{c + 1}" for c in range(4)]).to_csv(
            folder / f"top_of_{name}.csv", index=False
        )
    values = {"density_g_cm3": 2.5, "log10_susceptibility": -3.0, "thermal_conductivity_W_m_K": 2.0,
              "heat_production_W_m3": 1e-6, "log10_resistivity_ohm_m": 2.0}  # fmt: skip
    rocks = [(name, quantity, value) for name in names for quantity, value in values.items()]
    pd.DataFrame(rocks, columns=["layer", "property", "prior_mean"]).to_csv(folder / "rock_properties.csv", index=False)
    places = pd.DataFrame({"east_m": [1000.0, 7000.0], "north_m": [7000.0, 1000.0], "depth_m": [-0.5, -0.5]})
    places.assign(anomaly_mGal=[-28.0, -22.0]).to_csv(folder / "gravity.csv", index=False)
    places.assign(total_field_anomaly_nT=[5.0, 15.0]).to_csv(folder / "magnetics.csv", index=False)
    places.assign(depth_m=1000.0, temperature_K=[350.0, 360.0]).to_csv(folder / "temperature.csv", index=False)
    soundings = []
    for station in (1, 2):
        for frequency in (10.0, 0.1) if station == 1 else (10.0,):
            # A half-space of 100 ohm m: E / H = sqrt(i w mu0 rho), in mV/km per nT.
            z = np.sqrt(2j * np.pi * frequency * MU_0 * 100.0) / MU_0 * 1e-3
            tensor = {"Zxy_re": z.real, "Zxy_im": z.imag, "Zyx_re": -z.real, "Zyx_im": -z.imag}
            soundings.append({"station": station, "east_m": 4000.0, "north_m": 4000.0, "depth_m": -0.1,
                              "frequency_Hz": frequency, **tensor})  # fmt: skip
    pd.DataFrame(soundings).to_csv(folder / "magnetotellurics.csv", index=False)
    return lowest


def test_that_the_reader_converts_orders_and_units(tmp_path: Path, modules: dict[str, ModuleType]) -> None:
    lowest = write_survey(tmp_path / "data")
    real_data = modules["real_data"]
    area = real_data.Area((8000.0, 8000.0, 10_000.0), (0.0, 30_000.0, 40_000.0), 290.0, 0.05)
    north, south = (real_data.read_moomba(tmp_path / "data", area, north_first=first) for first in (True, False))
    north_west, south_east = lowest[0, 0], lowest[3, 3]
    assert north.lowest_top.reshape(4, 4)[0, 3] == north_west
    assert north.lowest_top.reshape(4, 4)[3, 0] == south_east
    assert south.lowest_top.reshape(4, 4)[0, 0] == north_west
    np.testing.assert_allclose(north.gravity, [-3e-5, 3e-5])
    np.testing.assert_allclose(north.rocks.density, 2500.0)
    np.testing.assert_allclose(north.rocks.susceptibility, 1e-3)
    np.testing.assert_allclose(north.basin.frequency, [0.1, 10.0])
    apparent = np.abs(north.impedance) ** 2 / (2.0 * np.pi * north.basin.frequency * MU_0)
    np.testing.assert_allclose(apparent, [[100.0, 100.0], [np.nan, 100.0]], rtol=1e-9)
    np.testing.assert_allclose(np.angle(north.impedance[:, 1]), np.pi / 4.0)
    without = real_data.Area(area.extent, area.field, 290.0, 0.05, without_station=2)
    assert real_data.read_moomba(tmp_path / "data", without).impedance.shape == (1, 2)


@pytest.mark.processes
def test_that_the_script_prints_both_orders_and_names_a_missing_file(case: Path, tmp_path: Path) -> None:
    write_survey(tmp_path / "data")
    options = ["--extent", "8000", "8000", "10000", "--field", "0", "30000", "40000", "--heat", "290", "0.05"]
    command = [sys.executable, "real_data.py", str(tmp_path / "data"), *options]
    done = subprocess.run(command, cwd=case, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("gravity: misfit") == 2
    misfits = re.findall(r"magnetotellurics: misfit (\S+) in log10", done.stdout)  # of a half-space: 0
    assert len(misfits) == 2
    assert max(map(float, misfits)) < 1e-9
    (tmp_path / "data" / "gravity.csv").unlink()
    done = subprocess.run(command, cwd=case, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"real_data.py: the folder {str(tmp_path / 'data')!r} must contain the file 'gravity.csv', but does not.\n"
    )
