"""Arrays -> xarray: the posterior as one dataset, with names, units and provenance."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.axes import axis_letters, standard_name
from invgp.georeference import grid_mapping
from invgp.problem import Column, Floats, Labels, Latent, Observation, Problem
from invgp.processes import Processes

CONVENTIONS = "CF-1.11"
_PROCESSES = ("process", "other_process")
DEPENDENCIES = ("numpy", "scipy", "xarray", "netCDF4", "joblib")


@dataclass(frozen=True)
class Diagnostics:
    """What can be said about a posterior without knowing the truth.

    Attributes
    ----------
    chi_square : (P,), mean square of the residuals in units of the noise, over the sites; NaN with no observation.
    shape_error : (N,), how far the Gaussian is from the exact posterior of each site given all the others, in standard
        deviations: of the mean, or the logarithm of the ratio of spreads; NaN where it could not be told.
    sentences : in plain words.
    """

    chi_square: Floats
    shape_error: Floats
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class EmulatorReport:
    """How far an emulator was trusted. Errors are in standard deviations of the noise.

    Attributes
    ----------
    name : the regression.
    held_out_error : root mean square at runs that were left out of the fit.
    verification_error : (N,), root mean square at fresh runs, made after the fit; NaN at sites without.
    direct : (N,), sites where the simulator itself was run throughout.
    """

    name: str
    held_out_error: float
    verification_error: Floats
    direct: NDArray[np.bool_]


@dataclass(frozen=True)
class Solution:
    """What the inference found, as host arrays.

    Attributes
    ----------
    mean, covariance : (N, Q) and (N, Q, Q), of the latent processes at each site, on the scale of the Gaussian process.
    draws : (R, N, Q), joint over sites and latents.
    processes : the posterior in the form that predicts anywhere; None where that would be too much to hold.
    predicted, predicted_std : (N, P), of the simulator's outputs under the posterior, in the observations' units.
    elbo, runs : (I,), the bound and the runs spent so far, at each iteration.
    status, settled : why the inference ended, and whether that is where it should.
    emulator : how far the emulator was trusted; None if there was none.
    few_runs_std : (N, Q), of a field model: the part of the spread of the processes that comes from having few runs.
        Its latents live on the nodes of a grid, which then stand for the sites in `mean`, `covariance` and `draws`.
    """

    mean: Floats
    covariance: Floats
    draws: Floats
    processes: Processes | None
    predicted: Floats
    predicted_std: Floats
    elbo: Floats
    runs: NDArray[np.int64]
    runs_total: int
    runs_failed: int
    seed: int
    status: str
    settled: bool
    diagnostics: Diagnostics
    emulator: EmulatorReport | None = None
    few_runs_std: Floats | None = None

    @property
    def points(self) -> str:
        """The dimension that the latents live on."""
        return "site" if self.few_runs_std is None else "node"


def to_dataset(problem: Problem, solution: Solution) -> xr.Dataset:
    """The posterior of a problem as a dataset; see the documentation of the result for its variables."""
    survey = problem.survey
    variables: dict[str, xr.DataArray] = {}
    for latent in problem.latents:
        ordered = replace(latent, length_scale=latent.length_scale[order_of(problem)])
        variables |= _latent_variables(ordered, solution, problem.latent_slices[latent.name], problem.output.quantiles)
    for observation in survey.observations:
        columns = problem.observation_slices[observation.name]
        variables |= _data_variables(observation, solution, columns, problem.noise.std[observation.name])
    variables["correlation"] = _correlation(problem, solution)
    variables["elbo"] = _array(
        ("iteration",), solution.elbo, {"long_name": "evidence lower bound", "units": "1", "comment": "in nats"}
    )
    variables["runs"] = _array(
        ("iteration",), solution.runs, {"long_name": "simulator runs spent so far", "units": "1"}
    )
    variables |= _diagnostic_variables(problem, solution)
    if solution.processes is not None:
        variables |= solution.processes.variables({c.name: c.unit for c in positions(problem)})
    dataset = xr.Dataset(variables, coords=_coordinates(problem, solution), attrs=_attributes(problem, solution))
    if survey.crs is not None:
        dataset["crs"] = xr.DataArray(np.int32(0), attrs=grid_mapping(survey.crs, survey.coordinates[0].unit))
        for variable in dataset.data_vars.values():
            if "site" in variable.dims or "node" in variable.dims:
                variable.attrs["grid_mapping"] = "crs"
    return dataset


def _latent_variables(
    latent: Latent, solution: Solution, columns: slice, quantiles: tuple[float, ...]
) -> dict[str, xr.DataArray]:
    link, mean, covariance = latent.link, solution.mean[:, columns], solution.covariance[:, columns, columns]
    physical_mean, physical_std = link.moments(mean, covariance)
    process_mean, process_std = link.gaussian(latent.mean, latent.std)
    prior_mean, prior_std = link.moments(process_mean, np.diag(process_std**2))
    if link.elementwise:
        variance_ratio, measured = np.diagonal(covariance, axis1=1, axis2=2) / process_std**2, "the Gaussian process"
    else:
        variance_ratio, measured = (physical_std / prior_std) ** 2, "the quantity itself"
    points = mean.shape[0]
    name, what = latent.name, latent.long_name or latent.name
    unit = {"units": latent.unit}
    error = {"standard_name": f"{latent.standard_name} standard_error"} if latent.standard_name else {}
    named = {"standard_name": latent.standard_name} if latent.standard_name else {}
    positive = {"positive": latent.positive} if latent.positive else {}

    def field(values: Floats, attributes: Mapping[str, Any], leading: tuple[str, ...] = ()) -> xr.DataArray:
        return _labelled(values, latent.dimension, attributes, leading, solution.points)

    few_runs = {}
    if solution.few_runs_std is not None:
        few_runs[f"{name}_few_runs_std"] = field(
            solution.few_runs_std[:, columns],
            {
                "long_name": f"spread of {what} that comes from few runs",
                "units": "1",
                "comment": "in prior standard deviations of the Gaussian process; it is part of the standard "
                "deviation, in squares, and further runs would take it away",
            },
        )
    return few_runs | {
        name: field(
            physical_mean,
            {
                "long_name": what,
                **unit,
                **named,
                **positive,
                **_prior_attributes(latent, process_mean, process_std),
                "ancillary_variables": f"{name}_std {name}_information",
                "comment": "posterior mean",
            },
        ),
        f"{name}_std": field(physical_std, {"long_name": f"posterior standard deviation of {what}", **unit, **error}),
        f"{name}_quantile": field(
            link.quantiles(mean, covariance, np.asarray(quantiles)),
            {"long_name": f"posterior quantile of {what}", **unit},
            ("quantile",),
        ),
        f"{name}_sample": field(
            link(solution.draws[..., columns]),
            {"long_name": f"posterior draw of {what}", **unit, "comment": f"joint over {solution.points}s and latents"},
            ("realization",),
        ),
        f"{name}_prior": field(
            np.broadcast_to(prior_mean, (points, latent.size)).copy(), {"long_name": f"prior mean of {what}", **unit}
        ),
        f"{name}_prior_std": field(
            np.broadcast_to(prior_std, (points, latent.size)).copy(),
            {"long_name": f"prior standard deviation of {what}", **unit},
        ),
        f"{name}_information": field(
            1.0 - variance_ratio,
            {
                "long_name": f"information gained on {what}",
                "units": "1",
                "comment": f"1 - posterior variance / prior variance of {measured} (link: {link.name}): "
                "0 where the data say nothing, 1 where they fix the value",
            },
        ),
    }


def _prior_attributes(latent: Latent, process_mean: Floats, process_std: Floats) -> dict[str, Any]:
    """The prior of a latent, as it was learnt, so that it can be used again; netCDF keeps no list of one number."""
    numbers = {"length_scale": latent.length_scale, "process_mean": process_mean, "process_std": process_std}
    learnt = {"learnt": " ".join(latent.learn)} if latent.learn else {}
    kept = {name: value if value.size > 1 else float(value[0]) for name, value in numbers.items()}
    return {"kernel": latent.kernel, "link": latent.link.name, **kept, **learnt}


def _correlation(problem: Problem, solution: Solution) -> xr.DataArray:
    """Correlations (N, Q, Q) between the latent processes at each site, or node."""
    std = np.sqrt(np.diagonal(solution.covariance, axis1=1, axis2=2))
    values = (solution.covariance / (std[:, :, None] * std[:, None, :])).astype(np.float32)
    names = [latent.name for latent in problem.latents for _ in range(latent.size)]
    labels = [_text(latent, label) for latent in problem.latents for label in latent.labels or ("",)]
    texts = np.asarray([f"{name} {label}".strip() for name, label in zip(names, labels, strict=True)])
    about = {
        "long_name": f"posterior correlation between latents at a {solution.points}",
        "units": "1",
        "comment": "on the scale of the Gaussian processes",
    }
    coordinates = {f"{d}_label": _array((d,), texts, {"long_name": "latent, and its label"}) for d in _PROCESSES}
    return xr.DataArray(values, coordinates, (solution.points, *_PROCESSES), attrs=about)


def _text(latent: Latent, label: str | int | float) -> str:
    """A label as figures write it: ``layer 2``, ``early``."""
    return label if isinstance(label, str) else f"{latent.dimension} {label}"


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


def _diagnostic_variables(problem: Problem, solution: Solution) -> dict[str, xr.DataArray]:
    found = solution.diagnostics
    variables = {}
    if problem.grid is None:
        variables["shape_error"] = _array(
            ("site",),
            found.shape_error,
            {
                "long_name": "distance of the Gaussian from the exact posterior of a site given the others",
                "units": "1",
                "comment": "in standard deviations: of the mean, or the logarithm of the ratio of spreads",
            },
        )
    for observation in problem.survey.observations:
        values = found.chi_square[problem.observation_slices[observation.name]]
        about = {"long_name": f"reduced chi-square of {observation.long_name or observation.name}", "units": "1"}
        dims = () if observation.dimension is None else (observation.dimension,)
        variables[f"{observation.name}_chi_square"] = _array(dims, values if dims else values[0], about)
    if solution.emulator is not None:
        error = {"long_name": "error of the emulator at fresh runs", "units": "1"}
        error["comment"] = "root mean square over the outputs, in standard deviations of the noise"
        direct: dict[str, Any] = {
            "long_name": "whether the simulator itself was run throughout",
            "flag_meanings": "emulator simulator",
        }
        direct["flag_values"] = np.asarray([0, 1], dtype=np.int8)
        variables["emulator_error"] = _array(("site",), solution.emulator.verification_error, error)
        variables["direct_evaluation"] = _array(("site",), solution.emulator.direct.astype(np.int8), direct)
    return variables


def _array(dims: tuple[str, ...], values: NDArray[np.generic], attributes: Mapping[str, Any]) -> xr.DataArray:
    return xr.DataArray(values, dims=dims, attrs=dict(attributes))


def _labelled(
    values: Floats,
    dimension: str | None,
    attributes: Mapping[str, Any],
    leading: tuple[str, ...] = (),
    points: str = "site",
) -> xr.DataArray:
    """(..., N, L) along the points and the dimension; without a dimension, L = 1 is dropped."""
    if dimension is None:
        return _array((*leading, points), values[..., 0], attributes)
    return _array((*leading, points, dimension), values, attributes)


def _coordinates(problem: Problem, solution: Solution) -> dict[str, xr.DataArray]:
    owners: tuple[Latent | Observation, ...] = (*problem.latents, *problem.survey.observations)
    labels: dict[str, Labels] = {
        owner.dimension: owner.labels for owner in owners if owner.dimension is not None and owner.labels is not None
    }
    coordinates = dict(_label_coordinate(name, values) for name, values in labels.items())
    for column in problem.survey.covariates:
        coordinates[column.name] = _array(("site",), column.values, _column_attributes(column))
    crs = problem.survey.crs
    for column, attributes in _positioned(problem.survey.coordinates, crs):
        name = site_coordinate(problem, column)
        if name != column.name:  # CF has one easting for a projection: that of the nodes
            attributes.pop("standard_name", None)
        coordinates[name] = _array(("site",), column.values, attributes)
    if problem.grid is not None:
        for column, attributes in _positioned(problem.grid.coordinates, crs):
            coordinates[column.name] = _array(("node",), column.values, attributes)
        about_nodes = {"long_name": "node of the model grid, the last coordinate fastest where it is regular"}
        coordinates["node"] = _array(("node",), np.arange(1, problem.grid.size + 1), about_nodes)
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


def site_coordinate(problem: Problem, column: Column) -> str:
    """What the file calls a coordinate of the sites: a grid's coordinate of that name comes first."""
    taken = () if problem.grid is None else [c.name for c in problem.grid.coordinates]
    return f"site_{column.name}" if column.name in taken else column.name


def _label_coordinate(dimension: str, labels: Labels) -> tuple[str, xr.DataArray]:
    """CF wants numbers in a coordinate of its dimension's name; names are an auxiliary coordinate beside it."""
    numeric = not isinstance(labels[0], str)
    name = dimension if numeric else f"{dimension}_label"
    return name, _array((dimension,), np.asarray(labels), {"long_name": dimension})


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


def _attributes(problem: Problem, solution: Solution) -> dict[str, Any]:
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
        "invgp_diagnostics": "\n".join(solution.diagnostics.sentences),
        **_emulator_attributes(solution.emulator),
        "invgp_seed": solution.seed,
        "invgp_survey": problem.survey.file,
        "invgp_survey_digest": problem.survey.digest,
        "invgp_simulator": problem.forward.name,
        "invgp_simulator_digest": problem.forward.digest,
        "invgp_software": ", ".join(software),
        **_position_attributes(problem),
        "invgp_latents": " ".join(v.name for v in problem.latents),
        "invgp_observations": " ".join(o.name for o in problem.survey.observations),
        "invgp_config": problem.config_text,
    }


def positions(problem: Problem) -> tuple[Column, ...]:
    """The coordinates of the latents, in the order of their kernels."""
    return problem.survey.coordinates if problem.grid is None else problem.grid.coordinates


def order_of(problem: Problem) -> list[int]:
    """Of these coordinates in the file: a grid's order is the simulator's; figures have the survey's first across."""
    names, wanted = [c.name for c in positions(problem)], [c.name for c in problem.survey.coordinates]
    return [names.index(name) for name in wanted] if set(names) == set(wanted) else list(range(len(names)))


def _position_attributes(problem: Problem) -> dict[str, Any]:
    """What the coordinates of the latents are called; of a field model, those of the sites too."""
    sites = " ".join(site_coordinate(problem, c) for c in problem.survey.coordinates)
    if problem.grid is None:
        return {"invgp_coordinates": sites}
    names = [c.name for c in problem.grid.coordinates]
    nodes = " ".join(names[i] for i in order_of(problem))
    regular = {"invgp_grid_shape": list(problem.grid.shape), "invgp_grid_coordinates": " ".join(names)}
    return {"invgp_coordinates": nodes, "invgp_site_coordinates": sites, **(regular if problem.grid.shape else {})}


def _emulator_attributes(report: EmulatorReport | None) -> dict[str, str | float]:
    if report is None:
        return {"invgp_emulator": "none"}
    verified = report.verification_error[np.isfinite(report.verification_error)]
    return {
        "invgp_emulator": report.name,
        "invgp_emulator_held_out_error": report.held_out_error,
        "invgp_emulator_verification_error": float(np.sqrt(np.mean(verified**2))) if verified.size else np.nan,
    }
