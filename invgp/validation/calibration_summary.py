"""Summary of simulated surveys: one dataset with the coverage of the intervals of each latent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import xarray as xr

from invgp.problem import Floats, Problem
from invgp.validation.coverage import CONFIDENCE, DRAWS, INTERVALS, Coverage, interval_coverage

# Attributes that a calibration copies from its posteriors.
SHARED = (
    "Conventions",
    "source",
    "invgp_posterior",
    "invgp_survey",
    "invgp_survey_digest",
    "invgp_simulator",
    "invgp_simulator_digest",
    "invgp_software",
    "invgp_coordinates",
    "invgp_latents",
    "invgp_observations",
    "invgp_config",
    "invgp_calibration",
)


def summary(problem: Problem, trials: Mapping[int, xr.Dataset], seed: int, failures: Mapping[int, str]) -> xr.Dataset:
    """Combine the surveys into one dataset and add the coverage of the intervals of each latent.

    Parameters
    ----------
    problem : Problem
    trials : mapping of int to xarray.Dataset
        Result of each survey by its number.
    seed : int
    failures : mapping of int to str
        Why other surveys could not be inverted, by number.
    """
    numbers = sorted(trials)
    fields = [trials[number].drop_vars("crs", errors="ignore") for number in numbers]
    result = xr.concat(
        fields,
        "survey",
        data_vars="all",
        coords="minimal",
        compat="override",
        join="override",
        combine_attrs="override",
    )
    result = result.assign_coords(survey=("survey", numbers, {"long_name": "simulated survey"}))
    result = result.assign_coords(
        interval=("interval", list(INTERVALS), {"long_name": "probability of a central interval", "units": "1"})
    )
    if "crs" in trials[numbers[0]]:
        result["crs"] = trials[numbers[0]]["crs"]
    _describe_surveys(result)
    tests = len(INTERVALS) * (problem.latent_count + 1)
    for latent in problem.latents:
        _add_latent(result, latent.name, tests)
    every = [result[f"{latent.name}_pit"].values.reshape(len(numbers), -1) for latent in problem.latents]
    _add_coverage(result, "", np.concatenate(every, axis=1), (), tests, "all latents")
    result.attrs = _attributes(problem, result, seed, failures, tests)
    return result


def first_failure(failures: Mapping[int, str]) -> str:
    """Describe the failure with the lowest survey number; empty if there is none."""
    return f"survey {min(failures)}: {failures[min(failures)]}" if failures else ""


def coverage_of(result: xr.Dataset, latent: str = "") -> Coverage:
    """Return the coverage of a latent, arrays (interval,) or (interval, label); by default of all latents together."""
    stem = f"{latent}_coverage" if latent else "coverage"
    return Coverage(*(result[f"{stem}{suffix}"].values for suffix in ("", "_error", "_lower", "_upper")))


def _add_latent(result: xr.Dataset, name: str, tests: int) -> None:
    """Add the coverage (interval, label) and the errors (label) of one latent."""
    pit = result[f"{name}_pit"]
    point = "node" if "node" in pit.dims else "site"
    labels = tuple(str(d) for d in pit.dims if d not in {"survey", point})
    over = [d for d in ("survey", point) if d in pit.dims]  # a scalar has no points
    placed = pit if point in pit.dims else pit.expand_dims(point)
    _add_coverage(result, name, placed.transpose("survey", point, *labels).values, labels, tests, name)
    absolute_score: xr.DataArray = abs(result[f"{name}_score"]).mean(over)
    squared_error = ((result[f"{name}_truth"] - result[f"{name}_mean"]) ** 2).mean(over)
    error_ratio: xr.DataArray = (squared_error / (result[f"{name}_std"] ** 2).mean(over)) ** 0.5
    for suffix, values, long_name in (
        ("absolute_score", absolute_score, "mean absolute standardised error; 0.80 is right"),
        ("error_ratio", error_ratio, "root mean square error / root mean square posterior std; 1 is right"),
    ):
        result[f"{name}_{suffix}"] = values.assign_attrs(long_name=f"{long_name}, {name}", units="1")


def _add_coverage(result: xr.Dataset, name: str, pit: Floats, labels: tuple[str, ...], tests: int, what: str) -> None:
    found = [interval_coverage(pit, interval, tests) for interval in INTERVALS]
    stem = f"{name}_coverage" if name else "coverage"
    for field, suffix, long_name in (
        ("share", "", "share of truths inside the interval"),
        ("standard_error", "_error", "standard error of the share, across surveys"),
        ("lower", "_lower", "least share that chance explains"),
        ("upper", "_upper", "largest share that chance explains"),
    ):
        values = np.stack([getattr(one, field) for one in found])
        result[f"{stem}{suffix}"] = (("interval", *labels), values, {"long_name": f"{long_name}, {what}", "units": "1"})


def _describe_surveys(result: xr.Dataset) -> None:
    for name, long_name in (
        ("rank_site", "site whose ranks are in the histogram"),
        ("rank_node", "node whose ranks are in the histogram"),
        ("redrawn", "truths rejected because the simulator failed"),
        ("runs", "simulator runs of the inversion"),
        ("converged", "whether the inversion converged"),
    ):
        if name in result:
            result[name].attrs = {"long_name": long_name, "units": "1"}


def _attributes(
    problem: Problem, result: xr.Dataset, seed: int, failures: Mapping[int, str], tests: int
) -> dict[str, str | int | float]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        **{key: result.attrs[key] for key in SHARED},
        "title": f"Calibration of: {problem.title or 'a geophysical inversion'}",
        "history": f"{now} invgp {version('invgp')}: calibration on simulated surveys",
        "references": "Talts, Betancourt, Simpson, Vehtari and Gelman, Validating Bayesian Inference Algorithms with "
        "Simulation-Based Calibration (2018), arXiv:1804.06788",
        "invgp_seed": seed,
        "invgp_surveys": result.sizes["survey"],
        "invgp_surveys_failed": len(failures),
        "invgp_first_failure": first_failure(failures).partition("\n")[0],
        "invgp_surveys_not_converged": int((result["converged"] == 0).sum()),
        "invgp_truths_redrawn": int(result["redrawn"].sum()),
        "invgp_runs": int(result["runs"].sum()),
        "invgp_draws": DRAWS,
        "invgp_bands": tests,
        "invgp_bands_confidence": CONFIDENCE,
    }
