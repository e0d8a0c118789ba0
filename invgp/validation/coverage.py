"""Coverage of intervals and ranks of truths, with their chance variations, and their summary as a dataset.

K simulated surveys are independent of each other; the sites of one survey are not, because they share a truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import bdtrik, ndtri, stdtrit

from invgp.problem import Floats, Problem

Integers = NDArray[np.int64]

INTERVALS = (0.5, 0.8, 0.95)  # probabilities of central intervals
CONFIDENCE = 0.95  # probability that a calibrated posterior is inside all bands of a table
BIN_CONFIDENCE = 0.99  # probability that it is inside the band of one bin of a histogram
DRAWS = 99  # per posterior, so that there are 100 ranks
BINS = (20, 10, 5, 4)  # each divides the 100 ranks evenly
SURVEYS_PER_BIN = 5


class Coverage(NamedTuple):
    """Fraction of truths inside central intervals of one probability.

    Attributes
    ----------
    share : array
        Fraction over all surveys and sites.
    standard_error : array
        Standard error of the fraction, estimated from the variation between surveys.
    lower, upper : array
        Band of the fraction for a calibrated posterior.
    """

    share: Floats
    standard_error: Floats
    lower: Floats
    upper: Floats

    @property
    def below(self) -> NDArray[np.bool_]:
        """Whether fewer truths are inside than chance explains: the posterior is overconfident."""
        return np.asarray(self.share < self.lower)

    @property
    def above(self) -> NDArray[np.bool_]:
        """Whether more truths are inside than chance explains: the posterior is too wide."""
        return np.asarray(self.share > self.upper)


def interval_coverage(pit: Floats, probability: float, tests: int = 1) -> Coverage:
    """Return the coverage of central intervals.

    Parameters
    ----------
    pit : array, shape (K, N, ...)
        Cumulative probability of each truth under its posterior marginal, for K surveys of N sites.
    probability : float
        Probability of the intervals.
    tests : int
        Number of bands that are assessed together. A calibrated posterior is inside all of them with the probability
        `CONFIDENCE` (Bonferroni).

    Returns
    -------
    Coverage
        With arrays of shape (...).
    """
    surveys, sites = pit.shape[:2]
    per_survey = _shares_inside(pit, probability)
    # Standard error for one truth, and the band of a calibrated posterior: its error is that of the nominal
    # coverage, not that of the observed one, which a wrong posterior changes.
    single = np.sqrt(probability * (1.0 - probability))
    expected = single * np.sqrt(dependence_of_sites(pit) / surveys)
    tail = 0.5 * (1.0 - CONFIDENCE) / tests
    if surveys > 1:
        error = np.std(per_survey, axis=0, ddof=1) / np.sqrt(surveys)
        error = np.maximum(error, single / np.sqrt(surveys * sites))  # that of independent sites
        reach = -float(stdtrit(surveys - 1, tail))
    else:
        error = np.full(pit.shape[2:], single)
        reach = -float(ndtri(tail))
    return Coverage(
        np.asarray(np.mean(per_survey, axis=0)),
        np.asarray(error),
        np.asarray(np.maximum(probability - reach * expected, 0.0)),
        np.asarray(np.minimum(probability + reach * expected, 1.0)),
    )


def dependence_of_sites(pit: Floats) -> Floats:
    """Return the variance of the coverage of one survey, divided by that of a single truth.

    It is 1 / N for independent sites, and 1 if all sites of a survey are inside the interval or none (the design effect
    of cluster samples, divided by N). The variance is divided by that of the *observed* coverage, so that the result
    describes the dependence of the sites whether the posterior is calibrated or not.

    Parameters
    ----------
    pit : array, shape (K, N, ...)
        Cumulative probability of each truth under its posterior marginal.

    Returns
    -------
    array, shape (...)
        Largest value over `INTERVALS`; 1 if it cannot be estimated, because there is one survey, or because each
        interval contains all truths or none.
    """
    surveys, sites = pit.shape[:2]
    largest = np.full(pit.shape[2:], -np.inf)
    if surveys > 1:
        for probability in INTERVALS:
            per_survey = _shares_inside(pit, probability)
            share, variance = np.mean(per_survey, axis=0), np.var(per_survey, axis=0, ddof=1)
            # share * (1 - share) is too small, on average by the variance of the share.
            single = share * (1.0 - share) + variance / surveys
            largest = np.maximum(
                largest, np.divide(variance, single, out=np.full_like(single, -np.inf), where=single > 0)
            )
    return np.asarray(np.where(np.isfinite(largest), np.clip(largest, 1.0 / sites, 1.0), 1.0))


def _shares_inside(pit: Floats, probability: float) -> Floats:
    """Return the share (K, ...) of the sites of each survey whose truth is inside the central interval."""
    return np.asarray(np.mean(np.abs(2.0 * pit - 1.0) <= probability, axis=1))


def bin_count(surveys: int) -> int:
    """Return the number of bins of a histogram with one rank per survey: at least five surveys per bin if possible."""
    return next((bins for bins in BINS if surveys >= SURVEYS_PER_BIN * bins), BINS[-1])


def rank_counts(ranks: Integers, bins: int) -> Integers:
    """Return the histogram (bins,) of ranks (K,) from 0 to `DRAWS`."""
    return np.bincount(np.asarray(ranks, dtype=np.int64) * bins // (DRAWS + 1), minlength=bins)


def count_band(surveys: int, bins: int) -> tuple[int, int]:
    """Return the central binomial interval of the number of uniform ranks in one bin."""
    tail = 0.5 * (1.0 - BIN_CONFIDENCE)
    lower, upper = np.ceil(np.maximum(bdtrik(np.asarray([tail, 1.0 - tail]), surveys, 1.0 / bins), 0.0))
    return int(lower), int(upper)


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
