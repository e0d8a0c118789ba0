"""The few bridges between the array API standard and the libraries behind it (NumPy, CuPy).

Everything else in `invgp.core` is written against the standard, through `array_namespace`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace as any_namespace
from array_api_compat import device as device_of
from array_api_compat import is_cupy_namespace, is_numpy_namespace
from numpy.typing import NDArray

__all__ = [
    "Array",
    "DeviceError",
    "Place",
    "add_weighted_gram",
    "array_namespace",
    "at_least_zero",
    "cholesky",
    "device_of",
    "exponential",
    "identity",
    "lower_outer_product",
    "lower_product",
    "place",
    "place_of",
    "solve_triangular",
    "stacked",
    "sum_of_products",
    "sum_of_squares",
    "symmetric",
    "to_numpy",
    "transposed_times",
    "tril",
    "tril_with_diagonal",
    "zeros_like",
]

Array = Any  # an array of whichever array-API library; the standard has no common static type yet

# Powers of the working precision, relative to the mean of the diagonal: 1e-12 to 1e-6 in double precision.
# A smooth kernel on a dense line is singular to working precision.
JITTER_POWERS = (0.75, 0.625, 0.5, 0.375)

SMALL = 32  # rows: stacks of smaller matrices are factorised by one call
PANEL = 256  # rows or columns at a time of a triangular matrix: what is zero is left out, what is copied fits the cache

NUMPY = any_namespace(np.empty(0))


def array_namespace(*arrays: Array) -> Any:
    """The namespace of arrays; NumPy's is known at a glance, and is asked for hundreds of times an evaluation."""
    return NUMPY if all(type(array) is np.ndarray for array in arrays) else any_namespace(*arrays)


class DeviceError(RuntimeError):
    """The device asked for is not there."""


@dataclass(frozen=True)
class Place:
    """Where arrays live: a namespace, a device of it, and the floating-point type in use."""

    namespace: Any
    device: Any = None
    dtype: str = "float64"

    def asarray(self, array: Any) -> Array:
        """`array` as a floating-point array in this place."""
        xp = self.namespace
        return xp.asarray(array, dtype=getattr(xp, self.dtype), device=self.device)

    def asmask(self, array: Any) -> Array:
        """`array` as a Boolean array in this place."""
        return self.namespace.asarray(array, dtype=self.namespace.bool, device=self.device)


def place(device: str) -> Place:
    """Turn ``"cpu"``, ``"cuda"`` or ``"auto"`` into a place.

    Raises
    ------
    DeviceError
        CUDA is asked for and is not available.
    """
    if device == "cpu":
        return _cpu()
    if device == "cuda":
        return _cuda()
    if device == "auto":
        try:
            return _cuda()
        except DeviceError:
            return _cpu()
    raise DeviceError(f"device must be 'cpu', 'cuda' or 'auto', was {device!r}")


def _cpu() -> Place:
    return Place(NUMPY, "cpu")


def _cuda() -> Place:
    try:
        import cupy  # noqa: PLC0415 - importing CuPy takes seconds, and it is an optional dependency
    except ImportError as error:
        raise DeviceError(
            "device 'cuda' needs CuPy, which is not installed: pip install 'invgp[cuda12]' "
            "(or cuda13), or use device 'cpu'"
        ) from error
    if not cupy.cuda.is_available():
        raise DeviceError(
            "device 'cuda' needs an NVIDIA GPU and its driver, and CuPy finds none on this machine: "
            "use device 'cpu' or 'auto'"
        )
    return Place(array_namespace(cupy.empty(0)), cupy.cuda.Device())


def place_of(array: Array) -> Place:
    """The place where an array lives."""
    xp = array_namespace(array)
    return Place(xp, device_of(array), "float64" if array.dtype == xp.float64 else "float32")


def to_numpy(array: Array) -> NDArray[Any]:
    """Copy an array to the host, if it is not there already."""
    xp = array_namespace(array)
    if is_numpy_namespace(xp):
        return np.asarray(array)
    if is_cupy_namespace(xp):
        return np.asarray(array.get())
    cpu = xp.__array_namespace_info__().default_device()
    return np.asarray(array.to_device(cpu))


def zeros_like(array: Array) -> Array:
    """Zeros, which take no memory until they are written to where the operating system can do that."""
    return array_namespace(array).zeros(array.shape, dtype=array.dtype, device=device_of(array))


def identity(like: Array) -> Array:
    """The identity matrix (M, M), of the type and in the place of matrices (..., M, M)."""
    return array_namespace(like).eye(like.shape[-1], dtype=like.dtype, device=device_of(like))


def stacked(arrays: Sequence[Array]) -> Array:
    """The arrays along a new first axis; a single one is not copied."""
    return arrays[0][None, ...] if len(arrays) == 1 else array_namespace(*arrays).stack(arrays)


def cholesky(matrices: Array, *, jitter: bool = True) -> Array:
    """Lower Cholesky factors of positive definite matrices (..., N, N), with as little jitter as it takes, or none.

    The jitter is a share of the mean of the diagonals, the same for all matrices of the stack.
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
        # CuPy returns NaN where NumPy raises.
        if bool(xp.all(xp.isfinite(xp.linalg.diagonal(factors)))):
            return factors
    raise np.linalg.LinAlgError(
        f"a matrix of {size} x {size} is not positive definite, even with a jitter of {share:.1g} of its diagonal"
    )


def _cholesky(lower: Array) -> Array:
    """Lower Cholesky factors from the lower triangles (..., N, N), which are used up."""
    xp = array_namespace(lower)
    if not is_numpy_namespace(xp):
        return xp.linalg.cholesky(symmetric(lower))
    if lower.shape[-1] <= SMALL:
        return np.linalg.cholesky(symmetric(lower))
    lower = np.ascontiguousarray(lower)
    for matrix in _matrices(lower):
        # LAPACK sees the transpose: the upper triangle.
        factorise: Any = scipy.linalg.get_lapack_funcs("potrf", (matrix,))
        _, failed = factorise(matrix.T, lower=0, clean=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("not positive definite")
    return lower


def solve_triangular(factors: Array, right: Array, *, transposed: bool = False, overwrite: bool = False) -> Array:
    """Solve L x = b, or L^T x = b, for lower triangular L (..., M, M) and b (..., M, B), which may be used up."""
    xp = array_namespace(factors, right)
    if is_numpy_namespace(xp):
        stack = np.broadcast_shapes(factors.shape[:-2], right.shape[:-2])
        solved = _owned(right, (*stack, *right.shape[-2:]), overwrite=overwrite)
        factors = np.broadcast_to(factors, (*stack, *factors.shape[-2:]))
        for L, x in zip(_matrices(factors), _matrices(solved), strict=True):
            # BLAS sees transposes: x^T L^T = b^T, or x^T L = b^T.
            _blas("trsm", x)(1.0, L.T, x.T, side=1, lower=0, trans_a=int(transposed), overwrite_b=1)
        return solved
    if is_cupy_namespace(xp):
        import cupyx.scipy.linalg  # noqa: PLC0415 - needs cuBLAS at import

        return cupyx.scipy.linalg.solve_triangular(factors, right, lower=True, trans=int(transposed))
    return xp.linalg.solve(xp.matrix_transpose(factors) if transposed else factors, right)


def product(left: Array, right: Array) -> Array:
    """Matrix products (..., N, D) @ (..., D, M), by the same BLAS as the triangular solves.

    NumPy and SciPy each bring a BLAS with threads of its own. Those of the one wait actively for a while after their
    work is done, on the cores that the other wants, so that large products must not alternate between the two.
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
        _blas("gemm", whole)(1.0, a, b, trans_a=trans_a, trans_b=trans_b, c=whole[index].T, overwrite_c=1)
    return whole


def combined_columns(columns: Array, weights: Array) -> Array:
    """Sum over m of v_m w_mb, (..., B), for columns W (..., M, B) and weights v (..., M)."""
    xp = array_namespace(columns, weights)
    if is_numpy_namespace(xp):
        return np.einsum("...mb,...m->...b", columns, weights)
    return (weights[..., None, :] @ columns)[..., 0, :]


def combined_rows(columns: Array, weights: Array) -> Array:
    """Sum over b of w_mb g_b, (..., M), for columns W (..., M, B) and weights g (..., B)."""
    xp = array_namespace(columns, weights)
    if is_numpy_namespace(xp):
        return np.einsum("...mb,...b->...m", columns, weights)
    return (columns @ weights[..., None])[..., 0]


def transposed_times(lower: Array, right: Array) -> Array:
    """L^T x for lower triangular L (..., M, M) and x (..., M, B), at half the cost of a product where that is known."""
    xp = array_namespace(lower, right)
    if not is_numpy_namespace(xp):
        return xp.matrix_transpose(lower) @ right
    stack = np.broadcast_shapes(lower.shape[:-2], right.shape[:-2])
    product = _owned(right, (*stack, *right.shape[-2:]), overwrite=False)
    lower = np.broadcast_to(lower, (*stack, *lower.shape[-2:]))
    for L, x in zip(_matrices(lower), _matrices(product), strict=True):
        _blas("trmm", x)(1.0, L.T, x.T, side=1, lower=0, trans_a=1, overwrite_b=1)
    return product


def lower_product(lower: Array, right: Array, *, transposed: bool = False) -> Array:
    """The lower triangles of L x, or of L^T x, for lower triangular L and x (..., M, M), at a third of the cost of L x.

    What lies above the diagonals is zero for L x, and is not to be used for L^T x.
    """
    xp = array_namespace(lower, right)
    if not is_numpy_namespace(xp):
        return (xp.matrix_transpose(lower) if transposed else lower) @ right
    stack, size = np.broadcast_shapes(lower.shape[:-2], right.shape[:-2]), right.shape[-1]
    lower, right = (np.broadcast_to(m, (*stack, size, size)) for m in (lower, right))
    whole = np.zeros((*stack, size, size), dtype=right.dtype)
    for start in range(0, size, PANEL):
        columns = slice(start, start + PANEL)
        for index in np.ndindex(stack):
            rest = np.ascontiguousarray(lower[index][start:, start:])
            panel = np.array(right[index][start:, columns], order="C")
            # BLAS sees transposes: x^T L^T, or x^T L.
            _blas("trmm", panel)(1.0, rest.T, panel.T, side=1, lower=0, trans_a=int(transposed), overwrite_b=1)
            whole[index][start:, columns] = panel
    return whole


def lower_outer_product(left: Array, right: Array) -> Array:
    """The lower triangles of a b^T for lower triangular a and b (..., M, M); what lies above is not to be used."""
    xp = array_namespace(left, right)
    if not is_numpy_namespace(xp):
        return left @ xp.matrix_transpose(right)
    whole = np.zeros(np.broadcast_shapes(left.shape, right.shape), dtype=left.dtype)
    for start in range(0, left.shape[-1], PANEL):
        stop = start + PANEL
        whole[..., start:, start:stop] = product(left[..., start:, :stop], right[..., start:stop, :stop].mT)
    return whole


def add_weighted_gram(total: Array, vectors: Array, weights: Array) -> Array:
    """The lower triangles (..., M, M) of `total`, which is used up, plus sum_n v_n w_n w_n^T for w_n in columns.

    What lies above the diagonals is not used.

    Parameters
    ----------
    vectors : (..., M, B).
    weights : v, (..., B), of either sign.
    """
    xp = array_namespace(total, vectors, weights)
    if not is_numpy_namespace(xp):
        return total + (vectors * weights[..., None, :]) @ xp.matrix_transpose(vectors)
    total = np.ascontiguousarray(total)
    vectors = np.broadcast_to(vectors, (*total.shape[:-2], *vectors.shape[-2:]))
    rows = weights.reshape((-1, weights.shape[-1]))
    for gram, w, v in zip(_matrices(total), _matrices(vectors), rows, strict=True):
        # A symmetric product of real vectors takes weights of one sign: the rarer sign is counted twice, and back.
        scaled = w * np.sqrt(np.abs(v))
        sign = 1.0 if np.count_nonzero(v < 0.0) <= v.size / 2 else -1.0
        add = _blas("syrk", gram)
        add(sign, scaled.T, beta=1.0, c=gram.T, trans=1, lower=0, overwrite_c=1)
        rarer = sign * v < 0.0
        if rarer.any():
            add(-2.0 * sign, scaled[:, rarer].T, beta=1.0, c=gram.T, trans=1, lower=0, overwrite_c=1)
    return total


def symmetric(lower: Array) -> Array:
    """Symmetric matrices (..., M, M) from their lower triangles."""
    xp = array_namespace(lower)
    if not is_numpy_namespace(xp):
        return xp.tril(lower) + xp.matrix_transpose(xp.tril(lower, k=-1))
    whole = tril(lower)
    for start in range(0, lower.shape[-1], PANEL):
        rows = slice(start, start + PANEL)
        whole[..., :start, rows] = whole[..., rows, :start].mT
        square = whole[..., rows, rows]
        square += np.tril(square, k=-1).mT
    return whole


def tril(matrices: Array) -> Array:
    """The lower triangles of matrices (..., M, M)."""
    xp = array_namespace(matrices)
    if not is_numpy_namespace(xp) or matrices.shape[-1] <= PANEL:
        return xp.tril(matrices)
    lower = np.zeros_like(matrices, order="C")
    for start in range(0, matrices.shape[-1], PANEL):
        rows = slice(start, start + PANEL)
        lower[..., rows, :start] = matrices[..., rows, :start]
        lower[..., rows, rows] = np.tril(matrices[..., rows, rows])
    return lower


def tril_with_diagonal(matrices: Array, diagonal: Array, *, lower: bool = False) -> Array:
    """The lower triangles of matrices (..., M, M), with another diagonal (..., M).

    Matrices that are `lower` triangular may be used up.
    """
    xp = array_namespace(matrices, diagonal)
    if is_numpy_namespace(xp):
        triangles = matrices if lower else tril(matrices)
        index = np.arange(matrices.shape[-1])
        triangles[..., index, index] = diagonal
        return triangles
    return xp.tril(matrices, k=-1) + diagonal[..., None] * identity(matrices)


def sum_of_squares(matrices: Array) -> Array:
    """Sum of the squares of each column, (..., M, B) -> (..., B)."""
    return sum_of_products(matrices, matrices)


def sum_of_products(left: Array, right: Array) -> Array:
    """Sum over each column of the products of two matrices, (..., M, B) each -> (..., B)."""
    xp = array_namespace(left, right)
    if is_numpy_namespace(xp):
        return np.einsum("...mb,...mb->...b", left, right)
    return xp.sum(left * right, axis=-2)


def at_least_zero(array: Array) -> Array:
    """`array`, which may be used up, with 0 for what is below."""
    xp = array_namespace(array)
    if is_numpy_namespace(xp):
        return np.maximum(array, 0.0, out=array)
    return xp.maximum(array, xp.zeros_like(array))


def exponential(array: Array) -> Array:
    """Of `array`, which may be used up."""
    xp = array_namespace(array)
    return np.exp(array, out=array) if is_numpy_namespace(xp) else xp.exp(array)


def logarithm(array: Array) -> Array:
    """Of `array`, which may be used up."""
    xp = array_namespace(array)
    return np.log(array, out=array) if is_numpy_namespace(xp) else xp.log(array)


def zero_where(condition: Array, array: Array) -> Array:
    """`array`, which may be used up, with 0 where a condition that broadcasts to it holds."""
    xp = array_namespace(condition, array)
    if not is_numpy_namespace(xp):
        return xp.where(condition, xp.zeros_like(array), array)
    if condition.any():
        np.copyto(array, 0.0, where=condition)
    return array


def _blas(name: str, array: NDArray[Any]) -> Any:
    """A BLAS function for the type of an array."""
    return scipy.linalg.get_blas_funcs(name, (array,))


def _matrices(stack: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The matrices of a stack (..., M, B), each in C order: views where they are already."""
    for index in np.ndindex(stack.shape[:-2]):
        yield np.ascontiguousarray(stack[index])


def _owned(array: NDArray[Any], shape: tuple[int, ...], *, overwrite: bool) -> NDArray[Any]:
    """`array` in a shape that it broadcasts to, in C order and free to be written to."""
    if overwrite and array.shape == shape and array.flags.c_contiguous and array.flags.writeable:
        return array
    return np.array(np.broadcast_to(array, shape), order="C")
