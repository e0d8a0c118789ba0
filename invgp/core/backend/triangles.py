"""Triangular matrices: extraction, symmetrisation and products that skip zeros."""

from __future__ import annotations

import numpy as np
from array_api_compat import is_numpy_namespace

from invgp.core.backend.blas import blas, iterate_matrices, writable_copy
from invgp.core.backend.devices import Array, array_namespace
from invgp.core.backend.elementwise import identity
from invgp.core.backend.products import product

PANEL_SIZE = 256  # rows or columns of a block of a triangular matrix: blocks of zeros are skipped, copies fit the cache


def tril(matrices: Array) -> Array:
    """Return the lower triangles of matrices (..., M, M)."""
    xp = array_namespace(matrices)
    if not is_numpy_namespace(xp) or matrices.shape[-1] <= PANEL_SIZE:
        return xp.tril(matrices)
    lower = np.zeros_like(matrices, order="C")
    for start in range(0, matrices.shape[-1], PANEL_SIZE):
        rows = slice(start, start + PANEL_SIZE)
        lower[..., rows, :start] = matrices[..., rows, :start]
        lower[..., rows, rows] = np.tril(matrices[..., rows, rows])
    return lower


def tril_with_diagonal(matrices: Array, diagonal: Array, *, lower: bool = False) -> Array:
    """Return the lower triangles of matrices (..., M, M), with another diagonal (..., M).

    With `lower`, the matrices are lower triangular already and may be overwritten.
    """
    xp = array_namespace(matrices, diagonal)
    if is_numpy_namespace(xp):
        triangles = matrices if lower else tril(matrices)
        index = np.arange(matrices.shape[-1])
        triangles[..., index, index] = diagonal
        return triangles
    return xp.tril(matrices, k=-1) + diagonal[..., None] * identity(matrices)


def symmetrise(lower: Array) -> Array:
    """Build symmetric matrices (..., M, M) from their lower triangles."""
    xp = array_namespace(lower)
    if not is_numpy_namespace(xp):
        return xp.tril(lower) + xp.matrix_transpose(xp.tril(lower, k=-1))
    whole = tril(lower)
    for start in range(0, lower.shape[-1], PANEL_SIZE):
        rows = slice(start, start + PANEL_SIZE)
        whole[..., :start, rows] = whole[..., rows, :start].mT
        square = whole[..., rows, rows]
        square += np.tril(square, k=-1).mT
    return whole


def transpose_multiply(lower: Array, right: Array) -> Array:
    """Compute L^T x for lower triangular L (..., M, M) and x (..., M, B); with NumPy at half the cost of a product."""
    xp = array_namespace(lower, right)
    if not is_numpy_namespace(xp):
        return xp.matrix_transpose(lower) @ right
    stack = np.broadcast_shapes(lower.shape[:-2], right.shape[:-2])
    found = writable_copy(right, (*stack, *right.shape[-2:]), overwrite=False)
    lower = np.broadcast_to(lower, (*stack, *lower.shape[-2:]))
    for L, x in zip(iterate_matrices(lower), iterate_matrices(found), strict=True):
        blas("trmm", x)(1.0, L.T, x.T, side=1, lower=0, trans_a=1, overwrite_b=1)
    return found


def lower_product(lower: Array, right: Array, *, transposed: bool = False) -> Array:
    """Compute the lower triangles of L x, or L^T x, for lower triangular L and x (..., M, M), at a third of the cost.

    Elements above the diagonals are zero for L x, and undefined for L^T x.
    """
    xp = array_namespace(lower, right)
    if not is_numpy_namespace(xp):
        return (xp.matrix_transpose(lower) if transposed else lower) @ right
    stack, size = np.broadcast_shapes(lower.shape[:-2], right.shape[:-2]), right.shape[-1]
    lower, right = (np.broadcast_to(m, (*stack, size, size)) for m in (lower, right))
    whole = np.zeros((*stack, size, size), dtype=right.dtype)
    for start in range(0, size, PANEL_SIZE):
        columns = slice(start, start + PANEL_SIZE)
        for index in np.ndindex(stack):
            rest = np.ascontiguousarray(lower[index][start:, start:])
            panel = np.array(right[index][start:, columns], order="C")
            # BLAS sees transposes: x^T L^T, or x^T L.
            blas("trmm", panel)(1.0, rest.T, panel.T, side=1, lower=0, trans_a=int(transposed), overwrite_b=1)
            whole[index][start:, columns] = panel
    return whole


def lower_outer_product(left: Array, right: Array) -> Array:
    """Compute the lower triangles of a b^T for lower triangular a and b (..., M, M); elements above are undefined."""
    xp = array_namespace(left, right)
    if not is_numpy_namespace(xp):
        return left @ xp.matrix_transpose(right)
    whole = np.zeros(np.broadcast_shapes(left.shape, right.shape), dtype=left.dtype)
    for start in range(0, left.shape[-1], PANEL_SIZE):
        stop = start + PANEL_SIZE
        whole[..., start:, start:stop] = product(left[..., start:, :stop], right[..., start:stop, :stop].mT)
    return whole
