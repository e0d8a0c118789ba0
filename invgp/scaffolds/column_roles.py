"""Roles of the columns of a survey file, from headers and values: coordinates, observations and others."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from invgp.config.survey_tables import CsvTable, Table
from invgp.config.variable_names import RESERVED
from invgp.errors import ConfigError
from invgp.problem import Floats
from invgp.units import is_unit

# Common units at the end of a header, in the notation of UDUNITS. Others, such as `t`, are often names.
_SUFFIXES = {
    "m": "m",
    "km": "km",
    "cm": "cm",
    "mm": "mm",
    "ft": "ft",
    "s": "s",
    "ms": "ms",
    "us": "us",
    "hz": "Hz",
    "khz": "kHz",
    "deg": "degrees",
    "degc": "degC",
    "mgal": "mGal",
    "ugal": "uGal",
    "nt": "nT",
    "mv": "mV",
    "ohmm": "ohm m",
    "ohm_m": "ohm m",
    "ohm.m": "ohm m",
    "ohm-m": "ohm m",
    "m_s": "m s-1",
    "km_s": "km s-1",
    "m/s": "m s-1",
    "km/s": "km s-1",
    "pct": "percent",
}
_BRACKETS = re.compile(r"^(?P<stem>.*?)[\s_]*[(\[](?P<unit>[^()\[\]]+)[)\]]\s*$")
_NUMBER = re.compile(r"^(?P<stem>.*?)[\s_\-]*(?P<number>\d+)$")


@dataclass(frozen=True)
class Header:
    """The parts of the header of a column.

    Attributes
    ----------
    column : str
        The complete header.
    name : str
        Name of letters, digits and underscores, without unit and number.
    number : int or None
        Number at the end, such as that of a layer.
    unit : str
        Unit in the notation of UDUNITS; empty if the header has none.
    """

    column: str
    name: str
    number: int | None
    unit: str


def parse_header(column: str) -> Header:
    """Split a header into name, number and unit.

    Parameters
    ----------
    column : str

    Returns
    -------
    Header

    Examples
    --------
    >>> parse_header("twt_1_ms")
    Header(column='twt_1_ms', name='twt', number=1, unit='ms')
    """
    stem, unit = _split_unit(column)
    found = _NUMBER.match(stem)
    if found and found["stem"]:
        return Header(column, identifier(found["stem"]), int(found["number"]), unit)
    return Header(column, identifier(stem), None, unit)


def _split_unit(column: str) -> tuple[str, str]:
    bracketed = _BRACKETS.match(column)
    if bracketed and bracketed["stem"]:
        text = bracketed["unit"].strip().replace("Ω", "ohm").replace("µ", "u").replace("°", "degrees")
        unit = _SUFFIXES.get(text.lower(), text)
        return bracketed["stem"], unit if is_unit(unit) else ""
    words = re.split(r"[\s_]+", column)
    for count in (2, 1):
        suffix = "_".join(words[-count:]).lower()
        if len(words) > count and suffix in _SUFFIXES:
            return "_".join(words[:-count]), _SUFFIXES[suffix]
    return column, ""


def identifier(text: str) -> str:
    """Return a name that is valid in a configuration."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_").lower()
    return name if name[:1].isalpha() else f"column_{name}".rstrip("_")


COORDINATES = (
    *("x", "y", "easting", "northing", "east", "north", "longitude", "latitude", "lon", "lat", "long"),
    *("position", "distance", "chainage", "offset", "profile", "utm_e", "utm_n", "utmx", "utmy"),
)
HEIGHTS = ("z", "elevation", "elev", "height", "altitude", "alt", "dem", "topo", "topography")
STD_WORDS = (
    *(
        "std",
        "sd",
        "sigma",
        "sig",
        "err",
        "error",
        "errors",
        "unc",
        "uncert",
        "uncertainty",
        "noise",
        "stdev",
        "stddev",
    ),
    *("stderr", "dev", "deviation", "standard", "rmse", "se", "pm"),
)
DIFFERENCES = ("delta", "d")  # before the name of an observation: `dtwt`
GLUED_STD_WORDS = ("std", "sigma", "err", "error", "stdev", "stderr", "unc")  # also without an underscore: `twterr`
NAMES = ("id", "site", "station", "name", "no", "nr", "number", "index", "line", "fid", "date", "well", "point")
LONGITUDES = ("longitude", "latitude", "lon", "lat", "long")


@dataclass(frozen=True)
class SurveyColumn:
    """A column of numbers.

    Attributes
    ----------
    header : Header
    values : array, shape (N,)
    """

    header: Header
    values: Floats


@dataclass(frozen=True)
class ColumnRoles:
    """The probable role of each column.

    Attributes
    ----------
    coordinates, covariates : list of SurveyColumn
    observations : dict of str to list of SurveyColumn
        Columns whose names differ only in a number at the end are one observation.
    std_columns : dict of str to list of SurveyColumn
        Columns with the standard deviations of an observation.
    others : list of str
        Columns that are not used.
    faults : list of str
        Sentences about columns that would be used if all of their entries were numbers.
    sure : bool
        Whether the coordinates were recognised by their names.
    """

    coordinates: list[SurveyColumn]
    covariates: list[SurveyColumn]
    observations: dict[str, list[SurveyColumn]]
    std_columns: dict[str, list[SurveyColumn]]
    others: list[str]
    faults: list[str]
    sure: bool


def guess_roles(table: Table, key: str) -> ColumnRoles:
    """Guess the roles of the columns of a table from their names.

    Parameters
    ----------
    table : Table
    key : str
        Argument or option that named the table, for error messages.

    Returns
    -------
    ColumnRoles

    Raises
    ------
    ConfigError
        The table has no column of numbers, or none that can be an observation.
    """
    columns, others, faults = _read_number_columns(table)
    names = [column for column in columns if column.header.name in NAMES]
    others += [column.header.column for column in names]
    left = [column for column in columns if column not in names]
    coordinates = [column for column in left if column.header.name in COORDINATES][:2]
    sure = bool(coordinates)
    if not left:
        if faults:
            raise ConfigError(faults)
        raise ConfigError(f"{key}: must have columns of numbers, had none")
    coordinates = coordinates or left[:1]
    left = [column for column in left if column not in coordinates]
    covariates = [column for column in left if column.header.name in HEIGHTS]
    left = [column for column in left if column not in covariates]
    names_left = {column.header.name for column in left}
    std_columns = [column for column in left if _is_std(column, names_left)]
    measured = [column for column in left if column not in std_columns]
    if not measured:
        if faults:
            raise ConfigError(faults)
        raise ConfigError(
            f"{key}: must have a column of observations besides those of coordinates, had "
            f"{', '.join(repr(c.header.column) for c in columns)}"
        )
    taken = {*RESERVED, *(column.header.name for column in (*coordinates, *covariates))}
    observations = _group_columns(measured, taken)
    matched = _match_std_columns(std_columns, observations, names_left)
    used = [column for columns in matched.values() for column in columns]
    others += [column.header.column for column in std_columns if column not in used]
    return ColumnRoles(coordinates, covariates, observations, matched, others, faults, sure)


def _read_number_columns(table: Table) -> tuple[list[SurveyColumn], list[str], list[str]]:
    """Return the columns of numbers, the names of the others, and sentences about others that are mostly numbers."""
    columns: list[SurveyColumn] = []
    others: list[str] = []
    faults: list[str] = []
    for name in table.names:
        header = _with_unit_before_std(parse_header(name))
        unit = table.unit_of(name)
        try:
            values = table.columns([name], unit or "1", "--from-data")
        except ConfigError as error:
            others.append(name)
            if header.name not in NAMES and isinstance(table, CsvTable) and _are_mostly_numbers(table.texts(name, "")):
                faults += error.sentences
            continue
        if values.shape[1] != 1 or np.isnan(values).all():
            others.append(name)
            continue
        # A header without ASCII letters has no name.
        if header.name == "column":
            header = replace(header, name=f"column_{len(columns) + 1}")
        if header.name in LONGITUDES and not unit:
            unit = header.unit or "degrees"
        columns.append(SurveyColumn(replace(header, unit=unit or header.unit), values[:, 0]))
    return columns, others, faults


def _are_mostly_numbers(cells: Sequence[str]) -> bool:
    """Return whether at least half of the cells that are not empty are numbers, also with a comma for the point."""
    filled = [cell for cell in cells if cell]
    numbers = [cell for cell in filled if re.fullmatch(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?", cell)]
    return 0 < len(filled) <= 2 * len(numbers)


def _is_std(column: SurveyColumn, names: set[str]) -> bool:
    return _name_without_std(column.header, names) is not None and not np.any(column.values < 0.0)


def _with_unit_before_std(header: Header) -> Header:
    """Return a header with the unit that precedes a word for a standard deviation, as in `twt_ms_error`."""
    stem, _, last = re.sub(r"\s+", "_", header.column.strip()).rpartition("_")
    if header.unit or last.lower() not in STD_WORDS or not stem:
        return header
    before = parse_header(stem)
    return replace(header, name=f"{before.name}_{last.lower()}", number=before.number, unit=before.unit)


def _name_without_std(header: Header, names: set[str]) -> str | None:
    """Return the name of the observation whose standard deviation this is; None if it is not one.

    It is empty for a column whose name is only a word such as `error`.
    """
    words = header.name.split("_")
    kept = [word for word in words if word not in STD_WORDS]
    if len(kept) < len(words):
        return "_".join(kept)
    for word in DIFFERENCES:
        rest = header.name.removeprefix(word).removeprefix("_")
        if header.name.startswith(word) and rest in names:
            return rest
    for word in GLUED_STD_WORDS:
        for rest in (header.name.removesuffix(word), header.name.removeprefix(word)):
            if rest != header.name and rest.strip("_") in names:
                return rest.strip("_")
    return None


def _group_columns(columns: Sequence[SurveyColumn], taken: set[str]) -> dict[str, list[SurveyColumn]]:
    """Group columns whose names differ only in a number."""
    groups: dict[tuple[str, str], list[SurveyColumn]] = {}
    for column in columns:
        groups.setdefault((column.header.name, column.header.unit), []).append(column)
    found: dict[str, list[SurveyColumn]] = {}
    for (name, _), members in groups.items():
        numbers = [member.header.number for member in members]
        together = len(members) > 1 and None not in numbers and len(set(numbers)) == len(numbers)
        for part in [members] if together else [[member] for member in members]:
            number = part[0].header.number
            own = name if len(part) > 1 or number is None else f"{name}_{number}"
            while own in taken or own in found:
                own += "_observed" if own in taken else "_2"
            found[own] = part
    return found


def _match_std_columns(
    std_columns: Sequence[SurveyColumn], observations: dict[str, list[SurveyColumn]], names: set[str]
) -> dict[str, list[SurveyColumn]]:
    """Return the standard deviations of each observation that has one, in its unit, for each of its columns."""
    matched: dict[str, list[SurveyColumn]] = {}
    alone = [column for column in std_columns if _name_without_std(column.header, names) == ""]
    for name, columns in observations.items():
        known = {
            (_name_without_std(column.header, names), column.header.number): column
            for column in std_columns
            if column.header.unit in ("", columns[0].header.unit)
        }
        mine = [known.get((column.header.name, column.header.number)) for column in columns]
        found = [column for column in mine if column is not None]
        if len(found) == len(columns):
            matched[name] = found
        elif len(observations) == len(columns) == len(alone) == 1 and alone[0].header.unit in (
            "",
            columns[0].header.unit,
        ):
            matched[name] = alone
    return matched
