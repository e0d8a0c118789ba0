"""A prior on a grid in few independent variables: its leading Karhunen-Loeve modes.

The covariance matrix of the grid is never formed. A pivoted Cholesky factorisation takes one node after the other,
always the one that those before say least about, and knows at each step how much of the variance is still open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, device_of, solve_triangular, sum_of_squares, to_numpy
from invgp.core.kernels import Kernel

BLOCK, CANDIDATES = 64, 512  # nodes of the factorisation at once, and those that they are chosen from
NEARLY = 0.5  # of the variance of the most open node: a block takes no node below
SHARPER = 0.2  # of the share that may be left open: the factorisation leaves so much less than the modes will


@dataclass(frozen=True)
class Basis:
    """f = modes w, with independent standard normal w.

    Attributes
    ----------
    modes : (G, R), each a mode times the standard deviation of its amplitude; the strongest first.
    variances : (R,), of the modes, summed over the grid.
    open_variance : (G,), what the modes leave open of the prior's variance at each node.
    rest : (G, R'), weaker modes, which make up nearly all of what is left open.
    pivots : numbers (R + R',) of the nodes that were taken: what they say about the field is all that the modes say.
    rotation : (R + R', R + R'), orthogonal: times w, those of the weaker modes behind, it gives the pivots' values
        whitened by the Cholesky factor of their covariance.
    """

    modes: Array
    variances: Array
    omitted_variance: Array
    rest: Array
    pivots: NDArray[np.intp]
    rotation: Array

    @property
    def size(self) -> int:
        """Number of variables, R."""
        return int(self.modes.shape[1])

    def coordinates(self, fields: Array) -> Array:
        """The variables (n, R) whose fields come nearest to those given, (n, G)."""
        return (fields @ self.modes) / self.variances


def leading_modes(kernel: Kernel, nodes: Array, share: float, most: int | None = None) -> Basis:
    """The modes that keep a share of the prior's variance.

    Parameters
    ----------
    nodes : (G, D).
    most : of the modes, whatever the share; None for any number.
    """
    xp = array_namespace(nodes)
    factor, _, pivots = pivoted_cholesky(kernel, nodes, 1.0 - SHARPER * (1.0 - share))
    # The modes of F F^T are F times the eigenvectors of F^T F, a small matrix.
    values, vectors = xp.linalg.eigh(xp.matrix_transpose(factor) @ factor)
    values, vectors = xp.flip(values), xp.flip(vectors, axis=1)
    total = float(kernel.variance) * nodes.shape[0]
    kept = to_numpy(xp.cumulative_sum(values)) >= share * total
    count = int(kept.argmax()) + 1 if kept.any() else int(values.shape[0])
    count = count if most is None else min(count, most)
    modes = factor @ vectors[:, :count]
    left = kernel.variance - xp.sum(xp.square(modes), axis=1)
    rest = factor @ vectors[:, count:]
    return Basis(modes, values[:count], xp.where(left > 0.0, left, xp.zeros_like(left)), rest, pivots, vectors)


def pivoted_cholesky(kernel: Kernel, nodes: Array, share: float) -> tuple[Array, Array, NDArray[np.intp]]:
    """F (G, R) such that F F^T keeps a share of the variance of the kernel's matrix.

    Nodes are taken in blocks, from candidates spread over all that are nearly as open as the most open one; within a
    block, always the one that is most open. So all the work is in products of matrices.

    Returns
    -------
    F; the variance (G,) that is left at each node; and the numbers (R,) of the nodes that were taken, in order.
    """
    xp = array_namespace(nodes)
    size = nodes.shape[0]
    left = np.full(size, float(kernel.variance))
    allowed = (1.0 - share) * float(kernel.variance) * size
    rows = xp.zeros((min(size, 4 * BLOCK), size), dtype=nodes.dtype, device=device_of(nodes))
    pivots: list[int] = []
    resolved = 10.0 * float(xp.finfo(nodes.dtype).eps) * float(kernel.variance)  # below, it is rounding
    while left.sum() > allowed and left.max() > resolved:
        known = len(pivots)
        open_nodes = np.flatnonzero(left >= NEARLY * left.max())
        some = index_array(open_nodes[np.unique(np.linspace(0, len(open_nodes) - 1, CANDIDATES).astype(int))], nodes)
        candidates, said = xp.take(nodes, some, axis=0), xp.take(rows[:known, :], some, axis=1)
        residual = kernel(candidates, candidates) - xp.matrix_transpose(said) @ said
        chosen, factor = _greedy(to_numpy(residual).astype(np.float64))
        block = to_numpy(some)[chosen]
        taken = index_array(block, nodes)
        columns = kernel(xp.take(nodes, taken, axis=0), nodes)
        columns = columns - xp.matrix_transpose(xp.take(rows[:known, :], taken, axis=1)) @ rows[:known, :]
        columns = solve_triangular(xp.asarray(factor, dtype=nodes.dtype, device=device_of(nodes)), columns)
        while known + len(block) > rows.shape[0]:
            rows = xp.concat([rows, xp.zeros_like(rows)])[:size, :]
        rows[known : known + len(block), :] = columns
        left = np.maximum(left - to_numpy(sum_of_squares(columns)), 0.0)
        left[block] = 0.0
        pivots += block.tolist()
    omitted_variance = xp.asarray(left, dtype=nodes.dtype, device=device_of(nodes))
    return xp.matrix_transpose(rows[: len(pivots), :]), omitted_variance, np.asarray(pivots)


def index_array(indices: NDArray[np.intp], like: Array) -> Array:
    """Indices in the place of an array."""
    return array_namespace(like).asarray(indices.astype(np.int32), device=device_of(like))


def _greedy(residual: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Of candidates with this covariance (C, C), those that a block takes (b,), and the factor (b, b) of theirs."""
    left = residual.diagonal().copy()
    least = NEARLY * left.max()
    columns = np.empty((len(left), min(BLOCK, len(left))))
    chosen: list[int] = []
    for k in range(columns.shape[1]):
        pivot = int(left.argmax())
        if chosen and left[pivot] < least:
            break
        column = (residual[:, pivot] - columns[:, :k] @ columns[pivot, :k]) / np.sqrt(left[pivot])
        columns[:, k] = column
        left -= column**2
        left[[*chosen, pivot]] = -np.inf
        chosen.append(pivot)
    return np.asarray(chosen), np.tril(columns[chosen, : len(chosen)])
