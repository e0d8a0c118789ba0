"""Attributes of a posterior dataset: provenance, and the outcome of the inference."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
import xarray as xr

from invgp.posterior.coordinates import position_attributes
from invgp.posterior.solution import EmulatorReport, Samples, Solution
from invgp.problem import EarlierField, EarlierSites, Problem, SimulatorVariable

CONVENTIONS = "CF-1.11"
DEPENDENCIES = ("numpy", "scipy", "xarray", "netCDF4", "joblib")
_version = cache(metadata.version)  # which reads files


def dataset_attributes(problem: Problem, solution: Solution) -> dict[str, Any]:
    """Return the attributes of a posterior dataset.

    Parameters
    ----------
    problem : Problem
    solution : Solution

    Returns
    -------
    dict
        Conventions, provenance, outcome of the inference, and the names of coordinates, latents and observations.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    software = [f"invgp {_version('invgp')}", f"Python {platform.python_version()}"]
    software += [f"{name} {_version(name)}" for name in DEPENDENCIES]
    return {
        "Conventions": CONVENTIONS,
        "title": problem.title or "Posterior of a geophysical inversion",
        "history": f"{now} invgp {_version('invgp')}: posterior inferred",
        "source": f"Gaussian process inversion with the simulator {problem.forward.name}",
        "references": "Bonilla, Krauth and Dezfouli, Generic Inference in Latent Gaussian Process Models, "
        "Journal of Machine Learning Research 20 (2019)",
        "invgp_status": solution.status,
        "invgp_converged": "yes" if solution.converged else "no",
        "invgp_posterior": problem.inference.posterior,
        "invgp_runs": solution.runs_total,
        "invgp_runs_failed": solution.runs_failed,
        "invgp_diagnostics": "\n".join(solution.diagnostics.sentences),
        **_emulator_attributes(solution.emulator),
        **_sample_attributes(solution.samples),
        **_learning_attributes(problem),
        "invgp_seed": solution.seed,
        "invgp_survey": problem.survey.file,
        "invgp_survey_digest": problem.survey.digest,
        "invgp_simulator": problem.forward.name,
        "invgp_simulator_digest": problem.forward.digest,
        **_source_attributes(problem),
        "invgp_software": ", ".join(software),
        **position_attributes(problem),
        "invgp_latents": " ".join(v.name for v in problem.latents),
        **({"invgp_scalars": " ".join(problem.scalars)} if problem.scalars else {}),
        "invgp_observations": " ".join(o.name for o in problem.survey.observations),
        "invgp_config": problem.config_text,
        **_case_attributes(problem),
    }


def _learning_attributes(problem: Problem) -> dict[str, str]:
    """Return what was learnt: latents with learnt hyperparameters, and observations with learnt noise."""
    learnt = [latent.name for latent in problem.latents if latent.learn] + list(problem.noise.learn)
    return {"invgp_learnt": " ".join(learnt)} if learnt else {}


def _source_attributes(problem: Problem) -> dict[str, str]:
    """Return the names of all sources, and of those with direct data; nothing for a single survey."""
    if not problem.sources:
        return {}
    direct = [part.name for part in problem.parts if part.direct]
    models = [part.problem.forward for part in problem.parts]
    files = [model.file for model in models if isinstance(model, EarlierSites | EarlierField)]
    return {
        "invgp_sources": " ".join(part.name for part in problem.parts),
        "invgp_direct_sources": " ".join(direct),
        **({"invgp_prior": files[0] or "dataset"} if files else {}),
    }


def _case_attributes(problem: Problem) -> dict[str, str]:
    """Return all parameters of a PEST case, in its order, by which draws can be exported as an ensemble of the case.

    Each is a list of the name, the latent or null, the number among its values (label by label, each with all nodes),
    and a factor and an offset from the latent to the parameter.
    """
    case = getattr(problem.forward, "case", None)
    if case is None or problem.grid is None:
        return {}
    latents = {latent.name for latent in problem.latents}
    sources: dict[tuple[str, str | int | None], tuple[SimulatorVariable, int]] = {}
    for quantity, variable in zip(problem.forward.inputs, problem.inputs, strict=True):
        for place, label in enumerate(quantity.labels or (None,)):
            sources[quantity.name, label] = variable, place
    rows: list[tuple[str, str | None, int, float, float]] = []
    for parameter in case.parameters:
        found = sources.get(parameter.column)
        if found is None or found[0].name not in latents:
            rows.append((parameter.name, None, 0, 0.0, parameter.value))
        else:
            variable, place = found
            zero, one = (float(variable.convert(np.array(value))) for value in (0.0, 1.0))
            rows.append((parameter.name, variable.name, place, parameter.ratio * (one - zero), parameter.ratio * zero))
    return {"invgp_pest_parameters": json.dumps(rows)}


def has_converged(posterior: xr.Dataset) -> bool:
    """Return whether the inference of a posterior had converged.

    Files of earlier versions have the attribute ``invgp_settled`` instead of ``invgp_converged``.

    Parameters
    ----------
    posterior : Dataset
        A posterior from any version of invgp; its attribute ``invgp_status`` states why the inference ended.

    Returns
    -------
    bool
        True if the dataset has neither attribute.

    Examples
    --------
    >>> invgp.has_converged(posterior)
    True
    """
    return str(posterior.attrs.get("invgp_converged", posterior.attrs.get("invgp_settled", "yes"))) == "yes"


def convergence_warning(posterior: xr.Dataset) -> str:
    """Return a sentence about a posterior, or a map, whose inference has not converged; empty if it has converged."""
    if has_converged(posterior):
        return ""
    return f"The posterior has not converged ({posterior.attrs.get('invgp_status', 'it was stopped')})."


def _sample_attributes(samples: Samples | None) -> dict[str, Any]:
    if samples is None:
        return {"invgp_draws": "Gaussian approximation"}
    evidence = {"invgp_log_evidence": samples.log_evidence, "invgp_log_evidence_error": samples.log_evidence_error}
    learnt = " ".join(one.name for one in samples.hyperparameters)
    return {
        "invgp_draws": samples.method,
        **({"invgp_hyperparameters": learnt} if learnt else {}),
        "invgp_draws_total": len(samples.latents),
        "invgp_gaussian_k_hat": samples.k_hat,
        "invgp_modes": int(samples.mode.max()) + 1,
        "invgp_mode_probabilities": samples.mode_probabilities,
        **{name: value for name, value in evidence.items() if np.isfinite(value)},
    }


def _emulator_attributes(report: EmulatorReport | None) -> dict[str, str | float]:
    if report is None:
        return {"invgp_emulator": "none"}
    verified = report.verification_error[np.isfinite(report.verification_error)]
    return {
        "invgp_emulator": report.name,
        "invgp_emulator_held_out_error": report.held_out_error,
        "invgp_emulator_verification_error": float(np.sqrt(np.mean(verified**2))) if verified.size else np.nan,
    }
