"""The simulator of this project. Replace it by your own function."""

import numpy as np
from scipy.special import exp1

PUMPED = 1200.0  # m3/d
DISTANCE = 40.0  # m, from the pumped well to the observation well


def drawdown(transmissivity, storativity, zero, time):
    """Drawdowns (B, N) in m in an observation well, at N times, for B models at once (Theis).

    transmissivity : (B,), m2/d. storativity : (B,). zero : (B,), m, error of the zero of the gauge. time : (B, N), d.
    """
    u = DISTANCE**2 * storativity[:, None] / (4 * transmissivity[:, None] * time)
    return PUMPED / (4 * np.pi * transmissivity[:, None]) * exp1(u) + zero[:, None]
