"""Everything that is constant during the search for the posterior of a site model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Backend
from invgp.core.coupled import Prior
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.coupled.site_estimators import min_fit_samples
from invgp.core.coupled.stage import Stage
from invgp.core.point_sets import Points
from invgp.emulation import Surrogate
from invgp.emulation.emulator_fit import NEGLIGIBLE
from invgp.emulation.run_schedule import can_emulate, effective_neighbours, simulated_parts
from invgp.execution.run_outcomes import runs_needed
from invgp.inference.earlier_runs import earlier_runs
from invgp.inference.optimisation import Optimiser
from invgp.inference.runner import Runner
from invgp.inference.sample_sizes import StagePlan, plan_emulator_stages, plan_stages
from invgp.inference.search_options import DEFAULTS, SearchOptions
from invgp.inference.search_state import SearchState
from invgp.latent_model.noise_density import likelihood_of
from invgp.latent_model.problem_prior import learning_of, prior_of
from invgp.ledger import Recorder
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class Streams:
    """One random stream per purpose: the number of realizations, for example, must not change the posterior.

    Attributes
    ----------
    points : numpy.random.Generator
        Sample points of the estimators.
    realizations : numpy.random.Generator
        Draws for the file.
    inducing : numpy.random.Generator
        Inducing points, and fields of second searches.
    design : numpy.random.Generator
        Runs for the emulator, and its fit.
    checks : numpy.random.Generator
        Test of the shape.
    shuffles : numpy.random.Generator
        Order of mini-batches.
    multistart : numpy.random.Generator
        Starts of searches for alternative solutions.
    """

    points: np.random.Generator
    realizations: np.random.Generator
    inducing: np.random.Generator
    design: np.random.Generator
    checks: np.random.Generator
    shuffles: np.random.Generator
    multistart: np.random.Generator

    @staticmethod
    def of(seed: int) -> Streams:
        """Return the streams of a seed.

        Parameters
        ----------
        seed : int
            Random seed.

        Returns
        -------
        Streams
        """
        return Streams(*np.random.default_rng(seed).spawn(7))


class StreamPurpose(IntEnum):
    """Purposes of the random streams that start from their beginning at each use; see `SiteModel.new_stream`."""

    SAMPLING = 1
    GAUSSIAN_CHECK = 2
    SOLVER_NOISE = 3
    AVERAGING = 4


@dataclass(frozen=True)
class SiteModel:
    """A problem whose simulator works site by site, with its prior and its random streams.

    Attributes
    ----------
    problem : Problem
    backend : Backend
        Array library and device.
    seed : int
        Random seed.
    streams : Streams
        Random streams of the seed.
    prior : Prior
        Prior of the latents, with the initial hyperparameters.
    optimiser : Optimiser
    neighbour_counts : array, shape (N,)
        Number of sites within about a length-scale of each site.
    emulator_stages : list of Stage
        Stages of an optimisation on an emulator; empty without an emulator.
    options : SearchOptions
    """

    problem: Problem
    backend: Backend
    seed: int
    streams: Streams
    prior: Prior
    optimiser: Optimiser
    neighbour_counts: Floats
    emulator_stages: list[Stage]
    options: SearchOptions = DEFAULTS

    def new_stream(self, purpose: StreamPurpose) -> np.random.Generator:
        """Return the random stream of a purpose, from its beginning.

        Parameters
        ----------
        purpose : StreamPurpose
            What the numbers are for.

        Returns
        -------
        numpy.random.Generator
        """
        return np.random.default_rng([self.seed, purpose])

    @property
    def all_sites(self) -> NDArray[np.intp]:
        """Numbers (N,) of all sites."""
        return np.arange(self.problem.survey.size)

    @property
    def factorised(self) -> bool:
        """Whether the Gaussian posterior factorises over the latents."""
        return self.problem.inference.posterior == "full gaussian"

    @property
    def uses_minibatches(self) -> bool:
        """Whether there are too many sites to process them together on an emulator."""
        return self.optimiser.batch_size(self.emulator_stages) < self.problem.survey.size

    @property
    def wanted_error(self) -> float:
        """Emulator error, in noise standard deviations, that is negligible even if all neighbouring sites share it."""
        shared = self.options.shared_error / math.sqrt(float(np.median(self.neighbour_counts)))
        return min(NEGLIGIBLE, shared)

    def algorithm(self, stages: list[Stage], problem: Problem | None = None) -> CoupledSavigp:
        """Return the algorithm with these stages, for this problem or for one with other noise."""
        problem, backend = problem or self.problem, self.backend
        learning = learning_of(problem, backend)
        return CoupledSavigp(self.prior, stages, likelihood_of(problem, backend), learning, self.factorised)

    def with_emulator_error(self, emulator: Surrogate | None) -> Problem:
        """Return the problem with the error of an emulator added to the noise.

        Sites within a length-scale have nearly the same error, which does not average out; the error is scaled
        accordingly. Numerical noise of the simulator differs from run to run. Learnt noise includes the error anyway.
        """
        if emulator is None:
            return self.problem
        smooth, rough = emulator.output_error(self.all_sites)
        error = np.hypot(
            rough, np.sqrt(self.neighbour_counts)[:, None] * np.minimum(smooth, self.options.largest_error)
        )
        for name in self.problem.noise.scaled_observations:
            error[:, self.problem.observation_slices[name]] = 0.0
        return self.problem.with_scaled_noise(np.hypot(1.0, error))


def uses_emulator(problem: Problem) -> bool:
    """Return whether the posterior of a site model is found on an emulator.

    Parameters
    ----------
    problem : Problem
        The problem.

    Returns
    -------
    bool
    """
    return problem.inference.emulator and can_emulate(problem)


def prepare_site_model(problem: Problem, backend: Backend, runner: Runner, seed: int) -> tuple[SiteModel, SearchState]:
    """Return the constant parts of a search, and its first state."""
    streams, N, emulates = Streams.of(seed), problem.survey.size, uses_emulator(problem)
    prior = prior_of(problem, backend, streams.inducing)
    optimiser = Optimiser(problem, backend, streams.shuffles)
    model = SiteModel(problem, backend, seed, streams, prior, optimiser, np.ones(N), [])
    state = SearchState(
        start=start_of(model, runner),
        runs=earlier_runs(
            problem, _recorders(problem, runner, emulates=emulates), seed, everything=runner.simulator.budget == 0
        ),
        direct=np.zeros(N, dtype=bool),
        verification=np.full(N, np.nan),
        shape_errors=np.full((N, problem.latent_count), np.nan),
    )
    if emulates:
        neighbours = effective_neighbours(problem, streams.design)
        simulator_stages(model, runner)  # unused; advances the random stream
        model = replace(model, neighbour_counts=neighbours, emulator_stages=emulator_stages(model, runner))
    return model, state


def _recorders(problem: Problem, runner: Runner, *, emulates: bool) -> list[Recorder | None]:
    """Return the ledger of each simulator; None if there is no emulator, which would use earlier runs."""
    return runner.simulator.recorders if emulates else [None] * len(simulated_parts(problem))


def start_of(model: SiteModel, runner: Runner, precision: float = 0.0) -> GaussianPosterior:
    """Return the prior, or a narrower start with a site precision relative to the prior precision."""
    return model.algorithm(simulator_stages(model, runner)).init(precision).trial


def simulator_stages(model: SiteModel, runner: Runner) -> list[Stage]:
    """Return the stages for runs of the simulator, with new sample points."""
    return [_draw_stage(model, runner, plan) for plan in plan_stages(model.problem, model.options)]


def emulator_stages(model: SiteModel, runner: Runner) -> list[Stage]:
    """Return the stages for an emulator, with new sample points."""
    return [_draw_stage(model, runner, plan) for plan in plan_emulator_stages(model.problem, model.options)]


def _draw_stage(model: SiteModel, runner: Runner, plan: StagePlan) -> Stage:
    """Draw the sample points of a stage."""
    reach = math.inf if plan.kind == "hermite" else model.options.longest_step
    sites, latents = model.problem.survey.size, model.problem.latent_count
    samples = max(plan.samples, fewest_runs(model.problem, runner, plan.kind))
    points = Points.draw(model.streams.points, samples, sites, latents, model.backend)
    return Stage(plan.kind, points, plan.tolerance, reach)


def fewest_runs(problem: Problem, runner: Runner, kind: str) -> int:
    """Return the number of runs per site of which enough have the outputs that an estimator needs."""
    missing, noise = runner.simulator.missing_outputs, problem.noise
    share = missing.complete_share if kind == "log density" or noise.correlation else missing.smallest_share
    needed = min_fit_samples(problem.latent_count, quadratic=kind != "linear")
    return runs_needed(needed, share, problem.noise_std.size)
