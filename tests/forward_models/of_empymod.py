"""Print what empymod computes for the layered earth of the tests: needs `pip install empymod`, and nothing of ours.

    python tests/forward_models/of_empymod.py

`test_resistivity.py` and `test_magnetotelluric.py` hold these values.
"""

from itertools import pairwise

import empymod
import numpy as np

RESISTIVITY, DEPTH = [1e12, 80.0, 20.0, 300.0, 5.0], [0.0, 4.0, 19.0, 49.0]  # ohm m, with the air; m
HALF_SPACING = np.array([3.0, 10.0, 30.0, 100.0, 300.0])  # m
FREQUENCY = np.array([1e5, 1e4, 1e3])  # Hz
FAR = 30_000.0  # m: many skin depths from a dipole its field is a plane wave
MU_0 = 4e-7 * np.pi


def schlumberger(s: float) -> float:
    """Apparent resistivity in ohm m: a wire goes around the centre, and carries nearly direct current."""
    corners = np.array([[-s, 0.0], [-s, s], [s, s], [s, 0.0]])
    field = 0.0
    for (x0, y0), (x1, y1) in pairwise(corners):
        source = [x0, x1, y0, y1, 0.001, 0.001]
        field += empymod.bipole(
            source, [0.0, 0.0, 0.001, 0.0, 0.0], DEPTH, RESISTIVITY, 1e-6, srcpts=64, strength=1.0, verb=0
        ).real
    return float(np.abs(field) * np.pi * s**2)


def magnetotelluric() -> np.ndarray:
    """Surface impedance E_x / H_y in V/A, broadside of a dipole far away."""
    source = [0.0, 0.0, 0.0, 0.0, 0.0]
    settings = {"depth": DEPTH, "res": RESISTIVITY, "freqtime": FREQUENCY, "verb": 0}
    electric = empymod.bipole(source, [0.0, FAR, 0.0, 0.0, 0.0], **settings)
    magnetic = empymod.bipole(source, [0.0, FAR, 0.0, 90.0, 0.0], mrec=True, **settings)
    return np.asarray(electric / magnetic)


def main() -> None:
    """Print both soundings."""
    print("empymod", empymod.__version__)
    print("Schlumberger, ohm m:", np.array([schlumberger(s) for s in HALF_SPACING]).round(6).tolist())
    impedance = magnetotelluric()
    apparent = np.abs(impedance) ** 2 / (2.0 * np.pi * FREQUENCY * MU_0)
    print("magnetotelluric, ohm m:", apparent.round(5).tolist())
    print("magnetotelluric, degrees:", np.degrees(np.angle(impedance)).round(4).tolist())


if __name__ == "__main__":
    main()
