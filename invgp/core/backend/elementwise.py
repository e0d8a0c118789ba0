"""Creation of arrays on the device of other arrays, and elementwise functions, in place if the library can."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from array_api_compat import device as device_of
from array_api_compat import is_numpy_namespace

from invgp.core.backend.devices import Array, array_namespace


def zeros_like(array: Array) -> Array:
    """Return zeros of the shape, type and device of an array; memory is allocated at the first write if possible."""
    return array_namespace(array).zeros(array.shape, dtype=array.dtype, device=device_of(array))


def identity(like: Array) -> Array:
    """Return the identity matrix (M, M), of the type and on the device of matrices (..., M, M)."""
    return array_namespace(like).eye(like.shape[-1], dtype=like.dtype, device=device_of(like))


def stack_arrays(arrays: Sequence[Array]) -> Array:
    """Stack arrays along a new first axis; a single one is not copied."""
    return arrays[0][None, ...] if len(arrays) == 1 else array_namespace(*arrays).stack(arrays)


def clip_negative(array: Array) -> Array:
    """Replace negative elements by 0; `array` may be overwritten."""
    xp = array_namespace(array)
    if is_numpy_namespace(xp):
        return np.maximum(array, 0.0, out=array)
    return xp.maximum(array, xp.zeros_like(array))


def exp_in_place(array: Array) -> Array:
    """Compute the exponential; `array` may be overwritten."""
    xp = array_namespace(array)
    return np.exp(array, out=array) if is_numpy_namespace(xp) else xp.exp(array)


def sqrt_in_place(array: Array) -> Array:
    """Compute the square root; `array` may be overwritten."""
    xp = array_namespace(array)
    return np.sqrt(array, out=array) if is_numpy_namespace(xp) else xp.sqrt(array)


def log_in_place(array: Array) -> Array:
    """Compute the logarithm; `array` may be overwritten."""
    xp = array_namespace(array)
    return np.log(array, out=array) if is_numpy_namespace(xp) else xp.log(array)


def zero_where(condition: Array, array: Array) -> Array:
    """Replace elements by 0 where a condition holds, which broadcasts to `array`; `array` may be overwritten."""
    xp = array_namespace(condition, array)
    if not is_numpy_namespace(xp):
        return xp.where(condition, xp.zeros_like(array), array)
    if condition.any():
        np.copyto(array, 0.0, where=condition)
    return array
