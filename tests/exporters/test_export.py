"""Every format, read back by a library that did not write it."""

import re
import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import invgp
from helpers.averaged_fields import field_problem
from helpers.problems import map_problem
from invgp import netcdf as cf_netcdf
from invgp.errors import ConfigError
from invgp.exporters import FORMATS, export
from invgp.maps.predict import predict


@pytest.fixture(scope="module")
def posterior():
    return invgp.invert(map_problem())


@pytest.fixture(scope="module")
def grid(posterior):
    """A map of 6 columns and 3 rows."""
    return predict(posterior, grid="easting=500000:500100:20,northing=6000000:6000060:30", draws=4)


@pytest.fixture(scope="module")
def volume():
    """A map of 2 x 3 x 4 points, its third coordinate downwards."""
    problem = map_problem(max_evaluations=1)
    down = replace(problem.survey.coordinates[0], name="below", values=np.linspace(0, 30, 12), standard_name="depth")
    deeper = tuple(
        replace(v, kernel=replace(v.kernel, length_scale=np.append(v.kernel.length_scale, 20.0)))
        for v in problem.latents
    )
    coordinates = (*problem.survey.coordinates, replace(down, positive="down"))
    found = invgp.invert(replace(problem, survey=replace(problem.survey, coordinates=coordinates), latents=deeper))
    return predict(found, grid="easting=500000:500050:50,northing=6000000:6000080:40,below=0:30:10")


def test_that_a_csv_file_has_one_row_per_site_and_one_column_per_layer(posterior, tmp_path):
    [path] = export(posterior, "csv", tmp_path / "new" / "sites.csv")
    table = pd.read_csv(path)
    np.testing.assert_allclose(table["northing (m)"], posterior["northing"], rtol=5.1e-12)
    np.testing.assert_allclose(table["resistivity_2 (ohm m)"], posterior["resistivity"].sel(layer=2), rtol=5.1e-7)
    expected = posterior["resistivity_quantile"].sel(quantile=0.95, layer=1)
    np.testing.assert_allclose(table["resistivity_quantile_0.95_1 (ohm m)"], expected, rtol=5.1e-7)
    assert "resistivity_information_1" in table  # a number without a unit
    assert max(len(cell) for cell in path.read_text().splitlines()[1].split(",")) <= 13  # -1.234567e-05
    assert (
        table[f"near_observed ({posterior['near_observed'].units})"].isna().to_list()
        == np.isnan(posterior["near_observed"].values).tolist()
    )
    assert f"far_observed_late ({posterior['far_observed'].units})" in table
    assert not [name for name in table if re.search("sample|site_|process", name)]


def test_that_a_csv_file_of_a_map_is_in_the_order_of_its_dimensions(grid, tmp_path):
    [path] = export(grid, "csv", tmp_path / "map.csv", ["thickness"])
    table = pd.read_csv(path)
    assert list(table) == ["easting (m)", "northing (m)", "thickness (m)"]
    back = table.set_index(["northing (m)", "easting (m)"]).to_xarray()["thickness (m)"]
    np.testing.assert_allclose(back, grid["thickness"], rtol=5.1e-7)


@pytest.mark.parametrize("kind", ["sites", "map"])
def test_that_a_geopackage_has_one_point_per_point_with_its_values(kind, posterior, grid, tmp_path):
    raw = pytest.importorskip("pyogrio.raw")
    dataset = posterior if kind == "sites" else grid
    [path] = export(dataset, "geopackage", tmp_path / "points.gpkg")
    meta, _, geometry, values = raw.read(path)
    columns = dict(zip(meta["fields"], values, strict=True))
    assert meta["crs"] == "EPSG:28354"
    assert meta["geometry_type"] == "Point"
    order = ("site",) if kind == "sites" else ("northing", "easting")
    np.testing.assert_array_equal(
        columns["resistivity_2"], dataset["resistivity"].sel(layer=2).transpose(*order).values.ravel()
    )
    x, y = np.array([np.frombuffer(point, "<f8", offset=5) for point in geometry]).T
    np.testing.assert_array_equal(x, columns["easting"])
    np.testing.assert_array_equal(y, columns["northing"])
    if kind == "sites":
        np.testing.assert_array_equal(np.isnan(columns["near_observed"]), np.isnan(dataset["near_observed"].values))


def test_that_a_geopackage_of_a_line_is_refused(posterior, tmp_path):
    line = posterior.assign_attrs(invgp_coordinates="easting")
    with pytest.raises(invgp.InvgpError, match="two horizontal coordinates"):
        export(line, "geopackage", tmp_path / "line.gpkg")


def test_that_a_geotiff_is_north_up_and_the_same_cell_for_cell(grid, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    [path] = export(grid, "geotiff", tmp_path / "map.tif")
    with rasterio.open(path) as file:
        assert file.crs == rasterio.crs.CRS.from_epsg(28354)
        assert file.transform.to_gdal() == (499990.0, 20.0, 0.0, 6000075.0, 0.0, -30.0)
        assert np.isnan(file.nodata)
        assert file.descriptions[:3] == ("resistivity, layer 1", "resistivity, layer 2", "resistivity_std, layer 1")
        assert file.units[:1] + file.units[-1:] == ("ohm m", "m")
        np.testing.assert_array_equal(file.read(2), grid["resistivity"].sel(layer=2)[::-1])
        [value] = next(file.sample([(500040.0, 6000030.0)], indexes=[1]))
        assert value == grid["resistivity"].sel(layer=1, easting=500040, northing=6000030)


def test_that_a_geotiff_and_the_netcdf_file_agree_cell_for_cell_in_gdal(grid, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    netcdf = cf_netcdf.write(grid, tmp_path / "map.nc")
    [path] = export(grid, "geotiff", tmp_path / "map.tif", ["resistivity"])
    with rasterio.open(path) as tiff, rasterio.open(f"netcdf:{netcdf}:resistivity") as cf:
        assert (tiff.crs, tiff.shape, tiff.count) == (cf.crs, cf.shape, cf.count)
        assert tiff.transform.almost_equals(cf.transform)
        np.testing.assert_array_equal(tiff.read(), cf.read())


@pytest.mark.slow
@pytest.mark.parametrize("northing", [[6000060.0, 6000030.0, 6000000.0], [6000000.0, 6000030.0, 6000060.0]])
@pytest.mark.parametrize("easting", [[500100.0, 500050.0, 500000.0], [500000.0, 500050.0, 500100.0]])
def test_that_axes_may_rise_or_fall(posterior, northing, easting, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    xr.Dataset(coords={"easting": easting, "northing": northing}).to_netcdf(tmp_path / "axes.nc")
    grid = predict(posterior, grid=str(tmp_path / "axes.nc"))
    np.testing.assert_array_equal(grid["northing"], northing)
    [path] = export(grid, "geotiff", tmp_path / "map.tif", ["thickness"])
    with rasterio.open(path) as file:
        found = {(x, y): value[0] for x in easting for y in northing for value in file.sample([(x, y)])}
    for (x, y), value in found.items():
        assert value == grid["thickness"].sel(easting=x, northing=y)
        [alone] = predict(posterior, grid=f"easting={x},northing={y}")["thickness"].values.flat
        assert value == pytest.approx(alone)


@pytest.mark.slow
def test_that_each_height_of_a_volume_is_a_band(volume, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    [path] = export(volume, "geotiff", tmp_path / "volume.tif", ["thickness"])
    with rasterio.open(path) as file:
        assert file.descriptions == tuple(f"thickness, below {depth} m" for depth in (0, 10, 20, 30))
        np.testing.assert_array_equal(file.read(3), volume["thickness"].sel(below=20)[::-1])


def definitions(path):
    """Name, repeats and width of each field of a .dfn file."""
    found = re.findall(r"ST=RECD,RT=;(\w+):(\d*)[IFE](\d+)", path.read_text())
    return [(name, int(repeats or 1), int(width)) for name, repeats, width in found]


@pytest.mark.parametrize("source", ["posterior", "grid"])
def test_that_aseg_gdf2_files_hold_what_they_define(source, request, tmp_path):
    dataset = request.getfixturevalue(source)
    dfn, dat = export(dataset, "aseg-gdf2", tmp_path / "survey.dfn")
    fields = definitions(dfn)
    names = [f"{name}[{i}]" if n > 1 else name for name, n, _ in fields for i in range(n)]
    widths = [width for _, n, width in fields for _ in range(n)]
    table = pd.read_fwf(dat, widths=widths, names=names)
    layer = dataset["resistivity"].sel(layer=2).values.ravel()
    np.testing.assert_allclose(table["resistivity[1]"], layer, rtol=1e-9)
    if source == "posterior":
        np.testing.assert_allclose(table["easting"], dataset["easting"], atol=1e-6)
        missing = np.isclose(table["near_observed"], -999999999.0)
        assert missing.tolist() == np.isnan(dataset["near_observed"].values).tolist()
    assert "UNIT=ohm m" in dfn.read_text()
    assert "GDA94 / MGA zone 54" in dfn.read_text()


def test_that_units_of_any_letters_are_plain_in_aseg_gdf2_files(posterior, tmp_path):
    changed = posterior.copy()
    changed["resistivity"].attrs["units"] = "Ω m"
    changed["thickness"].attrs["units"] = "µm² s⁻²"
    dfn, _ = export(changed, "aseg-gdf2", tmp_path / "survey.dfn", ["resistivity", "thickness"])
    assert re.findall("UNIT=([^,]*)", dfn.read_text(encoding="ascii"))[2:] == ["ohm m", "um2 s-2"]


def test_that_aseg_gdf2_files_are_read_by_a_reader_of_that_format(posterior, tmp_path):
    aseg_gdf2 = pytest.importorskip("aseg_gdf2", reason="aseg-gdf2 is not in the test group: it brings an old Dask")
    dfn, _ = export(posterior, "aseg-gdf2", tmp_path / "survey.dat")
    read = aseg_gdf2.read(str(dfn))
    np.testing.assert_allclose(read.get_field_data("resistivity").astype(float), posterior["resistivity"], rtol=1e-9)
    np.testing.assert_allclose(read.get_field_data("northing"), posterior["northing"], atol=1e-6)
    assert read.get_field_definition("thickness")["unit"] == "m"


def vtk_arrays(path, reader):
    """The reader's output, and its arrays by name."""
    vtk = pytest.importorskip("vtk", reason="vtk is 140 MB, too large for the test group")
    vtk_to_numpy = import_module("vtk.util.numpy_support").vtk_to_numpy
    read = getattr(vtk, reader)()
    read.SetFileName(str(path))
    read.Update()
    output = read.GetOutput()
    data = output.GetPointData()
    return output, {data.GetArrayName(i): vtk_to_numpy(data.GetArray(i)) for i in range(data.GetNumberOfArrays())}


def test_that_a_vtk_grid_has_each_value_at_its_point(volume, tmp_path):
    [path] = export(volume, "vtk", tmp_path / "volume.vtk")
    assert path.name == "volume.vtr"
    output, arrays = vtk_arrays(path, "vtkXMLRectilinearGridReader")
    assert output.GetDimensions() == (2, 3, 4)
    for number in (0, 5, 17, 23):
        easting, northing, up = output.GetPoint(number)
        expected = volume["resistivity"].sel(layer=2, easting=easting, northing=northing, below=-up)
        assert arrays["resistivity_2"][number] == expected


def test_that_vtk_points_are_the_sites(posterior, tmp_path):
    [path] = export(posterior, "vtk", tmp_path / "sites.vtu", ["thickness"])
    output, arrays = vtk_arrays(path, "vtkXMLUnstructuredGridReader")
    assert list(arrays) == ["thickness"]
    np.testing.assert_array_equal(arrays["thickness"], posterior["thickness"])
    found = [output.GetPoint(i) for i in range(output.GetNumberOfPoints())]
    np.testing.assert_array_equal(found, np.stack([posterior["easting"], posterior["northing"], np.zeros(12)], axis=-1))


def read_appended_arrays(path):
    """The arrays of a VTK file by name, read as VTK's XML format has them: raw, each after its length."""
    head, _, tail = path.read_bytes().partition(b'<AppendedData encoding="raw">')
    data, found = tail[tail.index(b"_") + 1 :], {}
    for words in re.findall(r"<DataArray ([^>]*)>", head.decode()):
        about = dict(re.findall(r'(\w+)="([^"]*)"', words))
        start = int(about["offset"])
        [length] = np.frombuffer(data[start : start + 8], "<u8")
        found[about["Name"]] = np.frombuffer(data[start + 8 : start + 8 + int(length)], about["type"].lower())
    return found


def test_that_a_vtk_volume_is_upwards_and_runs_along_x_first(volume, tmp_path):
    pytest.importorskip("pyevtk")
    arrays = read_appended_arrays(export(volume, "vtk", tmp_path / "volume.vtr")[0])
    axes = [arrays[f"{letter}_coordinates"] for letter in "xyz"]
    np.testing.assert_array_equal(axes[0], volume["easting"])
    np.testing.assert_array_equal(axes[2], [-30.0, -20.0, -10.0, 0.0])
    upwards = volume["resistivity"].sel(layer=2).isel(below=slice(None, None, -1))
    np.testing.assert_array_equal(
        arrays["resistivity_2"], upwards.transpose("below", "northing", "easting").values.ravel()
    )


@pytest.mark.parametrize(("source", "ending"), [("posterior", "vtu"), ("grid", "vtr")])
def test_that_vtk_files_are_well_formed_up_to_their_binary_part(source, ending, request, tmp_path):
    pytest.importorskip("pyevtk")
    [path] = export(request.getfixturevalue(source), "vtk", tmp_path / "out.vtk", ["resistivity", "thickness"])
    head = path.read_bytes().partition(b"<AppendedData")[0].decode()
    assert path.suffix == f".{ending}"
    for name in ("resistivity_1", "resistivity_2", "thickness"):
        assert f'Name="{name}"' in head


@pytest.mark.parametrize("source", ["posterior", "grid"])
def test_that_arviz_reads_the_draws(source, request, tmp_path):
    dataset = request.getfixturevalue(source)
    [path] = export(dataset, "arviz", tmp_path / "out.nc")
    arviz_base = pytest.importorskip("arviz_base")
    tree = xr.load_datatree(path)
    draws = tree["posterior"]["resistivity"]
    assert draws.dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(draws[0], dataset["resistivity_sample"])
    assert draws.attrs["units"] == "ohm m"
    assert not {"grid_mapping", "ancillary_variables"} & set(draws.attrs), "these name variables of another file"
    stacked = arviz_base.extract(tree, var_names="thickness")
    assert stacked.sizes["sample"] == dataset.sizes["realization"]
    if source == "posterior":
        np.testing.assert_array_equal(tree["observed_data"]["near"], dataset["near_observed"])
    assert tree["posterior"].attrs["inference_library"] == "invgp"


def test_that_a_damaged_file_whose_coordinates_are_latents_or_data_is_exported(posterior, tmp_path):
    """The attribute `coordinates` of a variable decides what xarray takes for a coordinate."""
    damaged = posterior.assign_coords(far=posterior["far_predicted"]).set_coords("thickness")
    [path] = export(damaged, "arviz", tmp_path / "out.nc")
    found = xr.open_datatree(path)
    assert {"thickness", "resistivity"} <= set(found["posterior"].data_vars)
    assert {"near", "far"} <= set(found["observed_data"].data_vars)


def test_that_a_field_without_the_numbers_of_its_nodes_is_exported(tmp_path):
    field = invgp.invert(field_problem(posterior="coupled gaussian"))
    tables = []
    for dataset in (field, field.drop_vars("node")):
        [path] = export(dataset, "csv", tmp_path / "out.csv")
        tables.append(pd.read_csv(path))
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize("as_coordinate", [True, False])
def test_that_arviz_gets_the_chains_of_the_draws(as_coordinate, posterior, tmp_path):
    count = posterior.sizes["realization"]
    chain, mode = np.arange(count) % 3 + 1, np.arange(count) // 2
    found = {"chain": ("realization", chain), "mode": ("realization", mode)}
    dataset = posterior.assign_coords(found) if as_coordinate else posterior.assign(found)
    [path] = export(dataset, "arviz", tmp_path / "out.nc")
    tree = xr.load_datatree(path)
    draws = tree["posterior"]["resistivity"]
    length = count // 3
    assert dict(draws.sizes) == {**posterior["resistivity"].sizes, "chain": 3, "draw": length}
    assert tree["posterior"]["chain"].values.tolist() == [1, 2, 3]
    assert tree["posterior"].attrs.get("dropped_draws", 0) == count - 3 * length
    for i in range(3):
        np.testing.assert_array_equal(draws[i], posterior["resistivity_sample"][chain == i + 1][:length])
        np.testing.assert_array_equal(tree["sample_stats"]["mode"][i], mode[chain == i + 1][:length])
    assert list(tree["sample_stats"].data_vars) == ["mode"]


@pytest.mark.parametrize("source", ["posterior", "grid"])
def test_that_a_pest_ensemble_has_one_row_per_realisation(source, request, tmp_path):
    dataset = request.getfixturevalue(source)
    [path] = export(dataset, "pest", tmp_path / "ensemble.csv")
    table = pd.read_csv(path, index_col=0)
    draws = dataset["resistivity_sample"].sel(layer=2).values.reshape(len(table), -1)
    written = table[[f"resistivity_2_{i + 1}" for i in range(draws.shape[1])]].to_numpy()
    np.testing.assert_array_equal(written.astype(draws.dtype), draws)
    assert table.index.to_list() == dataset["realization"].values.tolist()
    assert table.shape[1] == 3 * draws.shape[1]


def test_that_names_in_an_ensemble_are_words(posterior, tmp_path):
    named = posterior.assign_coords(layer_label=("layer", ["Upper clay", "Lower-clay"])).drop_vars("layer")
    [path] = export(named, "pest", tmp_path / "ensemble.csv", ["resistivity"])
    assert list(pd.read_csv(path, index_col=0))[11:13] == ["resistivity_upper_clay_12", "resistivity_lower_clay_1"]


def test_that_pyemu_reads_the_ensemble(posterior, tmp_path):
    pyemu = pytest.importorskip("pyemu", reason="pyemu is not in the test group: it holds NumPy back")
    [path] = export(posterior, "pest", tmp_path / "ensemble.csv", ["thickness"])
    names = [f"thickness_{i}" for i in range(1, 13)]
    pst = pyemu.Pst.from_par_obs_names(names, ["an_observation"])
    ensemble = pyemu.ParameterEnsemble.from_csv(pst=pst, filename=str(path))
    np.testing.assert_allclose(ensemble.loc[:, names].values, posterior["thickness_sample"])


@pytest.mark.parametrize(
    ("source", "kind", "variables", "sentence"),
    [
        ("posterior", "geotiff", [], "needs a map on a grid of two horizontal coordinates"),
        ("posterior", "csv", ["resistvity"], "did you mean 'resistivity'"),
        ("volume", "pest", [], "contains no draws to export"),
        ("posterior", "arviz", ["depth"], "contains no draws of 'depth'"),
        ("posterior", "aseg-gdf2", [], "must end in .dfn or .dat"),
    ],
)
def test_that_what_cannot_be_exported_is_rejected_with_a_message(source, kind, variables, sentence, request, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        export(request.getfixturevalue(source), kind, tmp_path / "out.txt", variables)
    assert list(tmp_path.iterdir()) == []


def test_that_a_missing_library_is_named_with_its_extra(grid, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(ConfigError, match=r"needs rasterio, which is not installed: pip install 'invgp\[geotiff\]'"):
        export(grid, "geotiff", tmp_path / "map.tif")


def test_that_every_format_is_documented(root):
    page = (root / "docs" / "export.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in FORMATS)
