"""Variables of a posterior dataset about the data: observations, predictions, residuals and diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from invgp.posterior.data_arrays import label_array, make_array
from invgp.posterior.solution import Samples, Solution
from invgp.problem import Floats, Observation, Problem


def data_variables(
    observation: Observation, solution: Solution, columns: slice, noise_std: Floats
) -> dict[str, xr.DataArray]:
    """Return the variables of one observation.

    Parameters
    ----------
    observation : Observation
    solution : Solution
    columns : slice
        Columns of the observation among the P outputs.
    noise_std : array, shape (N, p)
        Standard deviation of the noise, in the unit of the observation.

    Returns
    -------
    dict of str to DataArray
        Observed and predicted values, their standard deviations, and residuals.
    """
    name, what = observation.name, observation.long_name or observation.name
    unit = {"units": observation.unit}
    named = {"standard_name": observation.standard_name} if observation.standard_name else {}
    predicted = solution.predicted[:, columns]

    def field(values: Floats, long_name: str, extra: Mapping[str, str] | None = None) -> xr.DataArray:
        return label_array(values, observation.dimension, {"long_name": long_name, **unit, **(extra or {})})

    found = {
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
    if solution.samples is None:
        return found
    for suffix, values in _predictions_by_mode(solution.samples).items():
        about = found[f"{name}_{suffix}"].attrs
        found[f"{name}_{suffix}_by_mode"] = label_array(
            values[..., columns].astype(np.float32),
            observation.dimension,
            {**about, "long_name": f"{about['long_name']}, for each mode"},
            ("posterior_mode",),
        )
    return found


def _predictions_by_mode(samples: Samples) -> dict[str, Floats]:
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
