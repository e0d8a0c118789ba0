"""Grids as surveys: what `invgp predict` writes on a line, a map or in a volume, in the shape of a survey's sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.errors import PlotError
from invgp.maps.nodes import as_map
from invgp.plots.labels import quantity_name
from invgp.plots.reading import read_names


class Grid(NamedTuple):
    """The dimensions of a grid, slowest first, with their sizes."""

    dimensions: tuple[str, ...]
    shape: tuple[int, ...]


def read_grid(ds: xr.Dataset) -> Grid | None:
    """The grid of a dataset, or None for sites or points in a list."""
    coordinates = str(ds.attrs.get("invgp_coordinates", "")).split()
    if "site" in ds.dims or not coordinates or not all(name in ds.dims for name in coordinates):
        return None
    along = tuple(str(d) for d in ds[read_names(ds, "latents")[0]].dims if d in coordinates)
    return Grid(along, tuple(ds.sizes[d] for d in along))


def read_shape(grid: Grid, across: str, up: str) -> tuple[int, int]:
    """The shape of a map of this grid, after `as_sites`: rows up, columns across."""
    if grid.dimensions != (up, across):
        raise PlotError(f"A map needs a grid along {up}, {across}, but this one is along {', '.join(grid.dimensions)}.")
    return grid.shape[0], grid.shape[1]


def cut(ds: xr.Dataset, at: Mapping[str, float]) -> xr.Dataset:
    """The slice of a grid nearest to these values of its coordinates."""
    if not at:
        return ds
    ds = as_map(ds)
    grid = read_grid(ds)
    if grid is None:
        raise PlotError("--at: must be left out: only a grid can be cut, and these are sites")
    for name, value in at.items():
        if name not in grid.dimensions:
            raise PlotError(f"--at: must name one of {', '.join(grid.dimensions)}, was {name!r}")
        if not np.isfinite(value):
            raise PlotError(f"--at: must be a number, was {value} for {name!r}")
    if set(at) == set(grid.dimensions):
        raise PlotError(f"--at: must leave a coordinate to draw along, was all of {', '.join(grid.dimensions)}")
    ds = ds.sel(dict(at), method="nearest")
    kept = [name for name in str(ds.attrs["invgp_coordinates"]).split() if name not in at]
    return ds.assign_attrs(invgp_coordinates=" ".join(kept))


def cut_in_the_middle(ds: xr.Dataset, names: Sequence[str]) -> tuple[xr.Dataset, list[str]]:
    """The slice of a grid through the middle of these coordinates, and a sentence for each."""
    notes = []
    for name in names:
        values = ds[name].values
        middle = float(np.sort(values)[len(values) // 2])
        place = f"{quantity_name(ds[name])} {middle:g} {ds[name].attrs.get('units', '')}".rstrip()
        notes.append(f"Cut at {place}; --at {name} VALUE cuts elsewhere.")
        ds = cut(ds, {name: middle})
    return ds, notes


def as_sites(ds: xr.Dataset) -> xr.Dataset:
    """The dataset with one dimension `site` in the place of its grid's, the last of which runs fastest."""
    grid = read_grid(ds)
    if grid is None:
        return ds
    fields = [name for name, array in ds.data_vars.items() if set(grid.dimensions) <= set(array.dims)]
    ds = ds[fields].stack(site=grid.dimensions).reset_index("site")
    return ds.assign_coords(site=np.arange(1, ds.sizes["site"] + 1))
