"""Checks of arguments. Each error names the argument, what it must be and what it was."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from invgp.core.checks import check_integer
from invgp.core.kernels import Kernel
from invgp.likelihoods import Likelihood

__all__ = [
    "Floats",
    "as_finite_floats",
    "broadcast_floats",
    "check_choice",
    "check_inputs",
    "check_instance",
    "check_integer",
    "check_kernel_inputs",
    "check_likelihood",
    "check_outputs",
    "check_positive",
    "check_weights",
]

Floats = NDArray[np.float64]


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise `ValueError` unless the value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, was {value!r}")


def check_instance(name: str, value: Any, kinds: tuple[type, ...], must: str) -> None:
    """Raise `ValueError` unless the value is an instance of one of the classes; `must` describes a valid value."""
    if isinstance(value, type):
        raise ValueError(f"{name} must be {must}, was the class {value.__name__}: write {value.__name__}(...)")  # noqa: TRY004
    if not isinstance(value, kinds):
        raise ValueError(f"{name} must be {must}, was {reprlib.repr(value)}")  # noqa: TRY004 - as every wrong argument


def check_likelihood(value: Any) -> None:
    """Raise `ValueError` unless the value has the members of `Likelihood`."""
    check_instance(
        "likelihood", value, (Likelihood,), "one of invgp.likelihoods, or have the members of Likelihood there"
    )


def as_floats(name: str, value: Any, must: str) -> Floats:
    """Convert a value to an array of numbers, which may be infinite or NaN; `must` describes a valid value."""
    if issparse(value):
        raise TypeError(f"{name} must be {must}, was a sparse matrix, which is not supported: use toarray()")
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray("ragged")
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must be {must}, was an array of {array.dtype}: Complex data not supported")
    try:
        wanted = None if array.dtype.kind in "SUVmM" else np.asarray(array, dtype=np.float64)
    except ValueError:
        wanted = None
    except TypeError as error:
        if isinstance(value, np.ndarray):
            raise TypeError(f"{name} must be {must}: {error}") from None
        wanted = None
    if wanted is None:
        was = reprlib.repr(value)
        if isinstance(value, np.ndarray):
            was = f"an array of {value.dtype}"
        elif not isinstance(value, Sequence):  # the text of a table would be truncated
            was = f"a {type(value).__name__} that holds others"
        raise ValueError(f"{name} must be {must}, was {was}")
    return wanted


def as_finite_floats(name: str, value: Any, must: str) -> Floats:
    """Convert a value to an array of finite numbers; `must` describes a valid value."""
    array = as_floats(name, value, must)
    wrong = array[~np.isfinite(array)]
    if wrong.size:
        raise ValueError(f"{name} must be {must}, had numbers that are not finite (NaN or inf), such as {wrong[0]}")
    return array


def check_inputs(X: Any) -> Floats:
    """Convert inputs to an array (N, D) of finite numbers."""
    must = "finite numbers of shape (N, D)"
    array = as_finite_floats("X", X, must)
    if array.ndim != 2:
        hint = ". Reshape your data: X[:, None] has one input per site" if array.ndim == 1 else ""
        raise ValueError(f"X must be {must}, had shape {array.shape}{hint}")
    for axis, what in ((0, "sample"), (1, "feature")):
        if not array.shape[axis]:
            raise ValueError(
                f"X must be {must}, had 0 {what}(s) (shape={array.shape}) while a minimum of 1 is required."
            )
    return array


def check_kernel_inputs(name: str, inputs: Floats, kernels: Iterable[Kernel]) -> None:
    """Raise `ValueError` if a kernel is not defined at some of the inputs (N, D)."""
    for kernel in kernels:
        try:
            kernel.check_inputs(inputs)
        except ValueError as error:
            raise ValueError(f"{name} must be inputs at which the kernel is defined: {error}") from None


def check_outputs(y: Any, count: int) -> Floats:
    """Convert observations of P = `count` outputs to an array (N, P); missing ones are NaN."""
    must = f"numbers of shape (N, {count}){' or (N,)' if count == 1 else ''}"
    array = as_floats("y", y, must)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != count:
        per_site = array.ndim and count == len(array) > 1
        for_each = ": a likelihood takes numbers for each site in the shape (N, 1)" if per_site else ""
        raise ValueError(f"y must be {must}, had shape {array.shape}{for_each}")
    if np.any(np.isinf(array)):
        raise ValueError("y must be finite, or NaN where nothing was observed, had numbers that are infinite (inf)")
    return array


def broadcast_floats(name: str, value: Any, shape: tuple[int, ...], must: str, *, repeat: bool = True) -> Floats:
    """Convert a value to finite numbers and broadcast it to a shape; an axis of length 1 only with `repeat`."""
    array = as_finite_floats(name, value, must)
    fits = array.ndim <= len(shape) and all(
        own == wanted or (repeat and own == 1)
        for own, wanted in zip(reversed(array.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise ValueError(f"{name} must be {must}, had shape {array.shape}")
    return np.broadcast_to(array, shape)


def check_positive(name: str, array: Floats) -> Floats:
    """Return the array if all its elements are positive, and raise `ValueError` otherwise."""
    if not np.all(array > 0):
        raise ValueError(f"{name} must be positive, was {array.min():g}")
    return array


def check_weights(sample_weight: Any, count: int) -> Floats:
    """Return the weights (count,) of sites, which must not be negative nor all zero."""
    must = f"a number of at least 0 for each of {count} sites"
    weights = broadcast_floats("sample_weight", sample_weight, (count,), must, repeat=False)
    if np.any(weights < 0) or not np.any(weights > 0):
        raise ValueError(f"sample_weight must be {must}, and not every weight zero, had a minimum of {weights.min():g}")
    return weights
