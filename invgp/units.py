"""Units of measurement, as UDUNITS (and so CF) knows them."""

from __future__ import annotations

import math
from typing import NamedTuple

from cf_units import Unit


class Conversion(NamedTuple):
    """`value * factor + offset` takes a value from one unit to another."""

    factor: float
    offset: float


IDENTITY = Conversion(1.0, 0.0)


def is_unit(text: str) -> bool:
    """Whether UDUNITS understands it."""
    try:
        unit = Unit(text)
    except ValueError:
        return False
    # cf-units knows words for having no unit at all; a quantity without one is written '1'.
    return bool(text.strip()) and not (unit.is_unknown() or unit.is_no_unit())


def conversion(source: str, target: str) -> Conversion | None:
    """How to get from one unit to another; None if no factor and offset do."""
    if source == target:
        return IDENTITY
    a, b = Unit(source), Unit(target)
    if not a.is_convertible(b):
        return None
    at_zero, at_one, at_two = (float(a.convert(value, b)) for value in (0.0, 1.0, 2.0))
    factor = at_one - at_zero
    if not math.isclose(at_two, at_one + factor, rel_tol=1e-9):
        return None  # a logarithmic unit, such as decibels: no straight line leads there
    return Conversion(factor, at_zero)
