"""Sites with coordinates, covariates and observations, and the grid of a field model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pyproj import CRS
from pyproj.exceptions import CRSError

from invgp.config.survey_tables import CsvTable, NetcdfTable, Table, read_table
from invgp.config.toml_document import LARGEST
from invgp.config.variable_names import labels_of
from invgp.errors import ConfigError, Mistakes, build_each
from invgp.files.meshes import AXES
from invgp.formatting import format_value, join_names
from invgp.problem import Column, Floats, Grid, Observation, Survey
from invgp.settings.configuration import AxisSection, ColumnSection, Config, GridSection
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
            f"at sites {join_names(int(i) + 1 for i in others)}; repeated measurements need one row with their mean, "
            "or further columns"
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


MOST_NODES = 10**6
OF_A_REGULAR_GRID = ("start", "stop", "step")


def build_grid(config: Config, directory: Path) -> Grid | None:
    """Build the grid of a configuration; None for a site model."""
    field = config.forward.kind == "field"
    if config.grid is None:
        if field and all(latent.domain == "scalar" for latent in config.latents.values()):
            return Grid.of_scalars()
        if field:
            raise ConfigError("grid: is missing; with forward.kind = 'field' it must be a table, see docs/field.md")
        return None
    if not field:
        raise ConfigError("grid: must be left out unless forward.kind = 'field', was given")
    return _read_grid(config.grid, directory) if config.grid.file is not None else _build_regular_grid(config.grid)


def _build_regular_grid(section: GridSection) -> Grid:
    if section.active is not None:
        raise ConfigError(f"grid.active: must be left out without grid.file, was {section.active!r}")
    counts = [_count_nodes(name, axis) for name, axis in section.coordinates.items()]
    size = math.prod(counts)
    if size > MOST_NODES:
        raise ConfigError(f"grid.coordinates: must make at most {MOST_NODES:,} nodes, made {size:,}")
    pairs = zip(section.coordinates.values(), counts, strict=True)
    axes = [float(axis.start or 0.0) + float(axis.step or 1.0) * np.arange(count) for axis, count in pairs]
    mesh = np.meshgrid(*axes, indexing="ij")
    columns = [
        _grid_column(name, axis, values.ravel())
        for (name, axis), values in zip(section.coordinates.items(), mesh, strict=True)
    ]
    return Grid(tuple(columns), tuple(counts))


def _count_nodes(name: str, section: AxisSection) -> int:
    """Return the number of nodes along a coordinate of a regular grid."""
    key = f"grid.coordinates.{name}"
    if section.column is not None:
        raise ConfigError(f"{key}.column: must be left out without grid.file, was {section.column!r}")
    for part in OF_A_REGULAR_GRID:
        if getattr(section, part) is None:
            raise ConfigError(f"{key}.{part}: is missing; a grid without grid.file has start, stop and step")
    start, stop, step = (float(getattr(section, part)) for part in OF_A_REGULAR_GRID)
    if stop < start:
        raise ConfigError(f"{key}.stop: must be at least start = {start:g}, was {stop:g}")
    # A last node that rounding puts a little beyond the end is meant.
    return math.floor((stop - start) / step + 1e-9) + 1


def read_grid_table(section: GridSection, directory: Path) -> CsvTable | NetcdfTable:
    """Return the table of the nodes of a grid file, without those that are not active.

    Parameters
    ----------
    section : GridSection
        With a file.
    directory : Path
        Directory of the configuration.

    Raises
    ------
    ConfigError
        The file cannot be read, or no node is active.
    """
    first, axis = next(iter(section.coordinates.items()))
    table = read_table(directory / str(section.file), axis.column or first, "grid.file")
    if section.active is None:
        return table
    flags = table.columns([section.active], "1", "grid.active")[:, 0]
    active = np.isfinite(flags) & (flags != 0.0)
    if not np.any(active):
        raise ConfigError(
            f"grid.active: must be other than 0 at one node or more, column {section.active!r} is nowhere"
        )
    return table.select(active)


def _read_grid(section: GridSection, directory: Path) -> Grid:
    table = read_grid_table(section, directory)
    mesh = table.mesh if isinstance(table, NetcdfTable) else None
    columns = []
    for name, axis in section.coordinates.items():
        key = f"grid.coordinates.{name}"
        for part in OF_A_REGULAR_GRID:
            if getattr(axis, part) is not None:
                raise ConfigError(f"{key}.{part}: must be left out with grid.file, was given")
        values = table.columns([axis.column or name], axis.unit, f"{key}.column")
        if mesh is not None and (axis.column or name) == "z" and axis.positive == "down":
            values = -values  # z of a mesh points upwards
        if values.shape[1] != 1:
            raise ConfigError(f"{key}.column: must be one finite number a node, was {values.shape[1]} of them")
        wrong = np.flatnonzero(~np.isfinite(values[:, 0]))
        if wrong.size:
            found = values[wrong[0], 0]
            raise ConfigError(f"{key}.column: must be one finite number a node, was {found:g} at node {wrong[0] + 1}")
        columns.append(_grid_column(name, axis, values[:, 0]))
    if mesh is not None:
        units = {axis.column or name: axis.unit for name, axis in section.coordinates.items()}
        mesh = replace(mesh, units=tuple(own or units.get(a, "") for a, own in zip(AXES, mesh.units, strict=True)))
    grid = Grid(tuple(columns), mesh=mesh)
    _, first_of, same = np.unique(grid.X, axis=0, return_index=True, return_inverse=True)
    if first_of.size < grid.size:
        again = np.flatnonzero(first_of[same.ravel()] != np.arange(grid.size))[0]
        one = first_of[same.ravel()[again]]
        raise ConfigError(f"grid.file: must hold no node twice, nodes {one + 1} and {again + 1} are at the same place")
    return grid


def _grid_column(name: str, section: AxisSection, values: Floats) -> Column:
    return Column(name, section.unit, values, section.long_name, section.standard_name, section.positive)
