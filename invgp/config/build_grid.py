"""Grid of a field model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from invgp.config.survey_tables import CsvTable, NetcdfTable, read_table
from invgp.errors import ConfigError
from invgp.files.meshes import AXES
from invgp.problem import Column, Floats, Grid
from invgp.settings.configuration import AxisSection, Config, GridSection

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
        _column(name, axis, values.ravel())
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
        columns.append(_column(name, axis, values[:, 0]))
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


def _column(name: str, section: AxisSection, values: Floats) -> Column:
    return Column(name, section.unit, values, section.long_name, section.standard_name, section.positive)
