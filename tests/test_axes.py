"""Which way coordinates run, by what is known of them."""

import pytest

from invgp.axes import axis_letters, standard_name


@pytest.mark.parametrize(
    ("about", "letters"),
    [
        ({"a": {}, "b": {}, "c": {}}, "XYZ"),
        ({"northing": {}, "easting": {}}, "YX"),
        ({"lat": {"units": "degrees_north"}, "lon": {"units": "degrees_east"}}, "YX"),
        ({"phi": {"units": "degrees_north"}, "theta": {}}, "YX"),
        ({"depth": {"positive": "down"}, "x": {}, "y": {}}, "ZXY"),
        ({"x": {"standard_name": "projection_y_coordinate"}, "y": {"standard_name": "projection_x_coordinate"}}, "YX"),
        ({"y": {}, "z": {}}, "XY"),  # a section: one name alone does not tell
    ],
)
def test_that_coordinates_are_identified_by_name_unit_and_sign(about, letters):
    assert "".join(axis_letters(about).values()) == letters


def test_that_cf_names_follow_from_unit_and_reference_system():
    assert standard_name("X", "m", "EPSG:28354") == "projection_x_coordinate"
    assert standard_name("Y", "km", "EPSG:28354") == "projection_y_coordinate"
    assert standard_name("Y", "degrees_north", None) == "latitude"
    assert standard_name("X", "m", None) == ""
    assert standard_name("Z", "m", "EPSG:28354") == ""
