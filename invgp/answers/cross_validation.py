"""Prediction of data that are left out: scores and calibration, without simulator runs.

The draws of the posterior are weighted by one over the likelihood of the data that are left out, smoothed by a Pareto
distribution (PSIS). If the data are those of one site, the latents at the site are integrated out (`left_out_data`).
Where the weights are not reliable, the posterior without the data is sampled on the emulator.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

from invgp.answers.emulated_problem import EmulatedProblem, emulate, hide_data
from invgp.answers.known_field import draw_data
from invgp.answers.left_out_data import RELIABLE, LeaveOut, LeftOut
from invgp.answers.pace import report_each
from invgp.core.backend import select_backend, to_numpy
from invgp.core.inducing import cluster_centres
from invgp.core.kernels import squared_distances
from invgp.errors import ArgumentError
from invgp.inference.emulated_posterior import SamplingOptions
from invgp.inference.importance_draws import draw_by_importance, smooth_weights
from invgp.inference.sampled import sampled_search
from invgp.latent_model.noise_density import draw_noise, noise_log_density
from invgp.problem import Floats, Problem

MOST_DRAWS = 1000
REFIT = SamplingOptions(proposals=1000, fewest_effective=100, draws=1000)
INTERVALS = (0.5, 0.9, 0.95)


class HeldOut(NamedTuple):
    """Prediction of the data of B sites that were left out.

    Attributes
    ----------
    outputs : array, shape (R, B, P)
        Outputs at draws from the posterior without these data.
    log_weights : array, shape (R,)
        Normalised logarithms of the weights of these draws.
    log_likelihood : array, shape (R, B)
        Log likelihood of the data of each site.
    k_hat : float
        Pareto k of the weights; NaN if the posterior was computed again.
    """

    outputs: Floats
    log_weights: Floats
    log_likelihood: Floats
    k_hat: float


def site_groups(problem: Problem, by: str, blocks: int) -> NDArray[np.intp]:
    """Return the number (N,) of the group of each site, from 0; -1 for sites without data.

    Parameters
    ----------
    problem : Problem
    by : str
        ``"site"``, ``"block"`` for neighbouring sites, or ``"source"``.
    blocks : int
        Number of blocks.
    """
    observed = np.isfinite(problem.survey.Y).any(axis=1)
    if by == "site":
        groups = np.arange(problem.survey.size)
    elif by == "block":
        if not 2 <= blocks <= int(observed.sum()):
            raise ArgumentError(
                f"blocks: must be between 2 and {int(observed.sum())}, the sites with data, was {blocks}"
            )
        X = problem.survey.X
        if X.shape[1] == 1:
            ranks = np.argsort(np.argsort(X[:, 0], kind="stable"), kind="stable")
            groups = ranks * blocks // len(X)
        else:
            centres = cluster_centres(X, blocks, np.random.default_rng(0))
            groups = np.argmin(squared_distances(X, centres), axis=1)
    elif by == "source":
        parts = [part for part in problem.parts if len(part.sites)]  # direct data of a field model have none
        if len(parts) < 2:
            raise ArgumentError(
                "by: must be 'site' or 'block', since the problem has one source of sites, was 'source'"
            )
        groups = np.zeros(problem.survey.size, dtype=np.intp)
        for k, part in enumerate(parts):
            groups[part.sites] = k
    else:
        raise ArgumentError(f"by: must be 'site', 'block' or 'source', was {by!r}")
    return np.where(observed, groups, -1)


def draws_of(posterior: xr.Dataset, emulated: EmulatedProblem, most: int = MOST_DRAWS) -> Floats:
    """Return at most `most` draws (R, N, Q) of the latent processes at the sites, from the file or the emulator."""
    prior = emulated.gaussian.prior
    learnt = str(posterior.attrs.get("invgp_hyperparameters", ""))
    if "whitened_sample" in posterior and prior.dense and not learnt:
        stored = posterior["whitened_sample"]
        kept = np.unique(np.linspace(0, len(stored) - 1, min(most, len(stored))).round().astype(np.intp))
        v = np.asarray(stored.values[kept], dtype=np.float64)
        if v.shape[1:] == (prior.latent_count, prior.inducing_count):
            return emulated.posterior.latents(v.reshape(len(v), -1))
    state = sampled_search(emulated.model).sample_emulated(emulated.model, emulated.runner, emulated.state)
    if state.samples is None:
        raise ValueError("there are no draws")
    return state.samples.latents[state.samples.thin(most)]


class PredictedData(NamedTuple):
    """Predictions of the data of a posterior, and a way to predict them without some sites.

    Attributes
    ----------
    problem : Problem
    noisy_problem : Problem
        With the error of the emulator in its noise.
    outputs : array, shape (R, N, P)
        Outputs at draws of the posterior.
    likelihood : array, shape (R, N)
        Log likelihood of the data of each site.
    refit : callable
        Returns the prediction of the data of sites (B,) from the posterior without them.
    integrate : callable, optional
        Returns the prediction of the data of one site, by weights with the latents at the site integrated out.
    """

    problem: Problem
    noisy_problem: Problem
    outputs: Floats
    likelihood: Floats
    refit: Callable[[NDArray[np.intp]], HeldOut]
    integrate: Callable[[NDArray[np.intp]], HeldOut] | None = None


def predict_sites(posterior: xr.Dataset, emulated: EmulatedProblem) -> PredictedData:
    """Predict the data of a site model on its emulator."""
    latents = draws_of(posterior, emulated)
    outputs = emulated.predict(latents)
    leave_out = LeaveOut(emulated, latents)

    def integrate(sites: NDArray[np.intp]) -> HeldOut:
        return _flatten(emulated, leave_out.without(_mask(emulated.problem, sites)), sites)

    def sample(sites: NDArray[np.intp]) -> HeldOut:
        if not leave_out.can_integrate:
            return _fit_without_sites(emulated, sites)
        mask = _mask(emulated.problem, sites)
        weighted = leave_out.without(mask) if len(sites) == 1 else None
        return _flatten(emulated, leave_out.sample_without(mask, weighted), sites)

    return PredictedData(
        emulated.problem,
        emulated.noisy_problem,
        outputs,
        emulated.log_likelihood(outputs),
        sample,
        integrate if leave_out.can_integrate else None,
    )


def _mask(problem: Problem, sites: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return a mask (N, P) of the data of some sites."""
    mask = np.zeros(problem.survey.Y.shape, dtype=bool)
    mask[sites] = np.isfinite(problem.survey.Y[sites])
    return mask


def _flatten(emulated: EmulatedProblem, out: LeftOut, sites: NDArray[np.intp]) -> HeldOut:
    """Return the prediction of the data of sites from the points of each draw."""
    R, B, M, P = out.outputs.shape
    outputs = out.outputs.swapaxes(1, 2).reshape(R * M, B, P)
    weights = (out.log_weights[:, None] + out.own_log_weights).ravel()
    density = noise_log_density(emulated.noisy_problem.select_sites(sites), emulated.model.backend)
    known = np.where(np.isfinite(emulated.problem.survey.Y[sites]), outputs, 0.0)
    likelihood = to_numpy(density(emulated.model.backend.asarray(known)))
    return HeldOut(outputs, weights - logsumexp(weights), likelihood, out.k_hat)


def predict_field(posterior: xr.Dataset, problem: Problem, ledger: Path) -> PredictedData:
    """Predict the data of a field model by the regression on the runs in its ledger."""
    seed = int(posterior.attrs["invgp_seed"])
    backend = select_backend("cpu")
    density = noise_log_density(problem, backend)

    def refit(sites: NDArray[np.intp]) -> HeldOut:
        mask = np.zeros(problem.survey.Y.shape, dtype=bool)
        mask[sites] = True
        outputs = draw_data(hide_data(problem, mask), ledger, seed).outputs
        count = len(outputs)
        likelihood = to_numpy(density(backend.asarray(outputs)))[:, sites]
        return HeldOut(outputs[:, sites], np.full(count, -np.log(count)), likelihood, np.nan)

    outputs = draw_data(problem, ledger, seed).outputs
    return PredictedData(problem, problem, outputs, to_numpy(density(backend.asarray(outputs))), refit)


def cross_validate(posterior: xr.Dataset, data: PredictedData, by: str, blocks: int, seed: int) -> xr.Dataset:
    """Leave out groups of sites, one after the other, and compare their data with predictions; see the public API."""
    problem, predicted, likelihood = data.problem, data.outputs, data.likelihood
    groups = site_groups(problem, by, blocks)
    rng, Y = np.random.default_rng(seed), problem.survey.Y
    shape = Y.shape
    pit, crps, mean, std = (np.full(shape, np.nan) for _ in range(4))
    score, k_hat = np.full(shape[0], np.nan), np.full(shape[0], np.nan)
    refitted = np.zeros(shape[0], dtype=np.int8)
    for group in report_each(np.unique(groups[groups >= 0]).tolist(), "groups that are left out"):
        sites = np.flatnonzero(groups == group)
        if data.integrate is not None and len(sites) == 1:
            # Weights of the draws alone would vary more, and their Pareto k may by chance hide this.
            held = data.integrate(sites)
        else:
            held = _reweight_draws(predicted, likelihood, sites)
        if held.k_hat > RELIABLE:
            held = data.refit(sites)
            refitted[sites] = 1
        k_hat[sites] = held.k_hat
        score[sites] = logsumexp(held.log_weights[:, None] + held.log_likelihood, axis=0)
        chosen = rng.choice(len(held.log_weights), MOST_DRAWS, p=np.exp(held.log_weights))
        noise = np.stack([draw_noise(data.noisy_problem, rng)[sites] for _ in range(MOST_DRAWS)])
        values = held.outputs[chosen] + noise
        y = Y[sites]
        with np.errstate(invalid="ignore"):
            pit[sites] = np.where(np.isfinite(y), (np.sum(values < y, axis=0) + 0.5) / (MOST_DRAWS + 1), np.nan)
        half = MOST_DRAWS // 2
        crps[sites] = np.abs(values - y).mean(axis=0) - 0.5 * np.abs(values[:half] - values[half:]).mean(axis=0)
        mean[sites], std[sites] = values.mean(axis=0), values.std(axis=0)
    return _to_dataset(posterior, problem, groups, by, (pit, crps, mean, std), (score, k_hat), refitted)


def _reweight_draws(predicted: Floats, likelihood: Floats, sites: NDArray[np.intp]) -> HeldOut:
    """Weight the draws as if the data of some sites had not been used."""
    own = likelihood[:, sites]
    smoothed, k_hat = smooth_weights(-own.sum(axis=1))
    return HeldOut(predicted[:, sites], smoothed - logsumexp(smoothed), own, k_hat)


def _fit_without_sites(emulated: EmulatedProblem, sites: NDArray[np.intp]) -> HeldOut:
    """Find the posterior without the data of some sites on the emulator."""
    problem = emulated.problem
    mask = np.zeros(problem.survey.Y.shape, dtype=bool)
    mask[sites] = True
    without = hide_data(problem, mask)
    new = emulate(without, emulated.state.runs, emulated.model.seed, emulated.gaussian.sites)
    samples, effective = draw_by_importance(new.posterior, new.gaussian, np.random.default_rng(0), REFIT)
    latents = samples.latents
    if samples.k_hat > RELIABLE or effective < REFIT.fewest_effective:
        state = sampled_search(new.model).sample_emulated(new.model, new.runner, new.state)
        if state.samples is not None:
            latents = state.samples.latents[state.samples.thin(MOST_DRAWS)]
    predicted = emulated.predict(latents)
    count = len(latents)
    return HeldOut(
        predicted[:, sites], np.full(count, -np.log(count)), emulated.log_likelihood(predicted)[:, sites], np.nan
    )


def _to_dataset(
    posterior: xr.Dataset,
    problem: Problem,
    groups: NDArray[np.intp],
    by: str,
    data: tuple[Floats, Floats, Floats, Floats],
    sites: tuple[Floats, Floats],
    refitted: NDArray[np.int8],
) -> xr.Dataset:
    pit, crps, mean, std = data
    residual = ndtri(pit)
    names = [o.name for o in problem.survey.observations]
    variables: dict[str, xr.DataArray] = {}
    for observation in problem.survey.observations:
        columns, name = problem.observation_slices[observation.name], observation.name
        like = posterior[f"{name}_observed"].transpose("site", ...)
        unit = str(like.attrs.get("units", "1"))
        for suffix, values, text, own in (
            ("held_out_mean", mean, "mean of the prediction without the datum", unit),
            ("held_out_std", std, "standard deviation of this prediction, with noise", unit),
            ("held_out_probability", pit, "probability that the prediction is below the datum", "1"),
            ("held_out_residual", residual, "standardised residual without the datum", "1"),
            ("held_out_crps", crps, "continuous ranked probability score", unit),
        ):
            about = {"long_name": f"{observation.long_name or name}: {text}", "units": own}
            variables[f"{name}_{suffix}"] = xr.DataArray(
                values[:, columns].reshape(like.shape), dims=like.dims, attrs=about
            )
    one = {"units": "1"}
    variables["held_out_log_score"] = xr.DataArray(
        sites[0], dims=("site",), attrs={"long_name": "log predictive density of the data of the site", **one}
    )
    variables["held_out_k_hat"] = xr.DataArray(
        sites[1], dims=("site",), attrs={"long_name": "Pareto k of the weights; NaN if computed again", **one}
    )
    variables["held_out_refitted"] = xr.DataArray(
        refitted, dims=("site",), attrs={"long_name": "1 where the posterior was computed again on the emulator", **one}
    )
    variables["held_out_group"] = xr.DataArray(
        (groups + 1).astype(np.int32), dims=("site",), attrs={"long_name": "group that was left out; 0 for none", **one}
    )
    known = pit[np.isfinite(pit)]
    coverage = {
        f"invgp_coverage_{level * 100:g}": float(np.mean(np.abs(known - 0.5) <= level / 2)) for level in INTERVALS
    }
    kept = posterior[[f"{name}_observed" for name in names]]
    dataset = kept.drop_vars(list(kept.data_vars)).assign(variables)
    dataset.attrs = {
        "title": "Cross-validation",
        "invgp_answer": "crossvalidate",
        "invgp_coordinates": posterior.attrs.get("invgp_site_coordinates", posterior.attrs["invgp_coordinates"]),
        "invgp_observations": " ".join(names),
        "invgp_latents": posterior.attrs["invgp_latents"],
        "invgp_held_out": by,
        "invgp_groups": len(np.unique(groups[groups >= 0])),
        "invgp_groups_refitted": len(np.unique(groups[(groups >= 0) & (refitted > 0)])),
        "invgp_log_score": float(np.nansum(sites[0])),
        "invgp_runs": 0,
        **coverage,
    }
    return dataset


def cross_validation_rows(found: xr.Dataset) -> list[dict[str, object]]:
    """Return the scores of each observation."""
    rows: list[dict[str, object]] = []
    for name in str(found.attrs["invgp_observations"]).split():
        residual, crps = (found[f"{name}_held_out_{what}"] for what in ("residual", "crps"))
        known = residual.values[np.isfinite(residual.values)]
        if len(known):
            rows.append(
                {
                    "observation": name,
                    "data": len(known),
                    "crps": float(np.nanmean(crps.values)),
                    "unit": str(crps.attrs["units"]),
                    "residual_rms": float(np.sqrt(np.mean(known**2))),
                    "beyond_two": float(np.mean(np.abs(known) > 2.0)),
                }
            )
    return rows


def coverage_of(found: xr.Dataset) -> dict[str, float]:
    """Return the coverage of the central intervals, by their level in per cent."""
    key = "invgp_coverage_"
    return {name.removeprefix(key): float(share) for name, share in found.attrs.items() if name.startswith(key)}
