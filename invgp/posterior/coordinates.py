"""Coordinates of the sites and nodes, of labels, draws and iterations, as CF names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from invgp.axes import axis_letters, standard_name
from invgp.posterior.arrays import array
from invgp.posterior.solution import Solution
from invgp.problem import Column, Labels, Latent, Observation, Problem


def dataset_coordinates(problem: Problem, solution: Solution) -> dict[str, xr.DataArray]:
    """All coordinates, by name."""
    owners: tuple[Latent | Observation, ...] = (*problem.latents, *problem.survey.observations)
    labels: dict[str, Labels] = {
        owner.dimension: owner.labels for owner in owners if owner.dimension is not None and owner.labels is not None
    }
    coordinates = dict(_label_coordinate(name, values) for name, values in labels.items())
    for column in problem.survey.covariates:
        coordinates[column.name] = array(("site",), column.values, _column_attributes(column))
    crs = problem.survey.crs
    for column, attributes in _positioned(problem.survey.coordinates, crs):
        name = site_coordinate(problem, column)
        if name != column.name:  # CF has one easting for a projection: that of the nodes
            attributes.pop("standard_name", None)
        coordinates[name] = array(("site",), column.values, attributes)
    if problem.grid is not None:
        for column, attributes in _positioned(problem.grid.coordinates, crs):
            coordinates[column.name] = array(("node",), column.values, attributes)
        about_nodes = {"long_name": "node of the model grid, the last coordinate fastest where it is regular"}
        coordinates["node"] = array(("node",), np.arange(1, problem.grid.size + 1), about_nodes)
    coordinates["site"] = array(
        ("site",), np.arange(1, problem.survey.size + 1), {"long_name": "site, in the order of the survey file"}
    )
    coordinates["quantile"] = array(
        ("quantile",), np.asarray(problem.output.quantiles), {"long_name": "probability of the quantile", "units": "1"}
    )
    coordinates["realization"] = array(
        ("realization",),
        np.arange(1, len(solution.draws) + 1),
        {"long_name": "draw from the posterior", "standard_name": "realization", "units": "1"},
    )
    coordinates["iteration"] = array(
        ("iteration",), np.arange(1, len(solution.elbo) + 1), {"long_name": "iteration of the inference", "units": "1"}
    )
    return coordinates


def site_coordinate(problem: Problem, column: Column) -> str:
    """What the file calls a coordinate of the sites: a grid's coordinate of that name comes first."""
    taken = () if problem.grid is None else [c.name for c in problem.grid.coordinates]
    return f"site_{column.name}" if column.name in taken else column.name


def _label_coordinate(dimension: str, labels: Labels) -> tuple[str, xr.DataArray]:
    """CF wants numbers in a coordinate of its dimension's name; names are an auxiliary coordinate beside it."""
    numeric = not isinstance(labels[0], str)
    name = dimension if numeric else f"{dimension}_label"
    return name, array((dimension,), np.asarray(labels), {"long_name": dimension})


def _column_attributes(column: Column) -> dict[str, str]:
    optional = {"standard_name": column.standard_name, "positive": column.positive}
    named = {key: text for key, text in optional.items() if text}
    return {"long_name": column.long_name or column.name, "units": column.unit, **named}


def _positioned(columns: Sequence[Column], crs: str | None) -> Iterator[tuple[Column, dict[str, str]]]:
    """Coordinates with their attributes; CF's name for what is an easting, a northing, a latitude, if none is given."""
    about = {column.name: _column_attributes(column) for column in columns}
    for column, letter in zip(columns, axis_letters(about).values(), strict=True):
        name = column.standard_name or standard_name(letter, column.unit, crs)
        yield column, about[column.name] | ({"standard_name": name} if name else {})


def positions(problem: Problem) -> tuple[Column, ...]:
    """The coordinates of the latents, in the order of their kernels."""
    return problem.survey.coordinates if problem.grid is None else problem.grid.coordinates


def order_of(problem: Problem) -> list[int]:
    """Of these coordinates in the file: a grid's order is the simulator's; figures have the survey's first across."""
    names, wanted = [c.name for c in positions(problem)], [c.name for c in problem.survey.coordinates]
    return [names.index(name) for name in wanted] if set(names) == set(wanted) else list(range(len(names)))


def position_attributes(problem: Problem) -> dict[str, Any]:
    """What the coordinates of the latents are called; of a field model, those of the sites too."""
    sites = " ".join(site_coordinate(problem, c) for c in problem.survey.coordinates)
    if problem.grid is None:
        return {"invgp_coordinates": sites}
    names = [c.name for c in problem.grid.coordinates]
    nodes = " ".join(names[i] for i in order_of(problem))
    regular = {"invgp_grid_shape": list(problem.grid.shape), "invgp_grid_coordinates": " ".join(names)}
    return {"invgp_coordinates": nodes, "invgp_site_coordinates": sites, **(regular if problem.grid.shape else {})}
