"""Direct data in a configuration: what is read, and one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from helpers.config_files import WriteSurvey
from invgp.config import load
from invgp.errors import ConfigError

WELLS = "easting,northing,top,top_sd,dz\n500010,6000020,210,5,300\n500900,6000950,,7,310\n"
FROM_FILE = """
[direct.wells]
file = "wells.csv"

[direct.wells.values.top]
quantity = "depth[1]"
std = "top_sd"

[direct.wells.values.dz]
quantity = "depth[2] - depth[1]"
std = "2%"
"""
INLINE = """
[direct.well]
coordinates = { easting = 500010, northing = 6000020 }

[direct.well.values.tops]
quantity = "depth"
value = [210, 505]
std = [5, 8]
"""


def write_config(write_survey: WriteSurvey, text: str, table: str = WELLS) -> Path:
    config = write_survey()
    (config.parent / "wells.csv").write_text(table)
    config.write_text(config.read_text() + text)
    return config


def test_that_values_are_read_from_a_table(write_survey: WriteSurvey) -> None:
    problem = load(write_config(write_survey, FROM_FILE))
    [wells] = problem.sources
    own = problem.parts[1].problem
    assert wells.direct
    assert wells.name == "wells"
    assert list(own.survey.X[:, 0]) == [500010.0, 500900.0]
    np.testing.assert_array_equal(own.survey.Y, [[210.0, 300.0], [np.nan, 310.0]])
    np.testing.assert_allclose(own.noise_std[0], [5.0, 6.0])
    assert problem.survey.size == own.survey.size + problem.parts[0].problem.survey.size
    assert np.isnan(problem.survey.Y[: -own.survey.size, 2:]).all()


def test_that_a_change_of_the_table_changes_the_digest(write_survey: WriteSurvey) -> None:
    config = write_config(write_survey, FROM_FILE)
    first = load(config).survey.digest
    (config.parent / "wells.csv").write_text(WELLS.replace("210", "211"))
    assert load(config).survey.digest != first


def test_that_all_labels_can_be_given_in_the_configuration(write_survey: WriteSurvey) -> None:
    own = load(write_config(write_survey, INLINE)).parts[1].problem
    np.testing.assert_array_equal(own.survey.Y, [[210.0, 505.0]])
    np.testing.assert_array_equal(own.noise_std, [[5.0, 8.0]])
    assert own.survey.observations[0].labels == (1, 2)


def test_that_netcdf_units_are_converted(write_survey: WriteSurvey) -> None:
    text = FROM_FILE.replace("wells.csv", "wells.nc").replace('"top_sd"', "5")
    config = write_config(write_survey, text)
    xr.Dataset(
        {
            "easting": ("well", [500.01], {"units": "km"}),
            "northing": ("well", [6000.02], {"units": "km"}),
            "top": ("well", [0.21], {"units": "km"}),
            "dz": ("well", [300.0], {"units": "m"}),
        }
    ).to_netcdf(config.parent / "wells.nc")
    own = load(config).parts[1].problem
    np.testing.assert_allclose(own.survey.X, [[500010.0, 6000020.0]])
    np.testing.assert_allclose(own.survey.Y, [[210.0, 300.0]])


def test_that_a_value_can_have_its_own_unit(write_survey: WriteSurvey) -> None:
    text = INLINE.replace("value = [210, 505]\nstd = [5, 8]", 'value = [0.21, 0.505]\nstd = 0.005\nunit = "km"')
    problem = load(write_config(write_survey, text))
    part = problem.parts[1].problem
    assert part.survey.observations[0].unit == "km"
    rows = part.to_simulator(np.asarray([[[210.0, 505.0, 2000.0]]]))
    np.testing.assert_allclose(part.forward.compute(rows), [[0.21, 0.505]])


def test_that_an_average_has_an_interval(write_survey: WriteSurvey) -> None:
    text = INLINE.replace("easting = 500010", "easting = { start = 500000, stop = 500100 }")
    survey = load(write_config(write_survey, text)).survey
    assert survey.extents is not None
    np.testing.assert_allclose(survey.extents[-1], [50.0, 0.0])
    np.testing.assert_allclose(survey.X[-1], [500050.0, 6000020.0])


AVERAGED = "easting = { start = 500000, stop = 500100 }"


@pytest.mark.parametrize(
    ("text", "old", "new", "sentence"),
    [
        (FROM_FILE, '"wells.csv"', '"wel.csv"', "direct.wells.file: must be a file that can be read"),
        (FROM_FILE, '"depth[1]"', '"deep[1]"', "direct.wells.values.top.quantity: there is no latent 'deep'"),
        (FROM_FILE, '"depth[1]"', '"depth[9]"', "direct.wells.values.top.quantity: 'depth' has no label 9"),
        (FROM_FILE, '"depth[1]"', '"3"', "direct.wells.values.top.quantity: must name a latent"),
        (FROM_FILE, '"depth[1]"', '"depth["', "direct.wells.values.top.quantity: must be an expression"),
        (FROM_FILE, '"depth[1]"', '"depth"', "direct.wells.values.top.value: must be 2 columns"),
        (FROM_FILE, '"top_sd"', '"nothing"', "direct.wells.values.top.std: must be a column of wells.csv"),
        (FROM_FILE, '"top_sd"', "-1", "direct.wells.values.top.std: must be a positive number"),
        (INLINE, "[5, 8]", "[5, 1e-11]", "direct.well.values.tops.std: must be at least 1e-12 times the value"),
        (FROM_FILE, "values.dz]", "values.time]\nvalue = 'dz'", "direct.wells.values.time: must have names of its own"),
        (FROM_FILE, "values.top]", "values.top]\nvalue = 'no'", "direct.wells.values.top.value: must be a column of"),
        (FROM_FILE, '[direct.wells]', "[direct.wells]\ncoordinates = { x = 3 }", "wells.coordinates.x: must be a"),
        (INLINE, "easting = 500010, ", "", "direct.well.coordinates.easting: is missing; without a file it must be"),
        (INLINE, "500010", '"east"', "direct.well.coordinates.easting.at: must be a number or a list of numbers"),
        (INLINE, "500010, northing = 6000020", "[1, 2, 3], northing = [1, 2]", "coordinates.northing: must be one"),
        (INLINE, "[direct.well]", "[direct.survey]", "direct.survey: must have another name"),
        (INLINE, "500010", "{ start = 3 }", "direct.well.coordinates.easting: must have either 'at', or 'start'"),
        (INLINE, "500010", "{ start = 3, stop = 1 }", "direct.well.coordinates.easting.stop: must be at least start"),
        (INLINE, "500010", "true", "direct.well.coordinates.easting.at: must be a number"),
        (INLINE, "[210, 505]", "[210, 505, 3]", "direct.well.values.tops.value: must be one number, or a list of 2"),
        (INLINE, "value = [210, 505]", "", "direct.well.values.tops.value: is missing; without a file"),
        (INLINE, "std = [5, 8]", "", "direct.well.values.tops.std: is missing"),
        (INLINE, '"depth"', '"depth * velocity"', "must be a"),
        (INLINE, "std = [5, 8]", 'std = [5, 8]\nunit = "s"', "tops.quantity: 'm' cannot be converted"),
        (INLINE, "values.tops]", "values.tops]\nnoise = 3", "direct.well.values.tops.noise: unknown key"),
    ],
)  # fmt: skip
def test_that_a_mistake_is_one_sentence(
    write_survey: WriteSurvey, text: str, old: str, new: str, sentence: str
) -> None:
    assert old in text
    if old == '"depth"':  # a product is allowed at a point, not over an interval
        text, sentence = text.replace("easting = 500010", AVERAGED), "must have latents with link = 'identity'"
    text = text.replace(old, new)
    if "[direct.survey]" in text:
        text = text.replace("direct.well.values", "direct.survey.values")
    with pytest.raises(ConfigError) as error:
        load(write_config(write_survey, text))
    assert sentence in str(error.value)
    assert len(error.value.sentences) == 1


def test_that_an_interval_that_is_too_long_is_refused(write_survey: WriteSurvey) -> None:
    text = INLINE.replace("easting = 500010", "easting = { start = 490000, stop = 500100 }")
    with pytest.raises(ConfigError, match="easting: must be an interval of at most 10 length-scales of 'depth', was"):
        load(write_config(write_survey, text))


def test_that_an_average_of_white_noise_is_refused(write_survey: WriteSurvey) -> None:
    text = INLINE.replace("easting = 500010", AVERAGED)
    config = write_config(write_survey, text)
    white = 'kernel = { kind = "sum", parts = [{ kind = "matern 5/2", length_scale = 300 }, { kind = "white" }] }'
    old = 'kernel = { kind = "matern 5/2", length_scale = 1000 }'
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, white))
    with pytest.raises(ConfigError, match="must have latents without a white kernel for an average over an interval"):
        load(config)
