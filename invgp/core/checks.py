"""Checks of settings. Each error names the setting, what it must be and what it was."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def check_integer(name: str, value: Any, least: int, why: str = "") -> int:
    """Return the value as an int; raise `ValueError` unless it is a whole number of at least `least`.

    Parameters
    ----------
    name : str
        Argument, for the message.
    value : object
        Its value.
    least : int
        Smallest valid value.
    why : str
        Reason for the limit, for the message.

    Returns
    -------
    int
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}{why}, was {value!r}")
    return int(value)


def check_number(
    name: str, value: Any, low: float, high: float = math.inf, *, open_below: bool = False, open_above: bool = False
) -> float:
    """Return the value; raise `ValueError` unless it is finite and from `low` to `high` (inclusive unless open).

    Parameters
    ----------
    name : str
        Argument, for the message.
    value : object
        Its value.
    low, high : float
        Smallest and largest valid value.
    open_below, open_above : bool
        Whether the limits themselves are invalid.

    Returns
    -------
    float
    """
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and low <= value <= high) or (open_below and value == low) or (open_above and value == high):
        below = f"above {low:g}" if open_below else f"of at least {low:g}"
        above = f" and below {high:g}" if open_above else f" and at most {high:g}"
        raise ValueError(f"{name} must be a number {below}{above if high < math.inf else ''}, was {value!r}")
    return float(value)


def check_boolean(name: str, value: Any) -> None:
    """Raise `ValueError` unless the value is True or False.

    Parameters
    ----------
    name : str
        Argument, for the message.
    value : object
        Its value.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, was {value!r}")  # noqa: TRY004 - like other invalid settings
