"""Build the dataset of a posterior."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from pyproj import CRS

from invgp.files.meshes import add_mesh
from invgp.posterior.attributes import dataset_attributes
from invgp.posterior.coordinates import (
    coordinate_order,
    dataset_coordinates,
    latent_coordinates,
    make_array,
    source_variables,
)
from invgp.posterior.data_variables import (
    data_variables,
    diagnostic_variables,
    direct_variables,
    discrepancy_variables,
    predictions_by_mode,
    run_variables,
)
from invgp.posterior.gaussian_processes import mixing_variable, prior_map_variables
from invgp.posterior.latent_variables import (
    PriorAtPoints,
    correlation_variable,
    draw_variables,
    hyperparameter_variables,
    latent_variables,
    mode_variables,
    sampling_variables,
    whitened_draws,
)
from invgp.posterior.solution import Solution
from invgp.problem import Problem
from invgp.units import conversion


def to_dataset(problem: Problem, solution: Solution) -> xr.Dataset:
    """Return the posterior of a problem as a dataset.

    Parameters
    ----------
    problem : Problem
    solution : Solution
        Result of the inference.

    Returns
    -------
    Dataset
        The page on the posterior file (docs/result.md) describes its variables.
    """
    survey, solution = problem.survey, _mix_processes(problem, solution)
    variables: dict[str, xr.DataArray] = {}
    for latent in problem.latents:
        order, columns = coordinate_order(problem), problem.latent_slices[latent.name]
        maps = None if latent.maps is None else latent.maps.permute(order)
        ordered = replace(latent, kernel=latent.kernel.permute(order), maps=maps)
        kernels = latent.kernels if problem.grid is not None else map(survey.kernel_at_sites, latent.kernels)
        scale = np.sqrt(np.stack([kernel.diagonal(problem.points) for kernel in kernels], axis=-1))
        prior = PriorAtPoints(problem.mix(problem.prior_mean)[:, columns], scale)
        variables |= latent_variables(ordered, solution, columns, problem.output.quantiles, prior)
        if ordered.maps is not None:
            variables |= prior_map_variables(latent.name, ordered.maps, [latent_coordinates(problem)[i] for i in order])
    for observation in survey.observations:
        columns = problem.observation_slices[observation.name]
        fit = solution.predicted[:, columns], solution.predicted_std[:, columns]
        variables |= data_variables(observation, *fit, problem.noise.std[observation.name])
        if solution.samples is not None:
            variables |= predictions_by_mode(observation, solution.samples, columns, variables)
    variables |= direct_variables(problem, solution) | discrepancy_variables(problem, solution)
    variables |= mixing_variable(problem.mixing)
    variables["correlation"] = correlation_variable(problem, solution)
    variables["elbo"] = make_array(
        ("iteration",), solution.elbo, {"long_name": "evidence lower bound", "units": "1", "comment": "in nats"}
    )
    variables["runs"] = make_array(
        ("iteration",), solution.runs, {"long_name": "simulator runs spent so far", "units": "1"}
    )
    variables |= diagnostic_variables(problem, solution) | run_variables(solution.emulator_runs)
    variables |= source_variables(problem)
    if solution.samples is not None:
        for latent in problem.latents:
            variables |= sampling_variables(latent, solution, solution.samples, problem.latent_slices[latent.name])
        variables |= draw_variables(solution.samples, len(solution.draws)) | mode_variables(solution.samples)
        variables |= hyperparameter_variables(solution.samples)
        if solution.processes is not None and problem.has_fields:
            variables |= whitened_draws(solution.samples, solution.processes)
    if not problem.has_fields:  # nothing depends on the place
        along = {solution.points: 0}
        variables |= {n: variables[n].isel(along) for n in ("correlation", "gaussian_error") if n in variables}
    elif solution.processes is not None:
        variables |= solution.processes.to_variables({c.name: c.unit for c in latent_coordinates(problem)})
    dataset = xr.Dataset(
        variables, coords=dataset_coordinates(problem, solution), attrs=dataset_attributes(problem, solution)
    )
    return _add_references(dataset, problem)


def _add_references(dataset: xr.Dataset, problem: Problem) -> xr.Dataset:
    """Return a dataset with the mesh and the coordinate reference system to which its variables refer."""
    survey, mesh = problem.survey, None if problem.grid is None else problem.grid.mesh
    if mesh is not None and problem.has_fields:
        dataset = add_mesh(dataset, mesh, "node")
    if survey.crs is not None:
        dataset["crs"] = xr.DataArray(np.int32(0), attrs=grid_mapping(survey.crs, survey.coordinates[0].unit))
        for variable in dataset.data_vars.values():
            if "site" in variable.dims or "node" in variable.dims:
                variable.attrs["grid_mapping"] = "crs"
    return dataset


def _mix_processes(problem: Problem, solution: Solution) -> Solution:
    """Return a solution with the arguments of the links in the place of independent processes."""
    M = problem.mixing
    if M is None:
        return solution
    samples, few_runs = solution.samples, solution.few_runs_std
    _, std = problem.prior_moments()
    return replace(
        solution,
        mean=solution.mean @ M.T,
        covariance=M @ solution.covariance @ M.T,
        draws=solution.draws @ M.T,
        samples=None if samples is None else replace(samples, latents=samples.latents @ M.T),
        few_runs_std=None if few_runs is None else np.sqrt((std * few_runs) ** 2 @ (M.T**2)) / std,
    )


FALSE_ORIGIN = ("false_easting", "false_northing")


def grid_mapping(crs: str, unit: str) -> dict[str, Any]:
    """Return the attributes of a CF grid mapping.

    Coordinates can be in km although the reference system is in metres. CF then requires the false origin in km too,
    and programs that read the WKT assume that the coordinates have its unit.

    Parameters
    ----------
    crs : str
        Coordinate reference system that PROJ understands.
    unit : str
        Unit of the horizontal coordinates.

    Returns
    -------
    dict
    """
    system = CRS.from_user_input(crs)
    how = conversion(unit, "m") if system.is_projected else None
    ratio = how.factor / system.axis_info[0].unit_conversion_factor if how else 1.0
    if how and not math.isclose(ratio, 1.0, rel_tol=1e-9):
        system = _convert_unit(system, unit, how.factor)
    found: dict[str, Any] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in system.to_cf().items()
    }
    return found | {key: found[key] / ratio for key in FALSE_ORIGIN if key in found}


def _convert_unit(system: CRS, unit: str, metres: float) -> CRS:
    """Return the same projection with coordinates in another unit, given in metres."""
    about = system.to_json_dict()
    for axis in about["coordinate_system"]["axis"]:
        axis["unit"] = {"type": "LinearUnit", "name": unit, "conversion_factor": metres}
    about.pop("id", None)  # it is no longer the registered one
    return CRS.from_json_dict({**about, "name": f"{system.name} in {unit}"})
