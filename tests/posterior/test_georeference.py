"""Grid mappings, held to PROJ."""

import pytest
from pyproj import CRS, Transformer

from invgp.posterior.dataset import grid_mapping

PLACE = 140.2, -36.7  # longitude and latitude


@pytest.mark.parametrize(
    ("crs", "unit", "metres"),
    [("EPSG:28354", "m", 1.0), ("EPSG:28354", "km", 1000.0), ("EPSG:3577", "km", 1000.0), ("EPSG:2263", "m", 1.0)],
)
def test_that_programs_that_read_the_wkt_put_a_coordinate_in_any_unit_where_it_is(crs, unit, metres):
    own = CRS(crs)
    there = Transformer.from_crs(4326, own, always_xy=True).transform(*PLACE)
    in_metres = own.axis_info[0].unit_conversion_factor
    position = [value * in_metres / metres for value in there]
    found = CRS.from_cf(grid_mapping(crs, unit))
    assert Transformer.from_crs(found, 4326, always_xy=True).transform(*position) == pytest.approx(PLACE, abs=1e-9)


@pytest.mark.parametrize(("unit", "metres"), [("m", 1.0), ("km", 1000.0)])
def test_that_programs_that_read_the_parameters_find_the_false_origin_in_the_unit_of_the_coordinates(unit, metres):
    found = grid_mapping("EPSG:28354", unit)
    assert (found["false_easting"] * metres, found["false_northing"] * metres) == (500_000.0, 10_000_000.0)


def test_that_a_system_in_the_unit_of_the_coordinates_keeps_its_place_in_the_register():
    assert CRS.from_cf(grid_mapping("EPSG:28354", "metre")).to_epsg() == 28354
    assert CRS.from_cf(grid_mapping("EPSG:2263", "US_survey_foot")).to_epsg() == 2263
    assert CRS.from_cf(grid_mapping("EPSG:4326", "degrees_north")).to_epsg() == 4326
