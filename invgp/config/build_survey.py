"""Survey: sites with coordinates, covariates and observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pyproj import CRS
from pyproj.exceptions import CRSError

from invgp.config.mistakes import Mistakes, build_each
from invgp.config.survey_tables import Table
from invgp.config.toml_document import LARGEST
from invgp.config.variable_names import labels_of
from invgp.errors import ConfigError
from invgp.formatting import format_value, join_names
from invgp.problem import Column, Observation, Survey
from invgp.settings.configuration import ColumnSection, Config
from invgp.units import conversion

SITE_NUMBER = "site_number"  # coordinate of a survey without coordinates


def build_survey(config: Config, table: Table) -> Survey:
    """Build the survey of a configuration from its table."""
    section, mistakes = config.survey, Mistakes()
    if not section.coordinates and not can_omit_coordinates(config):
        raise ConfigError(
            "survey.coordinates: is missing; it must be one to three tables such as [survey.coordinates.x]"
        )
    if section.crs is not None:
        crs = section.crs
        mistakes.collect(lambda: _check_crs(crs, section.coordinates))
    coordinates, covariates = (
        mistakes.collect(lambda kind=kind, columns=columns: _columns_of(table, kind, columns))  # type: ignore[misc]
        for kind, columns in (("coordinates", section.coordinates), ("covariates", section.covariates))
    )
    if coordinates is not None:
        mistakes.collect(lambda: _check_no_site_twice(coordinates))
    observations = mistakes.collect(
        lambda: build_each(lambda name: _observation(config, table, name), section.observations)
    )
    mistakes.raise_all()
    if coordinates is None or covariates is None or observations is None:
        raise ConfigError("survey: cannot be used")
    located = coordinates or (_site_numbers(len(observations[0].values)),)
    return Survey(located, observations, covariates, section.crs)


def can_omit_coordinates(config: Config) -> bool:
    """Return whether the survey needs no coordinates: for a field model, or if no latent depends on them."""
    return config.forward.kind == "field" or all(latent.domain == "scalar" for latent in config.latents.values())


def _site_numbers(size: int) -> Column:
    """Return the coordinate of a survey without coordinates."""
    return Column(SITE_NUMBER, "1", np.arange(1.0, size + 1.0), "number of the site")


def _columns_of(table: Table, kind: str, sections: Mapping[str, ColumnSection]) -> tuple[Column, ...]:
    return build_each(lambda item: _column(table, item[0], item[1], f"survey.{kind}.{item[0]}"), sections.items())


def _check_crs(crs: str, coordinates: Mapping[str, ColumnSection]) -> None:
    try:
        system = CRS.from_user_input(crs)
    except CRSError:
        raise ConfigError(
            f"survey.crs: must be a coordinate reference system that PROJ knows, such as 'EPSG:28354', was "
            f"{format_value(crs)}"
        ) from None
    if not (system.is_geographic or system.is_projected):
        return  # of a local or a geocentric system we know nothing
    kind, unit = ("geographic", "degrees") if system.is_geographic else ("projected", "metres")
    for name, column in list(coordinates.items())[:2]:  # a third is a height
        if conversion(column.unit, unit) is None:
            raise ConfigError(
                f"survey.crs: must be one of coordinates in {column.unit!r}, the unit of {name!r}, was "
                f"{format_value(crs)} "
                f"({system.name}), which is {kind}: its coordinates are in {unit}, or a unit that converts to them"
            )


def _column(table: Table, name: str, section: ColumnSection, key: str) -> Column:
    column = section.column or name
    values = table.columns([column], section.unit, f"{key}.column")
    if values.shape[1] != 1:
        raise ConfigError(f"{key}.column: must be one number a site, was {values.shape[1]} a site in {column!r}")
    bad = np.flatnonzero(~(np.abs(values[:, 0]) <= LARGEST))
    if bad.size:
        was = "missing" if np.isnan(values[bad[0], 0]) else describe_size(values[bad[0], 0])
        raise ConfigError(f"{key}.column: must be a number at every site, was {was} in {column!r} at site {bad[0] + 1}")
    return Column(name, section.unit, values[:, 0], section.long_name, section.standard_name, section.positive)


def _check_no_site_twice(coordinates: Sequence[Column]) -> None:
    if not coordinates:
        return
    positions = np.stack([c.values for c in coordinates], axis=-1)
    _, first, count = np.unique(positions, axis=0, return_index=True, return_counts=True)
    if np.any(count > 1):
        repeated = int(first[count > 1].min())
        others = np.flatnonzero(np.all(positions == positions[repeated], axis=-1))
        raise ConfigError(
            f"survey.coordinates: must differ from site to site, was {format_value(positions[repeated].tolist())} "
            f"at sites {join_names(int(i) + 1 for i in others)}"
        )


def _observation(config: Config, table: Table, name: str) -> Observation:
    section = config.survey.observations[name]
    key = f"survey.observations.{name}"
    labels = labels_of(config, section.dimension, key)
    values = table.columns(section.columns, section.unit, f"{key}.columns")
    wanted = 1 if labels is None else len(labels)
    if values.shape[1] != wanted:
        which = "it has no dimension" if labels is None else f"one for each label of {section.dimension!r}"
        raise ConfigError(f"{key}.columns: must be {columns(wanted)} ({which}), was {values.shape[1]}")
    too_large = np.argwhere(np.abs(values) > LARGEST)
    if too_large.size:
        site, column = too_large[0]
        was = describe_size(values[site, column])
        raise ConfigError(
            f"{key}.columns: must be finite numbers, or empty where nothing was measured, was {was} at site {site + 1}"
        )
    if np.all(np.isnan(values)):
        raise ConfigError(f"{key}.columns: must hold a number at one site at least, was empty at every site")
    return Observation(name, section.unit, values, section.dimension, labels, section.long_name, section.standard_name)


def describe_size(number: float) -> str:
    """Describe a number that is too large."""
    return "infinite" if np.isinf(number) else f"{number:g} (more than {LARGEST:g})"


def columns(count: int) -> str:
    """Return a number of columns as text."""
    return "1 column" if count == 1 else f"{count} columns"
