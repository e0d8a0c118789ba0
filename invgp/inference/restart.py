"""Second search around sites whose data the first posterior does not explain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from invgp.core.backend import Array, array_namespace
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation.run_schedule import shares_runs, simulated_parts, source_runs_in_a_check
from invgp.errors import RunsFailedError
from invgp.inference.diagnostics import find_unexplained
from invgp.inference.emulator_search import fit
from invgp.inference.runner import BudgetSpent, Runner
from invgp.inference.search_state import SearchState
from invgp.inference.site_evaluation import draw_at, draw_for_runs, evaluator, optimise, site_errors
from invgp.inference.site_model import SiteModel, simulator_stages
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.problem import Problem


def restart_where_unexplained(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Search again around unexplained sites, with the simulator if necessary, and keep the better posterior.

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
    SearchState
    """
    for _ in range(model.options.restarts):
        sites = unexplained_sites(model, state)
        if not sites.any():
            break
        state = restart_around(model, runner, state, sites)
    return state


def unexplained_sites(model: SiteModel, state: SearchState) -> NDArray[np.bool_]:
    """Return a mask (N,) of the sites whose data the posterior of a state does not explain.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    state : SearchState
        Present state of the search.

    Returns
    -------
    array of bool, shape (N,)
    """
    candidate = state.candidate
    if candidate is None:
        return np.zeros(model.problem.survey.size, dtype=bool)
    problem = with_learned_hyperparameters(model.problem, candidate.posterior)
    return find_unexplained(problem, candidate.predicted, candidate.predicted_std)


def restart_around(model: SiteModel, runner: Runner, state: SearchState, sites: NDArray[np.bool_]) -> SearchState:
    """Search again around some sites (N,), and return the state with the better posterior.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : SearchState
        Present state of the search.
    sites : array of bool, shape (N,)
        Which sites are unexplained.

    Returns
    -------
    SearchState
    """
    first = state.candidate
    if first is None or not sites.any():
        return state
    around = sites_within_length_scale(with_learned_hyperparameters(model.problem, first.posterior), sites)
    algorithm, bound, second = model.algorithm(simulator_stages(model, runner)), runner.bound, runner.keep(state)
    try:
        start = reset_sites(model, state, algorithm, around)
        second = use_simulator_at(model, runner, state, around, start)
        evaluate = evaluator(runner, second)
        if second.emulator is not None and not model.uses_minibatches:  # without the emulator error in the noise
            bound = model.optimiser.bound(algorithm, first.posterior, evaluate)
        begin = algorithm.start_from(start, near_optimum=False)
        second = optimise(model, runner, second, algorithm, begin, evaluate)
    except BudgetSpent:
        second = replace(runner.latest, result=runner.out_of_runs)
    except (RunsFailedError, np.linalg.LinAlgError):
        return _return_to(runner, state, bound)
    if second.candidate is first or runner.bound <= bound:
        return _return_to(runner, state, bound)
    return second


def _return_to(runner: Runner, state: SearchState, bound: float) -> SearchState:
    """Return to a state with this bound after a search that did not improve it."""
    runner.record(bound, accepted=True)
    return runner.keep(state)


def use_simulator_at(
    model: SiteModel, runner: Runner, state: SearchState, sites: NDArray[np.bool_], start: GaussianPosterior
) -> SearchState:
    """Use the simulator at these sites (N,), unless one run per site shows that the emulator is accurate enough.

    If sites share runs, the emulator is fitted to runs at some of them instead.
    """
    if state.emulator is None:
        return state
    if shares_runs(model.problem):
        return _fit_there(model, runner, state, sites, start)
    counts = [len(part.sites) for part in simulated_parts(model.problem)]
    errors = []
    for everywhere, drawn in draw_for_runs(model, start, counts, 1.0):
        latents, chosen = everywhere[:, sites[drawn]], drawn[sites[drawn]]
        batch = runner.sample(latents, "second-start", chosen)
        errors.append(site_errors(model, state, batch, latents, chosen))
    if np.all(np.concatenate(errors) <= model.options.restart_error):
        return state
    return replace(state, direct=state.direct | sites)  # also if runs failed


def _fit_there(
    model: SiteModel, runner: Runner, state: SearchState, sites: NDArray[np.bool_], start: GaussianPosterior
) -> SearchState:
    """Fit the emulator to further runs, from a start, at a selection of these sites (N,)."""
    stage, fitted = int(state.runs.stage.max()) + 1, state
    for part, count in zip(simulated_parts(model.problem), source_runs_in_a_check(model.problem), strict=True):
        own = part.sites[sites[part.sites]]
        if not own.size:
            continue
        chosen = model.streams.design.choice(own, min(count, len(own)), replace=False)
        latents = draw_at(model, start, chosen, max(count // len(chosen), 1))
        batch = runner.sample(latents, "second-start", chosen)
        fitted = replace(fitted, runs=fitted.runs.append(latents, batch.outputs, batch.valid, chosen, stage))
    fitted = fit(model, fitted, start)
    return state if fitted.emulator is None else fitted


def sites_within_length_scale(problem: Problem, sites: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask (N,) of these sites (N,) and all sites within a length-scale of them."""
    X, near = problem.survey.X, sites.copy()
    if sites.any():
        for latent in problem.latents:
            length = latent.correlation_length(X.shape[1])
            distance, _ = KDTree(X[sites] / length).query(X / length)
            near |= distance <= 1.0
    return near


def reset_sites(
    model: SiteModel, state: SearchState, algorithm: CoupledSavigp, sites: NDArray[np.bool_]
) -> GaussianPosterior:
    """Return the posterior of a state with weak site factors at some sites (N,), towards a field from the prior.

    Raises
    ------
    numpy.linalg.LinAlgError
        The precision with these site factors is not positive definite.
    """
    start, posterior, backend = state.start, state.posterior, model.backend
    xp, prior = backend.namespace, start.prior
    normals = model.streams.inducing.standard_normal((1, prior.latent_count * prior.inducing_count))
    field = start.q.sample_sites(prior, backend.asarray(normals))[0, ...]
    weak = site_factors_at(start, field, model.options.reset_precision)
    chosen = backend.asmask(sites)
    return algorithm.posterior(
        SiteFactors(
            xp.where(chosen[:, None, None], weak.precision, posterior.sites.precision),
            xp.where(chosen[:, None], weak.shift, posterior.sites.shift),
        ),
        posterior.hyper,
    )


def site_factors_at(start: GaussianPosterior, latents: Array, share: Array | float) -> SiteFactors:
    """Return site factors towards latents (N, Q), with a share (N, 1, 1) of the precision of the start."""
    xp = array_namespace(latents)
    precision = share * xp.linalg.inv(start.marginals.covariance)
    return SiteFactors(precision, (precision @ (latents - start.marginals.mean)[..., None])[..., 0])
