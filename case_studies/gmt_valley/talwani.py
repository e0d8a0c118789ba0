"""The computation of talwani2d for the valley in Python, about a thousand times faster, for calibration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STATIONS = np.arange(-500.0, 501.0, 100.0)  # m, from the axis
COVER = 20.0  # m
GRAVITATION = 6.6743e-11  # m3 kg-1 s-2
MGAL = 1e5  # in m s-2


def gravity(thickness: Floats, half_width: Floats, contrast: Floats) -> dict[str, Floats]:
    """Compute the anomaly at the stations by the line integral around the body (Talwani et al., 1959).

    Parameters
    ----------
    thickness : (B,), m.
    half_width : (B, 2), m, at the top and at the floor.
    contrast : (B,), kg m-3, by which the fill is less dense.

    Returns
    -------
    gravity : (B, 11), mGal.
    """
    top, floor = half_width[:, 0], half_width[:, 1]
    across = np.stack([-top, top, floor, -floor], axis=1)[:, :, None] - STATIONS
    down = COVER + np.stack([0.0 * thickness, 0.0 * thickness, thickness, thickness], axis=1)[:, :, None]
    next_across, next_down = np.roll(across, -1, axis=1), np.roll(down, -1, axis=1)
    dx, dz = next_across - across, next_down - down
    angle = np.arctan2(next_down, next_across) - np.arctan2(down, across)
    farther = 0.5 * np.log((next_across**2 + next_down**2) / (across**2 + down**2))
    edges = (across * next_down - next_across * down) * (dx * angle - dz * farther) / (dx**2 + dz**2)
    return {"gravity": 2.0 * GRAVITATION * MGAL * contrast[:, None] * edges.sum(axis=1)}
