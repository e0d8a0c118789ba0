"""The evidence of alternative models of the same data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from invgp.answers.emulated_problem import EmulatedProblem
from invgp.core.sampling.statistics import Evidence
from invgp.errors import ArgumentError
from invgp.inference.sampled import sampled_search

# Kass and Raftery (1995), in nats
GRADES = ((1.0, "not worth more than a mention"), (3.0, "positive"), (5.0, "strong"), (math.inf, "very strong"))
UNDECIDED = 2.0  # standard errors of a difference below which it is not decided
STORED, EMULATED, BOUND = "stored", "computed on the emulator", "lower bound"
PLUGGED_IN = "at the most probable hyperparameters"


class ModelEvidence(NamedTuple):
    """Evidence of a model, and where it comes from.

    Attributes
    ----------
    name : str
    evidence : Evidence
        In nats.
    origin : str
        ``"stored"`` in the file, ``"computed on the emulator"``, only a ``"lower bound"``, or ``"at the most probable
        hyperparameters"`` instead of averaged over them.
    """

    name: str
    evidence: Evidence
    origin: str


def stored_evidence(posterior: xr.Dataset) -> Evidence | None:
    """Return the evidence that the sampler of a posterior has computed; None if there is none."""
    if "invgp_log_evidence" not in posterior.attrs:
        return None
    error = float(posterior.attrs.get("invgp_log_evidence_error", np.nan))
    return Evidence(float(posterior.attrs["invgp_log_evidence"]), error)


def is_averaged(posterior: xr.Dataset) -> bool:
    """Return whether draws and evidence of a posterior are averaged over its learnt hyperparameters, if it has any."""
    return "invgp_learnt" not in posterior.attrs or "invgp_hyperparameters" in posterior.attrs


def bound_of(posterior: xr.Dataset) -> Evidence:
    """Return the evidence lower bound of a posterior, as if it had no error."""
    if "elbo" not in posterior or not posterior["elbo"].size:
        raise ArgumentError("posteriors: must contain the evidence or its bound, one did not")
    return Evidence(float(posterior["elbo"].values[-1]), 0.0)


def emulated_evidence(emulated: EmulatedProblem) -> Evidence:
    """Compute the evidence of a problem on its emulator, with the cheapest sampler that is right."""
    search = sampled_search(emulated.model)
    state = search.sample_emulated(emulated.model, emulated.runner, emulated.state)
    if state.samples is None:
        return Evidence(math.nan, math.nan)
    return Evidence(state.samples.log_evidence, state.samples.log_evidence_error)


def check_same_data(posteriors: Sequence[xr.Dataset], names: Sequence[str]) -> None:
    """Raise `ArgumentError` unless all posteriors have the same observations.

    The evidence is a density of the data: that of other data cannot be compared.
    """
    first = _read_data(posteriors[0])
    for name, other in zip(names[1:], posteriors[1:], strict=True):
        data = _read_data(other)
        if data.keys() != first.keys():
            raise ArgumentError(
                f"posteriors: must have the same data, but {names[0]} has {', '.join(first) or 'none'} and {name} has "
                f"{', '.join(data) or 'none'}"
            )
        for key, (values, unit) in first.items():
            own, own_unit = data[key]
            if unit != own_unit:
                raise ArgumentError(
                    f"posteriors: must have the same data, but {key!r} is in {unit!r} in {names[0]} and in "
                    f"{own_unit!r} in {name}"
                )
            if len(values) != len(own) or not np.allclose(values, own, rtol=1e-6, atol=0.0):
                raise ArgumentError(
                    f"posteriors: must have the same data, but the observations {key!r} of {names[0]} "
                    f"({len(values):,}) and {name} ({len(own):,}) differ"
                )


def _read_data(posterior: xr.Dataset) -> dict[str, tuple[np.ndarray[tuple[int], np.dtype[np.float64]], str]]:
    """Return the observed values, in order, and the unit of each observation."""
    found = {}
    for name in str(posterior.attrs["invgp_observations"]).split():
        array = posterior[f"{name}_observed"]
        values = np.asarray(array.values, dtype=np.float64).ravel()
        found[name] = values[np.isfinite(values)], str(array.attrs.get("units", "1"))
    return found


def weigh_models(models: Sequence[ModelEvidence]) -> xr.Dataset:
    """Compare the evidence of models; see `invgp.weigh`."""
    logs = np.asarray([one.evidence.log for one in models])
    errors = np.asarray([one.evidence.error for one in models])
    if not np.isfinite(logs).any():
        raise ArgumentError("posteriors: must have an evidence that can be computed, none had")
    best = int(np.nanargmax(logs))
    factors = logs - logs[best]
    error = np.where(np.arange(len(logs)) == best, 0.0, np.hypot(errors, errors[best]))
    shares = np.exp(logs - logsumexp(logs[np.isfinite(logs)]))
    if any(_incomparable(one.origin, models[best].origin) for one in models):
        shares = np.full(len(logs), np.nan)
    nats = {"units": "1", "comment": "in nats"}
    return xr.Dataset(
        {
            "log_evidence": ("model", logs, {"long_name": "logarithm of the evidence", **nats}),
            "log_evidence_error": ("model", errors, {"long_name": "standard error of the log evidence", **nats}),
            "log_bayes_factor": ("model", factors, {"long_name": "log Bayes factor relative to the best", **nats}),
            "log_bayes_factor_error": ("model", error, {"long_name": "standard error of the log Bayes factor", **nats}),
            "probability": (
                "model",
                shares,
                {"long_name": "posterior probability, if all models are equally probable before", "units": "1"},
            ),
            "origin": ("model", np.asarray([one.origin for one in models]), {"long_name": "origin of the evidence"}),
        },
        {"model_label": ("model", np.asarray([one.name for one in models]), {"long_name": "posterior file"})},
        {"title": "Evidence of alternative models", "invgp_answer": "weigh", "invgp_latents": ""},
    )


def _incomparable(first: str, second: str) -> str:
    """Return why the evidence of two origins cannot be compared; empty if it can."""
    if BOUND in (first, second):
        return "a lower bound"
    return "fixed hyperparameters" if (first == PLUGGED_IN) != (second == PLUGGED_IN) else ""


def describe_factor(factor: float, error: float, origins: tuple[str, str]) -> str:
    """Return in words how strongly the data prefer the best model to another one.

    Parameters
    ----------
    factor : float
        Log Bayes factor of the other model, at most 0, in nats.
    error : float
        Its standard error.
    origins : tuple of str
        Origins of the evidence of the other model and of the best one.
    """
    if not math.isfinite(factor):
        return "unknown"
    if reason := _incomparable(*origins):
        return f"not comparable: {reason}"
    if math.isnan(error):
        return "undecided: the error is unknown"
    if -factor <= UNDECIDED * error:
        return "undecided: within the error"
    grade = next(text for limit, text in GRADES if -factor <= limit)
    return f"evidence against it: {grade}"


def evidence_rows(found: xr.Dataset) -> list[dict[str, Any]]:
    """Return one row per model."""
    keys = ("log_evidence", "log_evidence_error", "log_bayes_factor", "log_bayes_factor_error", "probability")
    logs, errors, factors, factor_errors, shares = (found[key].values.tolist() for key in keys)
    names, origins = (found[key].values.tolist() for key in ("model_label", "origin"))
    best = factors.index(0.0)
    return [
        {
            "name": names[k],
            "log_evidence": logs[k],
            "error": errors[k],
            "log_bayes_factor": factors[k],
            "probability": shares[k],
            "origin": origins[k],
            "in_words": ("largest" if np.isnan(shares).all() else "best")
            if k == best
            else describe_factor(factors[k], factor_errors[k], (origins[k], origins[best])),
        }
        for k in range(len(names))
    ]
