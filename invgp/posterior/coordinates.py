"""Data arrays of a posterior dataset, and its coordinates: sites, nodes, labels, draws and iterations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.axes import axis_letters, standard_name
from invgp.posterior.solution import Solution
from invgp.problem import Column, Floats, Labels, Latent, Observation, Problem
from invgp.settings.inference_settings import DEFAULT_DRAWS


def make_array(dims: tuple[str, ...], values: NDArray[np.generic], attributes: Mapping[str, Any]) -> xr.DataArray:
    """Return values as a DataArray with these dimensions and attributes.

    Parameters
    ----------
    dims : tuple of str
    values : array
    attributes : mapping of str to object

    Returns
    -------
    DataArray
    """
    return xr.DataArray(values, dims=dims, attrs=dict(attributes))


def label_array(
    values: Floats,
    dimension: str | None,
    attributes: Mapping[str, Any],
    leading: tuple[str, ...] = (),
    points: str | None = "site",
) -> xr.DataArray:
    """Return values of a variable with labels as a DataArray.

    Parameters
    ----------
    values : array, shape (..., N, L)
        Values at N points for L labels.
    dimension : str or None
        Dimension of the labels; None for a variable without labels, where L is 1.
    attributes : mapping
        Attributes of the array.
    leading : tuple of str
        Dimensions before those of the points.
    points : str
        Dimension of the points, ``"site"`` or ``"node"``; None for a scalar, whose value is that of the first point.

    Returns
    -------
    DataArray
    """
    dims: tuple[str, ...] = (*leading, *(() if points is None else (points,)))
    values = values if points is not None else values[..., 0, :]
    if dimension is None:
        return make_array(dims, np.asarray(values[..., 0]), attributes)
    return make_array((*dims, dimension), values, attributes)


def dataset_coordinates(problem: Problem, solution: Solution) -> dict[str, xr.DataArray]:
    """Return all coordinates of a posterior dataset.

    Parameters
    ----------
    problem : Problem
    solution : Solution

    Returns
    -------
    dict of str to DataArray
    """
    coordinates = label_coordinates(problem)
    for column in problem.survey.covariates:
        coordinates[column.name] = make_array(("site",), column.values, _column_attributes(column))
    crs = problem.survey.crs
    for column, attributes in _coordinate_attributes(problem.survey.coordinates, crs):
        name = site_coordinate_name(problem, column)
        if name != column.name:  # CF has one easting for a projection: that of the nodes
            attributes.pop("standard_name", None)
        if problem.survey.extents is not None:
            attributes["bounds"] = f"{name}_bounds"
        coordinates[name] = make_array(("site",), column.values, attributes)
    if problem.grid is not None and problem.has_fields:
        for column, attributes in _coordinate_attributes(problem.grid.coordinates, crs):
            coordinates[column.name] = make_array(("node",), column.values, attributes)
        about_nodes = {"long_name": "node of the model grid, the last coordinate fastest where it is regular"}
        coordinates["node"] = make_array(("node",), np.arange(1, problem.grid.size + 1), about_nodes)
    coordinates["site"] = make_array(
        ("site",), np.arange(1, problem.survey.size + 1), {"long_name": "site, in the order of the survey file"}
    )
    coordinates["quantile"] = make_array(
        ("quantile",), np.asarray(problem.output.quantiles), {"long_name": "probability of the quantile", "units": "1"}
    )
    coordinates["realization"] = make_array(
        ("realization",), np.arange(1, len(solution.draws) + 1), _draw_attributes(problem, solution)
    )
    coordinates["iteration"] = make_array(
        ("iteration",), np.arange(1, len(solution.elbo) + 1), {"long_name": "iteration of the inference", "units": "1"}
    )
    return coordinates


def _draw_attributes(problem: Problem, solution: Solution) -> dict[str, str]:
    about = {"long_name": "draw from the posterior", "standard_name": "realization", "units": "1"}
    count = len(solution.draws)
    if problem.output.realizations is None and count < DEFAULT_DRAWS:
        few = "since there are many unknowns" if count == problem.stored_draws else "which are all that were made"
        about["comment"] = f"{count} draws are stored instead of {DEFAULT_DRAWS}, {few}"
    return about


def source_variables(problem: Problem) -> dict[str, xr.DataArray]:
    """Return the source of each site and the intervals over which sites are averages; empty for a single survey.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    dict of str to DataArray
    """
    variables: dict[str, xr.DataArray] = {}
    if any(len(part.sites) for part in problem.parts[1:]):
        numbers = np.zeros(problem.survey.size, dtype=np.int8)
        for k, part in enumerate(problem.parts):
            numbers[part.sites] = k
        about = {
            "long_name": "source of the data of the site",
            "flag_values": np.arange(len(problem.parts), dtype=np.int8),
            "flag_meanings": " ".join(part.name for part in problem.parts),
        }
        variables["source"] = make_array(("site",), numbers, about)
    extents = problem.survey.extents
    if extents is not None:
        for d, column in enumerate(problem.survey.coordinates):
            ends = np.stack([column.values - extents[:, d], column.values + extents[:, d]], axis=-1)
            name = f"{site_coordinate_name(problem, column)}_bounds"
            about = {"long_name": f"interval of {column.name} over which the latents of the site are averaged"}
            variables[name] = make_array(("site", "bounds"), ends, about | {"units": column.unit})
    return variables


def site_coordinate_name(problem: Problem, column: Column) -> str:
    """Return the name of a site coordinate in the file: with the prefix ``site_`` if the grid has the same name."""
    taken = () if problem.grid is None else [c.name for c in problem.grid.coordinates]
    return f"site_{column.name}" if column.name in taken else column.name


def label_coordinates(problem: Problem) -> dict[str, xr.DataArray]:
    """Return the coordinates of the labels of latents and observations.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    dict of str to DataArray
    """
    owners: tuple[Latent | Observation, ...] = (*problem.latents, *problem.survey.observations)
    labels: dict[str, Labels] = {
        owner.dimension: owner.labels for owner in owners if owner.dimension is not None and owner.labels is not None
    }
    return dict(_label_coordinate(name, values) for name, values in labels.items())


def _label_coordinate(dimension: str, labels: Labels) -> tuple[str, xr.DataArray]:
    """Return a coordinate of labels: CF requires that labels which are text are an auxiliary coordinate."""
    numeric = not isinstance(labels[0], str)
    name = dimension if numeric else f"{dimension}_label"
    return name, make_array((dimension,), np.asarray(labels), {"long_name": dimension})


def _column_attributes(column: Column) -> dict[str, str]:
    optional = {"standard_name": column.standard_name, "positive": column.positive}
    named = {key: text for key, text in optional.items() if text}
    return {"long_name": column.long_name or column.name, "units": column.unit, **named}


def _coordinate_attributes(columns: Sequence[Column], crs: str | None) -> Iterator[tuple[Column, dict[str, str]]]:
    """Yield each coordinate with its attributes, including the CF standard name of an easting, northing or latitude."""
    about = {column.name: _column_attributes(column) for column in columns}
    for column, letter in zip(columns, axis_letters(about).values(), strict=True):
        name = column.standard_name or standard_name(letter, column.unit, crs)
        yield column, about[column.name] | ({"standard_name": name} if name else {})


def latent_coordinates(problem: Problem) -> tuple[Column, ...]:
    """Return the coordinates of the latents, in the order of their length-scales.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    tuple of Column
    """
    if problem.grid is None or not problem.has_fields:
        return problem.survey.coordinates
    return problem.grid.coordinates


def coordinate_order(problem: Problem) -> list[int]:
    """Return the order of `latent_coordinates` in the file: that of the survey, if the names are the same.

    The order of a grid is that of the simulator; figures draw the first coordinate of the file horizontally.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    list of int
    """
    names, wanted = [c.name for c in latent_coordinates(problem)], [c.name for c in problem.survey.coordinates]
    return [names.index(name) for name in wanted] if set(names) == set(wanted) else list(range(len(names)))


def position_attributes(problem: Problem) -> dict[str, Any]:
    """Return attributes with the coordinate names of the latents and, for a field model, of the sites."""
    sites = " ".join(site_coordinate_name(problem, c) for c in problem.survey.coordinates)
    if problem.grid is None or not problem.has_fields:
        return {"invgp_coordinates": sites}
    names = [c.name for c in problem.grid.coordinates]
    nodes = " ".join(names[i] for i in coordinate_order(problem))
    regular = {"invgp_grid_shape": list(problem.grid.shape), "invgp_grid_coordinates": " ".join(names)}
    return {"invgp_coordinates": nodes, "invgp_site_coordinates": sites, **(regular if problem.grid.shape else {})}
