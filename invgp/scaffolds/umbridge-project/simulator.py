"""What the server of this project runs: replace it by your model."""

import math

GRAVITY = 6.6743e-11  # m3 kg-1 s-2
LIGHTER = -400.0  # kg m-3, the sediment than the rock around it


def valley(thickness, velocity):
    """Resonance frequency (Hz) and gravity (m s-2) over a layer: thickness in m, shear-wave velocity in m/s, (B,)."""
    return {
        "resonance": velocity / (4.0 * thickness),
        "anomaly": 2.0 * math.pi * GRAVITY * LIGHTER * thickness,
    }
