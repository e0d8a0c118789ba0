"""Inversion with the factorised full Gaussian of the paper."""

from __future__ import annotations

import numpy as np

from invgp.core.backend import Backend, to_numpy
from invgp.core.bound import Bound
from invgp.core.geometry import inducing_factor
from invgp.core.optimisers import LBFGS
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Full
from invgp.core.savigp import Savigp, State
from invgp.execution.simulator import Batch, Simulator
from invgp.gaussian_processes import WhitenedGaussians
from invgp.inference.diagnostics import diagnose
from invgp.inference.inversion import Inversion, SearchResult, predictions
from invgp.latent_model.noise_density import noise_log_density
from invgp.latent_model.prior import prior_of
from invgp.posterior import Solution
from invgp.problem import Problem

START_SHARE = 0.1  # variance of the starting posterior, relative to the prior variance
SAMPLES = 256  # default number of samples per site


class FactorisedInversion(Inversion):
    """Inversion with one full Gaussian per latent over the sites (section 3 of the paper)."""

    def __init__(self, problem: Problem, backend: Backend, simulator: Simulator, seed: int) -> None:
        super().__init__(problem, backend, simulator, seed)
        self.best: Batch | None = None
        # One random stream per purpose: the number of realizations must not change the posterior.
        points, self.realizations = np.random.default_rng(seed).spawn(2)
        settings = problem.inference
        bound, parameters = dense_full_gaussian(problem, backend)
        self.algorithm = Savigp(
            bound,
            parameters,
            noise_log_density(problem, backend),
            Points.draw(points, settings.samples or SAMPLES, problem.survey.size, problem.latent_count, backend),
            LBFGS(tolerance=settings.tolerance),
        )
        self.state: State = self.algorithm.init()

    def search(self) -> SearchResult:
        """Optimise the bound with L-BFGS; each evaluation runs the simulator at all samples."""
        most = self.problem.inference.max_evaluations
        self.begin(self.algorithm.points.base.shape[0] * self.problem.survey.size * most)
        while not self.state.finished:
            if self.state.evaluations >= most:
                status = f"stopped at inference.max_evaluations = {most} before the bound converged"
                return SearchResult(status, converged=False)
            latents = to_numpy(self.algorithm.ask(self.state))
            label = f"evaluation-{self.state.evaluations + 1}"
            batch = self.evaluate_simulator(latents, label, np.arange(self.problem.survey.size))
            whole = batch.complete(np.isfinite(self.problem.survey.Y))
            outputs, valid = self.backend.asarray(batch.outputs), self.backend.asmask(whole)
            self.state, info = self.algorithm.tell(self.state, outputs, valid)
            self.best = batch if info.accepted else self.best
            self.record(info.elbo, accepted=info.accepted)
        return SearchResult(self.state.finished, converged=True)

    def solution(self, result: SearchResult) -> tuple[Problem, Solution] | None:
        """Return the best posterior and its problem; see `Inversion.solution`."""
        if self.best is None:
            return None
        problem = self.problem
        mean, variance = (to_numpy(part) for part in self.algorithm.marginals(self.state))
        shape = (problem.output.realizations, problem.survey.size, problem.latent_count)
        normals = self.backend.asarray(self.realizations.standard_normal(shape))
        q = self.algorithm.bound_state(self.state.posterior).q
        predicted, predicted_std = predictions(self.best)
        covariance = variance[..., None] * np.eye(problem.latent_count)
        notes = self.simulator.describe_effects(mean, covariance)
        return problem, Solution(
            mean=mean,
            covariance=covariance,
            draws=to_numpy(self.algorithm.draws(self.state, normals)),
            processes=WhitenedGaussians(to_numpy(q.mean)[0], to_numpy(q.spread)[0]),
            predicted=predicted,
            predicted_std=predicted_std,
            elbo=np.asarray([bound for bound, _ in self.trace]),
            runs=np.asarray([runs for _, runs in self.trace], dtype=np.int64),
            runs_total=self.simulator.runs,
            runs_failed=self.simulator.failed,
            seed=self.seed,
            status=result.status,
            converged=result.converged,
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
