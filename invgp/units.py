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


# Units of oil fields, hydrology and geophysics that UDUNITS does not know, by their names in lower case.
_SUGGESTIONS = {
    "md": "millidarcy",
    "psia": "psi",
    "cp": "centipoise",
    "stb": "bbl",
    "rb": "bbl",
    "stb/day": "bbl day-1",
    "stb/d": "bbl day-1",
    "bopd": "bbl day-1",
    "bwpd": "bbl day-1",
    "scf": "ft3",
    "mscf": "1000 ft3",
    "mscf/day": "1000 ft3 day-1",
    "mmscf": "1e6 ft3",
    "sm3": "m3",
    "rm3": "m3",
    "sm3/day": "m3 day-1",
    "rcf": "ft3",
    "cfs": "ft3 s-1",
    "cfd": "ft3 day-1",
    "cms": "m3 s-1",
    "cumec": "m3 s-1",
    "gpm": "gallon minute-1",
    "gpd": "gallon day-1",
    "gpd/ft": "gallon day-1 ft-1",
    "gpd/ft2": "gallon day-1 ft-2",
    "mgd": "1e6 gallon day-1",
    "lpm": "L minute-1",
    "lps": "L s-1",
    "mld": "1e6 L day-1",
    "ohmm": "ohm m",
    "ohm_m": "ohm m",
    "pct": "percent",
    "fraction": "1",
    "eotvos": "1e-9 s-2",
    "dyn/cm": "dyne cm-1",
    "mya": "1e6 year",
}
# Units that UDUNITS knows with another meaning than a geoscientist expects.
_MISREAD = {
    "md": ("a milli-day", "millidarcy"),
    "Ma": ("a mega-are, which is an area", "1e6 year"),
    "ka": ("a kilo-are, which is an area", "1000 year"),
}


def suggest_unit(text: str) -> str:
    """Return what to write instead of a unit that UDUNITS does not know or understands otherwise.

    Parameters
    ----------
    text : str

    Returns
    -------
    str
        The end of a sentence; empty if there is nothing to suggest.

    Examples
    --------
    >>> suggest_unit("mD"), suggest_unit("m")
    ("such as 'millidarcy'", '')
    """
    if text in _MISREAD:
        meaning, instead = _MISREAD[text]
        return f"such as {instead!r}; {text!r} would be {meaning}"
    instead = "" if is_unit(text) else _SUGGESTIONS.get(" ".join(text.lower().split()), "")
    return f"such as {instead!r}" if instead else ""


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
