"""VTK: a rectilinear grid (.vtr), or points or the cells of a mesh (.vtu).

z is upwards, and is 0 without a vertical coordinate; a mesh is as it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from invgp.exporters.exported_fields import (
    import_extra,
    is_grid,
    point_dims,
    point_positions,
    select_variables,
    split_fields,
)
from invgp.files.meshes import mesh_of, write_vtu
from invgp.maps.grids import read_axis_letters
from invgp.problem import Floats


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file, with the suffix of its type instead of that of `path`.

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
        pyevtk, or for a mesh meshio, is missing.
    """
    found = list(split_fields(dataset, select_variables(dataset, variables)))
    mesh = mesh_of(dataset)
    if mesh is not None:
        cell_data = {field.name: np.asarray(field.values.values, dtype=np.float64) for field in found}
        write_vtu(mesh, cell_data, path.with_suffix(".vtu"))
        return [path.with_suffix(".vtu")]
    library = import_extra("pyevtk.hl", "vtk")
    at = point_positions(dataset)
    letters = {letter: name for name, letter in read_axis_letters(dataset, list(at)).items()}
    if not is_grid(dataset):
        size = len(next(iter(at.values())))
        x, y, z = (
            _as_height(dataset, letters.get(axis), at.get(letters.get(axis, ""), np.zeros(size))) for axis in "XYZ"
        )
        fields = {field.name: np.ascontiguousarray(field.values.values, dtype=np.float64) for field in found}
        library.pointsToVTK(str(path.with_suffix("")), x, y, z, data=fields)
        return [path.with_suffix(".vtu")]
    axes = [
        np.sort(
            _as_height(dataset, letters.get(axis), dataset[letters[axis]].values if axis in letters else np.zeros(1))
        )
        for axis in "XYZ"
    ]
    shape = tuple(len(axis) for axis in axes)
    fields = {}
    for field in found:
        ordered = field.values
        for dim in point_dims(dataset):
            ordered = ordered.sortby(dim, ascending=dataset[dim].attrs.get("positive") != "down")
        ordered = ordered.transpose(*(letters[axis] for axis in "XYZ" if axis in letters))
        fields[field.name] = np.asfortranarray(ordered.values.reshape(shape), dtype=np.float64)
    library.gridToVTK(str(path.with_suffix("")), *axes, pointData=fields)
    return [path.with_suffix(".vtr")]


def _as_height(dataset: xr.Dataset, name: str | None, values: Floats) -> Floats:
    """Return the values of a coordinate, with a depth as a negative height."""
    down = name is not None and dataset[name].attrs.get("positive") == "down"
    return np.ascontiguousarray(-values if down else values, dtype=np.float64)
