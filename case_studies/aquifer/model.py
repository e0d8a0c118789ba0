"""The equations of the program in Python, for comparisons that need a hundred thousand runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

Floats = NDArray[np.float64]

SIDE, CELL, THICKNESS, RECHARGE, WEST, EAST = 16, 50.0, 10.0, 2e-8, 20.0, 16.0  # as in data/aquifer.txt


def heads(k: Floats, easting: Floats, northing: Floats) -> Floats:
    """Compute heads (B, N) in m at wells, for conductivities (B, 256) in m s-1, row by row from the south."""
    column, row = ((axis[0] / CELL).astype(int) for axis in (easting, northing))
    return np.stack([_heads(one.reshape(SIDE, SIDE) * THICKNESS)[row, column] for one in k])


def _heads(T: Floats) -> Floats:
    eastward = 2.0 / (1.0 / T[:, :-1] + 1.0 / T[:, 1:])
    northward = 2.0 / (1.0 / T[:-1] + 1.0 / T[1:])
    diagonal = np.zeros((SIDE, SIDE))
    diagonal[:, :-1] += eastward
    diagonal[:, 1:] += eastward
    diagonal[:-1] += northward
    diagonal[1:] += northward
    known = np.full((SIDE, SIDE), RECHARGE * CELL**2)
    for edge, head in ((0, WEST), (-1, EAST)):
        diagonal[:, edge] += 2.0 * T[:, edge]
        known[:, edge] += 2.0 * T[:, edge] * head
    band = np.zeros((SIDE + 1, SIDE**2))
    band[0] = diagonal.ravel()
    band[1].reshape(SIDE, SIDE)[:, :-1] = -eastward
    band[SIDE, : SIDE * (SIDE - 1)] = -northward.ravel()
    return np.asarray(solveh_banded(band, known.ravel(), lower=True, check_finite=False)).reshape(SIDE, SIDE)
