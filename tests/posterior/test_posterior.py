"""What `invert` returns, and what of it is in the file."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from pyproj import CRS
from scipy.stats import norm

import invgp
from helpers.compliance import complaints
from helpers.problems import map_problem
from invgp import netcdf
from invgp.errors import ConfigError
from invgp.problem import Column

VARIABLES = ["", "_std", "_quantile", "_sample", "_prior", "_prior_std", "_information"]


@pytest.fixture(scope="module")
def posterior():
    return invgp.invert(map_problem())


def test_that_each_latent_has_its_variables_with_units(posterior):
    for suffix in VARIABLES:
        variable = posterior[f"resistivity{suffix}"]
        assert variable.dims[-2:] == ("site", "layer")
        assert variable.attrs["units"] == ("1" if suffix == "_information" else "ohm m")
        assert variable.attrs["long_name"]
        assert "layer" not in posterior[f"thickness{suffix}"].dims
    assert posterior["resistivity_quantile"].dims[0] == "quantile"
    assert posterior["resistivity_sample"].sizes["realization"] == 7


def test_that_each_observation_has_its_fit(posterior):
    for suffix in ("observed", "noise_std", "predicted", "predicted_std", "residual"):
        assert posterior[f"far_{suffix}"].dims == ("site", "gate")
        assert posterior[f"far_{suffix}"].attrs["units"] == "kohm m"
        assert posterior[f"near_{suffix}"].dims == ("site",)
    xr.testing.assert_allclose(posterior["far_residual"], posterior["far_observed"] - posterior["far_predicted"])
    assert np.isnan(posterior["near_residual"].sel(site=4))
    assert float(np.abs(posterior["far_residual"]).max()) < 0.02


def test_that_a_log_linked_latent_is_log_normal(posterior):
    quantiles = posterior["resistivity_quantile"]
    width = np.log(quantiles.sel(quantile=0.95) / quantiles.sel(quantile=0.05)) / (2 * norm.ppf(0.95))
    median = quantiles.sel(quantile=0.5)
    np.testing.assert_allclose(posterior["resistivity"], median * np.exp(0.5 * width**2), rtol=1e-10)
    np.testing.assert_allclose(
        posterior["resistivity_std"], posterior["resistivity"] * np.sqrt(np.expm1(width**2)), rtol=1e-9
    )
    prior_variance = np.log1p((posterior["resistivity_prior_std"] / posterior["resistivity_prior"]) ** 2)
    np.testing.assert_allclose(posterior["resistivity_information"], 1 - width**2 / prior_variance, atol=1e-9)


def test_that_data_inform_and_information_lies_between_nothing_and_everything(posterior):
    for latent in ("resistivity", "thickness"):
        information = posterior[f"{latent}_information"]
        assert np.all((information > 0) & (information < 1))
    assert posterior["resistivity_information"].mean() > 0.2


def test_that_the_bound_of_the_full_gaussian_never_falls():
    posterior = invgp.invert(map_problem(posterior="full gaussian", emulator=False, estimator="score"))
    assert np.all(np.diff(posterior["elbo"]) > 0)
    assert posterior.attrs["invgp_runs"] % (64 * 12) == 0


def test_that_runs_are_counted(posterior):
    assert posterior["runs"][-1] <= posterior.attrs["invgp_runs"]
    assert posterior.attrs["invgp_runs_failed"] == 0


def test_that_provenance_is_in_the_attributes(posterior):
    attributes = posterior.attrs
    assert attributes["Conventions"].startswith("CF-1.")
    assert attributes["invgp_seed"] == 3
    assert len(attributes["invgp_simulator_digest"]) == 64
    assert f"invgp {invgp.__version__}" in attributes["invgp_software"]
    assert attributes["invgp_status"] == "the posterior has converged"


def test_that_the_crs_is_a_grid_mapping(posterior):
    assert CRS.from_cf(posterior["crs"].attrs) == CRS.from_epsg(28354)
    assert posterior["resistivity"].attrs["grid_mapping"] == "crs"


def test_that_the_file_opens_with_plain_xarray_and_is_the_same(posterior, tmp_path):
    path = netcdf.write(posterior, tmp_path / "new" / "map.nc")
    with xr.open_dataset(path) as opened:
        xr.testing.assert_identical(opened.load(), posterior)
    xr.testing.assert_identical(netcdf.read(path), posterior)
    assert [p.name for p in path.parent.iterdir()] == ["map.nc"]


def test_that_the_file_is_compressed_and_chunked(posterior, tmp_path):
    path = netcdf.write(posterior, tmp_path / "map.nc")
    with xr.open_dataset(path) as opened:
        encoding = opened["resistivity_sample"].encoding
    assert encoding["zlib"]
    assert encoding["chunksizes"] == posterior["resistivity_sample"].shape


@pytest.mark.slow
def test_that_the_compliance_checker_finds_no_error(posterior, tmp_path):
    assert complaints(netcdf.write(posterior, tmp_path / "map.nc")) == []


def test_that_a_projection_keeps_all_its_parameters(tmp_path):
    problem = map_problem(max_evaluations=1)
    conic = replace(problem, survey=replace(problem.survey, crs="EPSG:3577"))
    written = netcdf.write(invgp.invert(conic), tmp_path / "map.nc")
    with xr.open_dataset(written) as opened:
        assert CRS.from_cf(opened["crs"].attrs) == CRS.from_epsg(3577)
        np.testing.assert_array_equal(opened["crs"].attrs["standard_parallel"], [-18, -36])


@pytest.mark.slow
def test_that_a_vertical_coordinate_passes_the_checker(tmp_path):
    problem = map_problem(max_evaluations=1)
    height = Column("height", "m", np.linspace(0, 30, 12), "height of the sensor", "height", "up")
    deeper = [
        replace(v, kernel=replace(v.kernel, length_scale=np.append(v.kernel.length_scale, 20.0)))
        for v in problem.latents
    ]
    survey = replace(problem.survey, coordinates=(*problem.survey.coordinates, height))
    path = netcdf.write(invgp.invert(replace(problem, survey=survey, latents=tuple(deeper))), tmp_path / "volume.nc")
    assert complaints(path) == []


def test_that_files_that_are_no_posterior_are_rejected_with_a_message(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: no such file"):
        netcdf.read(tmp_path / "nothing.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(ConfigError, match="it is not a netCDF file"):
        netcdf.read(tmp_path / "text.nc")
    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "other.nc")
    with pytest.raises(ConfigError, match="not a posterior that invgp wrote"):
        netcdf.read(tmp_path / "other.nc")


def test_that_a_write_that_fails_leaves_no_file_behind(posterior, tmp_path):
    broken = posterior.copy()
    broken["objects"] = ("site", [object()] * posterior.sizes["site"])
    with pytest.raises((TypeError, ValueError)):
        netcdf.write(broken, tmp_path / "map.nc")
    assert list(tmp_path.iterdir()) == []
