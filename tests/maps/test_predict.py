"""Maps against the posterior at the sites, and against Gaussian process regression by the book."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import invgp
from helpers.compliance import LOCAL_AXES, complaints
from helpers.exact_posterior import joint_posterior
from helpers.problems import linear_problem, map_problem
from invgp import netcdf
from invgp.core.geometry import inducing_factor
from invgp.errors import ConfigError
from invgp.links import LINKS
from invgp.maps.predict import plan_map, predict, write
from invgp.posterior.gaussian_processes import kernel_from_attributes

FAMILIES = {
    "coupled": {},
    "full gaussian": {"posterior": "full gaussian"},
    "inducing": {"inducing": 6},
    "learnt inducing": {"inducing": 6, "learn_inducing": True},
}


def make_increasing(problem):
    """The log-linked latent of the map made to grow from layer to layer."""
    grows = replace(problem.latents[0], link=LINKS["increasing"], mean=np.asarray([40.0, 80.0]))
    return replace(problem, latents=(grows, *problem.latents[1:]))


def learn_kernels(problem):
    """Kernels of the first latent learnt."""
    learnt = replace(problem.latents[0], learn={"std": 2.0, "length_scale": 2.0})
    return replace(problem, latents=(learnt, *problem.latents[1:]))


def of_an_earlier_version(posterior):
    """The file of a full Gaussian with its whitened Gaussians instead of site factors."""
    X = np.stack([posterior[name].values for name in ("easting", "northing")], axis=-1)
    latents = [posterior[name].attrs for name in ("velocity", "depth")]
    means, factors = [], []
    for j, about in enumerate(latents):
        kernel = kernel_from_attributes(about).with_variance(about["process_std"] ** 2)
        L = inducing_factor([kernel], X[None])[0]
        precision, shift = posterior["site_precision"].values[:, j, j], posterior["site_shift"].values[:, j]
        covariance = np.linalg.inv(np.eye(len(X)) + L.T @ (precision[:, None] * L))
        means.append(covariance @ L.T @ shift)
        factors.append(np.linalg.cholesky(covariance))
    return posterior.drop_vars(["site_precision", "site_shift"]).assign(
        whitened_mean=(("process", "site"), np.asarray(means)),
        whitened_factor=(("process", "site", "other_site"), np.asarray(factors)),
    )


def test_that_the_full_gaussian_of_an_earlier_version_is_read(tmp_path):
    posterior = invgp.invert(linear_problem(posterior="full gaussian"))
    now, before = (
        predict(file, grid="20") for file in (posterior, through_a_file(of_an_earlier_version(posterior), tmp_path))
    )
    for name in ("velocity", "velocity_std", "depth", "depth_std"):
        np.testing.assert_allclose(before[name], now[name], rtol=1e-6)


CHANGES = {"log": lambda problem: problem, "increasing": make_increasing, "learnt": learn_kernels}


@pytest.fixture(scope="module")
def linear():
    return invgp.invert(linear_problem())


@pytest.fixture(scope="module")
def layered_posterior():
    return invert_changed("coupled")


def through_a_file(dataset, folder):
    return netcdf.read(netcdf.write(dataset, folder / "posterior.nc"))


CASES = [
    *((family, "log") for family in FAMILIES),
    ("coupled", "increasing"),
    ("coupled", "learnt"),
    ("learnt inducing", "learnt"),
]


@functools.cache
def invert_changed(family, change="log"):
    return invgp.invert(CHANGES[change](map_problem(**FAMILIES[family])))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "change"), CASES)
def test_that_a_map_at_the_sites_is_the_posterior_itself(family, change, tmp_path):
    posterior = through_a_file(invert_changed(family, change), tmp_path)
    at_sites = predict(posterior, grid=str(tmp_path / "posterior.nc"))
    for latent in ("resistivity", "thickness"):
        for suffix in ("", "_std", "_quantile", "_prior", "_prior_std", "_information"):
            name = latent + suffix
            assert at_sites[name].dims == posterior[name].dims
            np.testing.assert_allclose(at_sites[name], posterior[name], rtol=1e-6, atol=1e-9)
            assert at_sites[name].attrs["units"] == posterior[name].attrs["units"]


def test_that_a_map_is_the_exact_posterior_of_a_linear_problem(linear):
    found = predict(linear, grid="easting=0:100:20,northing=-20:120:35")
    assert found["depth"].dims == ("northing", "easting")
    northing, easting = np.meshgrid(found["northing"], found["easting"], indexing="ij")
    X = np.stack([easting.ravel(), northing.ravel()], axis=-1)
    mean, covariance = joint_posterior(linear_problem(), X)
    std = np.sqrt(np.diag(covariance))
    for j, name in enumerate(("velocity", "depth")):
        part = slice(j * len(X), (j + 1) * len(X))
        np.testing.assert_allclose(found[name].values.ravel(), mean[part], rtol=1e-6)
        np.testing.assert_allclose(found[f"{name}_std"].values.ravel(), std[part], rtol=1e-6)
        upper = found[f"{name}_quantile"].sel(quantile=0.95).values.ravel()
        np.testing.assert_allclose(upper, mean[part] + norm.ppf(0.95) * std[part], rtol=1e-6)


def test_that_thresholds_are_converted_and_exceedance_agrees_with_the_normal_distribution(linear):
    found = predict(linear, grid="50", exceed=["velocity > 0.0072 km s-1", "velocity>9", "depth > 600 cm"])
    np.testing.assert_allclose(found["velocity_threshold"], [7.2, 9.0])
    expected = norm.sf((6.0 - found["depth"]) / found["depth_std"])
    np.testing.assert_allclose(found["depth_exceedance"].sel(depth_threshold=6.0), expected, rtol=1e-9)


def test_that_what_a_linked_latent_exceeds_agrees_with_its_quantiles():
    for change in ("log", "increasing"):
        posterior, point = invert_changed("coupled", change), "easting=500050,northing=6000040"
        for layer, limit in enumerate(
            predict(posterior, grid=point, quantiles=[0.3])["resistivity_quantile"].values.flat
        ):
            found = predict(posterior, grid=point, exceed=[f"resistivity > {limit}"])["resistivity_exceedance"]
            assert found.values[0, layer, 0, 0] == pytest.approx(0.7, abs=2e-3)


def test_that_a_linear_expression_has_its_closed_form(linear):
    found = predict(linear, grid="25", derive=["sum [km] = 2 * depth - velocity * quantity(3, 's') + quantity(1, 'm')"])
    northing, easting = np.meshgrid(found["northing"], found["easting"], indexing="ij")
    X = np.stack([easting.ravel(), northing.ravel()], axis=-1)
    mean, covariance = joint_posterior(linear_problem(), X)
    weights = np.kron([-3.0, 2.0], np.eye(len(X)))
    np.testing.assert_allclose(found["sum"].values.ravel(), 1e-3 * (weights @ mean + 1.0), rtol=1e-6)
    std = 1e-3 * np.sqrt(np.diag(weights @ covariance @ weights.T))
    np.testing.assert_allclose(found["sum_std"].values.ravel(), std, rtol=1e-6)
    assert found["sum"].attrs["units"] == "km"


def test_that_a_derived_quantity_from_draws_agrees_with_the_closed_form_of_the_log_normal(layered_posterior):
    found = predict(
        layered_posterior, grid="20", derive=["scaled = 3 * resistivity", "product = resistivity[1] * resistivity[2]"]
    )
    np.testing.assert_allclose(found["scaled"], 3 * found["resistivity"], rtol=2e-3)
    np.testing.assert_allclose(found["scaled_std"], 3 * found["resistivity_std"], rtol=2e-2)
    np.testing.assert_allclose(found["scaled_quantile"], 3 * found["resistivity_quantile"], rtol=5e-3)
    assert found["scaled"].dims == ("layer", "northing", "easting")
    assert found["product"].dims == ("northing", "easting")


def test_that_what_is_no_number_exceeds_nothing_and_is_named(linear):
    wish = plan_map(linear, grid="50", derive=["x = log(depth / quantity(6, 'm') - 1)"], exceed=["x > -1"])
    [(_, values)] = wish.blocks()
    assert np.isnan(values["x"]).any()
    np.testing.assert_array_equal(np.isnan(values["x_exceedance"][0]), np.isnan(values["x"]))
    assert wish.undefined == {"x"}


def test_that_quantiles_increase_for_any_order_of_levels(linear):
    found = predict(linear, grid="50", quantiles=[0.9, 0.1, 0.9])
    assert found["quantile"].values.tolist() == [0.1, 0.9]
    assert np.all(found["depth_quantile"].diff("quantile") > 0)


@pytest.mark.parametrize("change", ["log", "increasing"])
def test_that_the_summary_of_a_quantity_agrees_with_its_joint_draws(change):
    expression = "conductance [mS] = thickness / resistivity[1] + thickness / (2 * resistivity[2])"
    posterior, grid = invert_changed("coupled", change), "easting=500010:500090:40,northing=6000020:6000060:40"
    means = predict(posterior, grid=grid, derive=[expression])
    limits = {name: float(means[name].mean()) for name in ("conductance", "resistivity")}
    found = predict(
        posterior,
        grid=grid,
        derive=[expression],
        quantiles=[0.05, 0.3, 0.9],
        exceed=[f"{name} > {limit}" for name, limit in limits.items()],
        draws=20_000,
    )
    for name, limit in limits.items():
        draws, std = found[f"{name}_sample"], found[f"{name}_std"]
        np.testing.assert_allclose((draws.mean("realization") - found[name]) / std, 0.0, atol=0.04)
        np.testing.assert_allclose(draws.std("realization") / std, 1.0, atol=0.06)
        reported = found[f"{name}_quantile"]
        np.testing.assert_allclose(
            (draws.quantile(reported["quantile"], "realization") - reported) / std, 0.0, atol=0.06
        )
        often = found[f"{name}_exceedance"].squeeze(f"{name}_threshold")
        np.testing.assert_allclose((draws > limit).mean("realization"), often, atol=0.015)
        assert float(often.min()) < 0.95
        assert float(often.max()) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_that_draws_at_a_point_have_the_spread_of_the_map(family):
    found = predict(invert_changed(family), grid="easting=500020:500080:30,northing=6000040", draws=8000)
    for name in ("resistivity", "thickness"):
        draws = found[f"{name}_sample"]
        np.testing.assert_allclose(draws.mean("realization"), found[name], rtol=0.03)
        np.testing.assert_allclose(draws.std("realization"), found[f"{name}_std"], rtol=0.06)


@pytest.mark.slow
def test_that_lines_and_volumes_are_predicted(tmp_path):
    problem = map_problem(max_evaluations=1)
    height = replace(
        problem.survey.coordinates[0],
        name="height",
        values=np.linspace(0, 30, 12),
        standard_name="height",
        positive="up",
    )
    deeper = tuple(
        replace(v, kernel=replace(v.kernel, length_scale=np.append(v.kernel.length_scale, 20.0)))
        for v in problem.latents
    )
    survey = replace(problem.survey, coordinates=(*problem.survey.coordinates, height))
    volume = invgp.invert(replace(problem, survey=survey, latents=deeper))
    found = predict(volume, grid="easting=500000:500100:50,northing=::40,height=0:30:10")
    assert found["thickness"].dims == ("height", "northing", "easting")
    assert [found[name].attrs["axis"] for name in ("easting", "northing", "height")] == ["X", "Y", "Z"]
    one = predict(volume, grid="easting=500050,northing=6000040,height=20")
    there = found["thickness"].sel(easting=500050, northing=6000040, height=20)
    np.testing.assert_allclose(one["thickness"].values.ravel(), there)
    assert complaints(netcdf.write(found, tmp_path / "volume.nc")) == []
    survey = replace(problem.survey, coordinates=problem.survey.coordinates[:1], crs=None)
    shallower = tuple(
        replace(v, kernel=replace(v.kernel, length_scale=v.kernel.length_scale[:1])) for v in problem.latents
    )
    line = predict(invgp.invert(replace(problem, survey=survey, latents=shallower)))
    assert line["resistivity"].dims == ("layer", "easting")
    assert 50 < line.sizes["easting"] <= 102
    assert complaints(netcdf.write(line, tmp_path / "line.nc"), LOCAL_AXES) == []


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["10", "points.csv"])
def test_that_a_map_file_is_the_map_and_passes_the_compliance_checker(layered_posterior, grid, tmp_path):
    (tmp_path / "points.csv").write_text("easting,northing\n500010,6000010\n500020,6000010\n500030,6000012\n")
    grid = str(tmp_path / grid) if grid.endswith("csv") else grid
    wish = {
        "grid": grid,
        "draws": 2,
        "derive": ["depth = thickness * 2"],
        "exceed": ["resistivity > 50"],
        "memory": 10**5,
    }
    path = write(plan_map(layered_posterior, **wish), tmp_path / "map.nc")
    with xr.open_dataset(path) as opened:
        xr.testing.assert_identical(
            opened.load().drop_attrs(deep=False), predict(layered_posterior, **wish).drop_attrs(deep=False)
        )
    assert complaints(path) == []
    assert [p.name for p in tmp_path.glob(".*")] == []


def test_that_gdal_sees_the_map_where_it_is(layered_posterior, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    path = write(plan_map(layered_posterior, grid="10"), tmp_path / "map.nc")
    with rasterio.open(f"netcdf:{path}:resistivity") as seen:
        assert seen.crs == rasterio.crs.CRS.from_epsg(28354)
        assert seen.res == (10.0, 10.0)
        assert seen.bounds.left == 499995.0
        assert seen.bounds.top == 6000085.0
        top_row = seen.read(2)[0]
    with xr.open_dataset(path) as opened:
        np.testing.assert_array_equal(top_row, opened["resistivity"].isel(layer=1, northing=-1))


def test_that_a_file_of_an_older_invgp_is_rejected_with_a_message(linear):
    with pytest.raises(ConfigError, match=r"an earlier version of invgp \(repeat the inversion"):
        predict(linear.drop_vars(["site_shift", "site_precision"]))
    with pytest.raises(ConfigError, match="it is a map, was"):
        predict(predict(linear, grid="50"))
