"""GeoTIFF: a band a layer, north up, so that the first row is the northernmost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from pyproj import CRS

from invgp.errors import ArgumentError
from invgp.exporters.layers import chosen, is_grid, layers, needed, point_dims
from invgp.maps.grids import read_axis_letters

EVEN = 1e-6  # of a step


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file; by default mean and standard deviation of every quantity."""
    x, y = _plane(dataset)
    rasterio = needed("rasterio", "geotiff")
    names = chosen(dataset, variables, ("", "_std"))
    bands = []
    for layer in layers(dataset, names):
        above = [str(d) for d in layer.values.dims if d not in (x, y)]
        if not above:
            bands.append((layer.text, layer.unit, layer.values))
            continue
        for height in dataset[above[0]].values:
            text = f"{layer.text}, {above[0]} {height:g} {dataset[above[0]].attrs.get('units', '')}".rstrip()
            bands.append((text, layer.unit, layer.values.sel({above[0]: height})))
    (left, step_x), (bottom, step_y) = _corner(dataset, x), _corner(dataset, y)
    height, width = dataset.sizes[y], dataset.sizes[x]
    top = bottom + step_y * height
    # In memory first: GDAL reports no error for a file that it cannot write to the end.
    with rasterio.MemoryFile() as memory:
        with memory.open(
            driver="GTiff",
            width=width,
            height=height,
            count=len(bands),
            dtype="float64",
            nodata=np.nan,
            compress="deflate",
            crs=CRS.from_cf(dataset["crs"].attrs).to_wkt() if "crs" in dataset else None,
            transform=rasterio.Affine(step_x, 0.0, left, 0.0, -step_y, top),
        ) as file:
            for number, (text, unit, values) in enumerate(bands, start=1):
                from_the_top = values.sortby(x).sortby(y, ascending=False).transpose(y, x)
                file.write(from_the_top.values, number)
                file.set_band_description(number, text)
                file.set_band_unit(number, unit)
        path.write_bytes(memory.getbuffer())
    return [path]


def _plane(dataset: xr.Dataset) -> tuple[str, str]:
    """The coordinates that are the columns and the rows."""
    dims = point_dims(dataset) if is_grid(dataset) else ()
    letters = {letter: name for name, letter in read_axis_letters(dataset, dims).items()}
    if not {"X", "Y"} <= set(letters):
        raise ArgumentError(
            "format: geotiff needs a map on a grid of two horizontal coordinates (`invgp predict --grid`)"
        )
    return letters["X"], letters["Y"]


def _corner(dataset: xr.Dataset, name: str) -> tuple[float, float]:
    """The lower edge of the first cell along a coordinate, and the step."""
    values = np.sort(dataset[name].values)
    steps = np.diff(values)
    if not steps.size or np.ptp(steps) > EVEN * steps[0]:
        raise ArgumentError(f"format: geotiff needs two or more evenly spaced values of {name!r}")
    step = float((values[-1] - values[0]) / steps.size)
    return float(values[0]) - 0.5 * step, step
