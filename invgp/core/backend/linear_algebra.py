"""Products, triangular matrices and Cholesky factors of stacks of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import is_cupy_namespace, is_numpy_namespace
from numpy.typing import NDArray

from invgp.core.backend.devices import Array, array_namespace
from invgp.core.backend.elementwise import identity


def blas(name: str, array: NDArray[Any]) -> Any:
    """Return the BLAS function for the type of an array."""
    return scipy.linalg.get_blas_funcs(name, (array,))


def iterate_matrices(stack: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the matrices of a stack (..., M, B), each in C order; views if possible."""
    for index in np.ndindex(stack.shape[:-2]):
        yield np.ascontiguousarray(stack[index])


def writable_copy(array: NDArray[Any], shape: tuple[int, ...], *, overwrite: bool) -> NDArray[Any]:
    """Broadcast an array to a shape, in C order and writable; a copy unless `overwrite` allows none."""
    if overwrite and array.shape == shape and array.flags.c_contiguous and array.flags.writeable:
        return array
    return np.array(np.broadcast_to(array, shape), order="C")


def product(left: Array, right: Array) -> Array:
    """Compute matrix products (..., N, D) @ (..., D, M), by the same BLAS as the triangular solves.

    NumPy and SciPy each have a BLAS with its own threads. After their work, the threads of one wait actively on the
    cores that the other needs, so large products must not alternate between the two.

    Parameters
    ----------
    left : Array, shape (..., N, D)
    right : Array, shape (..., D, M)

    Returns
    -------
    Array, shape (..., N, M)
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
    """Compute v^T W, the sum over m of v_m w_mb, (..., B), for W (..., M, B) and v (..., M).

    Parameters
    ----------
    columns : Array, shape (..., M)
        v.
    weights : Array, shape (..., M, B)
        W.

    Returns
    -------
    Array, shape (..., B)
    """
    xp = array_namespace(columns, weights)
    if is_numpy_namespace(xp):
        return np.einsum("...mb,...m->...b", columns, weights)
    return (weights[..., None, :] @ columns)[..., 0, :]


def matrix_vector_product(columns: Array, weights: Array) -> Array:
    """Compute W g, the sum over b of w_mb g_b, (..., M), for W (..., M, B) and g (..., B).

    Parameters
    ----------
    columns : Array, shape (..., B)
        g.
    weights : Array, shape (..., M, B)
        W.

    Returns
    -------
    Array, shape (..., M)
    """
    xp = array_namespace(columns, weights)
    if is_numpy_namespace(xp):
        return np.einsum("...mb,...b->...m", columns, weights)
    return (columns @ weights[..., None])[..., 0]


def sum_of_squares(matrices: Array) -> Array:
    """Compute the sum of squares of each column, (..., M, B) -> (..., B).

    Parameters
    ----------
    matrices : Array, shape (..., M, B)

    Returns
    -------
    Array, shape (..., B)
    """
    return sum_of_products(matrices, matrices)


def sum_of_products(left: Array, right: Array) -> Array:
    """Compute the sum over each column of the elementwise product of two matrices, (..., M, B) each -> (..., B).

    Parameters
    ----------
    left, right : Array, shape (..., M, B)

    Returns
    -------
    Array, shape (..., B)
    """
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
    """Build symmetric matrices (..., M, M) from their lower triangles.

    Parameters
    ----------
    lower : Array, shape (..., M, M)
        Elements above the diagonals are not used.

    Returns
    -------
    Array, shape (..., M, M)
    """
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
    """Compute L^T x for lower triangular L (..., M, M) and x (..., M, B); with NumPy at half the cost of a product.

    Parameters
    ----------
    lower : Array, shape (..., M, M)
        L, lower triangular.
    right : Array, shape (..., M, B)
        x.

    Returns
    -------
    Array, shape (..., M, B)
    """
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

    Parameters
    ----------
    lower : Array, shape (..., M, M)
        L, lower triangular.
    right : Array, shape (..., M, M)
        x, lower triangular.
    transposed : bool
        Whether L^T x is computed instead of L x.

    Returns
    -------
    Array, shape (..., M, M)
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
    """Compute the lower triangles of a b^T for lower triangular a and b (..., M, M); elements above are undefined.

    Parameters
    ----------
    left, right : Array, shape (..., M, M)
        a and b, lower triangular.

    Returns
    -------
    Array, shape (..., M, M)
    """
    xp = array_namespace(left, right)
    if not is_numpy_namespace(xp):
        return left @ xp.matrix_transpose(right)
    whole = np.zeros(np.broadcast_shapes(left.shape, right.shape), dtype=left.dtype)
    for start in range(0, left.shape[-1], PANEL_SIZE):
        stop = start + PANEL_SIZE
        whole[..., start:, start:stop] = product(left[..., start:, :stop], right[..., start:stop, :stop].mT)
    return whole


# Powers of the working precision, relative to the mean of the diagonal: 1e-12 to 1e-6 in double precision.
# The matrix of a smooth kernel at close points is singular to working precision.
JITTER_POWERS = (0.75, 0.625, 0.5, 0.375)
MAX_BATCHED_SIZE = 32  # rows: stacks of matrices up to this size are factorised by one call


def cholesky(matrices: Array, *, jitter: bool = True) -> Array:
    """Compute lower Cholesky factors of positive definite matrices (..., N, N), with the smallest jitter that works.

    The jitter is relative to the mean of each diagonal, with the same factor for all matrices of the stack.

    Parameters
    ----------
    matrices : array, shape (..., N, N)
        Symmetric positive definite matrices.
    jitter : bool
        Whether jitter may be added to the diagonal if the factorisation fails.

    Returns
    -------
    array, shape (..., N, N)

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not positive definite, even with the largest jitter.
    """
    xp = array_namespace(matrices)
    size = matrices.shape[-1]
    diagonal = xp.linalg.diagonal(matrices)
    scale = xp.mean(diagonal, axis=-1)[..., None]
    precision = float(xp.finfo(matrices.dtype).eps)
    shares = (0.0, *(precision**power for power in JITTER_POWERS)) if jitter else (0.0,)
    for share in shares:
        try:
            factors = _cholesky(tril_with_diagonal(matrices, diagonal + share * scale))
        except np.linalg.LinAlgError:
            continue
        # Not every library raises an error.
        if bool(xp.all(xp.isfinite(xp.linalg.diagonal(factors)))):
            return factors
    raise np.linalg.LinAlgError(
        f"a matrix of {size} x {size} is not positive definite, even with a jitter of {share:.1g} of its diagonal"
    )


def _cholesky(lower: Array) -> Array:
    """Compute lower Cholesky factors from the lower triangles (..., N, N), which are overwritten."""
    xp = array_namespace(lower)
    if is_cupy_namespace(xp):
        import cupyx  # noqa: PLC0415 - an optional dependency

        # By default CuPy does not report matrices that are not positive definite; their factors may be finite.
        with cupyx.errstate(linalg="raise"):
            return xp.linalg.cholesky(symmetrise(lower))
    if not is_numpy_namespace(xp):
        return xp.linalg.cholesky(symmetrise(lower))
    if lower.shape[-1] <= MAX_BATCHED_SIZE:
        return np.linalg.cholesky(symmetrise(lower))
    lower = np.ascontiguousarray(lower)
    for matrix in iterate_matrices(lower):
        # LAPACK sees the transpose: the upper triangle.
        factorise: Any = scipy.linalg.get_lapack_funcs("potrf", (matrix,))
        _, failed = factorise(matrix.T, lower=0, clean=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("not positive definite")
    return lower


def solve_triangular(factors: Array, right: Array, *, transposed: bool = False, overwrite: bool = False) -> Array:
    """Solve L x = b, or L^T x = b, for lower triangular L (..., M, M); b (..., M, B) may be overwritten on request.

    Parameters
    ----------
    factors : array, shape (..., M, M)
        Lower triangular matrices L.
    right : array, shape (..., M, B)
        Right-hand sides b.
    transposed : bool
        Whether to solve with L^T.
    overwrite : bool
        Whether `right` may be overwritten.

    Returns
    -------
    array, shape (..., M, B)
    """
    xp = array_namespace(factors, right)
    if is_numpy_namespace(xp):
        stack = np.broadcast_shapes(factors.shape[:-2], right.shape[:-2])
        solved = writable_copy(right, (*stack, *right.shape[-2:]), overwrite=overwrite)
        factors = np.broadcast_to(factors, (*stack, *factors.shape[-2:]))
        for L, x in zip(iterate_matrices(factors), iterate_matrices(solved), strict=True):
            # BLAS sees transposes: x^T L^T = b^T, or x^T L = b^T.
            blas("trsm", x)(1.0, L.T, x.T, side=1, lower=0, trans_a=int(transposed), overwrite_b=1)
        return solved
    if is_cupy_namespace(xp):
        import cupyx.scipy.linalg  # noqa: PLC0415 - needs cuBLAS at import

        # CuPy supports batches, but does not broadcast.
        stack = np.broadcast_shapes(factors.shape[:-2], right.shape[:-2])
        factors, right = (xp.broadcast_to(part, (*stack, *part.shape[-2:])) for part in (factors, right))
        return cupyx.scipy.linalg.solve_triangular(factors, right, lower=True, trans=int(transposed))
    return xp.linalg.solve(xp.matrix_transpose(factors) if transposed else factors, right)


def lower_inverse(factors: Array) -> Array:
    """Compute inverses of lower triangular matrices (..., M, M); with NumPy at half the cost of a triangular solve.

    Parameters
    ----------
    factors : Array, shape (..., M, M)
        Lower triangular matrices.

    Returns
    -------
    Array, shape (..., M, M)
    """
    xp = array_namespace(factors)
    if not is_numpy_namespace(xp):
        return solve_triangular(factors, xp.broadcast_to(identity(factors), factors.shape))
    inverses = np.ascontiguousarray(tril(factors))
    for matrix in iterate_matrices(inverses):
        # LAPACK sees the transpose: the upper triangle.
        invert: Any = scipy.linalg.get_lapack_funcs("trtri", (matrix,))
        _, failed = invert(matrix.T, lower=0, overwrite_c=1)
        if failed:
            raise np.linalg.LinAlgError("a triangular matrix has a zero on its diagonal")
    return inverses
