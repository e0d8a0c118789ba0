"""Maps from CSV, netCDF and GeoTIFF files, on a grid of the coordinates of the latents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyproj import CRS, Transformer
from pyproj.exceptions import CRSError, ProjError

from invgp.axes import BY_NAME, axis_letters
from invgp.config.survey_tables import NetcdfTable, Table, check_regular, read_table
from invgp.core.kernels import interpolate
from invgp.errors import ConfigError
from invgp.formatting import join_names, suggest
from invgp.problem import Floats
from invgp.settings.configuration import MapSection
from invgp.units import conversion, is_unit

GEOTIFF_SUFFIXES = (".tif", ".tiff")
MOST_NODES = 2**20  # of a map around the points of the latents
MARGIN = 0.5  # of the extent of the points, around them, that is kept of a map
SPARSEST = 0.25  # share of the nodes of a grid that a CSV file must have
GEOGRAPHIC = "EPSG:4326"  # reference system of degrees without a stated one


class Coordinate(NamedTuple):
    """A coordinate of the latents: its name and unit, and the attributes that tell its direction."""

    name: str
    unit: str
    about: Mapping[str, str]


@dataclass(frozen=True)
class GriddedMap:
    """Values on a grid.

    Attributes
    ----------
    axes : tuple of array, shape (n_d,)
        Increasing coordinates of the nodes.
    dimensions : tuple of int
        Number of the coordinate of each axis, increasing.
    values : array, shape (n_1, ..., n_D)
        NaN where there is no value.
    """

    axes: tuple[Floats, ...]
    dimensions: tuple[int, ...]
    values: Floats

    def crop(self, X: Floats) -> GriddedMap:
        """Return the part around points X (N, D), with a margin of half of their extent."""
        chosen = []
        for d, axis in zip(self.dimensions, self.axes, strict=True):
            margin = MARGIN * np.ptp(X[:, d])
            first = max(int(np.searchsorted(axis, X[:, d].min() - margin, side="right")) - 1, 0)
            last = min(int(np.searchsorted(axis, X[:, d].max() + margin)), len(axis) - 1)
            first = min(first, len(axis) - 2)
            chosen.append(slice(first, max(last, first + 1) + 1))
        axes = tuple(axis[part] for axis, part in zip(self.axes, chosen, strict=True))
        return GriddedMap(axes, self.dimensions, self.values[tuple(chosen)])

    def at(self, axes: tuple[Floats, ...]) -> Floats:
        """Interpolate to the nodes of other axes; NaN outside."""
        if all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(axes, self.axes, strict=True)):
            return self.values
        points = np.stack([one.ravel() for one in np.meshgrid(*axes, indexing="ij")], axis=-1)
        return _interpolate(self.axes, self.values, points).reshape([len(axis) for axis in axes])


class _RawMap(NamedTuple):
    """A map with the axes and reference system of its file: increasing axes X, Y or others by coordinate."""

    names: tuple[str, ...]
    axes: tuple[Floats, ...]
    units: tuple[str, ...]
    values: Floats
    unit: str
    crs: CRS | None


def read_map(
    section: MapSection, coordinates: Sequence[Coordinate], unit: str, crs: str | None, directory: Path, key: str
) -> GriddedMap:
    """Read a map.

    Parameters
    ----------
    section : MapSection
    coordinates : sequence of Coordinate
        Coordinates of the latents, in order.
    unit : str
        Unit of the values.
    crs : str or None
        Coordinate reference system of the coordinates.
    directory : Path
        Directory to which a relative path refers.
    key : str
        Key of the configuration, for messages.

    Raises
    ------
    ConfigError
        The file is not a map, or its values, axes or reference system cannot be converted.
    """
    file = directory / section.file
    check_regular(file, key)
    read = _read_geotiff if file.suffix.lower() in GEOTIFF_SUFFIXES else _read_table_map
    raw = read(file, section, coordinates, key)
    if section.crs is not None:
        raw = raw._replace(crs=_parse_crs(section.crs, f"{key}.crs"))
    how = conversion(section.unit or raw.unit or unit, unit)
    if how is None:
        raise ConfigError(
            f"{key}: the map {file.name} must be in a unit that can be converted to {unit!r}, was in "
            f"{section.unit or raw.unit!r}"
        )
    spread = key.endswith(".std")
    raw = raw._replace(values=raw.values * how.factor + (0.0 if spread else how.offset))
    return _to_coordinates(raw, coordinates, crs, file, key)


def _parse_crs(text: str, key: str) -> CRS:
    try:
        return CRS.from_user_input(text)
    except CRSError:
        raise ConfigError(
            f"{key}: must be a coordinate reference system that PROJ knows, such as 'EPSG:28354', was {text!r}"
        ) from None


def _read_geotiff(file: Path, section: MapSection, coordinates: Sequence[Coordinate], key: str) -> _RawMap:  # noqa: ARG001
    try:
        rasterio: Any = import_module("rasterio")
    except ImportError:
        raise ConfigError(
            f"{key}: a GeoTIFF needs rasterio, which is not installed: pip install 'invgp[geotiff]'"
        ) from None
    try:
        with rasterio.open(file) as raster:
            names = [text or str(number) for number, text in enumerate(raster.descriptions, start=1)]
            chosen = section.variable or (names[0] if len(names) == 1 else None)
            if chosen not in names:
                raise ConfigError(
                    f"{key}.variable: must be a band of {file.name}, {join_names(names)}, was {section.variable!r}"
                )
            number = names.index(chosen) + 1
            values = raster.read(number, masked=True).astype(np.float64).filled(np.nan)
            transform, crs, unit = raster.transform, raster.crs, raster.units[number - 1] or ""
    except rasterio.errors.RasterioError as error:
        raise ConfigError(f"{key}: must be a GeoTIFF that can be read, was {file.name}: {error}") from None
    if transform.b or transform.d:
        raise ConfigError(f"{key}: the rows of the GeoTIFF {file.name} must go from west to east, were rotated")
    rows, columns = values.shape
    x = transform.c + transform.a * (np.arange(columns) + 0.5)
    y = transform.f + transform.e * (np.arange(rows) + 0.5)
    system = None if crs is None else CRS.from_wkt(crs.to_wkt())
    raw = _RawMap(("X", "Y"), (x, y), ("", ""), values.T, unit if is_unit(unit) else "", system)
    return _sort_axes(raw, file, key)


def _read_table_map(file: Path, section: MapSection, coordinates: Sequence[Coordinate], key: str) -> _RawMap:
    table = read_table(file, None, key)
    if isinstance(table, NetcdfTable):
        return _sort_axes(_read_netcdf(table, section, coordinates, key), file, key)
    return _sort_axes(_read_csv(table, file, section, coordinates, key), file, key)


def _axis_name(name: str, coordinates: Sequence[Coordinate]) -> str | None:
    """Return the coordinate, or the axis X or Y, that a name in a map file stands for."""
    return name if name in {c.name for c in coordinates} else BY_NAME.get(name.lower())


def _read_csv(table: Table, file: Path, section: MapSection, coordinates: Sequence[Coordinate], key: str) -> _RawMap:
    found = {name: axis for name in table.names if (axis := _axis_name(name, coordinates)) and name != section.variable}
    values = [name for name in table.names if name not in found]
    if section.variable is None and len(values) != 1:
        raise ConfigError(
            f"{key}.variable: is missing; it must be a column of {file.name}, {join_names(values or table.names)}"
        )
    if not found:
        raise ConfigError(
            f"{key}: the map {file.name} must have columns with the names of coordinates, "
            f"{join_names([c.name for c in coordinates])}, had {join_names(table.names)}"
        )
    z = table.columns([section.variable or values[0]], "1", f"{key}.variable")[:, 0]
    X = table.columns(list(found), "1", key)
    if not np.isfinite(X).all():
        raise ConfigError(f"{key}: the coordinates of the map {file.name} must be numbers, some were missing")
    axes, places = zip(*(np.unique(column, return_inverse=True) for column in X.T), strict=True)
    shape = tuple(map(len, axes))
    if np.prod(shape, dtype=np.float64) * SPARSEST > len(z) or len(np.unique(X, axis=0)) < len(z):
        raise ConfigError(
            f"{key}: the map {file.name} must have one row for each node of a grid, had {len(z)} rows and "
            f"{' x '.join(map(str, shape))} different coordinates"
        )
    grid = np.full(shape, np.nan)
    grid[tuple(places)] = z
    return _RawMap(tuple(found.values()), axes, ("",) * len(axes), grid, "", None)


def _read_netcdf(table: NetcdfTable, section: MapSection, coordinates: Sequence[Coordinate], key: str) -> _RawMap:
    dataset, name = table.dataset, section.variable
    candidates = [
        str(v)
        for v, array in dataset.data_vars.items()
        if array.ndim and np.issubdtype(array.dtype, np.number) and all(d in dataset.coords for d in array.dims)
    ]
    if name not in candidates and (name is not None or len(candidates) != 1):
        wrong = "is missing; it" if name is None else f"was {name!r}{suggest(name, candidates)}; it"
        raise ConfigError(
            f"{key}.variable: {wrong} must be a variable of numbers of {table.file.name} whose dimensions have "
            f"coordinates: {join_names(candidates) or 'there is none'}"
        )
    array = dataset[name or candidates[0]].squeeze()
    dims = [str(d) for d in array.dims]
    names = {c.name for c in coordinates}
    letters = axis_letters({d: dataset[d].attrs for d in dims})
    mapping = dataset.get(str(array.attrs.get("grid_mapping", "")))
    try:
        system = None if mapping is None else CRS.from_cf(mapping.attrs)
    except (CRSError, KeyError, ValueError):
        system = None
    units = [str(dataset[d].attrs.get("units", "")) for d in dims]
    return _RawMap(
        tuple(d if d in names else letters[d] for d in dims),
        tuple(np.asarray(dataset[d].values, dtype=np.float64) for d in dims),
        tuple(unit if is_unit(unit) else "" for unit in units),
        np.asarray(array.values, dtype=np.float64),
        table.unit_of(str(array.name)),
        system,
    )


def _sort_axes(raw: _RawMap, file: Path, key: str) -> _RawMap:
    """Return the map with increasing axes."""
    axes, values = list(raw.axes), raw.values
    for d, axis in enumerate(axes):
        steps = np.diff(axis)
        if len(axis) < 2 or not (np.all(steps > 0) or np.all(steps < 0)):
            raise ConfigError(
                f"{key}: the map {file.name} must have two or more increasing values along each axis, had "
                f"{len(axis)} along {raw.names[d]!r}"
            )
        if steps[0] < 0:
            axes[d], values = axis[::-1].copy(), np.flip(values, axis=d)
    return raw._replace(axes=tuple(axes), values=values)


def _to_coordinates(
    raw: _RawMap, coordinates: Sequence[Coordinate], crs: str | None, file: Path, key: str
) -> GriddedMap:
    """Convert axes to the coordinates of the latents: by name or direction, in unit and reference system."""
    letters = axis_letters({c.name: {"units": c.unit, **c.about} for c in coordinates})
    by_letter = {letter: name for name, letter in letters.items()}
    order = [c.name for c in coordinates]
    names = [name if name in order else by_letter.get(name, "") for name in raw.names]
    if "" in names or len(set(names)) < len(names):
        raise ConfigError(
            f"{key}: the axes of the map {file.name} must be coordinates, {join_names(order)}, were "
            f"{join_names(raw.names)}"
        )
    units = {c.name: c.unit for c in coordinates}
    target = None if crs is None else CRS.from_user_input(crs)
    horizontal = [i for i, name in enumerate(names) if letters[name] in "XY"]
    degrees = any(conversion(raw.units[i], "degree") is not None for i in horizontal if raw.units[i])
    source = raw.crs or (CRS.from_user_input(GEOGRAPHIC) if degrees and target is not None else None)
    if source is not None and target is not None and not source.equals(target, ignore_axis_order=True):
        return _reproject(raw._replace(crs=source), names, letters, coordinates, target, file, key)
    if _is_incomparable(source, target):
        raise ConfigError(f"{key}: the map {file.name} has a coordinate reference system, so survey.crs must be given")
    axes = []
    for name, axis, unit in zip(names, raw.axes, raw.units, strict=True):
        given = unit or (_crs_unit(source) if source is not None and letters[name] in "XY" else "") or units[name]
        how = conversion(given, units[name])
        if how is None:
            raise ConfigError(
                f"{key}: the axis {name!r} of the map {file.name} must be in a unit that can be converted to "
                f"{units[name]!r}, was in {given!r}"
            )
        axes.append(axis * how.factor + how.offset)
    return _arrange(axes, [order.index(name) for name in names], raw.values)


def _is_incomparable(source: CRS | None, target: CRS | None) -> bool:
    """Return whether a map has a reference system that cannot be compared with that of the coordinates."""
    return source is not None and target is None and source.is_geographic


def _crs_unit(system: CRS) -> str:
    """Return the unit of the horizontal axes of a reference system; empty if UDUNITS does not know it."""
    name = system.axis_info[0].unit_name if system.axis_info else ""
    return name if is_unit(name) else ""


def _reproject(
    raw: _RawMap,
    names: Sequence[str],
    letters: Mapping[str, str],
    coordinates: Sequence[Coordinate],
    target: CRS,
    file: Path,
    key: str,
) -> GriddedMap:
    """Resample a map to a grid with as many nodes along the axes of another reference system."""
    placed = {letters[name]: i for i, name in enumerate(names)}
    if not {"X", "Y"} == set(placed) or raw.crs is None:
        raise ConfigError(
            f"{key}: the map {file.name} must have two horizontal axes, as its reference system differs from "
            f"survey.crs, had {join_names(raw.names)}"
        )
    east, north = (next(c for c in coordinates if letters[c.name] == letter) for letter in "XY")
    # Coordinates may be in km although the reference system is in metres, in the file and in the survey.
    to_own = [_axis_factor(raw.units[placed[letter]], raw.crs) for letter in "XY"]
    to_target = [_axis_factor(c.unit, target) for c in (east, north)]
    x, y = (raw.axes[placed[letter]] * factor for letter, factor in zip("XY", to_own, strict=True))
    values = raw.values if placed["X"] == 0 else raw.values.T
    try:
        forward = Transformer.from_crs(raw.crs, target, always_xy=True)
        back = Transformer.from_crs(target, raw.crs, always_xy=True)
        edge = np.concatenate(
            [
                *(np.stack([x, np.full(len(x), one)], axis=-1) for one in (y[0], y[-1])),
                *(np.stack([np.full(len(y), one), y], axis=-1) for one in (x[0], x[-1])),
            ]
        )
        corners = [np.asarray(part) for part in forward.transform(edge[:, 0], edge[:, 1])]
        spans = [(float(part.min()), float(part.max())) for part in corners]
        new_x, new_y = (np.linspace(*span, n) for span, n in zip(spans, (len(x), len(y)), strict=True))
        points = np.meshgrid(new_x, new_y, indexing="ij")
        old = back.transform(points[0].ravel(), points[1].ravel())
    except ProjError as error:
        raise ConfigError(f"{key}: the map {file.name} cannot be converted to survey.crs: {error}") from None
    if not np.isfinite(spans).all():
        raise ConfigError(f"{key}: the map {file.name} must be in the area of survey.crs, was outside")
    found = _interpolate((x, y), values, np.stack(old, axis=-1)).reshape(len(new_x), len(new_y))
    order = [c.name for c in coordinates]
    axes = [new_x / to_target[0], new_y / to_target[1]]
    return _arrange(axes, [order.index(east.name), order.index(north.name)], found)


def _axis_factor(unit: str, system: CRS) -> float:
    """Return the factor from a unit to that of a reference system; 1 without a unit, and for degrees."""
    how = conversion(unit, "m") if unit and system.is_projected else None
    return 1.0 if how is None else how.factor / system.axis_info[0].unit_conversion_factor


def _arrange(axes: Sequence[Floats], dimensions: Sequence[int], values: Floats) -> GriddedMap:
    """Return a map with its axes in the order of the coordinates."""
    order = np.argsort(dimensions)
    return GriddedMap(
        tuple(axes[i] for i in order), tuple(int(dimensions[i]) for i in order), np.transpose(values, order)
    )


def _interpolate(axes: tuple[Floats, ...], values: Floats, X: Floats) -> Floats:
    """Interpolate values at points X (N, D); NaN outside."""
    inside = [(x >= axis[0]) & (x <= axis[-1]) for x, axis in zip(X.T, axes, strict=True)]
    with np.errstate(invalid="ignore"):
        found, _ = interpolate(axes, values, np.nan_to_num(X, posinf=axes[0][0], neginf=axes[0][0]))
    return np.where(np.logical_and.reduce(inside), found, np.nan)
