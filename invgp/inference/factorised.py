"""Inversion with the factorised full Gaussian of the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from invgp.core.backend import Backend, to_numpy
from invgp.core.bound import Bound
from invgp.core.geometry import inducing_factor
from invgp.core.optimisers import LBFGS
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Full
from invgp.core.savigp import Savigp, State
from invgp.emulation.run_schedule import FACTORISED_SAMPLES
from invgp.execution.simulator import Batch
from invgp.gaussian_processes import WhitenedGaussians
from invgp.inference.diagnostics import diagnose
from invgp.inference.optimisation import predictions
from invgp.inference.runner import Runner
from invgp.inference.search_state import UNFINISHED, SearchResult
from invgp.latent_model.noise_density import noise_log_density
from invgp.latent_model.prior import prior_of
from invgp.posterior import Solution
from invgp.problem import Problem

START_SHARE = 0.1  # variance of the starting posterior, relative to the prior variance


@dataclass(frozen=True)
class FactorisedState:
    """State of the search: the algorithm's own state, the runs of its best step, and the outcome."""

    state: State
    best: Batch | None = None
    result: SearchResult = UNFINISHED


@dataclass(frozen=True)
class FactorisedModel:
    """A problem with the algorithm for one full Gaussian per latent over the sites (section 3 of the paper)."""

    problem: Problem
    backend: Backend
    seed: int
    realizations: np.random.Generator
    algorithm: Savigp


def prepare_factorised(
    problem: Problem, backend: Backend, _runner: Runner, seed: int
) -> tuple[FactorisedModel, FactorisedState]:
    """Return the constant parts of a search, and its first state."""
    # One random stream per purpose: the number of realizations must not change the posterior.
    points, realizations = np.random.default_rng(seed).spawn(2)
    settings = problem.inference
    bound, parameters = dense_full_gaussian(problem, backend)
    algorithm = Savigp(
        bound,
        parameters,
        noise_log_density(problem, backend),
        Points.draw(points, settings.samples or FACTORISED_SAMPLES, problem.survey.size, problem.latent_count, backend),
        LBFGS(tolerance=settings.tolerance),
    )
    return FactorisedModel(problem, backend, seed, realizations, algorithm), FactorisedState(algorithm.init())


def search_factorised(model: FactorisedModel, runner: Runner, state: FactorisedState) -> FactorisedState:
    """Optimise the bound with L-BFGS; each evaluation runs the simulator at all samples."""
    problem, algorithm, backend = model.problem, model.algorithm, model.backend
    most = problem.inference.max_evaluations
    runner.begin(algorithm.points.base.shape[0] * problem.survey.size * most)
    runner.keep(state)
    while not state.state.finished:
        if state.state.evaluations >= most:
            status = f"stopped at inference.max_evaluations = {most} before the bound converged"
            return replace(state, result=SearchResult(status, converged=False))
        latents = to_numpy(algorithm.ask(state.state))
        label = f"evaluation-{state.state.evaluations + 1}"
        batch = runner.evaluate(latents, label, np.arange(problem.survey.size))
        whole = batch.complete(np.isfinite(problem.survey.Y))
        following, info = algorithm.tell(state.state, backend.asarray(batch.outputs), backend.asmask(whole))
        state = runner.keep(FactorisedState(following, batch if info.accepted else state.best))
        runner.record(info.elbo, accepted=info.accepted)
    return replace(state, result=SearchResult(state.state.finished, converged=True))


def factorised_solution(
    model: FactorisedModel, runner: Runner, state: FactorisedState
) -> tuple[Problem, Solution] | None:
    """Return the posterior of a state and its problem; None if there is none yet."""
    if state.best is None:
        return None
    problem, algorithm = model.problem, model.algorithm
    mean, variance = (to_numpy(part) for part in algorithm.marginals(state.state))
    shape = (problem.stored_draws, problem.survey.size, problem.latent_count)
    normals = model.backend.asarray(model.realizations.standard_normal(shape))
    q = algorithm.bound_state(state.state.posterior).q
    predicted, predicted_std = predictions(state.best)
    covariance = variance[..., None] * np.eye(problem.latent_count)
    notes = runner.simulator.describe_effects(mean, covariance)
    return problem, Solution(
        mean=mean,
        covariance=covariance,
        draws=to_numpy(algorithm.draws(state.state, normals)),
        processes=WhitenedGaussians(to_numpy(q.mean)[0], to_numpy(q.spread)[0]),
        predicted=predicted,
        predicted_std=predicted_std,
        elbo=np.asarray([bound for bound, _ in runner.trace]),
        runs=np.asarray([runs for _, runs in runner.trace], dtype=np.int64),
        runs_total=runner.simulator.runs,
        runs_failed=runner.simulator.failed,
        seed=model.seed,
        status=state.result.status,
        converged=state.result.converged,
        diagnostics=diagnose(problem, predicted, predicted_std, np.full(problem.survey.size, np.nan), notes),
    )


def dense_full_gaussian(problem: Problem, backend: Backend) -> tuple[Bound, Parameters]:
    """Return the bound of the full Gaussian at the sites, and its start: the prior mean and a tenth of its variance."""
    prior = prior_of(problem, backend)
    xp, N, Q = backend.namespace, problem.survey.size, problem.latent_count
    family = Full(latents=Q, inducing=N)
    factor = inducing_factor(prior.kernels, prior.Z)
    parameters = Parameters(
        posterior=family.initial(factor, START_SHARE, backend.asarray(np.zeros((1, Q, N)))),
        kernels=xp.stack([kernel.parameters for kernel in prior.kernels]),
        inducing=prior.Z,
        likelihood=backend.asarray(np.zeros(0)),
    )
    return Bound(family, prior.kernels, prior.mean, prior.X, dense=True), parameters
