"""Unstructured meshes: cells of VTK and Gmsh files, and of netCDF files with the UGRID conventions.

A mesh has the cells of its highest dimension: volumes if there are any, otherwise faces. Cells of lower dimension, such
as the boundary lines that Gmsh writes, are ignored. Cells of second order keep their corners only.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Hashable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import ArgumentError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

READERS = {".vtu": "meshio.vtu", ".vtk": "meshio.vtk", ".msh": "meshio.gmsh"}
MESH_SUFFIXES = tuple(READERS)
UNREADABLE = (
    *(ParseError, AssertionError, AttributeError, EOFError, IndexError, KeyError, MemoryError, OverflowError),
    *(StopIteration, TypeError, ValueError, struct.error, zlib.error),
)
AXES = ("x", "y", "z")
MESH, CORNERS, TYPES, VERTEX = "mesh", "mesh_cells", "mesh_cell_type", "mesh_vertex"
UGRID = "UGRID-1.0"
FILL = -1  # in place of the last corners of cells that have fewer than others


class CellType(NamedTuple):
    """A type of cells: its number in VTK, its corners (0: any number), its dimension and its name in meshio."""

    number: int
    corners: int
    dimension: int
    name: str


CELL_TYPES = (
    CellType(5, 3, 2, "triangle"),
    CellType(7, 0, 2, "polygon"),
    CellType(9, 4, 2, "quad"),
    CellType(10, 4, 3, "tetra"),
    CellType(12, 8, 3, "hexahedron"),
    CellType(13, 6, 3, "wedge"),
    CellType(14, 5, 3, "pyramid"),
)
SECOND_ORDER = {
    **{"triangle6": "triangle", "triangle7": "triangle", "quad8": "quad", "quad9": "quad", "tetra10": "tetra"},
    **{"hexahedron20": "hexahedron", "hexahedron27": "hexahedron", "wedge15": "wedge", "pyramid13": "pyramid"},
}
LOWER = ("vertex", "line", "line3")
BY_NAME = {kind.name: kind for kind in CELL_TYPES}
BY_NUMBER = {kind.number: kind for kind in CELL_TYPES}
VOLUME_CORNERS = {kind.corners: kind for kind in CELL_TYPES if kind.dimension == 3}


class MeshError(Exception):
    """The file is not a mesh that can be used; the message states why."""


@dataclass(frozen=True)
class Mesh:
    """Cells of a mesh.

    Parameters
    ----------
    vertices : array, shape (V, 3)
        Coordinates as in the file; 0 for a coordinate that the file does not have.
    cells : array of int, shape (C, K)
        Vertices of each cell, counted from 0, in the order of VTK; -1 after the last corner of a cell.
    types : array of int, shape (C,)
        Number of the type of each cell in VTK: 5 triangle, 7 polygon, 9 quadrilateral, 10 tetrahedron, 12
        hexahedron, 13 wedge, 14 pyramid.
    units : tuple of str
        Units of x, y and z; empty if the file has none.
    """

    vertices: Floats
    cells: Integers
    types: Integers
    units: tuple[str, ...] = ("", "", "")

    def __post_init__(self) -> None:
        if self.cells.size and (self.cells.min() < FILL or self.cells.max() >= len(self.vertices)):
            raise MeshError("a cell has a corner that is not a vertex of the mesh")
        found = sorted({int(number) for number in self.types})
        if any(number not in BY_NUMBER for number in found):
            raise MeshError(f"its cells must be triangles, polygons, tetrahedra or the like, were of the types {found}")
        if len({BY_NUMBER[number].dimension for number in found}) != 1:
            raise MeshError("its cells must be all faces or all volumes")
        if np.any(self.corner_counts < 3) or not np.all(np.isfinite(self.vertices)):
            raise MeshError("a cell has fewer than three corners, or a vertex is not finite")

    @property
    def corner_counts(self) -> Integers:
        """Number of corners of each cell, shape (C,)."""
        return np.asarray(np.sum(self.cells != FILL, axis=1), dtype=np.int64)

    @property
    def dimension(self) -> int:
        """Dimension of the cells: 2 for faces, 3 for volumes."""
        return BY_NUMBER[int(self.types[0])].dimension

    @property
    def centres(self) -> Floats:
        """Mean of the corners of each cell, shape (C, 3)."""
        inside = (self.cells != FILL)[..., None]
        sums = np.sum(np.where(inside, self.vertices[self.cells], 0.0), axis=1)
        return np.asarray(sums / self.corner_counts[:, None])

    def select(self, chosen: NDArray[np.bool_]) -> Mesh:
        """Return the mesh of some cells, with all vertices.

        Parameters
        ----------
        chosen : array of bool, shape (C,)
        """
        return replace(self, cells=self.cells[chosen], types=self.types[chosen])


def read_mesh(file: Path) -> tuple[Mesh, xr.Dataset]:
    """Read a VTK or Gmsh file.

    Parameters
    ----------
    file : Path
        With one of `MESH_SUFFIXES`.

    Returns
    -------
    mesh : Mesh
    table : Dataset
        Along ``cell``: ``x``, ``y`` and ``z`` of the centres of the cells, and the data of the cells.

    Raises
    ------
    MeshError
        The file cannot be read, or has no cells that are faces or volumes.
    ArgumentError
        meshio is not installed.
    """
    meshio = import_meshio(f"a mesh in a {file.suffix} file")
    try:
        found = import_module(READERS[file.suffix.lower()]).read(str(file))
        return _convert(found)
    except (meshio.ReadError, *UNREADABLE) as error:
        raise MeshError(str(error) or "it is damaged") from error


def import_meshio(purpose: str) -> Any:
    """Return the library meshio, or raise `ArgumentError` if it is not installed."""
    try:
        return import_module("meshio")
    except ImportError:
        raise ArgumentError(f"{purpose} needs meshio, which is not installed: pip install 'invgp[mesh]'") from None


def _convert(found: Any) -> tuple[Mesh, xr.Dataset]:
    """Return the cells and cell data of a mesh of meshio."""
    blocks = []
    for k, block in enumerate(found.cells):
        name = SECOND_ORDER.get(block.type, block.type)
        if name in BY_NAME:
            blocks.append((k, BY_NAME[name], [np.asarray(cell, dtype=np.int64) for cell in block.data]))
        elif name not in LOWER:
            raise MeshError(f"its cells must be triangles, polygons, tetrahedra or the like, were {name!r}")
    if not blocks:
        raise MeshError("it has no cells that are faces or volumes")
    dimension = max(kind.dimension for _, kind, _ in blocks)
    blocks = [block for block in blocks if block[1].dimension == dimension]
    corners = [[cell[: kind.corners or None] for cell in cells] for _, kind, cells in blocks]
    most = max((len(cell) for cells in corners for cell in cells), default=0)
    padded = [np.pad(cell, (0, most - len(cell)), constant_values=FILL) for cells in corners for cell in cells]
    if not padded:
        raise MeshError("it has no cells that are faces or volumes")
    types = np.concatenate([np.full(len(cells), kind.number) for _, kind, cells in blocks])
    vertices = np.zeros((len(found.points), len(AXES)))
    vertices[:, : found.points.shape[1]] = found.points
    mesh = Mesh(vertices, np.stack(padded), types)
    data = {
        str(name): np.concatenate([np.asarray(values[k]) for k, _, _ in blocks])
        for name, values in found.cell_data.items()
    }
    return mesh, _tabulate(mesh, data, {})


def _tabulate(mesh: Mesh, data: dict[str, NDArray[Any]], units: dict[str, str]) -> xr.Dataset:
    """Return the centres and the data of the cells along ``cell``."""
    columns: dict[Hashable, xr.Variable] = {}
    units = units | {axis: unit for axis, unit in zip(AXES, mesh.units, strict=True) if unit}
    for name, values in (*data.items(), *zip(AXES, mesh.centres.T, strict=True)):
        flat = values.reshape(len(mesh.cells), -1)
        dims, table = (("cell",), flat[:, 0]) if flat.shape[1] == 1 else (("cell", f"{name}_component"), flat)
        columns[name] = xr.Variable(dims, table, {"units": units[name]} if name in units else {})
    return xr.Dataset(columns)


def find_topology(dataset: xr.Dataset) -> str | None:
    """Return the name of the variable of a dataset that describes a mesh of faces or volumes; None without one."""
    for name, variable in dataset.variables.items():
        about = variable.attrs
        if about.get("cf_role") == "mesh_topology" and about.get("topology_dimension") in (2, 3):
            return str(name)
    return None


def mesh_of(dataset: xr.Dataset) -> Mesh | None:
    """Return the mesh that a dataset describes with the UGRID conventions.

    Parameters
    ----------
    dataset : Dataset
        As opened by xarray, with or without decoded fill values.

    Returns
    -------
    Mesh or None
        None if there is none.

    Raises
    ------
    MeshError
        The description is incomplete.
    """
    name = find_topology(dataset)
    if name is None:
        return None
    about = dataset[name].attrs
    volumes = about["topology_dimension"] == 3
    try:
        axes = [dataset[axis] for axis in _node_coordinates(dataset, name)]
        connectivity = dataset[about[_connectivity_key(volumes)]]
    except KeyError as error:
        raise MeshError(f"the mesh {name!r} lacks {error}") from error
    first = connectivity.dims[0]
    if about.get("volume_dimension" if volumes else "face_dimension", first) != first:
        connectivity = connectivity.transpose()
    values = np.asarray(connectivity.values)
    fill = connectivity.attrs.get("_FillValue", connectivity.encoding.get("_FillValue"))
    start = int(connectivity.attrs.get("start_index", 0))
    unused = ~np.isfinite(values) if values.dtype.kind == "f" else values < start
    if fill is not None:
        unused |= values == fill
    cells = np.where(unused, FILL, np.nan_to_num(values).astype(np.int64) - start)
    vertices = np.zeros((axes[0].size, len(AXES)))
    for d, axis in enumerate(axes[: len(AXES)]):
        vertices[:, d] = axis.values
    if TYPES in dataset and dataset[TYPES].shape == cells.shape[:1]:
        types = dataset[TYPES].values.astype(np.int64)
    else:
        types = _types_of(np.sum(cells != FILL, axis=1), volumes=volumes)
    units = [str(axis.attrs.get("units", "")) for axis in axes[: len(AXES)]]
    return Mesh(vertices, cells, types, (*units, *[""] * (len(AXES) - len(units))))


def _connectivity_key(volumes: bool) -> str:
    return "volume_node_connectivity" if volumes else "face_node_connectivity"


def _node_coordinates(dataset: xr.Dataset, name: str) -> list[str]:
    """Return the names of x, y and, if there is one, z of the vertices; that of faces is data of the vertices."""
    names = str(dataset[name].attrs["node_coordinates"]).split()
    heights = [
        str(other)
        for other, variable in dataset.variables.items()
        if {"mesh": name, "location": "node", "standard_name": "altitude"}.items() <= variable.attrs.items()
    ]
    return [*names, *heights[:1]] if len(names) == 2 else names


def _types_of(corners: Integers, *, volumes: bool) -> Integers:
    """Return the types of cells from their numbers of corners."""
    if volumes:
        unknown = sorted({int(n) for n in corners} - {*VOLUME_CORNERS})
        if unknown:
            raise MeshError(f"its volumes must have 4, 5, 6 or 8 corners, had {unknown[0]}")
        return np.asarray([VOLUME_CORNERS[int(n)].number for n in corners], dtype=np.int64)
    return np.asarray([{3: 5, 4: 9}.get(int(n), 7) for n in corners], dtype=np.int64)


def tabulate_topology(dataset: xr.Dataset) -> tuple[Mesh, xr.Dataset]:
    """Return the mesh of a UGRID dataset and its data per cell; see `read_mesh`.

    Parameters
    ----------
    dataset : Dataset
        For which `find_topology` finds a mesh.

    Raises
    ------
    MeshError
        The description of the mesh is incomplete.
    """
    name = find_topology(dataset)
    mesh = mesh_of(dataset)
    if name is None or mesh is None:
        raise MeshError("it describes no mesh of faces or volumes")
    about = dataset[name].attrs
    cells = dataset[about[_connectivity_key(mesh.dimension == 3)]]
    along = about.get("volume_dimension" if mesh.dimension == 3 else "face_dimension", cells.dims[0])
    data, units = {}, {}
    for other, variable in dataset.variables.items():
        if variable.dims[:1] == (along,) and other != cells.name:
            data[str(other)] = variable.values
            if "units" in variable.attrs:
                units[str(other)] = str(variable.attrs["units"])
    return mesh, _tabulate(mesh, data, units)


def mesh_variables(mesh: Mesh, along: str) -> dict[str, xr.DataArray]:
    """Return the variables that describe a mesh with the UGRID conventions.

    Parameters
    ----------
    mesh : Mesh
    along : str
        Dimension of the cells in the dataset.

    Returns
    -------
    dict of str to DataArray
    """
    volumes = mesh.dimension == 3
    kind = "volume" if volumes else "face"
    used = AXES if volumes or np.any(mesh.vertices[:, 2]) else AXES[:2]
    about = {
        "cf_role": "mesh_topology",
        "long_name": "mesh whose cells are the points of the latents",
        "topology_dimension": np.int32(mesh.dimension),
        "node_coordinates": " ".join(f"mesh_{axis}" for axis in (AXES if volumes else AXES[:2])),
        _connectivity_key(volumes): CORNERS,
        f"{kind}_dimension": along,
        **({"volume_shape_type": TYPES} if volumes else {}),
    }
    found = {MESH: xr.DataArray(np.int32(0), attrs=about)}
    for d, axis in enumerate(used):
        attributes = {"long_name": f"{axis} of the vertices of the mesh", "units": mesh.units[d] or "1"}
        if d == 2 and not volumes:
            attributes |= {"mesh": MESH, "location": "node", "standard_name": "altitude"}
        found[f"mesh_{axis}"] = xr.DataArray(mesh.vertices[:, d], dims=(VERTEX,), attrs=attributes)
    corners = {"cf_role": _connectivity_key(volumes), "long_name": "vertices of each cell", "start_index": np.int32(0)}
    found[CORNERS] = xr.DataArray(mesh.cells.astype(np.int32), dims=(along, "mesh_corner"), attrs=corners)
    found[CORNERS].encoding["_FillValue"] = np.int32(FILL)
    known = [kind for kind in CELL_TYPES if kind.dimension == mesh.dimension]
    types = {
        "long_name": "type of the cell, as in VTK",
        "flag_values": np.asarray([kind.number for kind in known], dtype=np.int32),
        "flag_meanings": " ".join(kind.name for kind in known),
    }
    found[TYPES] = xr.DataArray(mesh.types.astype(np.int32), dims=(along,), attrs=types)
    return found


def add_mesh(dataset: xr.Dataset, mesh: Mesh, along: str) -> xr.Dataset:
    """Return a dataset with the description of a mesh, to which its variables refer as UGRID requires.

    Parameters
    ----------
    dataset : Dataset
    mesh : Mesh
    along : str
        Dimension of the cells in the dataset.
    """
    conventions = f"{dataset.attrs.get('Conventions', 'CF-1.11')} {UGRID}"
    found = dataset.assign(mesh_variables(mesh, along)).assign_attrs(Conventions=conventions)
    for name, variable in dataset.data_vars.items():
        if along in variable.dims:
            found[name].attrs |= cell_attributes(mesh)
    # QGIS reads no integers of 64 bits, and then refuses the file.
    long = [name for name, variable in found.variables.items() if along in variable.dims and variable.dtype == np.int64]
    return found.assign({name: found[name].astype(np.int32) for name in long})


def cell_attributes(mesh: Mesh) -> dict[str, str]:
    """Return the attributes of a variable with one value per cell."""
    return {"mesh": MESH, "location": "volume" if mesh.dimension == 3 else "face"}


def write_vtu(mesh: Mesh, data: dict[str, Floats], path: Path) -> None:
    """Write a mesh with numbers per cell as a VTK file.

    Parameters
    ----------
    mesh : Mesh
    data : dict of str to array, shape (C,)
    path : Path

    Raises
    ------
    ArgumentError
        meshio is not installed.
    """
    meshio = import_meshio("a mesh in a .vtu file")
    # meshio writes cells in blocks of one type and number of corners. The order of the cells stays that of the mesh.
    counts = mesh.corner_counts
    changes = np.flatnonzero((np.diff(mesh.types) != 0) | (np.diff(counts) != 0)) + 1
    blocks = np.split(np.arange(len(mesh.cells)), changes)
    cells = [(BY_NUMBER[int(mesh.types[b[0]])].name, mesh.cells[b, : counts[b[0]]]) for b in blocks]
    by_block = {name: [values[b] for b in blocks] for name, values in data.items()}
    meshio.vtu.write(str(path), meshio.Mesh(mesh.vertices, cells, cell_data=by_block), binary=True)
