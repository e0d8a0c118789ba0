"""The model of the server of this project. Replace it by your own model."""

import math

GRAVITY = 6.6743e-11  # m3 kg-1 s-2
DENSITY_CONTRAST = -400.0  # kg m-3, of the sediment


def valley(thickness, velocity):
    """Resonance frequency (Hz) and gravity (m s-2) over a layer: thickness in m, shear-wave velocity in m/s, (B,)."""
    return {
        "resonance": velocity / (4.0 * thickness),
        "anomaly": 2.0 * math.pi * GRAVITY * DENSITY_CONTRAST * thickness,
    }
