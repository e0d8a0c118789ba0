"""Units of measurement, as UDUNITS (and so CF) knows them."""

from __future__ import annotations

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
    """How to get from one unit to another; None if they measure different things."""
    if source == target:
        return IDENTITY
    a, b = Unit(source), Unit(target)
    if not a.is_convertible(b):
        return None
    offset = float(a.convert(0.0, b))
    return Conversion(float(a.convert(1.0, b)) - offset, offset)
