"""Arguments that cannot be used, told in a sentence: which one, what it must be, what it was."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, was {value!r}")


def whole(name: str, value: Any, least: int, why: str = "") -> int:
    """The value as a whole number, if it is one and no less than the least."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}{why}, was {value!r}")
    return int(value)


def numbers(name: str, value: Any, must: str) -> Floats:
    """The value as an array of finite numbers; `must` says what it must be."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {must}, was {value!r}") from None
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be {must}, had numbers that are not finite")
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
