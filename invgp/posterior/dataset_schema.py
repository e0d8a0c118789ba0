"""Check that a posterior or map file has the required variables, attributes, types and sizes.

A file is written by `invgp run` or `invgp predict`, but it may have been edited by other programs or damaged. It is
checked once, when it is opened, so that the code which reads it can rely on its contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pyproj import CRS
from pyproj.exceptions import CRSError

from invgp.bounded_links import link_from_attributes
from invgp.core.kernels import STATIONARY
from invgp.files.meshes import MeshError, mesh_of
from invgp.posterior.gaussian_processes import (
    DEFINITION,
    INDUCING_SUFFIX,
    MEAN_MAP,
    MIXING,
    SCALE_MAP,
    kernel_from_attributes,
)
from invgp.units import is_unit

TEXT_ATTRIBUTES = (
    *("Conventions", "title", "history", "source", "references", "invgp_status", "invgp_posterior"),
    *("invgp_converged", "invgp_settled"),
    *("invgp_diagnostics", "invgp_emulator", "invgp_survey", "invgp_survey_digest", "invgp_simulator"),
    *("invgp_simulator_digest", "invgp_software", "invgp_coordinates", "invgp_site_coordinates"),
    *(
        "invgp_grid_coordinates",
        "invgp_latents",
        "invgp_scalars",
        "invgp_derived",
        "invgp_observations",
        "invgp_config",
        "invgp_map",
    ),
    *("invgp_points", "invgp_draws", "invgp_calibration", "invgp_hyperparameters", "invgp_learnt"),
    *("invgp_sources", "invgp_direct_sources", "invgp_prior", "invgp_without", "invgp_answer"),
    "invgp_failure_causes",
)
COUNT_ATTRIBUTES = (
    *("invgp_runs", "invgp_runs_failed", "invgp_runs_from_ledger", "invgp_seed", "invgp_surveys"),
    *("invgp_draws_total", "invgp_modes", "invgp_mode"),
)
NUMBER_ATTRIBUTES = (
    *("invgp_runs_at_once", "invgp_emulator_held_out_error", "invgp_emulator_verification_error"),
    *("invgp_gaussian_k_hat", "invgp_log_evidence", "invgp_log_evidence_error"),
    "invgp_mode_probability",
)
VARIABLE_TEXT_ATTRIBUTES = (
    *("long_name", "units", "standard_name", "positive", "comment", "ancillary_variables", "grid_mapping", "axis"),
    *("kernel", "link", "learnt", "flag_meanings", "coordinates", "bounds"),
)
REQUIRED_ATTRIBUTES = (
    "invgp_config",
    "invgp_survey",
    "invgp_survey_digest",
    "invgp_simulator_digest",
    "invgp_seed",
    "history",
)
FIELD_SUFFIXES = ("_std", "_prior", "_prior_std", "_information", "_few_runs_std")  # along the dimensions of the latent
PREDICTION_SUFFIXES = ("_std", "_quantile", "_sample", "_prior", "_prior_std", "_information")
DATA_SUFFIXES = ("_observed", "_noise_std", "_predicted", "_predicted_std", "_residual")
SITE_VARIABLES = ("shape_error", "emulator_error", "direct_evaluation", "source")
PROCESS_VARIABLES = ("site_precision", "site_shift", "whitened_mean", "whitened_factor", "whitened_root")
MOST_SHARES = 20  # of the variance, in the sum of a kernel, whose draws are checked
MAY_BE_EMPTY = ("quantile", "realization")
ROUNDING = 1e-6  # relative to the largest number: the asymmetry of a matrix in single precision


class SchemaError(Exception):
    """The dataset does not have the required contents; the message states the first defect."""


def check_schema(dataset: xr.Dataset) -> None:
    """Check a dataset that should come from `invgp run` or `invgp predict`.

    Of the results of other commands, such as `invgp calibrate` and `invgp compare`, only the attributes are checked.

    Parameters
    ----------
    dataset : Dataset

    Raises
    ------
    SchemaError
        A variable or attribute is missing, or has the wrong type, size or value.
    """
    attributes = dataset.attrs
    _check_attributes(dataset)
    if any(name in attributes for name in ("invgp_answer", "invgp_calibration", "invgp_reference_converged")):
        return
    coordinates = _read_names(dataset, "invgp_coordinates")
    latents = [*_read_names(dataset, "invgp_latents", empty="invgp_derived" in attributes)]
    latents += [*_read_names(dataset, "invgp_derived", empty=True)] if "invgp_derived" in attributes else []
    if not latents:
        raise SchemaError("its attribute 'invgp_latents' names no latent")
    _check_labels(dataset)
    points = _check_positions(dataset, coordinates)
    scalars = _read_names(dataset, "invgp_scalars", empty=True)
    for name in scalars:
        if name not in latents:
            raise SchemaError(f"its attribute 'invgp_scalars' must name latents, named {name!r}")
    for name in latents:
        _check_latent(dataset, name, () if name in scalars else points)
    try:
        mesh = mesh_of(dataset)
    except MeshError as error:
        raise SchemaError(f"its mesh is damaged: {error}") from error
    if mesh is not None and (len(mesh.cells),) != tuple(dataset.sizes.get(d, 0) for d in points):
        raise SchemaError(f"its mesh must have one cell per point, had {len(mesh.cells)}")
    if "invgp_map" not in attributes:
        for name in latents:
            _check_latent_values(dataset, name)
        _check_run(dataset, coordinates, latents)


def _check_run(dataset: xr.Dataset, coordinates: Sequence[str], latents: Sequence[str]) -> None:
    """Check what a posterior has and a map has not: provenance, data and processes."""
    missing = [name for name in REQUIRED_ATTRIBUTES if name not in dataset.attrs]
    if missing:
        raise SchemaError(f"it lacks the attribute {missing[0]!r}")
    if "site" not in dataset.dims:
        raise SchemaError("it lacks the dimension 'site'")
    for name in _read_names(dataset, "invgp_observations", empty=True):
        _check_observation(dataset, name)
    for name in SITE_VARIABLES:
        if name in dataset:
            _number_values(dataset, name, ("site",))
    for name in ("elbo", "runs"):
        if name in dataset:
            _number_values(dataset, name, ("iteration",))
    for name in _read_names(dataset, "invgp_hyperparameters", empty=True):
        _check_hyperparameter(dataset, f"{name}_sample")
    if "node" in dataset.dims:
        _check_nodes(dataset)
    processes = sum(_label_count(dataset, name) for name in latents)
    where = "node" if "node" in dataset.dims else "site"
    if "correlation" in dataset:
        fields = set(latents) - set(_read_names(dataset, "invgp_scalars", empty=True))
        _number_values(dataset, "correlation", (*((where,) if fields else ()), "process", "other_process"))
    if "process" in dataset.dims and dataset.sizes["process"] != processes:
        raise SchemaError(f"its dimension 'process' must have the size {processes}, was {dataset.sizes['process']}")
    if any(name in dataset for name in PROCESS_VARIABLES):
        _check_prediction(dataset, coordinates, latents, where)


def _check_attributes(dataset: xr.Dataset) -> None:
    """Check the types of all attributes that are read."""
    # In a calibration, invgp_draws is the number of draws per survey.
    for name in (name for name in TEXT_ATTRIBUTES if name != "invgp_draws" or "invgp_calibration" not in dataset.attrs):
        if not isinstance(dataset.attrs.get(name, ""), str):
            raise SchemaError(f"its attribute {name!r} must be text, was {_format_value(dataset.attrs[name])}")
    for name in (*COUNT_ATTRIBUTES, *NUMBER_ATTRIBUTES):
        value = dataset.attrs.get(name, 0)
        if not _is_number(value) or (name in COUNT_ATTRIBUTES and not (float(value).is_integer() and value >= 0)):
            kind = "a whole number from 0" if name in COUNT_ATTRIBUTES else "a number"
            raise SchemaError(f"its attribute {name!r} must be {kind}, was {_format_value(value)}")
    for own, variable in dataset.variables.items():
        for key in VARIABLE_TEXT_ATTRIBUTES:
            value = variable.attrs.get(key, "")
            if not isinstance(value, str):
                raise SchemaError(
                    f"the attribute {key!r} of its variable {own!r} must be text, was {_format_value(value)}"
                )
        unit = variable.attrs.get("units")
        if unit is not None and not is_unit(unit):
            raise SchemaError(f"the attribute 'units' of its variable {own!r} must be a unit, was {unit!r}")
        if variable.dtype.kind not in "iufU" and not _holds_text(variable):
            raise SchemaError(f"its variable {own!r} must hold numbers or text, was of the type {variable.dtype}")
    if "crs" in dataset:
        try:
            CRS.from_cf(dict(dataset["crs"].attrs))
        except (CRSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError("its variable 'crs' describes no coordinate reference system") from error


def _holds_text(variable: xr.Variable) -> bool:
    return variable.dtype.kind == "O" and all(isinstance(text, str) for text in variable.values.flat)


def _check_positions(dataset: xr.Dataset, coordinates: Sequence[str]) -> tuple[str, ...]:
    """Check the coordinates of the points and return their dimensions: site, node, or the axes of a grid."""
    on_axes = dataset.attrs.get("invgp_map") == "grid"
    point = "node" if "node" in dataset.dims else "site"
    for name in coordinates:
        values = _finite_values(dataset, name, (name,) if on_axes else (point,))
        if "units" not in dataset[name].attrs:
            raise SchemaError(f"its coordinate {name!r} lacks the attribute 'units'")
        steps = np.diff(values)
        if on_axes and not (np.all(steps > 0.0) or np.all(steps < 0.0)):
            raise SchemaError(f"its coordinate {name!r} must rise, or fall, from each value to the next")
    for name in coordinates:
        if f"{name}_bounds" in dataset:
            _finite_values(dataset, f"{name}_bounds", (point, "bounds"))
    has_sites = "invgp_site_coordinates" in dataset.attrs and "invgp_map" not in dataset.attrs
    for name in _read_names(dataset, "invgp_site_coordinates") if has_sites else ():
        _finite_values(dataset, name, ("site",))
    for other, array in dataset.data_vars.items():
        if "survey_site" in array.dims or str(other) in {f"survey_{c}" for c in coordinates}:
            _finite_values(dataset, str(other), ("survey_site",))
    return tuple(coordinates) if on_axes else (point,)


def _check_labels(dataset: xr.Dataset) -> None:
    """Check the coordinates of labels, quantiles, draws and thresholds."""
    empty = [str(d) for d, size in dataset.sizes.items() if not size and d not in MAY_BE_EMPTY]
    if empty:
        raise SchemaError(f"its dimension {empty[0]!r} must not be empty")
    for name in map(str, dataset.dims):
        if name in dataset:
            values = dataset[name].values
            if dataset[name].dims != (name,) or len(set(values.tolist())) < values.size:
                raise SchemaError(f"its coordinate {name!r} must not hold a value twice")
        label = f"{name}_label"
        if label in dataset and (dataset[label].dims != (name,) or not _is_text(dataset[label])):
            raise SchemaError(f"its variable {label!r} must hold text along {name!r}")
    for name in ("site", "node", "realization", "iteration"):
        if name in dataset.dims and name in dataset and dataset[name].dtype.kind not in "iu":
            raise SchemaError(f"its coordinate {name!r} must hold whole numbers, was of the type {dataset[name].dtype}")
    if "quantile" in dataset.dims:
        levels = _finite_values(dataset, "quantile", ("quantile",))
        if not (np.all(np.diff(levels) > 0.0) and np.all((levels > 0.0) & (levels < 1.0))):
            raise SchemaError("its coordinate 'quantile' must rise between 0 and 1")


def _check_latent(dataset: xr.Dataset, name: str, points: Sequence[str]) -> None:
    """Check the variables of a latent, or of a quantity derived from latents."""
    _require_variable(dataset, name)
    dims = tuple(str(d) for d in dataset[name].dims)
    labels = [d for d in dims if d not in points]
    if not set(points) <= set(dims) or len(labels) > 1:
        raise SchemaError(
            f"its variable {name!r} must lie along {_quote_names(points)} and labels at most, was along {dims}"
        )
    if "units" not in dataset[name].attrs:
        raise SchemaError(f"its variable {name!r} lacks the attribute 'units'")
    for label in labels:
        if label not in dataset.coords and f"{label}_label" not in dataset:
            raise SchemaError(f"it lacks the coordinate of the dimension {label!r} of its variable {name!r}")
    _require_variable(dataset, f"{name}_std")
    for suffix in ("", *FIELD_SUFFIXES):
        if f"{name}{suffix}" in dataset:
            _check_layout(dataset, f"{name}{suffix}", dims)
    threshold = f"{name}_threshold"
    for suffix, leading in (("_quantile", "quantile"), ("_sample", "realization"), ("_exceedance", threshold)):
        if f"{name}{suffix}" in dataset:
            _check_layout(dataset, f"{name}{suffix}", (leading, *dims))
            if leading not in dataset.coords:
                raise SchemaError(f"it lacks the coordinate {leading!r}")


def _check_latent_values(dataset: xr.Dataset, name: str) -> None:
    """Check the values of a latent of a posterior; those of a map may be too many, and undefined at some points."""
    dims = tuple(str(d) for d in dataset[name].dims)
    for suffix in ("", *FIELD_SUFFIXES):
        if f"{name}{suffix}" in dataset:
            values = _finite_values(dataset, f"{name}{suffix}", dims)
            if suffix.endswith("_std") and np.any(values < 0.0):
                raise SchemaError(f"its variable '{name}{suffix}' must not be negative, was {values.min():g}")
    if f"{name}_sample" in dataset:
        _finite_values(dataset, f"{name}_sample", ("realization", *dims))
    if f"{name}_quantile" in dataset:
        values = _finite_values(dataset, f"{name}_quantile", ("quantile", *dims))
        if np.any(np.diff(values, axis=0) < -ROUNDING * _largest_magnitude(values)):
            raise SchemaError(f"its variable '{name}_quantile' must not fall from one quantile to the next")


def _check_observation(dataset: xr.Dataset, name: str) -> None:
    """Check the variables of the data, which may be missing at some sites."""
    first = f"{name}{DATA_SUFFIXES[0]}"
    _require_variable(dataset, first)
    dims = tuple(str(d) for d in dataset[first].dims)
    if dims[:1] != ("site",) or len(dims) > 2:
        raise SchemaError(f"its variable {first!r} must lie along 'site' and labels at most, was along {dims}")
    for label in dims[1:]:
        if label not in dataset.coords and f"{label}_label" not in dataset:
            raise SchemaError(f"it lacks the coordinate of the dimension {label!r} of its variable {first!r}")
    values = {suffix: _number_values(dataset, f"{name}{suffix}", dims) for suffix in DATA_SUFFIXES}
    noise = values["_noise_std"][np.isfinite(values["_observed"])]
    if np.any(np.isinf(values["_observed"])) or not np.all((noise > 0.0) & np.isfinite(noise)):
        raise SchemaError(f"its variable '{name}_noise_std' must be positive wherever there are observations")


def _check_hyperparameter(dataset: xr.Dataset, name: str) -> None:
    """Check the draws of a learnt hyperparameter, and its prior."""
    values = _finite_values(dataset, name, ("draw",))
    if not np.all(values > 0.0):
        raise SchemaError(f"its variable {name!r} must be positive, had {values.min():g}")
    about = dataset[name].attrs
    limits = [("most_probable", 0.0), ("prior_median", 0.0), ("prior_factor", 1.0)]
    for key, least in (*limits, ("prior_degrees", 0.0)) if "prior_degrees" in about else limits:
        value = about.get(key, np.nan)
        if not _is_number(value) or not least < float(value) < np.inf:
            raise SchemaError(
                f"the attribute {key!r} of its variable {name!r} must be a number above {least:g}, was "
                f"{_format_value(value)}"
            )


def _check_nodes(dataset: xr.Dataset) -> None:
    """Check the grid of a field model."""
    shape = np.atleast_1d(np.asarray(dataset.attrs.get("invgp_grid_shape", [])))
    if "invgp_site_coordinates" not in dataset.attrs:
        raise SchemaError("it lacks the attribute 'invgp_site_coordinates'")
    if not shape.size:
        return
    names = _read_names(dataset, "invgp_grid_coordinates")
    if shape.dtype.kind not in "iu" or len(shape) != len(names) or np.prod(shape, dtype=float) != dataset.sizes["node"]:
        raise SchemaError(
            f"its attribute 'invgp_grid_shape' must be the shape of its nodes, was {_format_value(shape)}"
        )
    for place, name in enumerate(names):
        values = np.moveaxis(_finite_values(dataset, name, ("node",)).reshape(shape), place, 0).reshape(
            shape[place], -1
        )
        steps = np.diff(values[:, 0])
        if np.any(values != values[:, :1]) or not (np.all(steps > 0.0) or np.all(steps < 0.0)):
            raise SchemaError(f"its coordinate {name!r} must be an axis of the grid that 'invgp_grid_shape' describes")


def _check_prediction(dataset: xr.Dataset, coordinates: Sequence[str], latents: Sequence[str], points: str) -> None:
    """Check what prediction needs: the prior of each latent, and the posterior of the processes."""
    for name in ("quantile", "realization"):
        if name not in dataset.coords:
            raise SchemaError(f"it lacks the coordinate {name!r}")
    _check_mixing(dataset, latents)
    for name in latents:
        _check_prior(dataset, name, len(coordinates))
        _check_prior_maps(dataset, name, coordinates)
    if "whitened_sample" in dataset:
        of_inducing = f"{coordinates[0]}{INDUCING_SUFFIX}" in dataset
        _finite_values(dataset, "whitened_sample", ("draw", "process", "inducing" if of_inducing else points))
    _check_modes(dataset)
    inducing = [f"{name}{INDUCING_SUFFIX}" for name in coordinates if f"{name}{INDUCING_SUFFIX}" in dataset]
    if inducing or "whitened_root" in dataset:
        for name in coordinates:
            _finite_values(dataset, f"{name}{INDUCING_SUFFIX}", ("process", "inducing"))
    if "whitened_root" in dataset:
        mean = _finite_values(dataset, "whitened_mean", ("process", "inducing"))
        root = _finite_values(dataset, "whitened_root", ("whitened", "other_whitened"))
        if root.shape != (mean.size, mean.size):
            raise SchemaError(f"its variable 'whitened_root' must be {mean.size} by {mean.size}, was {root.shape}")
    elif "whitened_mean" in dataset or "whitened_factor" in dataset:
        _finite_values(dataset, "whitened_mean", ("process", points))
        factor = _finite_values(dataset, "whitened_factor", ("process", points, f"other_{points}"))
        _check_square("whitened_factor", factor)
    else:
        jitter = _require_variable(dataset, "site_shift").attrs.get("inducing_jitter", 0.0)
        if not _is_number(jitter) or not 0.0 <= float(jitter) < np.inf:
            raise SchemaError(
                f"the attribute 'inducing_jitter' of 'site_shift' must be from 0, was {_format_value(jitter)}"
            )
        _finite_values(dataset, "site_shift", (points, "process"))
        precision = _finite_values(dataset, "site_precision", (points, "process", "other_process"))
        _check_square("site_precision", precision)
        if np.any(np.abs(precision - precision.swapaxes(1, 2)) > ROUNDING * _largest_magnitude(precision)):
            raise SchemaError("its variable 'site_precision' must be symmetric, was not")


def _check_modes(dataset: xr.Dataset) -> None:
    """Check the probabilities of the modes, and the mode of each draw."""
    probabilities = np.atleast_1d(np.asarray(dataset.attrs.get("invgp_mode_probabilities", 1.0)))
    if probabilities.dtype.kind not in "iuf" or not np.all((probabilities >= 0.0) & (probabilities <= 1.0)):
        raise SchemaError(
            "its attribute 'invgp_mode_probabilities' must be numbers from 0 to 1, was "
            f"{_format_value(dataset.attrs['invgp_mode_probabilities'])}"
        )
    for name, dimension in (("mode", "realization"), ("draw_mode", "draw")):
        if name in dataset:
            modes = _number_values(dataset, name, (dimension,))
            if modes.size and not np.all(np.isin(modes, np.arange(1, len(probabilities) + 1))):
                raise SchemaError(f"its variable {name!r} must hold numbers of modes, from 1 to {len(probabilities)}")
    if dataset.sizes.get("posterior_mode", len(probabilities)) != len(probabilities):
        found = dataset.sizes["posterior_mode"]
        raise SchemaError(f"its dimension 'posterior_mode' must have the size {len(probabilities)}, was {found}")
    for name in _read_names(dataset, "invgp_observations", empty=True):
        for what in ("predicted", "predicted_std"):
            if f"{name}_{what}_by_mode" in dataset:
                dims = tuple(str(d) for d in dataset[f"{name}_{what}"].dims)
                _check_layout(dataset, f"{name}_{what}_by_mode", ("posterior_mode", *dims))


def _check_prior(dataset: xr.Dataset, name: str, dimensions: int) -> None:
    """Check the prior of a latent, and that the variables exist whose attributes a map copies."""
    for suffix in PREDICTION_SUFFIXES:
        _require_variable(dataset, f"{name}{suffix}")
    about, count = dataset[name].attrs, _label_count(dataset, name)
    described = DEFINITION in about
    if described:
        _check_kernel_definition(about[DEFINITION], name, dimensions)
    if not described and about.get("kernel") not in STATIONARY:
        found = f"was {about['kernel']!r}" if "kernel" in about else "was missing"
        raise SchemaError(
            f"the attribute 'kernel' of its variable {name!r} must be {_quote_names(STATIONARY)}, {found}"
        )
    try:
        link_from_attributes(about, count)
    except ValueError as error:
        raise SchemaError(f"of its variable {name!r}, {error}") from error
    scales = () if described else (("length_scale", dimensions),)
    for key, size in (*scales, ("process_mean", count), ("process_std", count)):
        _check_numbers(dataset, name, key, size, positive=key != "process_mean")
    learnt = (f"{name}_std_factor_sample", *(f"{name}_share_{k}_sample" for k in range(1, MOST_SHARES + 1)))
    for variable in (variable for variable in learnt if variable in dataset):
        _check_numbers(dataset, variable, "process_std", count, positive=True)


def _check_mixing(dataset: xr.Dataset, latents: Sequence[str]) -> None:
    """Check the matrix that mixes independent processes, if there is one."""
    if MIXING in dataset:
        values = _finite_values(dataset, MIXING, ("process", "other_process"))
        if (
            values.shape[0] != sum(_label_count(dataset, name) for name in latents)
            or values.shape[0] != values.shape[1]
        ):
            raise SchemaError(f"its variable {MIXING!r} must have one row and column for each process")


def _check_prior_maps(dataset: xr.Dataset, name: str, coordinates: Sequence[str]) -> None:
    """Check the maps of the prior of a latent, if it has any."""
    if f"{name}{MEAN_MAP}" not in dataset:
        return
    dims = tuple(str(d) for d in dataset[f"{name}{MEAN_MAP}"].dims)
    known = [f"{name}_map_{c}" for c in coordinates]
    if len(dims) < 2 or dims[0] != f"{name}_process" or not set(dims[1:]) <= set(known):
        raise SchemaError(f"its variable '{name}{MEAN_MAP}' must have dimensions of {_quote_names(known)}, had {dims}")
    if dataset.sizes[dims[0]] != _label_count(dataset, name):
        raise SchemaError(f"its dimension {dims[0]!r} must have one value for each label of {name!r}")
    _number_values(dataset, f"{name}{MEAN_MAP}", dims)
    if f"{name}{SCALE_MAP}" in dataset:
        _finite_values(dataset, f"{name}{SCALE_MAP}", dims)
    for dim in dims[1:]:
        _require_variable(dataset, dim)
        axis = _finite_values(dataset, dim, (dim,))
        if len(axis) < 2 or not np.all(np.diff(axis) > 0):
            raise SchemaError(f"its variable {dim!r} must hold two or more increasing numbers")


def _check_numbers(dataset: xr.Dataset, name: str, key: str, size: int, *, positive: bool) -> None:
    """Check an attribute of a variable that holds numbers."""
    about = dataset[name].attrs
    values = np.atleast_1d(np.asarray(about.get(key, np.nan)))
    good = values.dtype.kind in "iuf" and values.shape == (size,) and bool(np.all(np.isfinite(values)))
    if not good or (positive and not np.all(values > 0.0)):
        kind = "positive" if positive else "finite"
        found = f"was {_format_value(about[key])}" if key in about else "was missing"
        raise SchemaError(f"the attribute {key!r} of its variable {name!r} must be {size} {kind}, {found}")


def _check_kernel_definition(text: object, name: str, dimensions: int) -> None:
    """Check that a kernel can be built from its description and has finite values at points of D coordinates."""
    try:
        kernel = kernel_from_attributes({DEFINITION: text})
        values = kernel(np.zeros((1, dimensions)), np.ones((1, dimensions)))
    except (IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise SchemaError(
            f"the attribute {DEFINITION!r} of its variable {name!r} must describe a kernel: {error}"
        ) from error
    if values.shape != (1, 1) or not np.isfinite(values).all():
        raise SchemaError(f"the attribute {DEFINITION!r} of its variable {name!r} must describe a kernel, was {text!r}")


def _check_square(name: str, values: NDArray[np.float64]) -> None:
    if values.shape[1] != values.shape[2]:
        raise SchemaError(f"its variable {name!r} must hold square matrices, was {values.shape}")


def _read_names(dataset: xr.Dataset, key: str, *, empty: bool = False) -> list[str]:
    """Read the names of variables in an attribute."""
    if key not in dataset.attrs and not empty:
        raise SchemaError(f"it lacks the attribute {key!r}")
    names = str(dataset.attrs.get(key, "")).split()
    if len(set(names)) < len(names) or not (names or empty):
        raise SchemaError(f"its attribute {key!r} must name variables, each once, was {dataset.attrs[key]!r}")
    return names


def _require_variable(dataset: xr.Dataset, name: str) -> xr.DataArray:
    if name not in dataset.variables:
        raise SchemaError(f"it lacks the variable {name!r}")
    return dataset[name]


def _check_layout(dataset: xr.Dataset, name: str, dims: tuple[str, ...]) -> None:
    """Check that a variable holds numbers along these dimensions."""
    array = _require_variable(dataset, name)
    if array.dims != dims:
        raise SchemaError(
            f"its variable {name!r} must lie along {_quote_names(dims)}, was along {_quote_names(array.dims)}"
        )
    if array.dtype.kind not in "iuf":
        raise SchemaError(f"its variable {name!r} must hold numbers, was of the type {array.dtype}")


def _number_values(dataset: xr.Dataset, name: str, dims: tuple[str, ...]) -> NDArray[np.float64]:
    """Return the values of a variable after a check of its type and dimensions."""
    _check_layout(dataset, name, dims)
    return np.asarray(dataset[name].values, dtype=np.float64)


def _finite_values(dataset: xr.Dataset, name: str, dims: tuple[str, ...]) -> NDArray[np.float64]:
    values = _number_values(dataset, name, dims)
    if not np.all(np.isfinite(values)):
        raise SchemaError(f"its variable {name!r} must hold finite numbers, had {values[~np.isfinite(values)][0]}")
    return values


def _label_count(dataset: xr.Dataset, name: str) -> int:
    """Return the number of processes of a latent."""
    points = ("site", "node")
    return int(np.prod([dataset.sizes[d] for d in dataset[name].dims if d not in points], dtype=np.int64))


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"


def _is_text(array: xr.DataArray) -> bool:
    return array.dtype.kind == "U" or _holds_text(array.variable)


def _largest_magnitude(values: NDArray[np.float64]) -> float:
    known = np.abs(values[np.isfinite(values)])
    return float(known.max()) if known.size else 0.0


def _quote_names(names: Iterable[object]) -> str:
    return ", ".join(repr(str(name)) for name in names) or "no dimension"


def _format_value(value: Any) -> str:
    text = repr(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) <= 60 else f"{text[:57]}..."
