"""Maps of priors from files: formats, units, reference systems, mistakes."""

import numpy as np
import pytest
import xarray as xr
from pyproj import CRS, Transformer

import invgp
from helpers.linear_priors import site_problem
from invgp.errors import ConfigError

rasterio = pytest.importorskip("rasterio")
EASTING, NORTHING = 500_000.0 + np.linspace(0.0, 9_000.0, 6), 6_000_000.0 + np.linspace(0.0, 7_000.0, 6)
SURVEY, GEOGRAPHIC = "EPSG:28354", "EPSG:4326"


def load(mean, crs=SURVEY, unit="m", std=10.0, **keys):
    factor = {"m": 1.0, "km": 1e-3}[unit]
    return invgp.define(
        {"easting": factor * EASTING, "northing": factor * NORTHING, "data": np.zeros(6)},
        coordinates={"easting": unit, "northing": unit},
        observations={"data": "1"},
        latents={"depth": {"unit": "m", "mean": mean, "std": std, "kernel": {"length_scale": 3.0}} | keys},
        forward=lambda depth: depth,
        noise={"data": 1.0},
        crs=crs,
    )


def plane(easting, northing):
    """A map that is linear in the coordinates of the survey, in metres."""
    return 100.0 + 0.01 * (easting - 500_000.0) - 0.02 * (northing - 6_000_000.0)


def write_geotiff(path, crs, left, top, step, shape, values):
    with rasterio.open(
        path, "w", driver="GTiff", height=shape[0], width=shape[1], count=1, dtype="float64", crs=crs, nodata=-9999.0,
        transform=rasterio.Affine(step, 0.0, left, 0.0, -step, top),
    ) as file:  # fmt: skip
        file.write(values, 1)


def test_that_a_geotiff_is_interpolated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = 499_000.0 + 500.0 * np.arange(24) + 250.0, 6_009_000.0 - 500.0 * np.arange(22) - 250.0
    write_geotiff("top.tif", SURVEY, 499_000.0, 6_009_000.0, 500.0, (22, 24), plane(x, y[:, None]))
    problem = load("top.tif")
    np.testing.assert_allclose(problem.prior_mean[:, 0], plane(EASTING, NORTHING))
    np.testing.assert_allclose(load("top.tif", unit="km").prior_mean[:, 0], plane(EASTING, NORTHING))


@pytest.mark.parametrize("suffix", ["tif", "nc", "csv"])
def test_that_a_map_in_another_reference_system_is_reprojected(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    step = 0.002
    to_survey = Transformer.from_crs(GEOGRAPHIC, SURVEY, always_xy=True)
    lon0, lat0 = Transformer.from_crs(SURVEY, GEOGRAPHIC, always_xy=True).transform(EASTING[0], NORTHING[-1])
    lon, lat = lon0 - 0.02 + step * np.arange(80), lat0 + 0.02 - step * np.arange(70)
    x, y = to_survey.transform(*np.meshgrid(lon, lat))
    values = plane(x, y)
    section = {"file": f"top.{suffix}"}
    if suffix == "tif":
        write_geotiff("top.tif", GEOGRAPHIC, lon[0] - step / 2, lat[0] + step / 2, step, values.shape, values)
    elif suffix == "nc":
        about = {"lon": ("lon", lon, {"units": "degrees_east"}), "lat": ("lat", lat, {"units": "degrees_north"})}
        xr.Dataset({"top": (("lat", "lon"), values / 1000.0, {"units": "km"})}, about).to_netcdf("top.nc")
    else:
        rows = [f"{lo},{la},{values[i, j]}" for i, la in enumerate(lat) for j, lo in enumerate(lon)]
        (tmp_path / "top.csv").write_text("\n".join(["lon,lat,top", *rows]), encoding="utf-8")
        section["crs"] = GEOGRAPHIC
    found = load(section).prior_mean[:, 0]
    np.testing.assert_allclose(found, plane(EASTING, NORTHING), atol=0.01)


def test_that_a_netcdf_map_names_its_reference_system(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = CRS.from_user_input("EPSG:28355")
    to_survey = Transformer.from_crs(other, SURVEY, always_xy=True)
    low = Transformer.from_crs(SURVEY, other, always_xy=True).transform(495_000.0, 5_995_000.0)
    x, y = low[0] + 500.0 * np.arange(40), low[1] + 500.0 * np.arange(45)
    a, b = to_survey.transform(*np.meshgrid(x, y))
    dataset = xr.Dataset(
        {"top": (("y", "x"), plane(a, b), {"units": "m", "grid_mapping": "crs"}), "crs": ((), 0, other.to_cf())},
        {"x": ("x", x / 1000.0, {"units": "km"}), "y": ("y", y / 1000.0, {"units": "km"})},
    )
    dataset.to_netcdf("top.nc")
    np.testing.assert_allclose(load("top.nc").prior_mean[:, 0], plane(EASTING, NORTHING), atol=0.01)


@pytest.mark.parametrize("link", ["log", "increasing"])
def test_that_maps_keep_the_moments_of_positive_quantities(tmp_path, monkeypatch, link):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,top\n0,100\n100,300\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("x,top\n0,400\n50,450\n100,800\n", encoding="utf-8")
    X = np.asarray([[0.0], [50.0], [100.0]])
    keys = {"unit": "m", "std": "10%", "link": link, "kernel": {"length_scale": 30.0}, "dimension": "layer"}
    problem = site_problem(
        X, np.zeros(3), {"depth": {"mean": ["a.csv", "b.csv"], **keys}}, dimensions={"layer": [1, 2]}
    )
    np.testing.assert_allclose(problem.physical_prior_mean[[0, 2]], [[100.0, 400.0], [300.0, 800.0]])
    assert problem.latents[0].maps.scale is None  # a percentage is the same everywhere
    number = site_problem(
        X, np.zeros(3), {"depth": {"mean": ["a.csv", "b.csv"], **keys, "std": 20}}, dimensions={"layer": [1, 2]}
    )
    latent, at_nodes = number.latents[0], [0, 2]
    _, nominal = latent.link.prior_to_process(latent.mean, latent.std)
    std = (nominal * latent.maps.scale_at(X))[at_nodes]
    increments = np.asarray(
        [[100.0, 300.0], [300.0, 500.0]] if link == "increasing" else [[100.0, 400.0], [300.0, 800.0]]
    )
    np.testing.assert_allclose(std, np.sqrt(np.log1p((20.0 / increments) ** 2)))


GRID = "easting,northing,top\n" + "\n".join(
    f"{x},{y},{v}" for x, y, v in [(4e5, 5e6, 1), (4e5, 7e6, 2), (6e5, 5e6, 3), (6e5, 7e6, 4)]
)


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (GRID.replace("5e6", "6.001e6").replace("5000000.0", "6001000.0"), {},
         "latents.depth.mean: the map top.csv must cover all 6 points of the latents, had no value at 1 of them, the "
         "first at easting 500000, northing 6e+06"),
        (GRID.replace("top", "top,base"), {}, "must be a CSV file of sites"),
        ("easting,northing,top\n" + "\n".join(f"{i},{i * i},{i}" for i in range(9)), {},
         "must have one row for each node of a grid"),
        ("a,b,top\n1,2,3\n", {"variable": "top"}, "must have columns with the names of coordinates"),
        (GRID, {"variable": "bottom"}, "has no column 'bottom'"),
        (GRID, {"crs": "nonsense"}, "latents.depth.mean.crs: must be a coordinate reference system that PROJ knows"),
        (GRID, {"unit": "kg"}, "must be in a unit that can be converted to 'm', was in 'kg'"),
        (GRID, {"files": "top.csv"}, "files: unknown key"),
    ],
)  # fmt: skip
def test_that_a_map_that_cannot_be_used_is_reported_in_one_sentence(tmp_path, monkeypatch, text, keys, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "top.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load({"file": "top.csv", **keys})
    assert len(error.value.sentences) == 1
    assert message in str(error.value)


def test_that_other_values_of_a_prior_are_reported_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "top.csv").write_text(GRID, encoding="utf-8")
    for mean, keys, message in (
        ("elevation", {}, "latents.depth.mean: must be a finite number, a map file, or a list of them"),
        ("other.csv", {}, "other.csv"),
        (["top.csv", 3], {}, "latents.depth.mean: must be one value"),
        (1.0, {"std": "many"}, "latents.depth.std: must be a positive number"),
        (1.0, {"trend": ["eastings"]}, "a column of the survey is known at its sites only"),
        ({"file": "top.csv"}, {"std": "top.csv", "link": "log", "learn": {"std": 2}}, None),
    ):
        if message is None:
            assert load(mean, **keys).latents[0].maps is not None
            continue
        with pytest.raises(ConfigError) as error:
            load(mean, **keys)
        assert message in str(error.value)
