"""Units of measurement in the notation of UDUNITS, which CF uses."""

from __future__ import annotations

import math
from typing import NamedTuple

from cf_units import Unit


class Conversion(NamedTuple):
    """A conversion of units: new value = value * factor + offset.

    Attributes
    ----------
    factor, offset : float
    """

    factor: float
    offset: float


IDENTITY = Conversion(1.0, 0.0)


def is_unit(text: str) -> bool:
    """Return whether UDUNITS knows a unit.

    Parameters
    ----------
    text : str

    Returns
    -------
    bool

    Examples
    --------
    >>> is_unit("m s-1"), is_unit("metres per second per furlong of")
    (True, False)
    """
    try:
        unit = Unit(text)
    except ValueError:
        return False
    # cf-units accepts words for "no unit"; a quantity without a unit has the unit '1'.
    return bool(text.strip()) and not (unit.is_unknown() or unit.is_no_unit())


def conversion(source: str, target: str) -> Conversion | None:
    """Return the conversion from one unit to another.

    Parameters
    ----------
    source, target : str

    Returns
    -------
    Conversion or None
        None if the units are not convertible by a factor and an offset.

    Examples
    --------
    >>> conversion("km", "m")
    Conversion(factor=1000.0, offset=0.0)
    """
    if source == target:
        return IDENTITY
    a, b = Unit(source), Unit(target)
    if not a.is_convertible(b):
        return None
    at_zero, at_one, at_two = (float(a.convert(value, b)) for value in (0.0, 1.0, 2.0))
    factor = at_one - at_zero
    if not math.isclose(at_two, at_one + factor, rel_tol=1e-9):
        return None  # a logarithmic unit, such as decibels
    return Conversion(factor, at_zero)
