"""A prior on a grid in few independent variables: its leading Karhunen-Loeve modes.

The covariance matrix of the grid is never formed. A pivoted Cholesky factorisation takes one node after the other,
always the one that those before say least about, and knows at each step how much of the variance is still open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, device_of, to_numpy
from invgp.core.kernels import Kernel

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
    open_variance: Array
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

    Returns
    -------
    F; the variance (G,) that is left at each node; and the numbers (R,) of the nodes that were taken, in order.
    """
    xp = array_namespace(nodes)
    size = nodes.shape[0]
    left = xp.zeros(size, dtype=nodes.dtype, device=device_of(nodes)) + kernel.variance
    allowed = (1.0 - share) * float(kernel.variance) * size
    columns = xp.zeros((min(size, 64), size), dtype=nodes.dtype, device=device_of(nodes))  # each in one piece of memory
    pivots: list[int] = []
    for k in range(size):
        if k == columns.shape[0]:
            columns = xp.concat([columns, xp.zeros_like(columns)])[:size, :]
        pivot = int(to_numpy(left).argmax())
        pivots.append(pivot)
        column = kernel(nodes, nodes[pivot : pivot + 1, :])[:, 0] - columns[:k, pivot] @ columns[:k, :]
        column = column / xp.sqrt(left[pivot])
        columns[k, :] = column
        left = left - xp.square(column)
        left = xp.where(left > 0.0, left, xp.zeros_like(left))
        left[pivot] = 0.0
        if float(xp.sum(left)) <= allowed:
            return xp.matrix_transpose(columns[: k + 1, :]), left, np.asarray(pivots)
    return xp.matrix_transpose(columns), left, np.asarray(pivots)
