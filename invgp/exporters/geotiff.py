"""GeoTIFF: one band per field and label; the first row is the northernmost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from pyproj import CRS

from invgp.errors import ArgumentError
from invgp.exporters.exported_fields import import_extra, is_grid, point_dims, select_variables, split_fields
from invgp.maps.grids import read_axis_letters

EVEN = 1e-6  # tolerance of equal steps, as a fraction of a step


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.
    path : Path
        File to write.
    variables : sequence of str
        Variables to write; by default the mean and the standard deviation of every quantity.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ArgumentError
        The dataset is not on an evenly spaced horizontal grid, or rasterio is missing.
    """
    x, y = _horizontal_axes(dataset)
    rasterio = import_extra("rasterio", "geotiff")
    names = select_variables(dataset, variables, ("", "_std"))
    bands = []
    for field in split_fields(dataset, names):
        above = [str(d) for d in field.values.dims if d not in (x, y)]
        if not above:
            bands.append((field.text, field.unit, field.values))
            continue
        for height in dataset[above[0]].values:
            text = f"{field.text}, {above[0]} {height:g} {dataset[above[0]].attrs.get('units', '')}".rstrip()
            bands.append((text, field.unit, field.values.sel({above[0]: height})))
    (left, step_x), (bottom, step_y) = _first_edge(dataset, x), _first_edge(dataset, y)
    height, width = dataset.sizes[y], dataset.sizes[x]
    top = bottom + step_y * height
    # In memory first, because GDAL reports no error for a file that it cannot write completely.
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
                from_north = values.sortby(x).sortby(y, ascending=False).transpose(y, x)
                file.write(from_north.values, number)
                file.set_band_description(number, text)
                file.set_band_unit(number, unit)
        path.write_bytes(memory.getbuffer())
    return [path]


def _horizontal_axes(dataset: xr.Dataset) -> tuple[str, str]:
    """Return the coordinates along the columns and the rows."""
    dims = point_dims(dataset) if is_grid(dataset) else ()
    letters = {letter: name for name, letter in read_axis_letters(dataset, dims).items()}
    if not {"X", "Y"} <= set(letters):
        raise ArgumentError(
            "format: geotiff needs a map on a grid of two horizontal coordinates (`invgp predict --grid`)"
        )
    return letters["X"], letters["Y"]


def _first_edge(dataset: xr.Dataset, name: str) -> tuple[float, float]:
    """Return the lower edge of the first cell along a coordinate, and the step."""
    values = np.sort(dataset[name].values)
    steps = np.diff(values)
    if not steps.size or np.ptp(steps) > EVEN * steps[0]:
        raise ArgumentError(f"format: geotiff needs two or more evenly spaced values of {name!r}")
    step = float((values[-1] - values[0]) / steps.size)
    return float(values[0]) - 0.5 * step, step
