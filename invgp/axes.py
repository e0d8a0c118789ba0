"""Directions of coordinates: X to the east, Y to the north, Z up or down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyproj import CRS

from invgp.units import conversion

BY_STANDARD_NAME = {
    "projection_x_coordinate": "X",
    "longitude": "X",
    "grid_longitude": "X",
    "projection_y_coordinate": "Y",
    "latitude": "Y",
    "grid_latitude": "Y",
}
_EAST = dict.fromkeys(("degrees_east", "degree_east", "degrees_E", "degree_E", "degreesE", "degreeE"), "X")
_NORTH = dict.fromkeys(("degrees_north", "degree_north", "degrees_N", "degree_N", "degreesN", "degreeN"), "Y")
BY_UNIT = _EAST | _NORTH
BY_NAME = {
    **dict.fromkeys(("x", "east", "easting", "eastings", "lon", "long", "longitude"), "X"),
    **dict.fromkeys(("y", "north", "northing", "northings", "lat", "latitude"), "Y"),
}
DEGREES = {"X": "longitude", "Y": "latitude"}
PROJECTED = {"X": "projection_x_coordinate", "Y": "projection_y_coordinate"}


def axis_letters(about: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the axis X, Y or Z of each coordinate.

    The axis follows from the standard name, from a unit such as degrees_north, from the attribute ``positive``, or from
    a pair of names such as easting and northing, in this order. Other coordinates get the remaining letters in order.

    Parameters
    ----------
    about : mapping of str to mapping
        Attributes of each coordinate.

    Returns
    -------
    dict of str to str
    """
    named = {name: BY_NAME.get(name.lower()) for name in about}
    paired = {"X", "Y"} <= set(named.values())
    rules: tuple[Callable[[str], str | None], ...] = (
        lambda name: BY_STANDARD_NAME.get(str(about[name].get("standard_name", ""))),
        lambda name: BY_UNIT.get(str(about[name].get("units", ""))),
        lambda name: "Z" if about[name].get("positive") else None,
        lambda name: named[name] if paired else None,
    )
    found: dict[str, str] = {}
    for rule in rules:
        for name in about:
            letter = rule(name)
            if letter and name not in found and letter not in found.values():
                found[name] = letter
    left = [letter for letter in "XYZ" if letter not in found.values()]
    return {name: found[name] if name in found else left.pop(0) for name in about}


def axis_attribute(letter: str, about: Mapping[str, Any]) -> dict[str, str]:
    """Return the CF attribute ``axis`` of a coordinate; empty if it would mislead.

    GDAL takes an X axis for a longitude unless its unit is the metre. A coordinate in kilometres would be misplaced.

    Parameters
    ----------
    letter : str
        X, Y or Z.
    about : mapping
        Attributes of the coordinate.

    Returns
    -------
    dict of str to str
    """
    unit = about.get("units")
    return {"axis": letter} if letter == "Z" or unit == "m" or unit in BY_UNIT else {}


def is_latitude_unit(unit: str) -> bool:
    """Return whether a unit is that of latitudes, such as degrees_north."""
    return unit in _NORTH


def standard_name(letter: str, unit: str, crs: str | None) -> str:
    """Return the CF standard name of a horizontal coordinate.

    Parameters
    ----------
    letter : str
        X or Y.
    unit : str
    crs : str or None
        Coordinate reference system.

    Returns
    -------
    str
        Empty if there is none.
    """
    if unit in BY_UNIT:
        return DEGREES[BY_UNIT[unit]]
    if crs is None or letter not in PROJECTED or conversion(unit, "m") is None:
        return ""
    return PROJECTED[letter] if CRS.from_user_input(crs).is_projected else ""
