"""Transient electromagnetic soundings, computed by SimPEG; `python simulator.py` writes a survey."""

import numpy as np
from simpeg import maps
from simpeg.electromagnetics import time_domain

GATES = np.logspace(-5.0, -3.0, 9)  # s after the current was switched off
THICKNESSES = [15.0, 40.0]  # m


def decay(resistivity):
    """Logarithm to base 10 of -dBz/dt (nT/s) in the centre of a loop of 20 m radius; resistivity (3,) in ohm m."""
    receiver = time_domain.receivers.PointMagneticFluxTimeDerivative(np.zeros((1, 3)), GATES, orientation="z")
    source = time_domain.sources.CircularLoop([receiver], location=np.zeros(3), radius=20.0)
    survey = time_domain.Survey([source])
    simulation = time_domain.Simulation1DLayered(survey, thicknesses=THICKNESSES, sigmaMap=maps.IdentityMap(nP=3))
    return np.log10(np.abs(simulation.dpred(1.0 / resistivity)) * 1e9)


if __name__ == "__main__":
    rng, x = np.random.default_rng(1), np.arange(12) * 100.0
    truth = np.stack([50 + 0 * x, 8 + 12 * np.exp(-((x - 500) ** 2) / 1e5), 120 + 0 * x], axis=-1)
    data = np.array([decay(site) for site in truth]) + rng.normal(0.0, 0.02, (12, 9))
    header = ",".join(["x", *(f"gate_{k}" for k in range(1, 10))])
    np.savetxt("sites.csv", np.column_stack([x, data]), "%.4f", ",", header=header, comments="")
