"""Labels of axes: names of quantities, and units as they are typeset."""

from __future__ import annotations

import math
import re
import textwrap

import xarray as xr

MINUS = "\N{MINUS SIGN}"
_RAISED = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SYMBOLS = {
    "degC": "°C",
    "degree": "°",
    "degrees": "°",
    "degrees_east": "°E",
    "degrees_north": "°N",
    "ohm": "Ω",
    "percent": "%",
}


def axis_label(array: xr.DataArray, text: str = "", unit: str = "", width: int = 44, power: int = 0) -> str:
    """Label of an axis: the text, or else the name of the array, and the unit, or else that of the array.

    `power` is that of the ten in which the axis counts, `width` the characters of a line.
    """
    text = text or quantity_name(array)
    unit = scaled_unit(_typeset(unit) or unit_label(array), power)
    if unit:
        text += " (" + unit.replace(" ", "\xa0") + ")"  # a unit is never broken over two lines
    return "\n".join(textwrap.wrap(sentence_case(text), width)).replace("\xa0", " ")


def sentence_case(text: str) -> str:
    """Begin with a capital, unless with a symbol, such as y, pH or vs: to capitalise that would be to rename it."""
    first, _, rest = text.partition(" ")
    symbol = (len(first) <= 2 and not rest[:1].isalpha()) or any(letter.isupper() for letter in first)
    return text if symbol else text[:1].upper() + text[1:]


def quantity_name(array: xr.DataArray) -> str:
    """Name of what an array holds, without the word that it was observed."""
    name = str(array.attrs.get("long_name", str(array.name).removesuffix("_observed").replace("_", " ")))
    return name.removeprefix("observed ")


def unit_label(array: xr.DataArray) -> str:
    """Unit of an array, typeset, or nothing."""
    return _typeset(str(array.attrs.get("units", "")))


def scaled_unit(unit: str, power: int) -> str:
    """A typeset unit with a power of ten before it: '10⁻⁴ m'."""
    return " ".join(filter(None, (f"10{str(power).translate(_RAISED)}" if power else "", unit)))


def range_of(array: xr.DataArray) -> str:
    """Write what values run between, to three digits of their span, with the unit: 'from 0.4 to 29.4 m'."""
    low, high = float(array.min()), float(array.max())
    decimals = max(0, 2 - math.floor(math.log10(high - low))) if high > low else 2
    ends = [f"{value:.{decimals}f}".replace("-", MINUS) for value in (low, high)]
    return f"from {ends[0]} to {ends[1]} {unit_label(array)}".rstrip()


def _typeset(unit: str) -> str:
    """Typeset a unit: 'm s-1' becomes 'm s⁻¹', and '1' nothing."""
    if unit == "1":
        return ""
    return " ".join(_typeset_factor(factor) for factor in unit.split())


def _typeset_factor(factor: str) -> str:
    parts = re.fullmatch(r"([^\W\d]+)(?:\^|\*\*)?([-+]?\d+)?", factor)
    if parts is None:
        return factor
    return _SYMBOLS.get(parts[1], parts[1]) + (parts[2] or "").translate(_RAISED)
