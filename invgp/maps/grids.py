"""Points of a map: a regular grid, or a list of points.

`easting=0:1000:10,northing=::20` is a grid from start to stop in steps. By default, start and stop are the extent of
the sites, rounded to whole steps. `10` is a step along every coordinate. `depth=100` is a slice. A file contains
points, axes or the cells of a mesh.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import xarray as xr

from invgp.axes import axis_letters
from invgp.config.survey_tables import NETCDF_SUFFIXES, NetcdfTable, read_table
from invgp.errors import ArgumentError
from invgp.files.meshes import MESH_SUFFIXES, Mesh
from invgp.formatting import shorten, suggest
from invgp.problem import Floats

POINTS_ALONG = 100  # along the longest side of a grid whose step is not given
MOST_POINTS = 10**9
FARTHEST = 1e100  # largest coordinate, in any unit
BYTES_PER_POINT = 40  # along an axis, with temporary arrays
ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
FILES = (".csv", *NETCDF_SUFFIXES, *MESH_SUFFIXES)
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"

Slices = tuple[slice, ...]


@dataclass(frozen=True)
class MapGrid:
    """Points at which the posterior is predicted.

    Attributes
    ----------
    coordinates : tuple of str
        Names of the coordinates, in the order of the posterior.
    axes : tuple of array, or None
        For a grid, the values along each coordinate.
    points : array, shape (N, D), or None
        For a list of points, their coordinates.
    dims : tuple of str
        Dimensions of the variables of a map: the coordinates of a grid, the slowest first (Z, Y, X), or ``site``.
    mesh : Mesh or None
        The mesh whose cells have the points as centres.
    """

    coordinates: tuple[str, ...]
    axes: tuple[Floats, ...] | None
    points: Floats | None
    dims: tuple[str, ...]
    mesh: Mesh | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each of `dims`."""
        if self.axes is None:
            return (0 if self.points is None else len(self.points),)
        return tuple(len(self.axes[self.coordinates.index(name)]) for name in self.dims)

    @property
    def size(self) -> int:
        """Number of points, N."""
        return math.prod(self.shape)

    def blocks(self, most: int) -> tuple[tuple[int, ...], Iterator[Slices]]:
        """Split the grid into blocks.

        Parameters
        ----------
        most : int
            Maximum number of points per block.

        Returns
        -------
        shape : tuple of int
            Shape of the blocks; the last ones along an axis may be smaller.
        positions : iterator of tuple of slice
            Position of each block.
        """
        chunk, room = [], most
        for size in reversed(self.shape):
            chunk.append(max(1, min(size, room)))
            room //= chunk[-1]
        steps = tuple(reversed(chunk))
        ranges = [
            [slice(start, min(start + step, size)) for start in range(0, size, step)]
            for size, step in zip(self.shape, steps, strict=True)
        ]
        return steps, itertools.product(*ranges)

    def at(self, block: Slices) -> Floats:
        """Return the points (B, D) of a block; the last of `dims` varies fastest."""
        if self.axes is None:
            return np.zeros((0, len(self.coordinates))) if self.points is None else self.points[block[0]]
        along = {
            name: self.axes[self.coordinates.index(name)][part] for name, part in zip(self.dims, block, strict=True)
        }
        mesh = dict(zip(self.dims, np.meshgrid(*along.values(), indexing="ij"), strict=True))
        return np.stack([mesh[name].ravel() for name in self.coordinates], axis=-1)


def parse_grid(text: str | None, posterior: xr.Dataset) -> MapGrid:
    """Return the grid that a text or a file describes.

    Parameters
    ----------
    text : str or None
        As in `predict`; None for a grid over the sites.
    posterior : Dataset

    Returns
    -------
    MapGrid

    Raises
    ------
    ConfigError
        The text or the file is invalid, or the grid is too large.
    """
    names = tuple(posterior.attrs["invgp_coordinates"].split())
    if text is not None and Path(text).suffix.lower() in FILES:
        return _read_grid_file(Path(text), posterior, names)
    extents = [(float(posterior[n].min()), float(posterior[n].max())) for n in names]
    axes = _parse_axes(text, names, extents)
    total = math.prod(len(axis) for axis in axes)
    if total > MOST_POINTS:
        raise ArgumentError(f"grid: must have at most {MOST_POINTS:,} points, had {total:,}")
    return _find_rectilinear_axes(posterior, names, axes)


def read_axis_letters(dataset: xr.Dataset, names: Sequence[str]) -> dict[str, str]:
    """Return X, Y or Z for each coordinate."""
    return axis_letters({name: dataset[name].attrs for name in names})


def _find_rectilinear_axes(posterior: xr.Dataset, names: tuple[str, ...], axes: Sequence[Floats]) -> MapGrid:
    letters = read_axis_letters(posterior, names)
    dims = tuple(sorted(names, key=lambda name: letters[name], reverse=True))
    return MapGrid(names, tuple(axes), None, dims)


def _parse_axes(text: str | None, names: tuple[str, ...], extents: Sequence[tuple[float, float]]) -> list[Floats]:
    if text is None:
        longest = max(stop - start for start, stop in extents)
        text = repr(_round_step(longest / POINTS_ALONG)) if longest > 0.0 else "1"
    if re.fullmatch(NUMBER, text.strip()):
        if not float(text) > 0.0:
            raise ArgumentError(f"grid: must be a step greater than 0, was {shorten(repr(text))}")
        return [_axis(f"::{text.strip()}", name, extent) for name, extent in zip(names, extents, strict=True)]
    parts = dict.fromkeys(names, "")
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        name, equals, what = part.partition("=")
        if not equals or name not in parts:
            raise ArgumentError(
                f"grid: must be a file ({', '.join(FILES)}), a step, or coordinates as in "
                f"{names[0]}=0:100:5, was {shorten(repr(text))}{suggest(name, names)}"
            )
        if parts[name]:
            raise ArgumentError(
                f"grid: must contain every coordinate once, contained {name!r} twice, was {shorten(repr(text))}"
            )
        parts[name] = what
    missing = [name for name, what in parts.items() if not what]
    if missing:
        raise ArgumentError(
            f"grid: must contain every coordinate, did not contain {', '.join(missing)}, was {shorten(repr(text))}"
        )
    return [_axis(parts[name], name, extent) for name, extent in zip(names, extents, strict=True)]


def _axis(text: str, name: str, extent: tuple[float, float]) -> Floats:
    """Return the values of ``start:stop:step``, or of one number."""
    if re.fullmatch(NUMBER, text):
        _check_range(name, float(text))
        return np.asarray([float(text)])
    match = re.fullmatch(rf"({NUMBER})?:({NUMBER})?:({NUMBER})", text)
    step = float(match[3]) if match else 0.0
    if match is None or not step > 0.0:
        raise ArgumentError(
            f"grid: must be {name}=start:stop:step with a step that is greater than 0, was {shorten(repr(text))}"
        )
    start = float(match[1]) if match[1] else math.floor(extent[0] / step + 1e-9) * step
    stop = float(match[2]) if match[2] else math.ceil(extent[1] / step - 1e-9) * step
    _check_range(name, start, stop, step)
    if stop < start:
        raise ArgumentError(f"grid: {name} must stop after it starts, was {start:g} to {stop:g}")
    count = (stop - start) / step + 1e-9
    if count > MOST_POINTS:
        raise ArgumentError(f"grid: must have at most {MOST_POINTS:,} points, had {count:.4g} along {name}")
    needed, free = BYTES_PER_POINT * count, psutil.virtual_memory().available
    if needed > free:
        raise ArgumentError(
            f"grid: must fit in memory, had {count:,.0f} points along {name}, which need {needed / 2**30:,.1f} GiB "
            f"of the {free / 2**30:,.1f} GiB that are free"
        )
    return np.asarray(start + step * np.arange(math.floor(count) + 1))


def _check_range(name: str, *values: float) -> None:
    """Raise `ConfigError` for numbers whose squared distances are too large for floating point."""
    if not all(abs(value) <= FARTHEST for value in values):
        raise ArgumentError(
            f"grid: {name} must be between -{FARTHEST:g} and {FARTHEST:g}, was {max(values, key=abs):g}"
        )


def _round_step(step: float) -> float:
    """Return the next round number."""
    scale = 10.0 ** math.floor(math.log10(step))
    return next(factor * scale for factor in ROUND if factor * scale >= step * (1.0 - 1e-9))


def _read_grid_file(path: Path, posterior: xr.Dataset, names: tuple[str, ...]) -> MapGrid:
    """Read points or axes from the columns of a CSV file, the variables of a netCDF file, or the cells of a mesh."""
    columns, on_axes, mesh = [], True, None
    letters = read_axis_letters(posterior, names)
    for name in names:
        table = read_table(path, name, "grid")
        mesh = table.mesh if isinstance(table, NetcdfTable) else None
        column = letters[name].lower() if mesh is not None and name not in table.names else name
        values = table.columns([column], posterior[name].attrs["units"], "grid")[:, 0]
        if mesh is not None and column == "z" and posterior[name].attrs.get("positive") == "down":
            values = -values  # z of a mesh points upwards
        if not np.all(np.isfinite(values)):
            raise ArgumentError(f"grid: {name!r} of {str(path)!r} must be a number at every point")
        _check_range(name, float(values.min()), float(values.max()))
        columns.append(values)
        on_axes &= isinstance(table, NetcdfTable) and mesh is None and table.dataset[name].dims == (name,)
    if on_axes:
        for name, values in zip(names, columns, strict=True):
            if not (np.all(np.diff(values) > 0.0) or np.all(np.diff(values) < 0.0)):
                raise ArgumentError(
                    f"grid: {name!r} of {str(path)!r} must increase or decrease from each value to the next"
                )
        return _find_rectilinear_axes(posterior, names, columns)
    if len({len(values) for values in columns}) > 1:
        raise ArgumentError(f"grid: {', '.join(names)} of {str(path)!r} must be axes of a grid, or a list of points")
    return MapGrid(names, None, np.stack(columns, axis=-1), ("site",), mesh)
