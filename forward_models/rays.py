"""Straight rays through the cells of a section."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def ray_lengths(sources: ArrayLike, receivers: ArrayLike, x_edges: ArrayLike, z_edges: ArrayLike) -> Floats:
    """Compute the lengths of straight rays in the cells of a grid; times the slownesses (s m-1) they are travel times.

    Parameters
    ----------
    sources, receivers : array, shape (M, 2), in m
        Ends x, z of each ray.
    x_edges, z_edges : array, shapes (I + 1,) and (J + 1,), in m
        Edges of the cells, increasing.

    Returns
    -------
    array, shape (M, I, J), in m
        Lengths; a ray along an edge belongs to the following cell.
    """
    start, end = (np.asarray(ends, dtype=np.float64) for ends in (sources, receivers))
    edges = [np.asarray(axis, dtype=np.float64) for axis in (x_edges, z_edges)]
    shape = tuple(axis.size - 1 for axis in edges)
    lengths = np.zeros((len(start), *shape))
    for ray, (a, step) in enumerate(zip(start, end - start, strict=True)):
        # Where the ray crosses edges, as shares of its length: between two neighbours it is within one cell.
        crossings = [(axis - a[i]) / step[i] for i, axis in enumerate(edges) if step[i] != 0.0]
        shares = np.unique(np.clip(np.concatenate([[0.0, 1.0], *crossings]), 0.0, 1.0))
        middle = a + 0.5 * (shares[1:] + shares[:-1])[:, None] * step
        cells = [np.searchsorted(axis, middle[:, i], side="right") - 1 for i, axis in enumerate(edges)]
        within = np.logical_and.reduce([(cell >= 0) & (cell < n) for cell, n in zip(cells, shape, strict=True)])
        parts = np.diff(shares) * np.hypot(*step)
        np.add.at(lengths[ray], tuple(cell[within] for cell in cells), parts[within])
    return lengths
