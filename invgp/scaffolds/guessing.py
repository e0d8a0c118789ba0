"""What the columns of a survey file are: where, what was measured, how well, and what the simulator may want."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from invgp.config.survey_tables import Table
from invgp.config.variable_names import RESERVED
from invgp.errors import ConfigError
from invgp.problem import Floats
from invgp.scaffolds.headers import Header, parsed

COORDINATES = (
    *("x", "y", "easting", "northing", "east", "north", "longitude", "latitude", "lon", "lat", "long"),
    *("position", "distance", "chainage", "offset", "profile", "utm_e", "utm_n", "utmx", "utmy"),
)
HEIGHTS = ("z", "elevation", "elev", "height", "altitude", "alt", "dem", "topo", "topography")
SPREADS = ("std", "sd", "sigma", "err", "error", "unc", "uncertainty", "noise")
NAMES = ("id", "site", "station", "name", "no", "nr", "number", "index", "line", "fid", "date", "well", "point")
LONGITUDES = ("longitude", "latitude", "lon", "lat", "long")


@dataclass(frozen=True)
class Column:
    """A column of numbers, (N,)."""

    header: Header
    values: Floats


@dataclass(frozen=True)
class Guess:
    """What each column is taken for.

    Parameters
    ----------
    observations : by name; several columns that differ in a number at their end are one observation.
    spreads : by the name of an observation, the columns of its standard deviations.
    others : columns that are left out.
    sure : whether the coordinates were known by their names.
    """

    coordinates: list[Column]
    covariates: list[Column]
    observations: dict[str, list[Column]]
    spreads: dict[str, list[Column]]
    others: list[str]
    sure: bool


def guess(table: Table, key: str) -> Guess:
    """Take a table apart; `key` is what named it."""
    columns, others = _numbers(table)
    names = [column for column in columns if column.header.name in NAMES]
    others += [column.header.column for column in names]
    left = [column for column in columns if column not in names]
    coordinates = [column for column in left if column.header.name in COORDINATES][:2]
    sure = bool(coordinates)
    if not left:
        raise ConfigError(f"{key}: must have columns of numbers, had none")
    coordinates = coordinates or left[:1]
    left = [column for column in left if column not in coordinates]
    covariates = [column for column in left if column.header.name in HEIGHTS]
    left = [column for column in left if column not in covariates]
    spreads = [column for column in left if _of_spread(column.header) is not None]
    measured = [column for column in left if column not in spreads]
    if not measured:
        raise ConfigError(
            f"{key}: must have a column of observations besides those of coordinates, had "
            f"{', '.join(repr(c.header.column) for c in columns)}"
        )
    taken = {*RESERVED, *(column.header.name for column in (*coordinates, *covariates))}
    observations = _grouped(measured, taken)
    return Guess(coordinates, covariates, observations, _matched(spreads, observations), others, sure)


def _numbers(table: Table) -> tuple[list[Column], list[str]]:
    """Columns of numbers, and the names of the others."""
    columns: list[Column] = []
    others: list[str] = []
    for name in table.names:
        header = parsed(name)
        unit = table.unit_of(name)
        try:
            values = table.columns([name], unit or "1", "--from-data")
        except ConfigError:
            others.append(name)
            continue
        if values.shape[1] != 1 or np.isnan(values).all():
            others.append(name)
            continue
        # A header of letters without an ASCII one among them has no name of its own.
        if header.name == "column":
            header = replace(header, name=f"column_{len(columns) + 1}")
        if header.name in LONGITUDES and not unit:
            unit = header.unit or "degrees"
        columns.append(Column(replace(header, unit=unit or header.unit), values[:, 0]))
    return columns, others


def _of_spread(header: Header) -> str | None:
    """The name of the observation of whose standard deviation this is; None if it is something else."""
    words = header.name.split("_")
    kept = [word for word in words if word not in SPREADS]
    return "_".join(kept) if kept and len(kept) < len(words) else None


def _grouped(columns: Sequence[Column], taken: set[str]) -> dict[str, list[Column]]:
    """Columns that differ in a number only are one observation."""
    groups: dict[tuple[str, str], list[Column]] = {}
    for column in columns:
        groups.setdefault((column.header.name, column.header.unit), []).append(column)
    found: dict[str, list[Column]] = {}
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


def _matched(spreads: Sequence[Column], observations: dict[str, list[Column]]) -> dict[str, list[Column]]:
    """The columns of standard deviations of each observation that has one for each of its columns."""
    matched = {}
    for name, columns in observations.items():
        known = {(_of_spread(column.header), column.header.number): column for column in spreads}
        mine = [known.get((column.header.name, column.header.number)) for column in columns]
        found = [column for column in mine if column is not None]
        if len(found) == len(columns):
            matched[name] = found
    return matched
