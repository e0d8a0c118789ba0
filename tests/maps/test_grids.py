"""Grids and points as people describe them."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from invgp.errors import ConfigError
from invgp.maps.grids import parse_grid


@pytest.fixture
def survey():
    """Coordinates of four sites, as a posterior holds them."""
    easting = xr.DataArray(
        [3.0, 41.0, 88.0, 95.0], dims="site", attrs={"units": "m", "standard_name": "projection_x_coordinate"}
    )
    northing = xr.DataArray([-7.0, 12.0, 30.0, 20.0], dims="site", attrs={"units": "m"})
    return xr.Dataset(
        coords={"easting": easting, "northing": northing}, attrs={"invgp_coordinates": "easting northing"}
    )


def axes(text, survey):
    grid = parse_grid(text, survey)
    assert grid.axes is not None
    return [axis.tolist() for axis in grid.axes]


def test_that_a_step_covers_the_sites_with_round_numbers(survey):
    assert axes("50", survey) == [[0.0, 50.0, 100.0], [-50.0, 0.0, 50.0]]


def test_that_without_a_grid_there_are_about_a_hundred_points_along_the_longest_side(survey):
    easting, northing = axes(None, survey)
    assert (len(easting), len(northing)) == (93, 38)
    assert (easting[0], easting[-1]) == (3.0, 95.0)


def test_that_each_coordinate_has_its_start_stop_and_step(survey):
    assert axes("easting=0:10:4, northing=:20:30", survey) == [[0.0, 4.0, 8.0], [-30.0, 0.0]]
    assert axes("northing=5 easting=0:0.3:0.1", survey) == [pytest.approx([0.0, 0.1, 0.2, 0.3]), [5.0]]


def test_that_points_of_a_block_are_in_the_order_of_the_dimensions(survey):
    grid = parse_grid("easting=0:2:1,northing=10:20:10", survey)
    assert (grid.dims, grid.shape) == (("northing", "easting"), (2, 3))
    _, blocks = grid.blocks(2)
    found = np.concatenate([grid.at(block) for block in blocks])
    assert found.tolist() == [[0, 10], [1, 10], [2, 10], [0, 20], [1, 20], [2, 20]]


def test_that_a_csv_file_gives_points_and_a_netcdf_file_axes_in_its_own_unit(survey, tmp_path):
    (tmp_path / "wells.csv").write_text("name,northing,easting\na,1,2\nb,3,4\n")
    points = parse_grid(str(tmp_path / "wells.csv"), survey)
    assert points.dims == ("site",)
    assert points.points.tolist() == [[2, 1], [4, 3]]
    km = {"units": "km"}
    coords = {"easting": ("easting", [1.0, 2.0], km), "northing": ("northing", [5.0, 6.0, 7.0])}
    xr.Dataset(coords=coords).to_netcdf(tmp_path / "axes.nc")
    assert axes(str(tmp_path / "axes.nc"), survey) == [[1000.0, 2000.0], [5.0, 6.0, 7.0]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("easting=0:10:1", "did not contain northing"),
        ("esting=0:10:1,northing=::1", "did you mean 'easting'"),
        ("easting=0:10:0,northing=::1", "with a step that is greater than 0"),
        ("easting=10:0:1,northing=::1", "must stop after it starts, was 10 to 0"),
        ("easting=0:10,northing=::1", "must be easting=start:stop:step"),
        ("-1", "grid: must be a step greater than 0, was '-1'"),
        ("easting=0:10:-1,northing=::1", "with a step that is greater than 0"),
        ("nan", "must be a file"),
        ("1e308", r"easting must be between -1e\+100 and 1e\+100, was 1e\+308"),
        ("easting=0:1e300:1,northing=0", r"easting must be between -1e\+100 and 1e\+100, was 1e\+300"),
        ("easting=1e400,northing=0", "was inf"),
        ("1e-9", "at most 1,000,000,000 points"),
        ("somewhere", "must be a file"),
        ("nothing.csv", "which does not exist"),
    ],
)
def test_that_a_grid_that_makes_no_sense_is_rejected_with_a_message(text, sentence, survey):
    with pytest.raises(ConfigError, match=sentence) as caught:
        parse_grid(text, survey)
    assert str(caught.value).startswith("grid: ")


def test_that_an_axis_that_does_not_fit_in_memory_is_refused(survey, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10**6))
    with pytest.raises(ConfigError, match="must fit in memory, had 100,000 points along easting"):
        parse_grid("easting=0:1e5:1,northing=0", survey)


def test_that_a_file_without_a_coordinate_or_with_gaps_is_refused(survey, tmp_path):
    (tmp_path / "other.csv").write_text("easting\n1\n")
    with pytest.raises(ConfigError, match="no column 'northing'"):
        parse_grid(str(tmp_path / "other.csv"), survey)
    (tmp_path / "gaps.csv").write_text("easting,northing\n1,\n")
    with pytest.raises(ConfigError, match=r"'northing' of .* must be a number at every point"):
        parse_grid(str(tmp_path / "gaps.csv"), survey)


@pytest.mark.parametrize("easting", [[1.0, 3.0, 2.0], [1.0, 1.0]])
def test_that_axes_that_are_not_monotonic_are_rejected(easting, survey, tmp_path):
    xr.Dataset(coords={"easting": easting, "northing": [5.0, 6.0]}).to_netcdf(tmp_path / "axes.nc")
    with pytest.raises(
        ConfigError, match=r"'easting' of '.*axes.nc' must increase or decrease from each value to the next"
    ):
        parse_grid(str(tmp_path / "axes.nc"), survey)


def test_that_the_ending_of_a_file_may_be_in_capitals(survey, tmp_path):
    (tmp_path / "WELLS.CSV").write_text("northing,easting\n1,2\n")
    assert parse_grid(str(tmp_path / "WELLS.CSV"), survey).points.tolist() == [[2, 1]]
