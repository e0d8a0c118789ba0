"""The result of the search for the posterior of a site model."""

from __future__ import annotations

import math

import numpy as np

from invgp.core.backend import cholesky, to_numpy
from invgp.core.coupled import Prior
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.kernels import Scalar
from invgp.inference.diagnostics import diagnose, doubtful_latents
from invgp.inference.notes import (
    inducing_notes,
    log_link_notes,
    noise_notes,
    prior_notes,
    solver_noise_notes,
    widened_notes,
)
from invgp.inference.runner import Runner
from invgp.inference.search_state import SearchState
from invgp.inference.site_model import SiteModel
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.posterior import EmulatorReport, Solution, StoredRuns
from invgp.posterior.gaussian_processes import StoredSiteFactors
from invgp.problem import Floats, Problem

DRAWN_TOGETHER = 1500  # most sites of a joint conditional sample, to limit memory


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


def all_notes(model: SiteModel, runner: Runner, state: SearchState) -> list[str]:
    """Return all notes for users on the Gaussian posterior of a state.

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
    list of str
    """
    posterior = state.posterior
    return [
        *state.notes,
        *state.shape_notes,
        *runner.simulator.describe_effects(*(to_numpy(part) for part in posterior.marginals)),
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
            factor = to_numpy(cholesky(covariance[j, ...]))
            draws[:, part, j] = normals[:, part, j] @ factor.T
    return draws


def to_stored_factors(posterior: GaussianPosterior) -> StoredSiteFactors:
    """Return the site factors of a posterior as host arrays, for a file."""
    prior, sites = posterior.prior, posterior.sites
    inducing = None if prior.dense else to_numpy(prior.Z)
    return StoredSiteFactors(to_numpy(sites.precision), to_numpy(sites.shift), inducing, prior.jitter)
