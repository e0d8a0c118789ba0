"""Arguments that cannot be used, told in a sentence: which one, what it must be, what it was."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgp.core.checks import whole
from invgp.likelihoods import Likelihood

__all__ = [
    "Floats",
    "check_likelihood",
    "inputs",
    "instance",
    "numbers",
    "one_of",
    "outputs",
    "positive",
    "spread",
    "whole",
]

Floats = NDArray[np.float64]


def one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise unless the value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, was {value!r}")


def instance(name: str, value: Any, kinds: tuple[type, ...], must: str) -> None:
    """Raise unless the value is an instance of one of the kinds; `must` says what it must be."""
    if isinstance(value, type):
        raise ValueError(f"{name} must be {must}, was the class {value.__name__}: write {value.__name__}(...)")  # noqa: TRY004
    if not isinstance(value, kinds):
        raise ValueError(f"{name} must be {must}, was {reprlib.repr(value)}")  # noqa: TRY004 - as every wrong argument


def check_likelihood(value: Any) -> None:
    """Raise unless the value is a likelihood."""
    instance("likelihood", value, (Likelihood,), "one of invgp.likelihoods, or have the members of Likelihood there")


def real(name: str, value: Any, must: str) -> Floats:
    """The value as an array of numbers, which need not be finite; `must` says what it must be."""
    try:
        array = np.asarray(value)
        wanted = None if array.dtype.kind in "cSUVmM" else np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        wanted = None
    if wanted is None:
        was = reprlib.repr(value)
        if isinstance(value, np.ndarray):
            was = f"an array of {value.dtype}"
        elif not isinstance(value, Sequence):  # a table in words would be cut to pieces
            was = f"a {type(value).__name__} that holds others"
        raise ValueError(f"{name} must be {must}, was {was}")
    return wanted


def numbers(name: str, value: Any, must: str) -> Floats:
    """The value as an array of finite numbers; `must` says what it must be."""
    array = real(name, value, must)
    wrong = array[~np.isfinite(array)]
    if wrong.size:
        raise ValueError(f"{name} must be {must}, had numbers that are not finite, such as {wrong[0]}")
    return array


def inputs(X: Any) -> Floats:
    """Inputs (N, D)."""
    must = "finite numbers of shape (N, D)"
    array = numbers("X", X, must)
    hint = ": X[:, None] is one input a site" if array.ndim == 1 else ""
    if array.ndim != 2 or not array.shape[1]:
        raise ValueError(f"X must be {must}, had shape {array.shape}{hint}")
    return array


def outputs(y: Any, count: int) -> Floats:
    """Observations (N, P), for P outputs; NaN where there is none."""
    must = f"numbers of shape (N, {count}){' or (N,)' if count == 1 else ''}"
    array = real("y", y, must)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != count:
        for_each = ": a likelihood takes numbers for each site in the shape (N, 1)" if count == len(array) > 1 else ""
        raise ValueError(f"y must be {must}, had shape {array.shape}{for_each}")
    if np.any(np.isinf(array)):
        raise ValueError("y must be finite, or NaN where nothing was observed, had numbers that are infinite")
    return array


def spread(name: str, value: Any, shape: tuple[int, ...], must: str) -> Floats:
    """The value as finite numbers, repeated where a shape asks for more."""
    array = numbers(name, value, must)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} must be {must}, had shape {array.shape}") from None


def positive(name: str, array: Floats) -> Floats:
    """The array, if all of it is positive."""
    if not np.all(array > 0):
        raise ValueError(f"{name} must be positive, was {array.min():g}")
    return array
