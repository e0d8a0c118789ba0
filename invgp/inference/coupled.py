"""Inversion with a posterior coupled across latents, on the simulator without an emulator."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Backend, cholesky, to_numpy
from invgp.core.coupled import Prior
from invgp.core.coupled.coupled_savigp import CoupledSavigp, State
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.coupled.site_estimators import min_fit_samples
from invgp.core.coupled.stage import Stage
from invgp.core.point_sets import Points
from invgp.errors import RunsFailedError
from invgp.execution.missing_output_counts import runs_needed
from invgp.execution.simulator import Simulator
from invgp.gaussian_processes import StoredSiteFactors
from invgp.inference.diagnostics import Cavity, diagnose, doubtful_latents
from invgp.inference.inversion import Inversion, SearchResult
from invgp.inference.notes import inducing_notes, noise_notes, undetermined_shape_notes
from invgp.inference.optimisation import Candidate, Evaluate, Optimiser
from invgp.inference.restart import restart_where_unexplained
from invgp.inference.sample_sizes import StagePlan, plan_stages
from invgp.latent_model.learned_problem import with_learned_hyperparameters
from invgp.latent_model.noise_density import likelihood_of
from invgp.latent_model.prior import learning_of, prior_of
from invgp.posterior import EmulatorReport, Solution
from invgp.problem import Floats, Problem

NARROWER_STARTS = (3.0, 30.0)  # site precisions of narrower starts, relative to the prior precision
REACH = 1.0  # most movement of the posterior of a site in one step of the first stage, in standard deviations
SHAPE_SAMPLES, MOST_SHAPE_SAMPLES = 32, 256  # samples per site of the shape test on the simulator: fewest and most
SHAPE_RUNS = 4096  # runs of the shape test on the simulator, within these limits
EMULATED_SHAPE_SAMPLES = 512  # samples per site of the shape test on an emulator
DRAWN_TOGETHER = 1500  # most sites of a joint conditional sample, to limit memory
MOST_SHAPE_SITES = 2000  # most sites of the shape test on an emulator, to limit time and memory


class CoupledInversion(Inversion):
    """Inversion with a Gaussian posterior with a full covariance across latents and sites."""

    emulates = False

    def __init__(self, problem: Problem, backend: Backend, simulator: Simulator, seed: int) -> None:
        super().__init__(problem, backend, simulator, seed)
        # One random stream per purpose: the number of realizations must not change the posterior.
        streams = np.random.default_rng(seed).spawn(7)
        self.points, self.realizations, self.inducing, self.design, self.checks, self.shuffles, self.multistart = (
            streams
        )
        self.all_sites = np.arange(problem.survey.size)
        self.candidate: Candidate | None = None
        self.notes: list[str] = []
        if problem.inference.emulator and not self.emulates:
            self.notes.append(
                f"inference.runs_per_site = {problem.inference.runs_per_site} is too few for an emulator of this "
                "survey: the simulator was used for every step, which takes far more runs."
            )
            if problem.inference.posterior == "sampled":
                self.notes.append("The posterior is a Gaussian approximation, because draws need an emulator.")
        self.shape_notes: list[str] = []
        self.shape_errors = np.full((problem.survey.size, problem.latent_count), np.nan)
        self.direct = np.ones(problem.survey.size, dtype=bool)
        self.optimiser = Optimiser(problem, backend, self.shuffles)
        self.prior = prior_of(problem, backend, self.inducing)
        self.start = self.algorithm(self.stages()).init()

    def search(self) -> SearchResult:
        """Search from the prior, or from a narrower start if the simulator fails too often under the prior."""
        return self.search_from_narrower_starts(self.search_from_start)

    def search_from_narrower_starts(self, search: Callable[[], SearchResult]) -> SearchResult:
        """Call a search, and again from narrower starts if the simulator fails too often."""
        for precision in NARROWER_STARTS:
            try:
                return search()
            except RunsFailedError:
                if self.trace or self.simulator.failed == self.simulator.runs:
                    raise
            self.start = self.algorithm(self.stages()).init(precision)
        return search()

    def search_from_start(self) -> SearchResult:
        """Optimise on the simulator, again with more samples if too many outputs are missing, and test the result."""
        algorithm = self.algorithm(self.stages())
        result = self._optimise_on_simulator(algorithm, self.start)
        if not result.converged and not all(self._enough_runs(stage) for stage in algorithm.stages):
            algorithm = self.algorithm(self.stages())
            start = (
                self.start
                if self.candidate is None
                else algorithm.start_from(self.candidate.posterior, near_optimum=False)
            )
            result = self._optimise_on_simulator(algorithm, start)
        result = restart_where_unexplained(self, result)
        self.check_shape(self.evaluator, self.problem.survey.size)
        return result

    def _optimise_on_simulator(self, algorithm: CoupledSavigp, start: State) -> SearchResult:
        samples = max(stage.points.base.shape[0] for stage in algorithm.stages)
        self.begin(self.problem.inference.max_evaluations * samples * self.problem.survey.size)
        return self.optimise(algorithm, start, self.evaluate_simulator)

    def _enough_runs(self, stage: Stage) -> bool:
        """Return whether a stage has enough samples, given the share of missing outputs so far."""
        return bool(stage.points.base.shape[0] >= self._fewest_runs(stage.kind))

    def _fewest_runs(self, kind: str) -> int:
        """Return the number of runs per site of which enough have the outputs that the estimator needs."""
        gaps, noise = self.simulator.missing_outputs, self.problem.noise
        share = gaps.complete_share if kind == "log density" or noise.correlation else gaps.smallest_share
        needed = min_fit_samples(self.problem.latent_count, quadratic=kind != "linear")
        return runs_needed(needed, share, self.problem.noise_std.size)

    @property
    def evaluator(self) -> Evaluate:
        """Function that evaluates latent values: the simulator, an emulator, or both."""
        return self.evaluate_simulator

    def use_simulator_at(self, sites: NDArray[np.bool_], start: GaussianPosterior) -> None:  # noqa: ARG002 - for subclasses
        """Use the simulator at these sites (N,) too, from now on."""
        self.direct = self.direct | sites

    def bound_of(self, algorithm: CoupledSavigp, posterior: GaussianPosterior) -> float:  # noqa: ARG002 - for subclasses
        """Return the latest bound of the optimisation."""
        return self.trace[-1][0]

    def algorithm(self, stages: list[Stage], problem: Problem | None = None) -> CoupledSavigp:
        """Return the algorithm with these stages, for this problem or for one with other noise."""
        problem, backend = problem or self.problem, self.backend
        return CoupledSavigp(
            self.prior,
            stages,
            likelihood_of(problem, backend),
            learning_of(problem, backend),
        )

    def stages(self) -> list[Stage]:
        """Return the stages for runs of the simulator."""
        return [self.stage(plan) for plan in plan_stages(self.problem)]

    def stage(self, plan: StagePlan) -> Stage:
        """Draw the sample points of a stage."""
        reach = math.inf if plan.kind == "hermite" else REACH
        sites, latents = self.problem.survey.size, self.problem.latent_count
        samples = max(plan.samples, self._fewest_runs(plan.kind))
        points = Points.draw(self.points, samples, sites, latents, self.backend)
        return Stage(plan.kind, points, plan.tolerance, reach)

    def optimise(self, algorithm: CoupledSavigp, state: State, evaluate: Evaluate) -> SearchResult:
        """Optimise from a state, and keep the best posterior as the candidate."""
        result, candidate = self.optimiser(algorithm, state, evaluate, self._keep)
        self.candidate = candidate or self.candidate
        return result

    def _keep(self, elbo: float, candidate: Candidate | None) -> None:
        self.candidate = candidate or self.candidate
        self.record(elbo, accepted=candidate is not None)

    def check_shape(self, evaluate: Evaluate, simulated_sites: int) -> None:
        """Test at each site whether the posterior is Gaussian, if the budget has enough runs.

        Parameters
        ----------
        evaluate : callable
            Evaluates latent values.
        simulated_sites : int
            Number of sites at which it runs the simulator.
        """
        samples = EMULATED_SHAPE_SAMPLES
        if simulated_sites == self.problem.survey.size:
            samples = min(max(SHAPE_RUNS // simulated_sites, SHAPE_SAMPLES), MOST_SHAPE_SAMPLES)
        elif simulated_sites:
            samples = 2 * SHAPE_SAMPLES
        if self.candidate is None or not self.simulator.can_afford(samples * simulated_sites):
            return
        problem = with_learned_hyperparameters(self.problem, self.candidate.posterior)
        sites = self.all_sites
        if len(sites) > MOST_SHAPE_SITES and not simulated_sites:
            sites = np.sort(self.checks.choice(sites, MOST_SHAPE_SITES, replace=False))
        cavity = Cavity(self.candidate.posterior, sites, self.checks, samples)
        self.shape_errors[sites] = cavity.shape_errors(problem, evaluate(cavity.latents, "shape", sites))
        unknown = sites[np.isnan(self.shape_error[sites])]
        self.shape_notes = undetermined_shape_notes(unknown, len(sites), samples)

    @property
    def shape_error(self) -> Floats:
        """Largest shape error (N,) over the latents of each site; NaN where it could not be determined."""
        return np.asarray(self.shape_errors.max(axis=1))

    def report(self) -> EmulatorReport | None:
        """Return the accuracy of the emulator; None without an emulator."""
        return None

    def solution(self, result: SearchResult) -> tuple[Problem, Solution] | None:
        """Return the best posterior and its problem; see `Inversion.solution`."""
        if self.candidate is None:
            return None
        posterior = self.candidate.posterior
        problem = with_learned_hyperparameters(self.problem, posterior)
        predicted, predicted_std = self.candidate.predicted, self.candidate.predicted_std
        return problem, Solution(
            mean=to_numpy(posterior.marginals.mean),
            covariance=to_numpy(posterior.marginals.covariance),
            draws=self._draws(posterior),
            processes=to_stored_factors(posterior),
            predicted=predicted,
            predicted_std=predicted_std,
            elbo=np.asarray([bound for bound, _ in self.trace]),
            runs=np.asarray([runs for _, runs in self.trace], dtype=np.int64),
            runs_total=self.simulator.runs,
            runs_failed=self.simulator.failed,
            seed=self.seed,
            status=result.status,
            converged=result.converged,
            diagnostics=diagnose(
                problem,
                predicted,
                predicted_std,
                self.shape_error,
                self.all_notes(posterior),
                converged=result.converged,
                latents=doubtful_latents(problem, self.shape_errors),
            ),
            emulator=self.report(),
        )

    def all_notes(self, posterior: GaussianPosterior) -> list[str]:
        """Return all notes for users on a posterior."""
        marginals = to_numpy(posterior.marginals.mean), to_numpy(posterior.marginals.covariance)
        learnt = noise_notes(self.problem, to_numpy(posterior.hyper.noise))
        return [
            *self.notes,
            *self.shape_notes,
            *self.simulator.describe_effects(*marginals),
            *learnt,
            *inducing_notes(posterior.prior),
        ]

    def _draws(self, posterior: GaussianPosterior) -> Floats:
        """Draw joint samples (R, N, Q) of the latents at the sites."""
        count, prior = self.problem.output.realizations, posterior.prior
        inducing, sites = self.realizations.spawn(2)
        normals = self.backend.asarray(inducing.standard_normal((count, prior.latent_count * prior.inducing_count)))
        values = to_numpy(posterior.q.sample_sites(prior, normals))
        return values if prior.dense else values + self._draw_conditional(prior, sites.standard_normal(values.shape))

    def _draw_conditional(self, prior: Prior, normals: Floats) -> Floats:
        """Draw samples (R, N, Q) of the conditional prior given the inducing variables, from standard normals.

        They are joint over all sites, or in a large survey over the sites of each part.
        """
        draws = np.zeros_like(normals)
        along = np.argsort(self.problem.survey.X[:, 0], kind="stable")
        for part in np.array_split(along, math.ceil(len(along) / DRAWN_TOGETHER)):
            covariance = prior.conditional_covariance(part)
            for j in range(prior.latent_count):
                factor = to_numpy(cholesky(covariance[j, ...]))
                draws[:, part, j] = normals[:, part, j] @ factor.T
        return draws


def to_stored_factors(posterior: GaussianPosterior) -> StoredSiteFactors:
    """Return the site factors of a posterior as host arrays, for a file."""
    prior, sites = posterior.prior, posterior.sites
    inducing = None if prior.dense else to_numpy(prior.Z)
    return StoredSiteFactors(to_numpy(sites.precision), to_numpy(sites.shift), inducing, prior.jitter)
