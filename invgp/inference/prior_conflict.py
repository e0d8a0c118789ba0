"""Comparison of the data with the outputs of runs from the prior, before more runs are made.

If the data are far outside everything that the simulator computes under the prior, a unit is usually wrong, and an
inversion would spend its runs in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.errors import PriorConflictError
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class ConflictOptions:
    """Thresholds of a conflict between data and prior.

    Parameters
    ----------
    deviations : float
        Median distance between data and outputs, in standard deviations of the outputs over the prior and the noise,
        above which they are in conflict; for data and outputs of the same sign, also of their logarithms.
    with_learnt_prior : float
        Factor on this threshold if the prior standard deviation of a latent is learnt.
    fewest : int
        Fewest pairs of data and outputs of an observation.
    alone : float
        Smallest factor between data and outputs at the prior mean, if nothing is known about the spread of the outputs.
    exponent : float
        Largest power of the latents that the outputs are expected to follow, for the same purpose.
    """

    deviations: float = 8.0
    with_learnt_prior: float = 4.0
    fewest: int = 5
    alone: float = 30.0
    exponent: float = 4.0


def find_prior_conflicts(
    problem: Problem, outputs: Floats, sites: NDArray[np.intp], options: ConflictOptions = ConflictOptions()
) -> list[str]:
    """Describe observations that are far outside the outputs of the simulator under the prior.

    Observations with learnt noise are left out.

    Parameters
    ----------
    problem : Problem
    outputs : array, shape (R, P)
        Outputs at latents from the prior, in the units of the observations; NaN where there are none.
    sites : array of int, shape (R,)
        Site of each run.
    options : ConflictOptions
    """
    limit = options.deviations
    if any("std" in latent.learn for latent in problem.latents):
        limit *= options.with_learnt_prior
    sentences = []
    for observation in problem.survey.observations:
        if observation.name in problem.noise.scaled_observations:
            continue
        columns = problem.observation_slices[observation.name]
        y, noise = problem.survey.Y[sites, columns], problem.noise_std[sites, columns]
        if observation.name in problem.noise.discrepancy:  # in site models it is a part of the outputs
            noise = np.hypot(noise, problem.noise.discrepancy[observation.name].std)
        g = np.where(np.isfinite(y), outputs[:, columns], np.nan)  # outputs without data say nothing about the spread
        if (
            _median_distance(y, g, noise, options) > limit
            or _median_distance(*_logarithms(y, g, noise), options) > limit
        ):
            sentences.append(_describe(observation.name, observation.unit, y, g))
    return sentences


def find_conflicts_at_prior_mean(
    problem: Problem, outputs: Floats, options: ConflictOptions = ConflictOptions()
) -> list[str]:
    """Describe observations that differ from the outputs (N, P) at the prior mean by a factor that no prior explains.

    The factor is compared with the relative spread of the latents. It is less sensitive than `find_prior_conflicts`.
    """
    latents = [latent for latent in problem.latents if not latent.discrepancy_of]
    relative = [
        np.abs(latent.std / latent.mean) if latent.link.name == "identity" else np.log1p(latent.std / latent.mean)
        for latent in latents
        if np.all(latent.mean != 0.0)
    ]
    if len(relative) < len(latents) or any("std" in latent.learn for latent in problem.latents):
        return []
    largest = np.log(options.alone) + options.exponent * float(np.max(np.concatenate(relative)))
    sentences = []
    for observation in problem.survey.observations:
        columns = problem.observation_slices[observation.name]
        g, y = outputs[:, columns], problem.survey.Y[:, columns]
        log_y, log_g, _ = _logarithms(y, g, problem.noise_std[:, columns])
        known = np.isfinite(log_y) & np.isfinite(log_g)
        if observation.name in problem.noise.scaled_observations or not known.any():
            continue
        if abs(np.median(log_y[known] - log_g[known])) > largest:
            sentences.append(_describe(observation.name, observation.unit, y, g))
    return sentences


def stop_at_prior_conflict(
    problem: Problem, outputs: Floats, valid: NDArray[np.bool_], sites: NDArray[np.intp]
) -> None:
    """Raise `PriorConflictError` if the data are far outside outputs (S, B, P) at latents from the prior.

    Parameters
    ----------
    problem : Problem
    outputs : array, shape (S, B, P)
    valid : array of bool, shape (S, B)
        Which runs succeeded.
    sites : array of int, shape (B,)
    """
    known = np.where(valid[..., None], outputs, np.nan).reshape(-1, outputs.shape[-1])
    conflicts = find_prior_conflicts(problem, known, np.tile(sites, len(outputs)))
    if conflicts:
        raise PriorConflictError(conflicts)


def _median_distance(y: Floats, g: Floats, noise: Floats, options: ConflictOptions) -> float:
    """Return the median distance (R, p) of data and outputs in standard deviations; 0 if there are too few."""
    known = np.isfinite(y) & np.isfinite(g)
    if np.count_nonzero(known) < options.fewest:
        return 0.0
    # The spread of the middle 90%: a few extreme outputs do not hide a conflict.
    low, high = (_quantile(g, share) for share in (0.05, 0.95))
    spread = (high - low) / 3.29
    distance = np.abs(y - g) / np.sqrt(2.0 * spread**2 + noise**2)
    return float(np.median(distance[known]))


def _quantile(g: Floats, share: float) -> Floats:
    """Return a quantile (p,) of the columns of outputs (R, p) without NaN; 0 for a column without numbers."""
    filled = np.where(np.isfinite(g).any(axis=0), g, 0.0)
    return np.asarray(np.nanquantile(filled, share, axis=0))


def _logarithms(y: Floats, g: Floats, noise: Floats) -> tuple[Floats, Floats, Floats]:
    """Return logarithms of data and outputs and the noise of the former; NaN unless all have the same sign."""
    known = np.isfinite(y) & np.isfinite(g)
    sign = np.sign(np.median(g[known])) if known.any() else 0.0
    if sign == 0.0 or np.any(sign * y[known] <= 0.0) or np.any(sign * g[known] <= 0.0):
        return np.full_like(y, np.nan), np.full_like(g, np.nan), noise
    with np.errstate(all="ignore"):
        return np.log(sign * y), np.log(sign * g), noise / np.abs(y)


def _describe(name: str, unit: str, y: Floats, g: Floats) -> str:
    known = np.isfinite(y) & np.isfinite(g)
    data, modelled = (float(np.median(part[known])) for part in (y, g))
    suffix = "" if unit in {"", "1"} else f" {unit}"
    ratio = data / modelled if modelled else np.inf
    times = ""
    if 0.0 < ratio < np.inf and not 0.5 < ratio < 2.0:
        factor = float(f"{max(ratio, 1.0 / ratio):.2g}")
        times = f", a factor of about {factor:,.0f}" if factor >= 10.0 else f", a factor of about {factor:g}"
    return (
        f"the data of {name} are far outside the outputs of the simulator under the prior: their medians are "
        f"{data:.4g}{suffix} and {modelled:.4g}{suffix}{times}. Check the units of {name}, of the outputs of the "
        "simulator and of the latents first, then the prior means and standard deviations"
    )
