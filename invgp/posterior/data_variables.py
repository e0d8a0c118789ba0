"""Variables of a posterior dataset about data and runs: observations, predictions, residuals, diagnostics, runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import ConfigError
from invgp.posterior.coordinates import label_array, make_array
from invgp.posterior.solution import Samples, Solution, StoredRuns
from invgp.problem import Floats, Observation, Problem


def data_variables(
    observation: Observation, predicted: Floats, predicted_std: Floats, noise_std: Floats, points: str = "site"
) -> dict[str, xr.DataArray]:
    """Return the variables of one observation.

    Parameters
    ----------
    observation : Observation
    predicted, predicted_std : array, shape (N, p)
        Posterior mean and standard deviation of the modelled values.
    noise_std : array, shape (N, p)
        Standard deviation of the noise, in the unit of the observation.
    points : str
        Dimension of the places.

    Returns
    -------
    dict of str to DataArray
        Observed and predicted values, their standard deviations, and residuals.
    """
    name, what = observation.name, observation.long_name or observation.name
    unit = {"units": observation.unit}
    named = {"standard_name": observation.standard_name} if observation.standard_name else {}

    def field(values: Floats, long_name: str, extra: Mapping[str, str] | None = None) -> xr.DataArray:
        about = {"long_name": long_name, **unit, **(extra or {})}
        return label_array(values, observation.dimension, about, points=points)

    return {
        f"{name}_observed": field(
            observation.values, f"observed {what}", {**named, "ancillary_variables": f"{name}_noise_std"}
        ),
        f"{name}_noise_std": field(noise_std, f"standard deviation of the noise of {what}"),
        f"{name}_predicted": field(
            predicted,
            f"modelled {what}",
            {"comment": "mean over the posterior of the simulator's output, with its discrepancy if there is one"},
        ),
        f"{name}_predicted_std": field(
            predicted_std,
            f"standard deviation of modelled {what}",
            {"comment": "over the posterior, without the noise of the observation"},
        ),
        f"{name}_residual": field(observation.values - predicted, f"observed minus modelled {what}"),
    }


def predictions_by_mode(
    observation: Observation, samples: Samples, columns: slice, variables: Mapping[str, xr.DataArray]
) -> dict[str, xr.DataArray]:
    """Return the predictions of one observation for each mode; nothing if there is one mode.

    Parameters
    ----------
    observation : Observation
    samples : Samples
    columns : slice
        Columns of the observation among the P outputs.
    variables : mapping of str to DataArray
        Predictions for all modes together, whose attributes are used.
    """
    name, found = observation.name, {}
    for suffix, values in _moments_by_mode(samples).items():
        about = variables[f"{name}_{suffix}"].attrs
        found[f"{name}_{suffix}_by_mode"] = label_array(
            values[..., columns].astype(np.float32),
            observation.dimension,
            {**about, "long_name": f"{about['long_name']}, for each mode"},
            ("posterior_mode",),
        )
    return found


def _moments_by_mode(samples: Samples) -> dict[str, Floats]:
    """Return mean and standard deviation (K, N, P) of the outputs for each of several modes; NaN without a draw."""
    if samples.predicted is None or samples.predicted_mode is None or samples.mode.max() == 0:
        return {}
    means, stds = [], []
    for mode in range(int(samples.mode.max()) + 1):
        own = samples.predicted[samples.predicted_mode == mode]
        nothing = np.full(samples.predicted.shape[1:], np.nan)
        means.append(own.mean(axis=0) if len(own) else nothing)
        stds.append(own.std(axis=0) if len(own) else nothing)
    return {"predicted": np.stack(means), "predicted_std": np.stack(stds)}


def discrepancy_variables(problem: Problem, solution: Solution) -> dict[str, xr.DataArray]:
    """Return what the simulator of a field model cannot explain at the sites; nothing for other models.

    Parameters
    ----------
    problem : Problem
    solution : Solution
        Result of the inference.

    Returns
    -------
    dict of str to DataArray
    """
    variables: dict[str, xr.DataArray] = {}
    if solution.discrepancy is None:
        return variables
    for latent in problem.noise.discrepancy.values():
        columns = problem.observation_slices[latent.discrepancy_of]
        texts = {"": latent.long_name, "_std": f"standard deviation of the {latent.long_name}"}
        for values, (suffix, text) in zip(solution.discrepancy, texts.items(), strict=True):
            about = {"long_name": text, "units": latent.unit}
            variables[latent.name + suffix] = label_array(values[:, columns], latent.dimension, about)
    return variables


def direct_variables(problem: Problem, solution: Solution) -> dict[str, xr.DataArray]:
    """Return the direct data of a field model, with their places and their fit, along a dimension of each source.

    Parameters
    ----------
    problem : Problem
    solution : Solution
        Result of the inference.

    Returns
    -------
    dict of str to DataArray
    """
    variables: dict[str, xr.DataArray] = {}
    for part in problem.parts[1:]:
        if part.name not in solution.direct_predictions:
            continue
        own, points = part.problem, f"{part.name}_place"
        for c in own.survey.coordinates:
            about = {"long_name": c.long_name or c.name, "units": c.unit}
            variables[f"{part.name}_{c.name}"] = make_array((points,), c.values, about)
        mean, std = solution.direct_predictions[part.name]
        for observation in own.survey.observations:
            columns = own.observation_slices[observation.name]
            noise = own.noise.std[observation.name]
            variables |= data_variables(observation, mean[:, columns], std[:, columns], noise, points)
    return variables


def diagnostic_variables(problem: Problem, solution: Solution) -> dict[str, xr.DataArray]:
    """Return the diagnostics of the posterior and of the emulator.

    Parameters
    ----------
    problem : Problem
    solution : Solution

    Returns
    -------
    dict of str to DataArray
    """
    diagnostics = solution.diagnostics
    variables = {}
    if solution.samples is not None and solution.samples.gaussian_error is not None:
        variables["gaussian_error"] = make_array(
            (solution.points,),
            solution.samples.gaussian_error,
            {
                "long_name": f"distance of the Gaussian approximation from the draws at a {solution.points}",
                "units": "1",
                "comment": "in standard deviations: of the mean, or the logarithm of the ratio of standard deviations",
            },
        )
    if problem.grid is None and solution.samples is None:
        variables["shape_error"] = make_array(
            ("site",),
            diagnostics.shape_error,
            {
                "long_name": "distance of the Gaussian from the exact posterior of a site given the other sites",
                "units": "1",
                "comment": "in standard deviations: of the mean, or the logarithm of the ratio of spreads",
            },
        )
    for observation in problem.survey.observations:
        values = diagnostics.chi_square[problem.observation_slices[observation.name]]
        about = {
            "long_name": f"mean squared normalised residual of {observation.long_name or observation.name}",
            "units": "1",
        }
        dims = () if observation.dimension is None else (observation.dimension,)
        variables[f"{observation.name}_chi_square"] = make_array(dims, values if dims else values[0], about)
    if solution.emulator is not None:
        error = {"long_name": "error of the emulator at fresh runs", "units": "1"}
        error["comment"] = "root mean square over the outputs, in standard deviations of the noise"
        direct: dict[str, Any] = {
            "long_name": "whether the simulator itself was run throughout",
            "flag_meanings": "emulator simulator",
        }
        direct["flag_values"] = np.asarray([0, 1], dtype=np.int8)
        variables["emulator_error"] = make_array(("site",), solution.emulator.verification_error, error)
        variables["direct_evaluation"] = make_array(("site",), solution.emulator.direct.astype(np.int8), direct)
    return variables


MOST_RUNS, MOST_NUMBERS = 20_000, 2_000_000  # that a file stores; the latest
NAMES = ("emulator_run_site", "emulator_run_latent", "emulator_run_output", "emulator_run_stage")


def run_variables(runs: StoredRuns | None) -> dict[str, xr.DataArray]:
    """Return the latest runs as variables; empty if there are none.

    Parameters
    ----------
    runs : StoredRuns or None

    Returns
    -------
    dict of str to DataArray
    """
    if runs is None or not len(runs.sites):
        return {}
    each = runs.latents.shape[1] + runs.outputs.shape[1]
    kept = slice(-min(MOST_RUNS, max(MOST_NUMBERS // each, 1)), None)
    about: tuple[tuple[tuple[str, ...], NDArray[Any], str], ...] = (
        (("emulator_run",), (runs.sites + 1).astype(np.int32), "site of the run"),
        (("emulator_run", "process"), runs.latents, "latents of the run, on the scale of the Gaussian processes"),
        (("emulator_run", "output_number"), runs.outputs, "outputs of the run, in the units of the observations"),
        (("emulator_run",), runs.stage.astype(np.int32), "step of the inversion that made the run"),
    )
    found = {}
    for name, (dims, values, text) in zip(NAMES, about, strict=True):
        attributes = {"long_name": text} | ({} if name == "emulator_run_output" else {"units": "1"})
        found[name] = make_array(dims, values[kept], attributes)
    return found


def read_runs(posterior: xr.Dataset) -> StoredRuns | None:
    """Return the runs in a posterior; None if it has none.

    Parameters
    ----------
    posterior : Dataset

    Returns
    -------
    StoredRuns or None

    Raises
    ------
    ConfigError
        The variables do not belong together.
    """
    if any(name not in posterior for name in NAMES):
        return None
    sites, latents, outputs, stage = (np.asarray(posterior[name].values) for name in NAMES)
    sizes = (posterior.sizes.get("site", 0), len(sites))
    if latents.ndim != 2 or outputs.ndim != 2 or not np.all((sites >= 1) & (sites <= sizes[0])):
        raise ConfigError("the posterior is damaged: its variables 'emulator_run_...' do not fit its sites")
    if not np.isfinite(latents).all():
        raise ConfigError("the posterior is damaged: its variable 'emulator_run_latent' has values that are not finite")
    return StoredRuns(
        sites.astype(np.intp) - 1, latents.astype(np.float64), outputs.astype(np.float64), stage.astype(np.intp)
    )
