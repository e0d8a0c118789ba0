"""The made-up data of the scaffolds, by their own simulators.

`python tests/helpers/scaffold_data.py` writes them again.
"""

from __future__ import annotations

import csv
import importlib.util
import io
from pathlib import Path
from types import ModuleType

import numpy as np

SCAFFOLDS = Path(__file__).resolve().parents[2] / "invgp" / "scaffolds"


def simulator(path: str) -> ModuleType:
    """A module of a scaffold."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, SCAFFOLDS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reflection_line() -> str:
    rng = np.random.default_rng(1)
    x = np.linspace(0, 6000, 16)
    depth = np.stack([300 + 40 * np.sin(x / 1500), 820 + 90 * np.cos(x / 2200)], axis=-1)
    velocity = np.stack([1800 + 60 * np.cos(x / 2500), 2650 + 120 * np.sin(x / 3000)], axis=-1)
    times = simulator("python-project/simulator.py").two_way_times(depth, velocity)
    times += rng.normal(0, [0.01, 0.02], times.shape)
    times[5, 1] = np.nan
    return table(["position_m", "twt_1_s", "twt_2_s"], x, times, digits=(0, 4))


def soundings() -> str:
    rng = np.random.default_rng(2)
    x = np.linspace(0, 550, 12)
    models = np.stack([110 + 35 * np.sin(x / 120), 28 - 8 * np.cos(x / 150), 7 + 2.5 * np.sin(x / 200 + 1)], axis=-1)
    program = simulator("executable-project/sounding.py")
    curves = np.array([[program.apparent(*model, spacing) for spacing in program.SPACINGS] for model in models])
    curves *= rng.normal(1, 0.04, curves.shape)
    return table(["position_m", "rho_2", "rho_5", "rho_10", "rho_20", "rho_50"], x, curves, digits=(0, 1))


def pumping_tests() -> str:
    rng = np.random.default_rng(3)
    wells = np.array([485_000, 5_830_000]) + np.round(rng.uniform(0, 6000, (12, 2)), -1)
    east, north = (wells - wells.min(axis=0)).T
    transmissivity = 260 * np.exp(0.6 * np.sin(east / 2500) - 0.4 * np.cos(north / 3000))
    storativity = 3e-4 * np.exp(0.4 * np.cos(east / 3000))
    program = simulator("pest-project/theis.py")
    days = np.array(program.MINUTES) / 1440
    drawdown = [
        [1200 / (4 * np.pi * t) * program.well_function(40**2 * s / (4 * t * d)) for d in days]
        for t, s in zip(transmissivity, storativity, strict=True)
    ]
    measured = np.array(drawdown) + rng.normal(0, 0.03, (12, 4))
    return table(["easting", "northing", "s10_m", "s60_m", "s360_m", "s1440_m"], wells, measured, digits=(0, 3))


def valley() -> str:
    rng = np.random.default_rng(4)
    x = np.linspace(0, 2600, 14)
    thickness, velocity = 25 + 95 * np.exp(-(((x - 1300) / 600) ** 2)), 330 + 60 * np.sin(x / 700)
    answer = simulator("umbridge-project/simulator.py").valley(thickness, velocity)
    resonance = answer["resonance"] * rng.normal(1, 0.05, 14)
    anomaly = 1e5 * answer["anomaly"] + rng.normal(0, 0.15, 14)
    return table(["position_m", "f0_Hz", "gravity_mGal"], x, np.stack([resonance, anomaly], axis=-1), digits=(0, 3))


def river_heads() -> str:
    rng = np.random.default_rng(5)
    x = np.linspace(0.0, 2000.0, 41)
    conductivity = 10.0 * np.exp(0.45 * np.sin(x / 380.0) - 0.1)
    wells = np.array([120.0, 340.0, 560.0, 710.0, 930.0, 1080.0, 1260.0, 1450.0, 1690.0, 1880.0])
    heads = simulator("field-project/simulator.py").heads(conductivity[None], wells[None])[0]
    measured = heads + 0.1 * rng.standard_normal(len(wells))
    return table(["position_m", "head_m"], wells, measured[:, None], digits=(0, 3))


def pumping_test() -> str:
    rng = np.random.default_rng(6)
    days = np.array([1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1440.0]) / 1440.0
    models = np.array([[310.0], [2.5e-4], [0.03]])
    drawdown = simulator("scalars-project/simulator.py").drawdown(*models, days[None])[0]
    return table(["time_d", "drawdown_m"], days, (drawdown + 0.02 * rng.standard_normal(len(days)))[:, None], (5, 3))


def table(header: list[str], positions: np.ndarray, data: np.ndarray, digits: tuple[int, int]) -> str:
    """CSV text; no number, no cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for position, row in zip(positions.reshape(len(data), -1), data, strict=True):
        cells = [f"{value:.{digits[0]}f}" for value in position]
        writer.writerow(cells + ["" if np.isnan(value) else f"{value:.{digits[1]}f}" for value in row])
    return text.getvalue()


FILES = {
    "python-project/sites.csv": reflection_line,
    "executable-project/sites.csv": soundings,
    "field-project/wells.csv": river_heads,
    "field-program-project/wells.csv": river_heads,
    "pest-project/wells.csv": pumping_tests,
    "scalars-project/drawdown.csv": pumping_test,
    "umbridge-project/sites.csv": valley,
}

if __name__ == "__main__":
    for name, make in FILES.items():
        (SCAFFOLDS / name).write_text(make(), encoding="utf-8")
