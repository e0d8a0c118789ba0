"""Matrix products, and sums over rows or columns."""

from __future__ import annotations

import numpy as np
from array_api_compat import is_numpy_namespace

from invgp.core.backend.blas import blas, iterate_matrices
from invgp.core.backend.devices import Array, array_namespace


def product(left: Array, right: Array) -> Array:
    """Compute matrix products (..., N, D) @ (..., D, M), by the same BLAS as the triangular solves.

    NumPy and SciPy each have a BLAS with its own threads. After their work, the threads of one wait actively on the
    cores that the other needs, so large products must not alternate between the two.
    """
    xp = array_namespace(left, right)
    if not is_numpy_namespace(xp):
        return left @ right
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    whole = np.empty((*stack, left.shape[-2], right.shape[-1]), dtype=left.dtype)
    left, right = (np.broadcast_to(m, (*stack, *m.shape[-2:])) for m in (left, right))
    for index in np.ndindex(stack):
        # BLAS sees transposes: right^T left^T, in Fortran order.
        (a, trans_a), (b, trans_b) = (
            (m, 1) if m.flags.f_contiguous else (np.ascontiguousarray(m).T, 0) for m in (right[index], left[index])
        )
        blas("gemm", whole)(1.0, a, b, trans_a=trans_a, trans_b=trans_b, c=whole[index].T, overwrite_c=1)
    return whole


def vector_matrix_product(columns: Array, weights: Array) -> Array:
    """Compute v^T W, the sum over m of v_m w_mb, (..., B), for W (..., M, B) and v (..., M)."""
    xp = array_namespace(columns, weights)
    if is_numpy_namespace(xp):
        return np.einsum("...mb,...m->...b", columns, weights)
    return (weights[..., None, :] @ columns)[..., 0, :]


def matrix_vector_product(columns: Array, weights: Array) -> Array:
    """Compute W g, the sum over b of w_mb g_b, (..., M), for W (..., M, B) and g (..., B)."""
    xp = array_namespace(columns, weights)
    if is_numpy_namespace(xp):
        return np.einsum("...mb,...b->...m", columns, weights)
    return (columns @ weights[..., None])[..., 0]


def sum_of_squares(matrices: Array) -> Array:
    """Compute the sum of squares of each column, (..., M, B) -> (..., B)."""
    return sum_of_products(matrices, matrices)


def sum_of_products(left: Array, right: Array) -> Array:
    """Compute the sum over each column of the elementwise product of two matrices, (..., M, B) each -> (..., B)."""
    xp = array_namespace(left, right)
    if is_numpy_namespace(xp):
        return np.einsum("...mb,...mb->...b", left, right)
    return xp.sum(left * right, axis=-2)


def add_weighted_gram(total: Array, vectors: Array, weights: Array) -> Array:
    """Add the sum of v_n w_n w_n^T over n to the lower triangles of `total`.

    Elements above the diagonals are undefined.

    Parameters
    ----------
    total : array, shape (..., M, M)
        It may be overwritten.
    vectors : array, shape (..., M, B)
        The vectors w_n as columns.
    weights : array, shape (..., B)
        v, of either sign.
    """
    xp = array_namespace(total, vectors, weights)
    if not is_numpy_namespace(xp):
        return total + (vectors * weights[..., None, :]) @ xp.matrix_transpose(vectors)
    total = np.ascontiguousarray(total)
    vectors = np.broadcast_to(vectors, (*total.shape[:-2], *vectors.shape[-2:]))
    rows = weights.reshape((-1, weights.shape[-1]))
    for gram, w, v in zip(iterate_matrices(total), iterate_matrices(vectors), rows, strict=True):
        # The symmetric BLAS product needs weights of one sign: add all as one sign, then subtract the rarer ones twice.
        scaled = w * np.sqrt(np.abs(v))
        sign = 1.0 if np.count_nonzero(v < 0.0) <= v.size / 2 else -1.0
        add = blas("syrk", gram)
        add(sign, scaled.T, beta=1.0, c=gram.T, trans=1, lower=0, overwrite_c=1)
        rarer = sign * v < 0.0
        if rarer.any():
            add(-2.0 * sign, scaled[:, rarer].T, beta=1.0, c=gram.T, trans=1, lower=0, overwrite_c=1)
    return total
