"""GDAL's own programs on our files: where maps are, and that GeoTIFF and netCDF agree cell for cell."""

import io
import json
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import invgp
from helpers.problems import map_problem
from invgp import netcdf
from invgp.exporters import export

pytestmark = pytest.mark.skipif(shutil.which("gdalinfo") is None, reason="gdalinfo is not here (Debian: gdal-bin)")


def gdal(*words):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=True).stdout


def info(source):
    return json.loads(gdal("gdalinfo", "-json", source))


def cells(source, band):
    """Rows of x, y and value, as GDAL reads them."""
    return np.loadtxt(io.StringIO(gdal("gdal_translate", "-q", "-of", "XYZ", "-b", band, source, "/vsistdout/")))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A map whose survey has the northing first, as netCDF and GeoTIFF."""
    problem = map_problem(max_evaluations=1)
    survey = replace(problem.survey, coordinates=problem.survey.coordinates[::-1])
    posterior = invgp.invert(replace(problem, survey=survey))
    grid = invgp.predict(posterior, "easting=500000:500100:20,northing=6000000:6000060:30")
    folder = tmp_path_factory.mktemp("gdal")
    [tiff] = export(grid, "geotiff", folder / "map.tif", ["resistivity"])
    return grid, netcdf.write(grid, folder / "map.nc"), tiff


def test_that_gdalinfo_locates_the_map(files):
    _, written, tiff = files
    for source in (f"NETCDF:{written}:resistivity", tiff):
        reported = info(source)
        assert reported["size"] == [6, 3]
        assert reported["geoTransform"] == [499990.0, 20.0, 0.0, 6000075.0, 0.0, -30.0]
        assert reported["stac"]["proj:epsg"] == 28354
        assert len(reported["bands"]) == 2


def test_that_a_map_states_the_range_of_its_axes_and_gis_programs_find_its_sites(files, tmp_path):
    grid, written, _ = files
    np.testing.assert_array_equal(netcdf.read(written)["easting"].attrs["actual_range"], [500000.0, 500100.0])
    [points] = export(grid, "geopackage", tmp_path / "points.gpkg", ["resistivity"])
    reported = gdal("ogrinfo", "-so", "-al", points)
    assert "Feature Count: 18\n" in reported
    assert "Extent: (500000.000000, 6000000.000000) - (500100.000000, 6000060.000000)\n" in reported
    assert 'ID["EPSG",28354]' in reported


def test_that_geotiff_and_netcdf_agree_cell_for_cell(files):
    grid, written, tiff = files
    for band in (1, 2):
        ours, theirs = cells(f"NETCDF:{written}:resistivity", band), cells(tiff, band)
        np.testing.assert_array_equal(ours, theirs)
        expected = [grid["resistivity"].sel(layer=band, easting=x, northing=y).item() for x, y, _ in theirs]
        np.testing.assert_allclose(theirs[:, 2], expected, rtol=1e-6)


def test_that_latitudes_are_recognised_in_any_position(tmp_path):
    problem = map_problem(max_evaluations=1)
    east, north = problem.survey.coordinates
    lat = replace(north, name="lat", unit="degrees_north", values=60.0 + (north.values - 6e6) / 100.0, standard_name="")
    lon = replace(east, name="lon", unit="degrees_east", values=10.0 + (east.values - 5e5) / 100.0, standard_name="")
    short = tuple(
        replace(latent, kernel=replace(latent.kernel, length_scale=np.array([0.5, 0.5]))) for latent in problem.latents
    )
    survey = replace(problem.survey, coordinates=(lat, lon), crs="EPSG:4326")
    posterior = invgp.invert(replace(problem, survey=survey, latents=short))
    assert posterior["lat"].attrs["standard_name"] == "latitude"
    grid = invgp.predict(posterior, "lat=60:61:0.25,lon=10:12:0.5")
    reported = info(f"NETCDF:{netcdf.write(grid, tmp_path / 'map.nc')}:thickness")
    assert reported["size"] == [5, 5]
    np.testing.assert_allclose(reported["geoTransform"], [9.75, 0.5, 0.0, 61.125, 0.0, -0.25])
    assert reported["stac"]["proj:epsg"] == 4326


def test_that_a_map_in_kilometres_is_where_its_points_are_in_metres(tmp_path):
    problem = map_problem(max_evaluations=1)
    short = tuple(
        replace(latent, kernel=replace(latent.kernel, length_scale=latent.kernel.length_scale / 1e3))
        for latent in problem.latents
    )
    coordinates = tuple(replace(c, unit="km", values=c.values / 1e3) for c in problem.survey.coordinates)
    survey = replace(problem.survey, coordinates=coordinates)
    posterior = invgp.invert(replace(problem, survey=survey, latents=short))
    grid = invgp.predict(posterior, "easting=500:500.1:0.02,northing=6000:6000.06:0.03")
    written = netcdf.write(grid, tmp_path / "map.nc")
    [tiff] = export(grid, "geotiff", tmp_path / "map.tif", ["thickness"])
    for source in (f"NETCDF:{written}:thickness", tiff):
        for column, row in ((0, 0), (2, 1), (5, 2)):
            place = 500_000 + 20 * column, 6_000_000 + 30 * row
            found = float(gdal("gdallocationinfo", "-valonly", "-l_srs", "EPSG:28354", source, *place))
            assert found == pytest.approx(grid["thickness"].values[row, column], rel=1e-6), (source, place)
