"""Gravity of a sedimentary basin made of prisms, computed by harmonica; `python simulator.py` writes a survey."""

import harmonica
import numpy as np

EAST = np.arange(30) * 500.0 + 250.0  # m, centres of the prisms


def basin_gravity(depth, x):
    """Attraction (mGal) at x (m) of sediments down to depth (30,) in m, 400 kg/m3 lighter than the basement."""
    same, top = np.full(30, 50_000.0), np.zeros(30)
    prisms = np.column_stack([EAST - 250.0, EAST + 250.0, -same, same, -depth, top])
    stations = (x, np.zeros_like(x), np.full_like(x, 1.0))
    return harmonica.prism_gravity(stations, prisms, np.full(30, -400.0), field="g_z")


if __name__ == "__main__":
    rng, x = np.random.default_rng(1), np.linspace(0.0, 15_000.0, 40)
    truth = 300 + 1500 * np.exp(-(((EAST - 6000) / 2500) ** 2)) + 600 * np.exp(-(((EAST - 11_500) / 1200) ** 2))
    data = basin_gravity(truth, x) + rng.normal(0.0, 0.2, 40)
    np.savetxt("sites.csv", np.column_stack([x, data]), "%.6g", ",", header="x,g", comments="")
