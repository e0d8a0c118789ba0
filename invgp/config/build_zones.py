"""Zones between which nothing is correlated: positions on a line, or polygons of a GeoJSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from invgp.config.survey_tables import check_regular
from invgp.core.kernels import Kernel, OnDimensions, Product, Sum, Trended, Zones
from invgp.errors import ConfigError
from invgp.formatting import format_value, join_names, one_line
from invgp.problem import Grid, Latent, Survey

POLYGONS = ("Polygon", "MultiPolygon")


def build_zones(given: str | list[float], units: Mapping[str, str], key: str, directory: Path) -> Kernel:
    """Build the factor of a kernel that is 1 within a zone and 0 between zones.

    Parameters
    ----------
    given : str or list of float
        A GeoJSON file, or positions along the only coordinate.
    units : mapping of str to str
        Unit of each coordinate of the kernel, in order.
    key : str
        Key of the table, for messages.
    directory : Path
        Directory to which the path of the file is relative.

    Raises
    ------
    ConfigError
        The file cannot be used, or the zones do not fit the coordinates.
    """
    names = list(units)
    if isinstance(given, str):
        if len(names) < 2:
            raise ConfigError(
                f"{key}: must be a list of positions if the kernel has one coordinate, {names[0]!r}, was {given!r}"
            )
        return Zones(polygons=read_polygons(directory / given, key)).on(0, 1)
    if len(names) > 1:
        raise ConfigError(
            f"{key}: must be a GeoJSON file unless the kernel has one coordinate, was {format_value(given)} for "
            f"{join_names(names)}"
        )
    if not np.all(np.diff(given) > 0.0):
        raise ConfigError(f"{key}: must be positions that increase, was {format_value(given)}")
    return Zones(positions=tuple(given))


def read_polygons(file: Path, key: str) -> tuple[tuple[list[list[float]], ...], ...]:
    """Read the rings of all polygons of a GeoJSON file.

    Parameters
    ----------
    file : Path
    key : str
        Key of the file, for messages.

    Raises
    ------
    ConfigError
        The file has no polygons, other geometries, or is not GeoJSON.
    """
    check_regular(file, key)
    try:
        geometries = _geometries(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{key}: must be a GeoJSON file, was {str(file)!r}: {one_line(str(error))}") from error
    polygons = []
    for geometry in geometries:
        kind = geometry.get("type") if isinstance(geometry, dict) else None
        if kind not in POLYGONS:
            raise ConfigError(f"{key}: must have polygons only, {str(file)!r} had {format_value(kind)}")
        rings = geometry.get("coordinates")
        polygons += [rings] if kind == "Polygon" else rings if isinstance(rings, list) else [rings]
    found = [_rings(polygon) for polygon in polygons]
    if not found or any(rings is None for rings in found):
        raise ConfigError(
            f"{key}: must have polygons whose rings are lists of at least three corners, {str(file)!r} had "
            f"{'none' if not found else 'others'}"
        )
    return tuple(rings for rings in found if rings is not None)


def _geometries(document: Any) -> Sequence[Any]:
    """Return the geometries of a GeoJSON document."""
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection" and isinstance(document.get("features"), list):
        return [part for feature in document["features"] for part in _geometries(feature)]
    if kind == "Feature":
        return _geometries(document.get("geometry"))
    if kind == "GeometryCollection" and isinstance(document.get("geometries"), list):
        return [part for geometry in document["geometries"] for part in _geometries(geometry)]
    return [document]


def _rings(polygon: Any) -> tuple[list[list[float]], ...] | None:
    """Return the rings of a polygon as lists of corners [x, y], without heights; None if they are not valid."""
    try:
        rings = tuple([[float(corner[0]), float(corner[1])] for corner in ring] for ring in polygon)
    except (TypeError, ValueError, IndexError, KeyError):
        return None
    good = bool(rings) and all(len(ring) >= 3 and np.isfinite(ring).all() for ring in rings)
    return rings if good else None


def check_zones(latents: Sequence[Latent], survey: Survey, grid: Grid | None) -> None:
    """Raise `ConfigError` if all sites or nodes are in one zone, as with polygons in other coordinates."""
    X, points = (survey.X, "sites") if grid is None else (grid.X, "nodes")
    for latent in latents:
        for zones, columns in _find_zones(latent.kernel, tuple(range(X.shape[1]))):
            if len(np.unique(zones.numbers(X[:, columns]))) < 2:
                raise ConfigError(
                    f"latents.{latent.name}.kernel.zones: must divide the {points} into zones, had all of them in one; "
                    "polygons must have the coordinates and units of the survey"
                )


def _find_zones(kernel: Kernel, columns: tuple[int, ...]) -> list[tuple[Zones, tuple[int, ...]]]:
    """Return all zones in a kernel, with the columns of the inputs that they use."""
    if isinstance(kernel, Zones):
        return [(kernel, columns)]
    if isinstance(kernel, OnDimensions):
        return _find_zones(kernel.kernel, tuple(columns[d] for d in kernel.dimensions))
    parts = (
        kernel.parts if isinstance(kernel, Sum | Product) else (kernel.kernel,) if isinstance(kernel, Trended) else ()
    )
    return [found for part in parts for found in _find_zones(part, columns)]
