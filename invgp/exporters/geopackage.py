"""GeoPackage: one point feature per point, with one attribute per field and label, for QGIS and other GIS programs."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import xarray as xr
from pyproj import CRS

from invgp.errors import ArgumentError
from invgp.exporters.exported_fields import (
    import_extra,
    point_positions,
    read_coordinates,
    select_variables,
    split_fields,
)
from invgp.maps.grids import read_axis_letters

_POINT = np.dtype([("order", "u1"), ("kind", "<u4"), ("x", "<f8"), ("y", "<f8")])  # well-known binary of a point


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one layer of points; a missing value is NULL.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.
    path : Path
        File to write.
    variables : sequence of str
        Variables to write; by default all fields except draws.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ArgumentError
        The dataset has no two horizontal coordinates, or pyogrio is missing.
    """
    names = read_coordinates(dataset)
    letters = {letter: name for name, letter in read_axis_letters(dataset, names).items()}
    if not {"X", "Y"} <= set(letters):
        raise ArgumentError("format: geopackage needs points with two horizontal coordinates")
    raw = import_extra("pyogrio.raw", "geopackage")
    positions = point_positions(dataset)
    points = np.empty(len(positions[names[0]]), dtype=_POINT)
    points["order"], points["kind"] = 1, 1  # little endian; a point
    points["x"], points["y"] = positions[letters["X"]], positions[letters["Y"]]
    fields = {
        field.name: field.values.values.ravel() for field in split_fields(dataset, select_variables(dataset, variables))
    }
    # In memory first, because GDAL reports no error for a file that it cannot write completely.
    memory = BytesIO()
    raw.write(
        memory,
        geometry=np.array([point.tobytes() for point in points], dtype=object),
        field_data=[*positions.values(), *fields.values()],
        fields=np.array([*positions, *fields], dtype=object),
        layer=path.stem,
        driver="GPKG",
        geometry_type="Point",
        crs=CRS.from_cf(dataset["crs"].attrs).to_wkt() if "crs" in dataset else None,
    )
    path.write_bytes(memory.getvalue())
    return [path]
