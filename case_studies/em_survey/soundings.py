"""Data of a ground survey over four layers of fixed thickness: a resistivity and a magnetotelluric sounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from invgp.forward_models import magnetotelluric_sounding, schlumberger_sounding

THICKNESS = np.array([8.0, 16.0, 32.0])  # m, of the layers above the half-space
HALF_SPACING = np.array([5.0, 10.0, 20.0, 40.0, 80.0, 160.0])  # m, AB / 2
FREQUENCY = np.array([100e3, 30e3, 10e3, 3e3, 1e3])  # Hz


def soundings(resistivity: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Compute both soundings at sites with these resistivities (B, 4) in ohm m.

    Returns
    -------
    galvanic : (B, 6), log10 of the Schlumberger array's apparent resistivity in ohm m.
    inductive : (B, 5), log10 of the magnetotelluric apparent resistivity in ohm m.
    phase : (B, 5), of the impedance in degrees.
    """
    inductive, phase = magnetotelluric_sounding(resistivity, THICKNESS, FREQUENCY)
    return {
        "galvanic": np.log10(schlumberger_sounding(resistivity, THICKNESS, HALF_SPACING)),
        "inductive": np.log10(inductive),
        "phase": np.degrees(phase),
    }
