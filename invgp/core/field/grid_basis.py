"""Representation of a prior on a grid by a few independent variables: its leading Karhunen-Loeve modes.

The covariance matrix of the grid is never formed. A pivoted Cholesky factorisation adds nodes one by one, always the
node with the largest conditional variance given the previous ones, and knows the remaining variance after each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, device_of, solve_triangular, sum_of_squares, to_numpy
from invgp.core.kernels import Kernel

BLOCK, CANDIDATES = 64, 512  # largest number of nodes that one block adds, and of candidates for them
PIVOT_THRESHOLD = 0.5  # of the largest conditional variance: a block adds no node with less
FACTOR_SHARE = 0.2  # fraction of the variance that the modes may omit which the factorisation may omit


@dataclass(frozen=True)
class Basis:
    """Linear basis of a prior on G nodes: f = modes w, with independent standard normal w.

    Attributes
    ----------
    modes : Array, shape (G, R)
        Modes, each multiplied by the standard deviation of its amplitude, in order of decreasing variance.
    variances : Array, shape (R,)
        Variance of each mode, summed over the grid.
    omitted_variance : Array, shape (G,)
        Prior variance at each node that the modes omit.
    weaker_modes : Array, shape (G, R')
        Further modes, which contain almost all of the omitted variance.
    pivots : array of int, shape (R + R',)
        Indices of the nodes of the factorisation. Their values determine the amplitudes of all modes.
    rotation : Array, shape (R + R', R + R')
        Orthogonal matrix. Multiplied by w, followed by the amplitudes of the weaker modes, it gives the values at the
        pivots, whitened by the Cholesky factor of their covariance.
    """

    modes: Array
    variances: Array
    omitted_variance: Array
    weaker_modes: Array
    pivots: NDArray[np.intp]
    rotation: Array

    @property
    def size(self) -> int:
        """Number of variables, R."""
        return int(self.modes.shape[1])

    def coordinates(self, fields: Array) -> Array:
        """Compute the variables (n, R) whose fields are nearest to given fields (n, G).

        Parameters
        ----------
        fields : Array, shape (n, G)
            Values at the nodes.

        Returns
        -------
        Array, shape (n, R)
        """
        return (fields @ self.modes) / self.variances


def leading_modes(kernel: Kernel, nodes: Array, share: float, max_modes: int | None = None) -> Basis:
    """Compute the modes that contain a given share of the prior variance.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the process.
    nodes : Array, shape (G, D)
        Coordinates of the nodes.
    share : float
        Share of the variance, summed over the grid.
    max_modes : int or None
        Largest number of modes, even if their share of the variance is smaller; None for no limit.
    """
    xp = array_namespace(nodes)
    factor, _, pivots = pivoted_cholesky(kernel, nodes, 1.0 - FACTOR_SHARE * (1.0 - share))
    # The modes of F F^T are F times the eigenvectors of F^T F, a small matrix.
    values, vectors = xp.linalg.eigh(xp.matrix_transpose(factor) @ factor)
    values, vectors = xp.flip(values), xp.flip(vectors, axis=1)
    variance = kernel.diagonal(nodes)
    total = float(xp.sum(variance))
    kept = to_numpy(xp.cumulative_sum(values)) >= share * total
    count = int(kept.argmax()) + 1 if kept.any() else int(values.shape[0])
    count = count if max_modes is None else min(count, max_modes)
    modes = factor @ vectors[:, :count]
    remaining = variance - xp.sum(xp.square(modes), axis=1)
    weaker_modes = factor @ vectors[:, count:]
    return Basis(
        modes,
        values[:count],
        xp.where(remaining > 0.0, remaining, xp.zeros_like(remaining)),
        weaker_modes,
        pivots,
        vectors,
    )


def pivoted_cholesky(kernel: Kernel, nodes: Array, share: float) -> tuple[Array, Array, NDArray[np.intp]]:
    """Factorise the kernel matrix approximately as F F^T, by pivoted Cholesky factorisation in blocks.

    Each block selects nodes from candidates spread evenly over all nodes whose conditional variance is nearly the
    largest. Within a block, the node with the largest conditional variance is next. Most of the work is in matrix
    products.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the process.
    nodes : Array, shape (G, D)
        Coordinates of the nodes.
    share : float
        Share of the variance, summed over the grid, that F F^T must contain.

    Returns
    -------
    factor : Array, shape (G, R)
        F.
    omitted_variance : Array, shape (G,)
        Remaining variance at each node.
    pivots : array of int, shape (R,)
        Indices of the selected nodes, in order.
    """
    xp = array_namespace(nodes)
    size = nodes.shape[0]
    remaining = to_numpy(kernel.diagonal(nodes)).astype(np.float64)
    allowed = (1.0 - share) * remaining.sum()
    rows = xp.zeros((min(size, 4 * BLOCK), size), dtype=nodes.dtype, device=device_of(nodes))
    pivots: list[int] = []
    resolved = 10.0 * float(xp.finfo(nodes.dtype).eps) * remaining.max()  # rounding error
    while remaining.sum() > allowed and remaining.max() > resolved:
        done = len(pivots)
        open_nodes = np.flatnonzero(remaining >= PIVOT_THRESHOLD * remaining.max())
        sampled = index_array(open_nodes[np.unique(np.linspace(0, len(open_nodes) - 1, CANDIDATES).astype(int))], nodes)
        candidates, factor_rows = xp.take(nodes, sampled, axis=0), xp.take(rows[:done, :], sampled, axis=1)
        residual = kernel(candidates, candidates) - xp.matrix_transpose(factor_rows) @ factor_rows
        chosen, factor = _select_pivots(to_numpy(residual).astype(np.float64))
        block = to_numpy(sampled)[chosen]
        taken = index_array(block, nodes)
        columns = kernel(xp.take(nodes, taken, axis=0), nodes)
        columns = columns - xp.matrix_transpose(xp.take(rows[:done, :], taken, axis=1)) @ rows[:done, :]
        columns = solve_triangular(xp.asarray(factor, dtype=nodes.dtype, device=device_of(nodes)), columns)
        while done + len(block) > rows.shape[0]:
            rows = xp.concat([rows, xp.zeros_like(rows)])[:size, :]
        rows[done : done + len(block), :] = columns
        remaining = np.maximum(remaining - to_numpy(sum_of_squares(columns)), 0.0)
        remaining[block] = 0.0
        pivots += block.tolist()
    omitted_variance = xp.asarray(remaining, dtype=nodes.dtype, device=device_of(nodes))
    return xp.matrix_transpose(rows[: len(pivots), :]), omitted_variance, np.asarray(pivots)


def index_array(indices: NDArray[np.intp], like: Array) -> Array:
    """Convert indices to the array type and device of `like`."""
    return array_namespace(like).asarray(indices.astype(np.int32), device=device_of(like))


def _select_pivots(residual: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Select the nodes of a block (b,) from candidates with covariance (C, C); return their Cholesky factor as well."""
    remaining = residual.diagonal().copy()
    least = PIVOT_THRESHOLD * remaining.max()
    columns = np.empty((len(remaining), min(BLOCK, len(remaining))))
    chosen: list[int] = []
    for k in range(columns.shape[1]):
        pivot = int(remaining.argmax())
        if chosen and remaining[pivot] < least:
            break
        column = (residual[:, pivot] - columns[:, :k] @ columns[pivot, :k]) / np.sqrt(remaining[pivot])
        columns[:, k] = column
        remaining -= column**2
        remaining[[*chosen, pivot]] = -np.inf
        chosen.append(pivot)
    return np.asarray(chosen), np.tril(columns[chosen, : len(chosen)])
