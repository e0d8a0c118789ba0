"""The equations of the program in Python, for comparisons that need a hundred thousand runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator
from scipy.linalg import cho_solve_banded, cholesky_banded

Floats = NDArray[np.float64]

SIDE, CELL, THICKNESS, RECHARGE, WEST, EAST = 16, 50.0, 10.0, 2e-8, 20.0, 16.0  # as in data/aquifer.txt


def heads(k: Floats, easting: Floats, northing: Floats) -> Floats:
    """Compute heads (B, N) in m at wells, for conductivities (B, 256) in m s-1, row by row from the south."""
    wells = _wells(easting, northing)
    return np.stack([_solve(one.reshape(SIDE, SIDE) * THICKNESS)[0][wells] for one in k])


def coarse_heads(k: Floats, easting: Floats, northing: Floats) -> Floats:
    """Compute heads (B, N) as `heads` does, on 8 x 8 cells of 100 m.

    The conductivity of a large cell is the geometric mean of those of its four cells. Heads are interpolated between
    the centres of large cells and the known heads at the western and the eastern edge.
    """
    half = SIDE // 2
    large = np.exp(np.log(k).reshape(-1, half, 2, half, 2).mean(axis=(2, 4)))
    centres = 2.0 * CELL * (np.arange(half) + 0.5)
    across = np.concatenate([[0.0], centres, [SIDE * CELL]])
    found = []
    for T in large * THICKNESS:
        head = _solve(T, 2.0 * CELL)[0].reshape(half, half)
        head = np.pad(head, ((0, 0), (1, 1)), constant_values=((0.0, 0.0), (WEST, EAST)))
        between = RegularGridInterpolator((centres, across), head, bounds_error=False, fill_value=None)
        found.append(between(np.column_stack([northing[0], easting[0]])))
    return np.stack(found)


def heads_with_jacobian(k: Floats, easting: Floats, northing: Floats) -> tuple[Floats, dict[str, Floats]]:
    """Compute heads (B, N) as `heads` does, and their derivatives (B, N, 256) by the conductivities.

    The derivatives take one adjoint solution per well, with the factor of the matrix that the heads need anyway.
    """
    wells = _wells(easting, northing)
    found = [_derivatives(one.reshape(SIDE, SIDE) * THICKNESS, wells) for one in k]
    return np.stack([head for head, _ in found]), {"k": np.stack([slopes for _, slopes in found])}


def _wells(easting: Floats, northing: Floats) -> NDArray[np.intp]:
    """Return the numbers (N,) of the cells of the wells."""
    column, row = ((axis[0] / CELL).astype(int) for axis in (easting, northing))
    return np.asarray(row * SIDE + column)


def _derivatives(T: Floats, wells: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return the heads (N,) at wells, and their derivatives (N, 256) by the conductivities."""
    solution, factor = _solve(T)
    head = solution.reshape(SIDE, SIDE)
    adjoint = cho_solve_banded((factor, True), np.eye(SIDE**2)[:, wells], check_finite=False).T.reshape(-1, SIDE, SIDE)
    slopes = np.zeros_like(adjoint)
    for axis in (1, 0):  # conductances between neighbours: harmonic means of their transmissivities
        first, second = ((slice(None), slice(None, -1)), (slice(None), slice(1, None)))
        if axis == 0:
            first, second = first[::-1], second[::-1]
        conductance = 2.0 / (1.0 / T[first] + 1.0 / T[second])
        flow = -np.diff(adjoint, axis=1 + axis) * np.diff(head, axis=axis)
        for cells in (first, second):
            slopes[(slice(None), *cells)] += flow * 0.5 * (conductance / T[cells]) ** 2
    for edge, known in ((0, WEST), (-1, EAST)):
        slopes[:, :, edge] += 2.0 * adjoint[:, :, edge] * (known - head[:, edge])
    return solution[wells], slopes.reshape(len(wells), -1) * THICKNESS


def _solve(T: Floats, cell: float = CELL) -> tuple[Floats, Floats]:
    """Return the heads for transmissivities (n, n) of cells of a size in m, and the Cholesky factor of the matrix."""
    side = len(T)
    eastward = 2.0 / (1.0 / T[:, :-1] + 1.0 / T[:, 1:])
    northward = 2.0 / (1.0 / T[:-1] + 1.0 / T[1:])
    diagonal = np.zeros((side, side))
    diagonal[:, :-1] += eastward
    diagonal[:, 1:] += eastward
    diagonal[:-1] += northward
    diagonal[1:] += northward
    known = np.full((side, side), RECHARGE * cell**2)
    for edge, head in ((0, WEST), (-1, EAST)):
        diagonal[:, edge] += 2.0 * T[:, edge]
        known[:, edge] += 2.0 * T[:, edge] * head
    band = np.zeros((side + 1, side**2))
    band[0] = diagonal.ravel()
    band[1].reshape(side, side)[:, :-1] = -eastward
    band[side, : side * (side - 1)] = -northward.ravel()
    factor = cholesky_banded(band, lower=True, check_finite=False)
    return np.asarray(cho_solve_banded((factor, True), known.ravel(), check_finite=False)), factor
