"""The result of the search for the posterior of a site model: a Gaussian, or draws; and the notes on it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, cholesky, identity, to_numpy
from invgp.core.coupled import Prior
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.kernels import Scalar
from invgp.formatting import count_noun
from invgp.inference.diagnostics import diagnose, doubtful_latents
from invgp.inference.draw_checks import CheckOptions, sites_widened_by_error
from invgp.inference.emulated_posterior import SamplingOptions
from invgp.inference.hamiltonian_draws import HAMILTONIAN
from invgp.inference.notes import (
    inducing_notes,
    log_link_notes,
    noise_notes,
    prior_notes,
    solver_noise_notes,
    widened_notes,
)
from invgp.inference.runner import Runner
from invgp.inference.search_state import NOT_ACCURATE, SearchState
from invgp.inference.simulated_draws import outputs_at_draws
from invgp.inference.site_model import SiteModel
from invgp.latent_model.inducing_points import JITTER
from invgp.latent_model.learnt_parameters import LearntParameters, with_learned_hyperparameters
from invgp.posterior import EmulatorReport, Samples, Solution, StoredRuns
from invgp.posterior.gaussian_processes import StoredSiteFactors
from invgp.problem import Floats, Problem

NOTED_CHANGE = 0.05  # change of a posterior by the error of the emulator that a note states; see `CheckOptions`
DRAWN_TOGETHER = 1500  # most sites of a joint conditional sample, to limit memory
SAMPLING = SamplingOptions()  # of an inversion


def site_solution(model: SiteModel, runner: Runner, state: SearchState) -> tuple[Problem, Solution] | None:
    """Return the posterior of a state.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : SearchState
        Present state of the search.

    Returns
    -------
    (Problem, Solution) or None
        The problem with learnt hyperparameters, and the Gaussian posterior; None if there is none yet.
    """
    if state.candidate is None:
        return None
    posterior, result = state.posterior, state.result
    problem = with_learned_hyperparameters(model.problem, posterior)
    predicted, predicted_std = state.candidate.predicted, state.candidate.predicted_std
    emulator = state.emulator
    return problem, Solution(
        mean=to_numpy(posterior.marginals.mean),
        covariance=to_numpy(posterior.marginals.covariance),
        draws=_draws(model, posterior),
        processes=to_stored_factors(posterior),
        predicted=predicted,
        predicted_std=predicted_std,
        elbo=np.asarray([bound for bound, _ in runner.trace]),
        runs=np.asarray([runs for _, runs in runner.trace], dtype=np.int64),
        runs_total=runner.simulator.runs,
        runs_failed=runner.simulator.failed,
        seed=model.seed,
        status=result.status,
        converged=result.converged,
        diagnostics=diagnose(
            problem,
            predicted,
            predicted_std,
            state.shape_error,
            all_notes(model, runner, state),
            converged=result.converged,
            latents=doubtful_latents(problem, state.shape_errors),
        ),
        emulator=None
        if emulator is None
        else EmulatorReport(emulator.name, emulator.error, state.verification, state.direct),
        emulator_runs=None
        if emulator is None
        else StoredRuns(state.runs.sites, state.runs.latents, state.runs.outputs, state.runs.stage),
    )


def all_notes(
    model: SiteModel, runner: Runner, state: SearchState, moments: tuple[Floats, Floats] | None = None
) -> list[str]:
    """Return all notes for users on the posterior of a state.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : SearchState
        Present state of the search.
    moments : (array, array), shapes (N, Q) and (N, Q, Q), optional
        Mean and covariance of draws at each site; by default those of the Gaussian posterior.

    Returns
    -------
    list of str
    """
    posterior = state.posterior
    mean, covariance = moments or state.moments()
    return [
        *state.notes,
        *state.shape_notes,
        *runner.simulator.describe_effects(mean, covariance),
        *prior_notes(model.problem),
        *noise_notes(model.problem, to_numpy(posterior.hyper.noise)),
        *inducing_notes(model.problem, posterior),
        *solver_noise_notes(model.problem, state.solver_noise),
        *widened_notes(state.inaccurate),
        *_link_notes(model, state),
    ]


def _link_notes(model: SiteModel, state: SearchState) -> list[str]:
    """Suggest log links where the emulator shows that they would straighten the posterior."""
    if state.emulator is None:
        return []
    mean, covariance = (to_numpy(part) for part in state.posterior.marginals)
    return log_link_notes(model.problem, mean, covariance, state.emulator.predict)


def _draws(model: SiteModel, posterior: GaussianPosterior) -> Floats:
    """Draw joint samples (R, N, Q) of the latents at the sites."""
    count, prior = model.problem.stored_draws, posterior.prior
    inducing, sites = model.streams.realizations.spawn(2)
    normals = model.backend.asarray(inducing.standard_normal((count, prior.latent_count * prior.inducing_count)))
    values = to_numpy(posterior.q.sample_sites(prior, normals))
    if prior.dense:
        return values
    return values + _draw_conditional(model.problem, prior, sites.standard_normal(values.shape))


def _draw_conditional(problem: Problem, prior: Prior, normals: Floats) -> Floats:
    """Draw samples (R, N, Q) of the conditional prior given the inducing variables, from standard normals.

    They are joint over all sites, or in a large survey over the sites of each part.
    """
    draws = np.zeros_like(normals)
    along = np.argsort(problem.survey.X[:, 0], kind="stable")
    for part in np.array_split(along, math.ceil(len(along) / DRAWN_TOGETHER)):
        covariance = prior.conditional_covariance(part)
        for j, kernel in enumerate(prior.kernels):
            if isinstance(kernel, Scalar):
                continue  # the inducing variables determine it
            factor = to_numpy(_factor(covariance[j, ...], float(kernel.variance)))
            draws[:, part, j] = normals[:, part, j] @ factor.T
    return draws


def _factor(covariance: Array, variance: float) -> Array:
    """Return the Cholesky factor of a conditional covariance (B, B) of a process with this prior variance.

    With many inducing points little is left of the prior variance, and rounding errors, which are relative to the prior
    variance, can make the covariance of close sites indefinite. A share of the prior variance is then added that is as
    small as that at the inducing points.
    """
    try:
        return cholesky(covariance)
    except np.linalg.LinAlgError:
        return cholesky(covariance + JITTER * variance * identity(covariance))


def to_stored_factors(posterior: GaussianPosterior) -> StoredSiteFactors:
    """Return the site factors of a posterior as host arrays, for a file."""
    prior, sites = posterior.prior, posterior.sites
    inducing = None if prior.dense else to_numpy(prior.Z)
    return StoredSiteFactors(to_numpy(sites.precision), to_numpy(sites.shift), inducing, prior.jitter)


def sampled_solution(
    model: SiteModel, runner: Runner, state: SearchState, options: SamplingOptions = SAMPLING
) -> tuple[Problem, Solution] | None:
    """Return the draws of a state, or its Gaussian posterior if there are none; see `site_solution`.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : SearchState
        Present state of the search.
    options : SamplingOptions
        With the number of effective draws below which a note states it.

    Returns
    -------
    tuple of Problem and Solution, or None
        None if there is no posterior yet.
    """
    found = site_solution(model, runner, state)
    samples, target = state.samples, state.target
    if found is None or samples is None or target is None:
        return found
    (problem, approximation), checks, emulator = found, CheckOptions(), target.emulator
    noted = replace(checks, largest_change=NOTED_CHANGE)
    few = samples.thin(checks.predicted)
    predicted = outputs_at_draws(state, emulator, samples.latents[few], model.all_sites)
    mean, covariance = samples.moments()
    predicted_mean, predicted_std = predicted.mean(axis=0), predicted.std(axis=0)
    notes = [
        *all_notes(model, runner, state, (mean, covariance)),
        *_sampling_notes(samples, options, several_modes=target.several_modes),
        *_emulator_notes(model, state, sites_widened_by_error(model, emulator, samples.latents[few], predicted, noted)),
        *_averaging_notes(model, samples),
    ]
    return problem, replace(
        approximation,
        mean=mean,
        covariance=covariance,
        draws=samples.latents[samples.thin(problem.stored_draws)],
        predicted=predicted_mean,
        predicted_std=predicted_std,
        diagnostics=diagnose(
            problem, predicted_mean, predicted_std, np.empty(0), notes, converged=state.result.converged
        ),
        emulator=EmulatorReport(emulator.name, emulator.error, state.verification, state.direct),
        samples=replace(
            samples,
            gaussian_error=samples.distance_from(approximation.mean, approximation.covariance),
            predicted=predicted,
            predicted_mode=samples.mode[few],
        ),
    )


def _emulator_notes(model: SiteModel, state: SearchState, widened: NDArray[np.bool_]) -> list[str]:
    """Name the sites where the error of the emulator changes the posterior (N,), or otherwise where it is largest."""
    sites = np.flatnonzero(widened & ~state.direct)
    if not sites.size:
        return _error_notes(model, state)
    worst = ", ".join(str(n + 1) for n in sites[:5])
    return [
        f"At {sites.size} of {count_noun(len(widened), 'site')} the error of the emulator is not small compared "
        f"with the noise, and widens the posterior: site {worst}{' and others' if sites.size > 5 else ''}."
    ]


def _error_notes(model: SiteModel, state: SearchState) -> list[str]:
    """Name the sites with the largest errors of the emulator, if it was not accurate when the search ended."""
    if state.result != NOT_ACCURATE:
        return []
    settings = model.problem.inference
    known = np.flatnonzero(np.isfinite(state.verification) & ~state.direct)
    worst = known[np.argsort(-state.verification[known])[:3]]
    worst = worst[state.verification[worst] > settings.emulator_error]
    listed = ", ".join(f"{state.verification[n]:.2g} at site {n + 1}" for n in worst)
    found = (
        f"Its largest errors at draws, in standard deviations of the noise: {listed}. Means and spreads of these sites "
        "are doubtful."
        if listed
        else "Its mean error at draws is small at each site, but single runs show larger errors."
    )
    return [
        f"The emulator was not accurate at all new runs when the runs for it ended. {found} More runs may make it "
        f"accurate: increase inference.runs_per_site, which is {settings.runs_per_site:g}."
    ]


def _averaging_notes(model: SiteModel, samples: Samples) -> list[str]:
    """State that the draws are not averaged over learnt hyperparameters."""
    if samples.hyperparameters or not LearntParameters(model.problem):
        return []
    return [
        "The draws are not averaged over the hyperparameters, which have their most probable values, because there are "
        "too many unknowns or the posterior changes too much with them: spreads may be too small."
    ]


def _sampling_notes(samples: Samples, options: SamplingOptions, *, several_modes: bool) -> list[str]:
    notes = []
    worst = float(samples.r_hat.max())
    if worst > options.largest_r_hat:
        sites = int((samples.r_hat > options.largest_r_hat).any(axis=1).sum())
        notes.append(
            f"The draws of {count_noun(sites, 'site')} have not converged (R-hat up to {worst:.2f}): means and "
            "spreads there are doubtful."
        )
    elif samples.effective.min() < options.least_effective:
        few = np.flatnonzero((samples.effective < options.least_effective).any(axis=1))
        listed = ", ".join(str(n + 1) for n in few[:5])
        notes.append(
            f"Only {samples.effective.min():,.0f} draws are effective at {count_noun(len(few), 'site')}, fewer than "
            f"{options.least_effective:,}: quantiles there are uncertain. Site {listed}"
            f"{' and others' if len(few) > 5 else ''}."
        )
    modes = int(samples.mode.max()) + 1
    if several_modes and samples.method.startswith(HAMILTONIAN):
        notes.append(
            "Some sites may have several modes, and the survey is too large to search all of them: the draws may lack "
            "modes."
        )
    if modes > 1:
        shares = np.bincount(samples.mode) / len(samples.mode)
        listed = ", ".join(f"{share:.0%}" for share in shares[:3])
        notes.append(
            f"The posterior has {modes if modes < options.most_modes else 'many'} modes, with probabilities "
            f"{listed}{' and others' if modes > 3 else ''}: means and standard deviations summarise all of "
            "them; look at the draws of each mode."
        )
    return notes
