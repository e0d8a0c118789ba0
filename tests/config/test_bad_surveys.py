"""Every fault of a survey file gives one sentence, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import h5py
import numpy as np
import pytest
import xarray as xr

from helpers.config_files import SITES, WriteSurvey
from helpers.config_mistakes import sentence_of
from helpers.netcdf_files import write_endless_netcdf
from invgp.config import load
from invgp.files import netcdf_container


class Case(NamedTuple):
    """Edits to the survey and the config of the fixtures, and the sentence that they give."""

    fault: str
    sites: dict[str, str]
    config: dict[str, str]
    sentence: str


COLUMN_NOISE = {"std.time = 0.05": 'std.time = ["s1", "s2"]'}
CELLS = [
    Case(
        "column missing",
        {"elev": "elve"},
        {},
        "survey.covariates.elevation.column: must be a column of sites.csv, which has no column 'elev'; valid: "
        "'easting', 'northing', 'elve', 't1', 't2', 's1' and 's2'; did you mean 'elve'?",
    ),
    Case(
        "column twice",
        {"s1": "elev"},
        {},
        "survey.covariates.elevation.column: must be a column of sites.csv, which has 2 columns 'elev'",
    ),
    Case(
        "text in a number",
        {"0.21": "0.21 s"},
        {},
        "survey.observations.time.columns: column 't1' of sites.csv must hold numbers, or nothing where there is "
        "none, was '0.21 s' in line 3",
    ),
    Case(
        "underscore in a number",
        {"0.21": "0_21"},
        {},
        "survey.observations.time.columns: column 't1' of sites.csv must hold numbers, or nothing where there is "
        "none, was '0_21' in line 3",
    ),
    Case(
        "no number for a missing cell",
        {"0.21": "n/a"},
        {},
        "survey.observations.time.columns: column 't1' of sites.csv must hold numbers, or nothing where there is "
        "none, was 'n/a' in line 3",
    ),
    Case(
        "decimal comma in quotes",
        {"0.21": '"0,21"'},
        {},
        "survey.observations.time.columns: column 't1' of sites.csv must hold numbers, or nothing where there is "
        "none, was '0,21' in line 3; decimals are written with a point",
    ),
    Case(
        "coordinate missing",
        {"100,0,12": ",0,12"},
        {},
        "survey.coordinates.easting.column: must be a number at every site, was missing in 'easting' at site 2",
    ),
    Case(
        "coordinate NaN",
        {"100,0,12": "nan,0,12"},
        {},
        "survey.coordinates.easting.column: must be a number at every site, was missing in 'easting' at site 2",
    ),
    Case(
        "covariate infinite",
        {"100,0,12": "100,0,inf"},
        {},
        "survey.covariates.elevation.column: must be a number at every site, was infinite in 'elev' at site 2",
    ),
    Case(
        "observation infinite",
        {"0.21": "inf"},
        {},
        "survey.observations.time.columns: must be finite numbers, or empty where nothing was measured, was "
        "infinite at site 2",
    ),
    Case(
        "site twice",
        {"0,100,14": "0,0,14"},
        {},
        "survey.coordinates: must differ from site to site, was [0.0, 0.0] at sites 1 and 3; repeated "
        "measurements need one row with their mean, or further columns",
    ),
    Case(
        "no observation",
        {"0.20,0.50": ",", "0.21": "", "0.22,0.52": ","},
        {},
        "survey.observations.time.columns: must hold a number at one site at least, was empty at every site",
    ),
    Case(
        "a row too long",
        {"0.21,,0.01,": "0.21,,0.01,,"},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': line 3 has 8 cells, the header has 7",
    ),
    Case(
        "a row too short",
        {"0.21,,0.01,": "0.21,,0.01"},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': line 3 has 6 cells, the header has 7",
    ),
    Case(
        "decimal commas",
        {"0.21": "0,21"},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': line 3 has 8 cells, the header has 7",
    ),
    Case(
        "open quote",
        {"0.21": '"0.21'},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': line 3 has a quote that is not closed",
    ),
    Case(
        "header only",
        {SITES.partition("\n")[2]: ""},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': it has a header, and no row below it",
    ),
    Case(
        "empty",
        {SITES: ""},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': it is empty; the first line must name "
        "the columns",
    ),
    Case(
        "blank",
        {SITES: "\n\n"},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': it is empty; the first line must name "
        "the columns",
    ),
    Case(
        "semicolons",
        {SITES: SITES.replace(",", ";")},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': its columns are separated by "
        "semicolons, they must be by commas",
    ),
    Case(
        "tabs",
        {SITES: SITES.replace(",", "\t")},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': its columns are separated by tabs, they "
        "must be by commas",
    ),
    Case(
        "semicolons and decimal commas, as Excel writes them in half of Europe",
        {SITES: SITES.replace(",", ";").replace(".", ",")},
        {},
        "survey.file: must be a CSV file of sites, was '<here>/sites.csv': its columns are separated by semicolons, "
        "they must be by commas, with points in numbers",
    ),
    Case(
        "NaN everywhere",
        {"0.20,0.50": "nan,NaN", "0.21": "nan", "0.22,0.52": "NaN,nan"},
        {},
        "survey.observations.time.columns: must hold a number at one site at least, was empty at every site",
    ),
    Case(
        "non-ASCII name of a column, misspelt",
        {"elev": "Höhe"},
        {'column = "elev"': 'column = "Hohe"'},
        "survey.covariates.elevation.column: must be a column of sites.csv, which has no column 'Hohe'; valid: "
        "'easting', 'northing', 'Höhe', 't1', 't2', 's1' and 's2'; did you mean 'Höhe'?",
    ),
    Case(
        "several columns at once",
        {"elev": "elve", "t2": "tt"},
        {},
        "survey.covariates.elevation.column: must be a column of sites.csv, which has no column 'elev'; valid: "
        "'easting', 'northing', 'elve', 't1', 'tt', 's1' and 's2'; did you mean 'elve'?\n"
        "survey.observations.time.columns: must be a column of sites.csv, which has no column 't2'; valid: "
        "'easting', 'northing', 'elve', 't1', 'tt', 's1' and 's2'",
    ),
    Case(
        "noise missing where observed",
        {"0.01,0.02": "0.01,"},
        COLUMN_NOISE,
        "noise.std.time: must be positive wherever there is an observation, was missing at site 1",
    ),
    Case(
        "noise of zero",
        {"0.01,0.02": "0.01,0"},
        COLUMN_NOISE,
        "noise.std.time: must be positive wherever there is an observation, was 0 at site 1",
    ),
    Case(
        "noise negative",
        {"0.01,0.02": "-0.01,0.02"},
        COLUMN_NOISE,
        "noise.std.time: must be positive wherever there is an observation, was -0.01 at site 1",
    ),
    Case(
        "noise a share of zero",
        {"0.50": "0"},
        {"std.time = 0.05": 'std.time = "5%"'},
        "noise.std.time: must be positive wherever there is an observation, was 5% of an observation of 0 at site 1",
    ),
    Case(
        "noise below rounding",
        {"0.01,0.02": "0.01,1e-14"},
        COLUMN_NOISE,
        "noise.std.time: must be at least 1e-12 times the observation, or times the largest one where it is 0, because "
        "double precision resolves no less, was 1e-14 for 0.5 at site 1",
    ),
    Case(
        "noise below rounding beside a datum of zero",
        {"0.50": "0"},
        {"std.time = 0.05": "std.time = [0.05, 1e-30]"},
        "noise.std.time: must be at least 1e-12 times the observation, or times the largest one where it is 0, because "
        "double precision resolves no less, was 1e-30 for 0 at site 1",
    ),
    Case(
        "file missing",
        {},
        {'file = "sites.csv"': 'file = "sits.csv"'},
        "survey.file: must be a file that can be read, was '<here>/sits.csv', which does not exist; did you mean "
        "'sites.csv'?",
    ),
    Case(
        "file far from any",
        {},
        {'file = "sites.csv"': 'file = "line.csv"'},
        "survey.file: must be a file that can be read, was '<here>/line.csv', which does not exist",
    ),
    Case(
        "folder missing",
        {},
        {'file = "sites.csv"': 'file = "data/sites.csv"'},
        "survey.file: must be a file that can be read, was '<here>/data/sites.csv', which does not exist (nor "
        "does the directory '<here>/data')",
    ),
    Case(
        "a folder",
        {},
        {'file = "sites.csv"': 'file = "."'},
        "survey.file: must be a file that can be read, was '<here>', which is not a regular file",
    ),
]


@pytest.mark.parametrize("case", CELLS, ids=[case.fault for case in CELLS])
def test_that_a_fault_of_a_csv_gives_one_error_message(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config, case.sites)) == case.sentence


def test_that_a_csv_that_is_not_utf8_names_the_byte(write_survey: WriteSurvey) -> None:
    path = write_survey()
    (path.parent / "sites.csv").write_bytes(SITES.replace("elev", "élev").encode("latin-1"))
    assert sentence_of(path) == (
        "survey.file: must be a CSV file in UTF-8 (or netCDF, with a name that ends in .nc), was '<here>/sites.csv', "
        "whose byte 18 is not UTF-8"
    )


def test_that_a_csv_in_utf16_is_reported(write_survey: WriteSurvey) -> None:
    path = write_survey()
    (path.parent / "sites.csv").write_bytes(SITES.encode("utf-16"))
    assert sentence_of(path) == (
        "survey.file: must be a CSV file in UTF-8 (or netCDF, with a name that ends in .nc), was '<here>/sites.csv', "
        "which is UTF-16; save it as UTF-8"
    )


@pytest.mark.parametrize(
    "content",
    [
        SITES.encode("utf-8-sig"),
        SITES.replace("\n", "\r\n").encode(),
        SITES.replace(",", ", ").encode(),
        (SITES + "\n\n").encode(),
        SITES.replace("elev", '"elev"').encode(),
        "".join(f'"{line}"\n'.replace(",", '","') for line in SITES.splitlines()).encode(),
    ],
    ids=["byte-order mark", "CRLF", "spaces after commas", "blank lines at the end", "quotes", "quotes everywhere"],
)
def test_that_what_spreadsheets_add_is_no_fault(content: bytes, write_survey: WriteSurvey) -> None:
    path = write_survey()
    plain = load(path).survey.Y
    (path.parent / "sites.csv").write_bytes(content)
    np.testing.assert_array_equal(load(path).survey.Y, plain)


def test_that_a_fault_of_another_data_file_names_the_argument(write_survey: WriteSurvey) -> None:
    path = write_survey()
    assert sentence_of(path, path.parent / "line.csv") == (
        "data: must be a file that can be read, was '<here>/line.csv', which does not exist"
    )


@pytest.mark.parametrize("content", [b"", SITES.encode()])
def test_that_a_file_that_is_not_netcdf_is_reported(content: bytes, write_survey: WriteSurvey) -> None:
    path = write_survey({"sites.csv": "sites.nc"})
    (path.parent / "sites.nc").write_bytes(content)
    assert sentence_of(path) == (
        "survey.file: must be a netCDF file of sites, was '<here>/sites.nc': it is not a netCDF file"
    )


@pytest.mark.slow
def test_that_a_damaged_netcdf_file_on_which_the_library_never_returns_is_reported(
    write_survey: WriteSurvey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netcdf_container, "PATIENCE", 2.0)
    path = write_survey({"sites.csv": "sites.nc"})
    write_endless_netcdf(path.parent / "sites.nc")
    assert sentence_of(path).endswith("was '<here>/sites.nc': reading it takes too long, more than 2 s")


def test_that_a_netcdf_survey_does_not_lead_to_another_file(write_survey: WriteSurvey) -> None:
    path = write_survey({"sites.csv": "sites.nc"})
    with h5py.File(path.parent / "elsewhere.nc", "w") as file:
        file["northing"] = np.arange(3.0)
    with h5py.File(path.parent / "sites.nc", "w") as file:
        file["northing"] = h5py.ExternalLink(str(path.parent / "elsewhere.nc"), "/northing")
    assert sentence_of(path).endswith("was '<here>/sites.nc': 'northing' is a link to data elsewhere")


NETCDF = {"sites.csv": "sites.nc", '["t1", "t2"]': '["t"]'}


def dataset() -> xr.Dataset:
    return xr.Dataset(
        {
            "northing": ("station", [0.0, 1.0, 2.0], {"units": "m"}),
            "elev": ("station", [10.0, 12.0, 14.0], {"units": "m"}),
            "t": (("station", "layer"), [[0.2, 0.5], [0.21, np.nan], [0.22, 0.52]], {"units": "s"}),
        },
        coords={"easting": ("station", [0.0, 100.0, 200.0], {"units": "m"})},
    )


def in_other_unit() -> xr.Dataset:
    return dataset().assign(elev=dataset()["elev"].assign_attrs(units="s"))


def in_no_unit() -> xr.Dataset:
    return dataset().assign(elev=dataset()["elev"].assign_attrs(units="metrs"))


def of_text() -> xr.Dataset:
    return dataset().assign(elev=("station", ["low", "high", "higher"]))


def along_other_sites() -> xr.Dataset:
    return dataset().assign(elev=("line", [10.0, 12.0]))


def without_sites() -> xr.Dataset:
    return dataset().isel(station=slice(0))


def of_three_layers() -> xr.Dataset:
    return dataset().assign(t=(("station", "layer3"), np.ones((3, 3))))


def with_another_name() -> xr.Dataset:
    return dataset().rename(elev="elevation")


def of_one_number() -> xr.Dataset:
    return dataset().assign(elev=1.0)


def without_a_coordinate() -> xr.Dataset:
    return dataset().rename(easting="x")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            in_other_unit,
            "survey.covariates.elevation.column: variable 'elev' of sites.nc must be in a unit that can be "
            "converted to 'm', was in 's'",
        ),
        (
            in_no_unit,
            "survey.covariates.elevation.column: variable 'elev' of sites.nc must be in a unit that can be "
            "converted to 'm', was in 'metrs'",
        ),
        (
            of_text,
            "survey.covariates.elevation.column: variable 'elev' of sites.nc must hold numbers along 'station' "
            "(the sites) and one more dimension at the most, was something else along 'station'",
        ),
        (
            along_other_sites,
            "survey.covariates.elevation.column: variable 'elev' of sites.nc must hold numbers along 'station' "
            "(the sites) and one more dimension at the most, was numbers along 'line'",
        ),
        (
            without_sites,
            "survey.file: must be a netCDF file of sites, was '<here>/sites.nc': variable 'easting' holds no sites",
        ),
        (of_three_layers, "survey.observations.time.columns: must be 2 columns (one for each label of 'layer'), was 3"),
        (
            with_another_name,
            "survey.covariates.elevation.column: must be a variable of sites.nc, which has no variable 'elev'; "
            "valid: 'easting', 'elevation', 'northing' and 't'; did you mean 'elevation'?",
        ),
        (
            of_one_number,
            "survey.covariates.elevation.column: variable 'elev' of sites.nc must hold numbers along 'station' "
            "(the sites) and one more dimension at the most, was numbers along no dimension",
        ),
        (
            without_a_coordinate,
            "survey.coordinates.easting.column: must be a variable of sites.nc, which has no variable 'easting'; "
            "valid: 'elev', 'northing', 't' and 'x'",
        ),
    ],
)
def test_that_a_fault_of_a_netcdf_gives_one_error_message(
    make: Callable[[], xr.Dataset], sentence: str, write_survey: WriteSurvey
) -> None:
    path = write_survey(NETCDF)
    make().to_netcdf(path.parent / "sites.nc")
    assert sentence_of(path) == sentence
