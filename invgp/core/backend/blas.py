"""BLAS and LAPACK functions of SciPy for stacks of NumPy matrices in C order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray


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
