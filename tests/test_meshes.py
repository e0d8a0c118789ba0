"""Meshes: VTK, Gmsh and UGRID files as grids of field models, for predictions, exports and figures."""

from __future__ import annotations

import meshio
import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PolyCollection

import invgp
from helpers.command_line import run_in_process
from invgp.config.survey_tables import read_table
from invgp.errors import ConfigError
from invgp.files.meshes import Mesh, MeshError, add_mesh, mesh_of, mesh_variables, read_mesh, write_vtu
from invgp.plots import plot_map

POINTS = np.array(
    [[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [4.0, 0.0, 0.0], [0.0, 2.0, 0.0], [2.0, 2.0, 0.0], [4.0, 2.0, 0.0]]
)
TRIANGLES = np.array([[0, 1, 4], [0, 4, 3]])
QUADS = np.array([[1, 2, 5, 4]])
SIMULATOR = """
def values(conductivity):
    return conductivity @ [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
"""
CONFIG = """
version = 1
title = "Averages of cells"
[survey]
file = "sites.csv"
[survey.coordinates.distance]
unit = "m"
[survey.observations.value]
columns = ["value"]
unit = "1"
[grid]
file = "{grid}"
{active}
[grid.coordinates.easting]
column = "x"
unit = "m"
[grid.coordinates.northing]
column = "y"
unit = "m"
[latents.conductivity]
unit = "1"
mean = 1.0
std = 0.5
kernel = {{ kind = "matern 5/2", length_scale = 3.0 }}
[forward]
kind = "field"
adapter = "callable"
function = "simulator:values"
inputs = ["conductivity"]
outputs = ["value"]
vectorised = true
[noise]
std.value = 0.05
"""


def faces() -> meshio.Mesh:
    """Two triangles and a quadrilateral, with a boundary line as Gmsh writes them and one number per cell."""
    cells = [("line", np.array([[0, 1]])), ("triangle", TRIANGLES), ("quad", QUADS)]
    return meshio.Mesh(
        POINTS.copy(), cells, cell_data={"zone": [np.array([9.0]), np.array([1.0, 0.1]), np.array([1 / 3])]}
    )


def volumes() -> meshio.Mesh:
    """A hexahedron below a wedge: a layer with topography."""
    base = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=float)
    points = np.concatenate(
        [np.c_[base, np.zeros(4)], np.c_[base, [1.0, 1.0, 1.2, 1.2]], [[0.5, 0, 2.0], [0.5, 1, 2.1]]]
    )
    cells = [("hexahedron", np.arange(8)[None]), ("wedge", np.array([[4, 5, 8, 7, 6, 9]]))]
    return meshio.Mesh(points, cells)


def project(folder, grid="mesh.vtu", active=""):
    """Write a linear field model of three cells."""
    (folder / "simulator.py").write_text(SIMULATOR)
    (folder / "survey.toml").write_text(CONFIG.format(grid=grid, active=active))
    (folder / "sites.csv").write_text("distance,value\n0,1.3\n1,0.8\n")
    meshio.vtu.write(folder / "mesh.vtu", faces())
    return folder / "survey.toml"


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_that_the_cells_of_a_file_are_read_in_its_order_with_their_data(tmp_path, suffix):
    {".vtu": meshio.vtu, ".vtk": meshio.vtk}[suffix].write(tmp_path / f"mesh{suffix}", faces())
    mesh, table = read_mesh(tmp_path / f"mesh{suffix}")
    assert mesh.cells.tolist() == [[0, 1, 4, -1], [0, 4, 3, -1], [1, 2, 5, 4]]
    assert mesh.types.tolist() == [5, 5, 9]
    np.testing.assert_allclose(table["x"], [4 / 3, 2 / 3, 3.0], rtol=1e-15)
    np.testing.assert_array_equal(table["zone"], [1.0, 0.1, 1 / 3])


def test_that_cells_of_gmsh_are_read_without_the_lines_of_its_boundary(tmp_path):
    nodes = [f"{i + 1} {x} {y} {z}" for i, (x, y, z) in enumerate(POINTS)]
    elements = ["1 1 2 7 1 1 2", "2 2 2 8 1 1 2 5", "3 2 2 8 1 1 5 4", "4 3 2 9 2 2 3 6 5"]
    lines = ["$MeshFormat", "2.2 0 8", "$EndMeshFormat", "$Nodes", "6", *nodes, "$EndNodes"]
    lines += ["$Elements", "4", *elements, "$EndElements", ""]
    (tmp_path / "mesh.msh").write_text("\n".join(lines))
    mesh, table = read_mesh(tmp_path / "mesh.msh")
    assert mesh.cells.tolist() == [[0, 1, 4, -1], [0, 4, 3, -1], [1, 2, 5, 4]]
    assert table["gmsh:physical"].values.tolist() == [8, 8, 9]


@pytest.mark.parametrize("made", [faces, volumes])
def test_that_a_mesh_survives_netcdf_and_vtk_exactly(tmp_path, made):
    meshio.vtu.write(tmp_path / "mesh.vtu", made())
    mesh, _ = read_mesh(tmp_path / "mesh.vtu")
    dataset = xr.Dataset(mesh_variables(mesh, "node"))
    dataset.to_netcdf(tmp_path / "ugrid.nc")
    with xr.open_dataset(tmp_path / "ugrid.nc") as opened:
        back = mesh_of(opened)
    values = np.random.default_rng(1).normal(size=len(mesh.cells))
    write_vtu(mesh, {"value": values}, tmp_path / "again.vtu")
    again, table = read_mesh(tmp_path / "again.vtu")
    for other in (back, again):
        np.testing.assert_array_equal(other.vertices, mesh.vertices)
        np.testing.assert_array_equal(other.cells, mesh.cells)
        np.testing.assert_array_equal(other.types, mesh.types)
    np.testing.assert_array_equal(table["value"], values)


def test_that_ugrid_files_of_others_are_understood(tmp_path):
    """Counted from 1, with another fill value and a transposed table, as the conventions allow."""
    cells = xr.DataArray(
        np.array([[1, 2, 5, 999999], [2, 3, 6, 5]], dtype=np.int32).T,
        dims=("corner", "face"),
        attrs={"cf_role": "face_node_connectivity", "start_index": 1, "_FillValue": np.int32(999999)},
    )
    topology = {
        "cf_role": "mesh_topology",
        "topology_dimension": 2,
        "node_coordinates": "lon lat",
        "face_node_connectivity": "faces",
        "face_dimension": "face",
    }
    xr.Dataset(
        {
            "topology": ((), 0, topology),
            "faces": cells,
            "lon": (("vertex",), POINTS[:, 0] / 1000.0, {"units": "km"}),
            "lat": (("vertex",), POINTS[:, 1] / 1000.0, {"units": "km"}),
            "zone": (("face",), [3.0, 4.0]),
        }
    ).to_netcdf(tmp_path / "mesh.nc")

    table = read_table(tmp_path / "mesh.nc", "x", "grid.file")
    assert table.mesh.cells.tolist() == [[0, 1, 4, -1], [1, 2, 5, 4]]
    np.testing.assert_allclose(table.columns(["x"], "m", "key")[:, 0], [4 / 3, 3.0])
    assert table.columns(["zone"], "1", "key")[:, 0].tolist() == [3.0, 4.0]


def test_that_the_posterior_on_a_mesh_is_that_at_the_centres_of_its_cells(tmp_path):
    on_mesh = invgp.invert(invgp.load(project(tmp_path)))
    centres = read_mesh(tmp_path / "mesh.vtu")[1]
    rows = [f"{x!r},{y!r}" for x, y in zip(centres["x"].values.tolist(), centres["y"].values.tolist(), strict=True)]
    (tmp_path / "nodes.csv").write_text("\n".join(["x,y", *rows]))
    at_points = invgp.invert(invgp.load(project(tmp_path, "nodes.csv")))
    np.testing.assert_array_equal(on_mesh["conductivity"], at_points["conductivity"])
    np.testing.assert_array_equal(on_mesh["conductivity_std"], at_points["conductivity_std"])
    assert on_mesh.attrs["Conventions"].endswith("UGRID-1.0")
    assert on_mesh["conductivity"].attrs["location"] == "face"
    assert "mesh" not in at_points


def test_that_inactive_cells_are_left_out(tmp_path):
    simulator = "def values(conductivity):\n    return conductivity @ [[1.0, 0.0], [0.0, 1.0]]\n"
    config = project(tmp_path, active='active = "zone"')
    (tmp_path / "simulator.py").write_text(simulator)
    mesh = faces()
    mesh.cell_data["zone"][1] = np.array([1.0, 0.0])
    meshio.vtu.write(tmp_path / "mesh.vtu", mesh)
    posterior = invgp.invert(invgp.load(config))
    assert posterior.sizes["node"] == 2
    assert mesh_of(posterior).cells.tolist() == [[0, 1, 4, -1], [1, 2, 5, 4]]


def test_that_values_of_cells_pass_through_files_commands_and_figures(tmp_path):
    project(tmp_path)
    for words in (
        "run survey.toml -o p.nc",
        "export p.nc --format vtk -o p.vtu",
        "predict p.nc --grid mesh.vtu -o map.nc",
        "export map.nc --format vtk -o map.vtu",
    ):
        result = run_in_process(*words.split(), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    dataset = invgp.open_posterior(tmp_path / "p.nc")
    for file in ("p.vtu", "map.vtu"):
        mesh, table = read_mesh(tmp_path / file)
        assert mesh.cells.tolist() == mesh_of(dataset).cells.tolist()
        np.testing.assert_allclose(table["conductivity"], dataset["conductivity"], rtol=1e-9)
    np.testing.assert_array_equal(read_mesh(tmp_path / "p.vtu")[1]["conductivity_std"], dataset["conductivity_std"])
    figure = plot_map(dataset, show="mean")
    (cells,) = (c for axes in figure.axes for c in axes.collections if isinstance(c, PolyCollection))
    np.testing.assert_allclose(cells.get_paths()[2].vertices[:4], POINTS[QUADS[0], :2], atol=1e-12)


def test_that_z_of_a_mesh_is_a_height(tmp_path):
    config = project(tmp_path)
    text = config.read_text().replace('column = "y"\nunit = "m"', 'column = "z"\nunit = "m"\npositive = "down"')
    config.write_text(text)
    mesh = faces()
    mesh.points[:, 2] = [0.0, 0.0, 3.0, 0.0, 0.0, 3.0]
    meshio.vtu.write(tmp_path / "mesh.vtu", mesh)
    assert invgp.load(config).grid.X[:, 1].tolist() == [0.0, 0.0, -1.5]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is damaged|no element"),
        (b"<VTKFile type='UnstructuredGrid'", "unclosed|damaged"),
        (b"not a mesh", "syntax error|damaged"),
        (b"<VTKFile type='PolyData' version='0.1'></VTKFile>", "."),
    ],
)
def test_that_a_damaged_mesh_gets_a_sentence(tmp_path, content, reason):
    config = project(tmp_path)
    (tmp_path / "mesh.vtu").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"grid.file: must be a mesh file of nodes, was .*mesh.vtu.*({reason})"):
        invgp.load(config)


@pytest.mark.parametrize(
    ("active", "sentence"),
    [
        ('active = "none"', "grid.active: must be a variable of mesh.vtu, which has no variable 'none'"),
        ('active = "z"', "grid.active: must be other than 0 at one node or more, column 'z' is nowhere"),
    ],
)
def test_that_a_wrong_column_of_active_cells_gets_a_sentence(tmp_path, active, sentence):
    with pytest.raises(ConfigError, match=sentence):
        invgp.load(project(tmp_path, active=active))


def test_that_a_mesh_with_wrong_cells_is_refused():
    with pytest.raises(MeshError, match="corner that is not a vertex"):
        Mesh(POINTS, np.array([[0, 1, 6]]), np.array([5]))
    with pytest.raises(MeshError, match="all faces or all volumes"):
        Mesh(POINTS, np.array([[0, 1, 2, -1], [0, 1, 2, 3]]), np.array([5, 10]))
    with pytest.raises(MeshError, match="fewer than three corners"):
        Mesh(POINTS, np.array([[0, 1, -1]]), np.array([5]))


def test_that_a_posterior_with_a_damaged_mesh_gets_a_sentence(tmp_path):
    posterior = invgp.invert(invgp.load(project(tmp_path)))
    damaged = posterior.assign(mesh_cells=posterior["mesh_cells"] + 3)
    path = invgp.write(damaged, tmp_path / "damaged.nc")
    with pytest.raises(ConfigError, match="its mesh is damaged: a cell has a corner that is not a vertex"):
        invgp.open_posterior(path)
    other = add_mesh(
        posterior.drop_vars("mesh_cell_type"), mesh_of(posterior).select(np.array([True, True, False])), "c"
    )
    path = invgp.write(other, tmp_path / "fewer.nc")
    with pytest.raises(ConfigError, match="its mesh must have one cell per point, had 2"):
        invgp.open_posterior(path)
