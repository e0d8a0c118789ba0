"""Dispersion of Rayleigh waves over layered ground, computed by disba; `python simulator.py` writes a survey."""

import numpy as np
from disba import PhaseDispersion

PERIODS = np.geomspace(0.06, 0.5, 8)  # s


def phase_velocity(thickness, velocity):
    """Phase velocity (km/s), fundamental mode, from thicknesses (2,) in km and shear-wave velocities (3,) in km/s."""
    layers = np.append(thickness, 1.0)  # the last one is a half-space
    density = 0.31e3 * (1e3 * 1.8 * velocity) ** 0.25 / 1e3  # g/cm3, Gardner's relation
    curve = PhaseDispersion(layers, 1.8 * velocity, velocity, density)(PERIODS, mode=0, wave="rayleigh")
    if len(curve.velocity) < len(PERIODS):
        raise ValueError("the fundamental mode does not exist at all periods")
    return curve.velocity


if __name__ == "__main__":
    rng, x = np.random.default_rng(1), np.arange(12) * 100.0
    data = [
        phase_velocity(np.array([0.008 + 0.004 * s, 0.02 - 0.006 * s]), np.array([0.2, 0.35 + 0.1 * s, 0.7]))
        for s in np.sin(x / 400.0)
    ]
    data = np.array(data) * (1 + 0.01 * rng.normal(size=(12, 8)))
    names = ["x", *(f"c{i}" for i in range(1, 9))]
    np.savetxt("sites.csv", np.column_stack([x, data]), "%.5g", ",", header=",".join(names), comments="")
