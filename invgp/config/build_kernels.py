"""Kernels of the latents, and zones between which they are independent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from invgp.config.survey_tables import check_regular
from invgp.core.kernels import KINDS, Kernel, OnDimensions, Product, Rotated, Sum, Trended, Zones, directions
from invgp.errors import ConfigError
from invgp.formatting import did_you_mean, format_value, join_names, one_line
from invgp.problem import Floats, Grid, Latent, Survey
from invgp.settings.configuration import KernelSection
from invgp.units import IDENTITY, conversion


def build_kernel(section: KernelSection | Kernel, units: Mapping[str, str], key: str, directory: Path) -> Kernel:
    """Build the kernel of a latent, with a nominal variance of 1.

    Parameters
    ----------
    section : KernelSection or Kernel
        Table of the configuration, or a kernel object.
    units : mapping of str to str
        Unit of each coordinate, in order.
    key : str
        Key of the table, for messages.
    directory : Path
        Directory to which the paths of files are relative.

    Raises
    ------
    ConfigError
        A value does not fit the coordinates.
    """
    if isinstance(section, Kernel):
        return _check_object(section, len(units), key)
    names = section.coordinates or list(units)
    for name in names:
        if name not in units:
            hint = did_you_mean(name, list(units))
            raise ConfigError(f"{key}.coordinates: must be coordinates, {join_names(units)}, had {name!r}{hint}")
    own = {name: units[name] for name in names}
    if len(own) < len(names):
        raise ConfigError(f"{key}.coordinates: must be coordinates that all differ, was {format_value(names)}")
    kernel = _build_kind(section, own, key, directory)
    if section.zones is not None:
        kernel = Product((kernel, build_zones(section.zones, own, f"{key}.zones", directory)))
    return kernel if names == list(units) else kernel.on(*(list(units).index(name) for name in names))


def _build_kind(section: KernelSection, units: Mapping[str, str], key: str, directory: Path) -> Kernel:
    """Build a kernel that is a function of the coordinates with these units."""
    among = list(units.values())
    if section.parts is not None:
        return _build_composed(section.kind, section.parts, units, key, directory)
    values: dict[str, Floats | float] = {}
    if section.period is not None:
        values["period"] = broadcast_length_scales(section.period, among, f"{key}.period")
    if section.length_scale is not None:
        # That of a periodic kernel has no unit.
        convert = _per_coordinate if section.kind == "periodic" else broadcast_length_scales
        values["length_scale"] = convert(section.length_scale, among, f"{key}.length_scale")
    if section.centre is not None:
        values["centre"] = _per_coordinate(section.centre, among, f"{key}.centre", one=len(among) == 1)
    if section.shape is not None:
        values["shape"] = float(section.shape)
    return _rotate(KINDS[section.kind](**values), section, units, key)


def _rotate(kernel: Kernel, section: KernelSection, units: Mapping[str, str], key: str) -> Kernel:
    """Return a kernel with its length-scales along the directions of `angle` and `dip`."""
    if section.angle is None and section.dip is None:
        return kernel
    names, among = list(units), list(units.values())
    if section.dip is not None and len(names) < 3:
        raise ConfigError(
            f"{key}.dip: must be left out unless the kernel has three coordinates, had {join_names(names)}"
        )
    if len(names) < 2:
        raise ConfigError(f"{key}.angle: must be left out unless the kernel has several coordinates, had {names[0]!r}")
    if any(conversion(unit, among[0]) != IDENTITY for unit in among):
        raise ConfigError(
            f"{key}.angle: must be left out unless all coordinates have the same unit, were {join_names(among)}"
        )
    return Rotated(kernel, directions(len(names), section.angle or 0.0, section.dip or 0.0))


def _build_composed(
    kind: str, sections: Sequence[KernelSection], units: Mapping[str, str], key: str, directory: Path
) -> Kernel:
    """Build a sum or a product."""
    parts = [build_kernel(part, units, f"{key}.parts[{i}]", directory) for i, part in enumerate(sections)]
    shares = [part.share for part in sections]
    if kind == "product":
        if any(share is not None for share in shares):
            raise ConfigError(f"{key}.parts: must not have a share in a product, had {format_value(shares)}")
        return Product(tuple(parts))
    if any(share is None for share in shares) and any(share is not None for share in shares):
        raise ConfigError(f"{key}.parts: must all have a share, or none")
    total = sum(share or 1.0 for share in shares)
    return Sum(tuple(part.with_variance((s or 1.0) / total) for part, s in zip(parts, shares, strict=True)))


def _check_object(kernel: Kernel, dimensions: int, key: str) -> Kernel:
    """Return a kernel object with a nominal variance of 1, if it can be used with D coordinates."""
    points = np.arange(2.0 * dimensions).reshape(2, dimensions)
    try:
        unit = kernel.with_variance(1.0)
        finite = bool(np.isfinite(unit(points, points)).all() and np.isfinite(unit.parameters).all())
    except (IndexError, ValueError) as error:
        raise ConfigError(f"{key}: must accept {dimensions} coordinates, was {kernel}: {error}") from error
    if not finite:
        raise ConfigError(f"{key}: must have parameters that give finite covariances, was {kernel}")
    return unit


def broadcast_length_scales(value: object, units: Sequence[str], key: str) -> Floats:
    """Return one length-scale per coordinate, (D,), from a number or a list."""
    scales = np.asarray(value, dtype=np.float64)
    if not scales.ndim and any(conversion(unit, units[0]) != IDENTITY for unit in units):
        raise ConfigError(
            f"{key}: must be a list of {len(units)}, one for each coordinate, since their units differ "
            f"({join_names(units)}), was {format_value(value)}"
        )
    return _per_coordinate(value, units, key)


def _per_coordinate(value: object, units: Sequence[str], key: str, *, one: bool = True) -> Floats:
    """Return one number per coordinate, (D,), from a list or, if `one` is allowed, from a number."""
    numbers, dimensions = np.asarray(value, dtype=np.float64), len(units)
    wanted = f"a list of {dimensions}: one for each coordinate"
    if numbers.ndim and len(numbers) != dimensions:
        raise ConfigError(f"{key}: must be {'one number, or ' * one}{wanted}, was a list of {len(numbers)}")
    if not numbers.ndim and not one:
        raise ConfigError(f"{key}: must be {wanted}, was {format_value(value)}")
    return np.broadcast_to(numbers, (dimensions,)).copy()


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
