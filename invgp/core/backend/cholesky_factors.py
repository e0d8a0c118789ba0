"""Cholesky factors and triangular solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import is_cupy_namespace, is_numpy_namespace

from invgp.core.backend.blas import blas, iterate_matrices, writable_copy
from invgp.core.backend.devices import Array, array_namespace
from invgp.core.backend.elementwise import identity
from invgp.core.backend.triangles import symmetrise, tril, tril_with_diagonal

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
    """Compute inverses of lower triangular matrices (..., M, M); with NumPy at half the cost of a triangular solve."""
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
