"""VTK: a rectilinear grid (.vtr), or points (.vtu); x, y and z upwards, what has no height lies at 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from invgp.exporters.layers import chosen, is_grid, layers, needed, point_dims, positions
from invgp.maps.grids import read_axis_letters
from invgp.problem import Floats


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file; its ending says what it holds, whatever `path` ends in."""
    library = needed("pyevtk.hl", "vtk")
    found = list(layers(dataset, chosen(dataset, variables)))
    at = positions(dataset)
    letters = {letter: name for name, letter in read_axis_letters(dataset, list(at)).items()}
    if not is_grid(dataset):
        size = len(next(iter(at.values())))
        x, y, z = (
            _upwards(dataset, letters.get(axis), at.get(letters.get(axis, ""), np.zeros(size))) for axis in "XYZ"
        )
        fields = {layer.name: np.ascontiguousarray(layer.values.values, dtype=np.float64) for layer in found}
        library.pointsToVTK(str(path.with_suffix("")), x, y, z, data=fields)
        return [path.with_suffix(".vtu")]
    axes = [
        np.sort(_upwards(dataset, letters.get(axis), dataset[letters[axis]].values if axis in letters else np.zeros(1)))
        for axis in "XYZ"
    ]
    shape = tuple(len(axis) for axis in axes)
    fields = {}
    for layer in found:
        ordered = layer.values
        for dim in point_dims(dataset):
            ordered = ordered.sortby(dim, ascending=dataset[dim].attrs.get("positive") != "down")
        ordered = ordered.transpose(*(letters[axis] for axis in "XYZ" if axis in letters))
        fields[layer.name] = np.asfortranarray(ordered.values.reshape(shape), dtype=np.float64)
    library.gridToVTK(str(path.with_suffix("")), *axes, pointData=fields)
    return [path.with_suffix(".vtr")]


def _upwards(dataset: xr.Dataset, name: str | None, values: Floats) -> Floats:
    """A depth as a height."""
    down = name is not None and dataset[name].attrs.get("positive") == "down"
    return np.ascontiguousarray(-values if down else values, dtype=np.float64)
