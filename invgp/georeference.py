"""Coordinate reference systems as CF grid mappings, for coordinates in any unit of length."""

from __future__ import annotations

import math
from typing import Any

from pyproj import CRS

from invgp.units import conversion

FALSE_ORIGIN = ("false_easting", "false_northing")


def grid_mapping(crs: str, unit: str) -> dict[str, Any]:
    """Return the attributes of a CF grid mapping.

    Coordinates can be in km although the reference system is in metres. CF then requires the false origin in km too,
    and programs that read the WKT assume that the coordinates have its unit.

    Parameters
    ----------
    crs : str
        Coordinate reference system that PROJ understands.
    unit : str
        Unit of the horizontal coordinates.

    Returns
    -------
    dict
    """
    system = CRS.from_user_input(crs)
    how = conversion(unit, "m") if system.is_projected else None
    ratio = how.factor / system.axis_info[0].unit_conversion_factor if how else 1.0
    if how and not math.isclose(ratio, 1.0, rel_tol=1e-9):
        system = _convert_unit(system, unit, how.factor)
    found: dict[str, Any] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in system.to_cf().items()
    }
    return found | {key: found[key] / ratio for key in FALSE_ORIGIN if key in found}


def _convert_unit(system: CRS, unit: str, metres: float) -> CRS:
    """Return the same projection with coordinates in another unit, given in metres."""
    about = system.to_json_dict()
    for axis in about["coordinate_system"]["axis"]:
        axis["unit"] = {"type": "LinearUnit", "name": unit, "conversion_factor": metres}
    about.pop("id", None)  # it is no longer the registered one
    return CRS.from_json_dict({**about, "name": f"{system.name} in {unit}"})
