"""Arrays -> xarray: the posterior as one dataset, with names, units and provenance."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pyproj import CRS
from scipy.special import ndtri

from invgp.problem import Column, Floats, Labels, Latent, Observation, Problem

CONVENTIONS = "CF-1.11"
DEPENDENCIES = ("numpy", "scipy", "xarray", "netCDF4", "joblib")


@dataclass(frozen=True)
class Solution:
    """What the inference found, as host arrays.

    Attributes
    ----------
    mean, std : (N, Q), of the latent processes, on the scale of the Gaussian process.
    draws : (R, N, Q), joint over sites.
    predicted, predicted_std : (N, P), of the simulator's outputs under the posterior, in the observations' units.
    elbo, runs : (I,), the bound and the runs spent so far, at each iteration.
    status, settled : why the inference ended, and whether that is where it should.
    """

    mean: Floats
    std: Floats
    draws: Floats
    predicted: Floats
    predicted_std: Floats
    elbo: Floats
    runs: NDArray[np.int64]
    runs_total: int
    runs_failed: int
    seed: int
    status: str
    settled: bool


def to_dataset(problem: Problem, solution: Solution) -> xr.Dataset:
    """The posterior of a problem as a dataset; see the documentation of the result for its variables."""
    survey = problem.survey
    variables: dict[str, xr.DataArray] = {}
    for latent in problem.latents:
        variables |= _latent_variables(latent, solution, problem.latent_slices[latent.name], problem.output.quantiles)
    for observation in survey.observations:
        columns = problem.observation_slices[observation.name]
        variables |= _data_variables(observation, solution, columns, problem.noise.std[observation.name])
    variables["elbo"] = _array(
        ("iteration",), solution.elbo, {"long_name": "evidence lower bound", "units": "1", "comment": "in nats"}
    )
    variables["runs"] = _array(
        ("iteration",), solution.runs, {"long_name": "simulator runs spent so far", "units": "1"}
    )
    dataset = xr.Dataset(variables, coords=_coordinates(problem, solution), attrs=_attributes(problem, solution))
    if survey.crs is not None:
        mapping = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in CRS.from_user_input(survey.crs).to_cf().items()
        }
        dataset["crs"] = xr.DataArray(np.int32(0), attrs=mapping)
        for variable in dataset.data_vars.values():
            if "site" in variable.dims:
                variable.attrs["grid_mapping"] = "crs"
    return dataset


def _latent_variables(
    latent: Latent, solution: Solution, columns: slice, quantiles: tuple[float, ...]
) -> dict[str, xr.DataArray]:
    mean, std = solution.mean[:, columns], solution.std[:, columns]
    _, prior_std = latent.link.gaussian(latent.mean, latent.std)
    physical_mean, physical_std = latent.link.moments(mean, std)
    scores = ndtri(np.asarray(quantiles))[:, None, None]
    sites = mean.shape[0]
    name, what = latent.name, latent.long_name or latent.name
    unit = {"units": latent.unit}
    error = {"standard_name": f"{latent.standard_name} standard_error"} if latent.standard_name else {}
    named = {"standard_name": latent.standard_name} if latent.standard_name else {}
    positive = {"positive": latent.positive} if latent.positive else {}

    def field(values: Floats, attributes: Mapping[str, str], leading: tuple[str, ...] = ()) -> xr.DataArray:
        return _labelled(values, latent.dimension, attributes, leading)

    return {
        name: field(
            physical_mean,
            {
                "long_name": what,
                **unit,
                **named,
                **positive,
                "ancillary_variables": f"{name}_std {name}_information",
                "comment": "posterior mean",
            },
        ),
        f"{name}_std": field(physical_std, {"long_name": f"posterior standard deviation of {what}", **unit, **error}),
        f"{name}_quantile": field(
            latent.link(mean + std * scores), {"long_name": f"posterior quantile of {what}", **unit}, ("quantile",)
        ),
        f"{name}_sample": field(
            latent.link(solution.draws[..., columns]),
            {"long_name": f"posterior draw of {what}", **unit, "comment": "joint over sites"},
            ("realization",),
        ),
        f"{name}_prior": field(
            np.broadcast_to(latent.mean, (sites, latent.size)).copy(), {"long_name": f"prior mean of {what}", **unit}
        ),
        f"{name}_prior_std": field(
            np.broadcast_to(latent.std, (sites, latent.size)).copy(),
            {"long_name": f"prior standard deviation of {what}", **unit},
        ),
        f"{name}_information": field(
            1.0 - (std / prior_std) ** 2,
            {
                "long_name": f"information gained on {what}",
                "units": "1",
                "comment": "1 - posterior variance / prior variance of the Gaussian process "
                f"(link: {latent.link.name}): 0 where the data say nothing, 1 where they fix the value",
            },
        ),
    }


def _data_variables(
    observation: Observation, solution: Solution, columns: slice, noise_std: Floats
) -> dict[str, xr.DataArray]:
    name, what = observation.name, observation.long_name or observation.name
    unit = {"units": observation.unit}
    named = {"standard_name": observation.standard_name} if observation.standard_name else {}
    predicted = solution.predicted[:, columns]

    def field(values: Floats, long_name: str, extra: Mapping[str, str] | None = None) -> xr.DataArray:
        return _labelled(values, observation.dimension, {"long_name": long_name, **unit, **(extra or {})})

    return {
        f"{name}_observed": field(
            observation.values, f"observed {what}", {**named, "ancillary_variables": f"{name}_noise_std"}
        ),
        f"{name}_noise_std": field(noise_std, f"standard deviation of the noise of {what}"),
        f"{name}_predicted": field(
            predicted, f"modelled {what}", {"comment": "mean over the posterior of the simulator's output"}
        ),
        f"{name}_predicted_std": field(
            solution.predicted_std[:, columns],
            f"standard deviation of modelled {what}",
            {"comment": "over the posterior, without the noise of the observation"},
        ),
        f"{name}_residual": field(observation.values - predicted, f"observed minus modelled {what}"),
    }


def _array(dims: tuple[str, ...], values: NDArray[np.generic], attributes: Mapping[str, str]) -> xr.DataArray:
    return xr.DataArray(values, dims=dims, attrs=dict(attributes))


def _labelled(
    values: Floats, dimension: str | None, attributes: Mapping[str, str], leading: tuple[str, ...] = ()
) -> xr.DataArray:
    """(..., N, L) along site and the dimension; without a dimension, L = 1 is dropped."""
    if dimension is None:
        return _array((*leading, "site"), values[..., 0], attributes)
    return _array((*leading, "site", dimension), values, attributes)


def _coordinates(problem: Problem, solution: Solution) -> dict[str, xr.DataArray]:
    owners: tuple[Latent | Observation, ...] = (*problem.latents, *problem.survey.observations)
    labels: dict[str, Labels] = {
        owner.dimension: owner.labels for owner in owners if owner.dimension is not None and owner.labels is not None
    }
    coordinates = dict(_label_coordinate(name, values) for name, values in labels.items())
    for column in (*problem.survey.coordinates, *problem.survey.covariates):
        coordinates[column.name] = _array(("site",), column.values, _column_attributes(column))
    coordinates["site"] = _array(
        ("site",), np.arange(1, problem.survey.size + 1), {"long_name": "site, in the order of the survey file"}
    )
    coordinates["quantile"] = _array(
        ("quantile",), np.asarray(problem.output.quantiles), {"long_name": "probability of the quantile", "units": "1"}
    )
    coordinates["realization"] = _array(
        ("realization",),
        np.arange(1, len(solution.draws) + 1),
        {"long_name": "draw from the posterior", "standard_name": "realization", "units": "1"},
    )
    coordinates["iteration"] = _array(
        ("iteration",), np.arange(1, len(solution.elbo) + 1), {"long_name": "iteration of the inference", "units": "1"}
    )
    return coordinates


def _label_coordinate(dimension: str, labels: Labels) -> tuple[str, xr.DataArray]:
    """CF wants numbers in a coordinate of its dimension's name; names are an auxiliary coordinate beside it."""
    numeric = not isinstance(labels[0], str)
    name = dimension if numeric else f"{dimension}_label"
    return name, _array((dimension,), np.asarray(labels), {"long_name": dimension})


def _column_attributes(column: Column) -> dict[str, str]:
    optional = {"standard_name": column.standard_name, "positive": column.positive}
    named = {key: text for key, text in optional.items() if text}
    return {"long_name": column.long_name or column.name, "units": column.unit, **named}


def _attributes(problem: Problem, solution: Solution) -> dict[str, str | int]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    software = [f"invgp {version('invgp')}", f"Python {platform.python_version()}"]
    software += [f"{name} {version(name)}" for name in DEPENDENCIES]
    return {
        "Conventions": CONVENTIONS,
        "title": problem.title or "Posterior of a geophysical inversion",
        "history": f"{now} invgp {version('invgp')}: posterior inferred",
        "source": f"variational Gaussian process inversion with the simulator {problem.forward.name}",
        "references": "Bonilla, Krauth and Dezfouli, Generic Inference in Latent Gaussian Process Models, "
        "Journal of Machine Learning Research 20 (2019)",
        "invgp_status": solution.status,
        "invgp_settled": "yes" if solution.settled else "no",
        "invgp_posterior": problem.inference.posterior,
        "invgp_runs": solution.runs_total,
        "invgp_runs_failed": solution.runs_failed,
        "invgp_seed": solution.seed,
        "invgp_survey": problem.survey.file,
        "invgp_survey_digest": problem.survey.digest,
        "invgp_simulator": problem.forward.name,
        "invgp_simulator_digest": problem.forward.digest,
        "invgp_software": ", ".join(software),
        "invgp_coordinates": " ".join(c.name for c in problem.survey.coordinates),
        "invgp_latents": " ".join(v.name for v in problem.latents),
        "invgp_observations": " ".join(o.name for o in problem.survey.observations),
        "invgp_config": problem.config_text,
    }
