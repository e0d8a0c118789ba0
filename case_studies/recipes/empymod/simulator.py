"""Response of two horizontal coils on layered ground, computed by empymod; `python simulator.py` writes a survey."""

import empymod
import numpy as np

FREQUENCIES = np.array([300.0, 1000.0, 3000.0, 10000.0, 30000.0])  # Hz
BOUNDARIES = [0.0, 8.0, 25.0]  # m: surface, and the bottoms of the first two layers


def coil_response(resistivity):
    """Secondary over primary magnetic field (%), in phase and in quadrature, of coils 20 m apart and 1 m high."""
    place = {"src": [0, 0, -1, 0, 90], "rec": [20, 0, -1, 0, 90], "freqtime": FREQUENCIES, "mrec": True, "verb": 0}
    field = empymod.loop(depth=BOUNDARIES, res=[2e14, *resistivity], **place)
    primary = empymod.loop(depth=[], res=[2e14], **place)
    ratio = 100.0 * (field - primary) / primary
    return np.concatenate([ratio.real, ratio.imag])


if __name__ == "__main__":
    rng, x = np.random.default_rng(1), np.arange(20) * 50.0
    truth = np.stack([60 + 0 * x, 12 + 20 * (x / 950) ** 2, 120 * np.exp(-((x - 500) ** 2) / 2e5) + 30], axis=-1)
    data = np.array([coil_response(site) for site in truth])
    data += rng.normal(0.0, 0.1, data.shape)
    names = [f"{part}_{f:.0f}" for part in ("real", "imag") for f in FREQUENCIES]
    np.savetxt("sites.csv", np.column_stack([x, data]), "%.5g", ",", header=",".join(["x", *names]), comments="")
