"""Searches on an emulator from several starting points, and the solutions that they find besides the best."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, to_numpy
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.coupled.stage import Stage
from invgp.core.point_sets import Points
from invgp.emulation import Surrogate
from invgp.emulation.run_schedule import effective_neighbours
from invgp.errors import RunsFailedError
from invgp.execution.simulator import Batch
from invgp.formatting import count_noun
from invgp.inference.emulator_search import emulated_bound, search_on_emulator
from invgp.inference.optimisation import Optimiser
from invgp.inference.restart import site_factors_at, unexplained_sites
from invgp.inference.runner import BudgetSpent, Runner
from invgp.inference.search_options import DEFAULTS, SearchOptions
from invgp.inference.search_state import Candidate, SearchState
from invgp.inference.site_evaluation import emulator_evaluator
from invgp.inference.site_model import SiteModel, simulator_stages
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.latent_model.noise_density import likelihood_of
from invgp.latent_model.problem_prior import prior_of
from invgp.problem import Floats, Problem


def subset_of_sites(
    problem: Problem, rng: np.random.Generator, most: int = DEFAULTS.subset, radius: float = DEFAULTS.subset_radius
) -> NDArray[np.intp]:
    """Select at most `most` sites (B,) near a random site; all sites if there are fewer.

    Parameters
    ----------
    problem : Problem
    rng : numpy.random.Generator
    most : int
        Largest number of sites.
    radius : float, length-scales
        Radius within which they are spread out; they are the nearest sites if it contains fewer than `most`.
    """
    X = problem.survey.X
    if len(X) <= most:
        return np.arange(len(X))
    centre = X[rng.integers(len(X))]
    lengths = [latent.correlation_length(X.shape[1]) for latent in problem.latents]
    distance = np.mean([np.linalg.norm((X - centre) / length, axis=1) for length in lengths], axis=0)
    nearest = np.argsort(distance, kind="stable")
    within = max(int(np.sum(distance <= radius)), most)
    return np.sort(nearest[np.linspace(0, within - 1, most).astype(np.intp)])


def find_alternatives(
    model: SiteModel, runner: Runner, state: SearchState, sites: NDArray[np.intp]
) -> Iterator[tuple[float, Candidate]]:
    """Search on the emulator for solutions at some sites (B,) that are distinct from the posterior of a state.

    Yields
    ------
    lead : float, nats
        Bound of the solution minus the bound of the posterior of the state.
    candidate : Candidate
        The solution, for these sites.
    """
    search = Multistart.build(model, runner, state, sites)
    here = search.first_solution()
    if here is None:
        return
    seen, bound = [here], search.bound(here)
    for start in search.starts():
        candidate = search.optimise(search.rough, start)
        if candidate is not None and all(are_distinct(candidate.posterior, other, model.options) for other in seen):
            candidate = search.optimise(search.exact, candidate.posterior)
        if candidate is not None and all(are_distinct(candidate.posterior, other, model.options) for other in seen):
            seen.append(candidate.posterior)
            yield search.bound(candidate.posterior) - bound, search.for_all_sites(candidate)


@dataclass(frozen=True)
class Multistart:
    """Searches at some sites, with the hyperparameters of the first solution and the emulator error in the noise.

    Attributes
    ----------
    model : SiteModel
    emulator : Surrogate
    sites : array of int, shape (B,)
    first : GaussianPosterior
        First solution, for all sites.
    rough, exact : CoupledSavigp
        Algorithms for these sites, with the first stage for the simulator, and with all stages for the emulator.
    optimiser : Optimiser
        Optimiser for these sites.
    """

    model: SiteModel
    emulator: Surrogate
    sites: NDArray[np.intp]
    first: GaussianPosterior
    rough: CoupledSavigp
    exact: CoupledSavigp
    optimiser: Optimiser

    @staticmethod
    def build(model: SiteModel, runner: Runner, state: SearchState, sites: NDArray[np.intp]) -> Multistart:
        """Prepare searches at sites (B,), with the emulator and the posterior of a state."""
        emulator, first = state.emulator, state.posterior
        if emulator is None:
            raise ValueError("there is no emulator yet")
        problem = with_learned_hyperparameters(model.with_emulator_error(emulator), first).select_sites(sites)
        prior = first.prior if len(sites) == model.problem.survey.size else prior_of(problem, model.backend)
        likelihood = likelihood_of(problem, model.backend)
        stages = simulator_stages(model, runner)[:1], model.emulator_stages
        rough, exact = (
            CoupledSavigp(
                prior,
                [_with_points(model, stage, len(sites)) for stage in some],
                likelihood,
                factorised=model.factorised,
            )
            for some in stages
        )
        optimiser = Optimiser(problem, model.backend, model.streams.multistart)
        return Multistart(model, emulator, sites, first, rough, exact, optimiser)

    @property
    def whole(self) -> bool:
        """Whether the sites are all sites of the survey."""
        return len(self.sites) == self.model.problem.survey.size

    def first_solution(self) -> GaussianPosterior | None:
        """Return the first solution for these sites; None if it cannot be computed."""
        xp = array_namespace(self.first.sites.shift)
        if self.whole:
            return self.exact.posterior(self.first.sites, self.exact.init().trial.hyper)
        index = xp.asarray(self.sites, dtype=xp.int32, device=self.first.sites.shift.device)
        factors = SiteFactors(*(xp.take(part, index, axis=0) for part in self.first.sites))
        try:
            candidate = self.optimise(self.exact, self.exact.posterior(factors, self.exact.init().trial.hyper))
        except np.linalg.LinAlgError:
            return None
        return None if candidate is None else candidate.posterior

    def for_all_sites(self, candidate: Candidate) -> Candidate:
        """Return a candidate with the hyperparameters of the first solution, if it is for all sites."""
        if not self.whole:
            return candidate
        algorithm = self.model.algorithm(self.model.emulator_stages)
        return replace(candidate, posterior=algorithm.posterior(candidate.posterior.sites, self.first.hyper))

    def optimise(self, algorithm: CoupledSavigp, posterior: GaussianPosterior) -> Candidate | None:
        """Optimise from a posterior; None if no step was accepted."""
        state = algorithm.start_from(posterior, near_optimum=False)
        return self.optimiser(algorithm, state, self._evaluate, lambda _elbo, _found: None).candidate

    def bound(self, posterior: GaussianPosterior) -> float:
        """Compute the bound at a posterior of these sites."""
        return self.optimiser.bound(self.exact, posterior, self._evaluate)

    def _evaluate(self, latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:
        return emulator_evaluator(self.emulator)(latents, label, self.sites[sites])

    def starts(self) -> Iterator[GaussianPosterior]:
        """Yield starting points: shifted fields and samples from the prior, each with its mirror image about the mean.

        The first shift is one prior standard deviation of every latent, up or down, the second two, and so on.
        """
        prior, start = self.rough.prior, self.rough.init().trial
        rng, backend = self.model.streams.multistart, self.model.backend
        options = self.model.options
        pairs = options.start_pairs if prior.site_count <= options.many_sites else options.fewer_start_pairs
        xp = backend.namespace
        spread = xp.sqrt(xp.linalg.diagonal(start.marginals.covariance))
        signs = rng.choice((-1.0, 1.0), (pairs, 1, prior.latent_count)) * np.arange(1.0, pairs + 1.0)[:, None, None]
        shifts = backend.asarray(signs) * spread
        normals = backend.asarray(rng.standard_normal((pairs, prior.latent_count * prior.inducing_count)))
        drawn = start.q.sample_sites(prior, normals) - prior.mean
        neighbour_counts = effective_neighbours(self.optimiser.problem, rng)
        share = backend.asarray(options.start_precision / neighbour_counts)[:, None, None]
        for offset in (fields[k, ...] for fields in (shifts, drawn) for k in range(pairs)):
            for sign in (1.0, -1.0):
                yield self.rough.posterior(site_factors_at(start, prior.mean + sign * offset, share), start.hyper)


def _with_points(model: SiteModel, stage: Stage, sites: int) -> Stage:
    """Return a stage with sample points for another number of sites."""
    samples, latents = stage.points.base.shape
    return replace(stage, points=Points.draw(model.streams.multistart, samples, sites, latents, model.backend))


def are_distinct(one: GaussianPosterior, other: GaussianPosterior, options: SearchOptions = DEFAULTS) -> bool:
    """Return whether two posteriors are different solutions, and not the same one with different accuracy."""
    between = (one.marginals.mean - other.marginals.mean)[..., None]
    return math.sqrt(max(_largest_square(p.factor, between) for p in (one, other))) > options.fewest_apart


def _largest_square(factor: Array, between: Array) -> float:
    """Return the largest squared length of vectors (N, Q, 1) in units of the factors (N, Q, Q)."""
    xp = array_namespace(factor)
    return float(xp.max(xp.sum(xp.square(xp.linalg.solve(factor, between)), axis=(-2, -1))))


@dataclass(frozen=True)
class ExploredMode:
    """A solution, with the emulator that was fitted to runs near it.

    Attributes
    ----------
    state : SearchState
        State of its search.
    elbo : float, nats
        Bound on its emulator, without the emulator error in the noise.
    sure : bool
        Whether the emulator was fitted to runs near this solution.
    """

    state: SearchState
    elbo: float
    sure: bool = True

    def is_plausible(self, best: ExploredMode, odds: float) -> bool:
        """Return whether this solution is more probable than `best`, or less by at most a factor."""
        return self.elbo >= best.elbo - math.log(odds)


def search_alternative_modes(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Search for alternative solutions, and return the state of the best one.

    A note is added if another solution is nearly as probable.

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
    if state.emulator is None or state.candidate is None or model.uses_minibatches:
        return state
    if not _suspects_other_modes(model, runner, state):
        return state
    options, elbo, steps = model.options, emulated_bound(model, state), state.steps
    best, others = ExploredMode(state, elbo), list[ExploredMode]()
    alternatives = sorted(find_alternatives(model, runner, state, model.all_sites), key=lambda pair: -pair[0])
    try:
        for lead, rival in alternatives[: options.most_explored]:
            if lead < -math.log(options.odds):
                break
            there = _explore(model, runner, replace(best.state, candidate=rival, steps=steps), elbo + lead)
            steps = runner.latest.steps
            if there is not None and are_distinct(there.state.posterior, best.state.posterior, options):
                best, there = (there, best) if there.sure and there.elbo > best.elbo else (best, there)
                others.append(there)
    finally:  # after an interruption too, keep the best explored solution
        state = runner.keep(replace(best.state, steps=steps))
    if others:
        runner.record(best.elbo, accepted=True)
    nearest = sorted(
        (other for other in others if other.is_plausible(best, options.odds)), key=lambda other: -other.elbo
    )
    return state.with_note(describe_alternative(best, nearest[0])) if nearest else state


def _suspects_other_modes(model: SiteModel, runner: Runner, state: SearchState) -> bool:
    """Return whether to search the whole survey: after a poor first search, or if a subset has alternatives."""
    if not state.result.converged or unexplained_sites(model, state).any():
        return True
    problem = with_learned_hyperparameters(model.problem, state.posterior)
    part = subset_of_sites(problem, model.streams.multistart, model.options.subset, model.options.subset_radius)
    if len(part) == model.problem.survey.size:
        return True
    return any(lead > -math.log(model.options.odds) for lead, _ in find_alternatives(model, runner, state, part))


def _explore(model: SiteModel, runner: Runner, rival: SearchState, elbo: float) -> ExploredMode | None:
    """Explore an alternative with new runs near it; None if its search failed.

    Parameters
    ----------
    model : SiteModel
    runner : Runner
    rival : SearchState
        State with the alternative as its candidate, and with the emulator of the best solution.
    elbo : float, nats
        Its bound on that emulator.
    """
    runner.keep(rival)
    unsure = ExploredMode(rival, elbo, sure=False)
    if not rival.steps:
        return unsure
    try:
        found = search_on_emulator(model, runner, rival)
    except BudgetSpent:
        return unsure
    except RunsFailedError:
        return None
    return None if found.emulator is None else ExploredMode(found, emulated_bound(model, found))


def describe_alternative(best: ExploredMode, other: ExploredMode) -> str:
    """Describe an alternative solution in one note for users."""
    here, there = (to_numpy(one.state.posterior.marginals.mean) for one in (best, other))
    spread = np.sqrt(np.diagonal(to_numpy(best.state.posterior.marginals.covariance), axis1=1, axis2=2))
    differs = (np.abs(here - there) > spread).any(axis=1)
    return (
        f"Another solution {'explains' if other.sure else 'may explain'} the data about as well, "
        f"{_describe_odds(best, other)}: it differs at {differs.sum()} of {count_noun(len(differs), 'site')}, and is "
        "not part of this posterior. A more specific prior, or other data, would distinguish them."
    )


def _describe_odds(best: ExploredMode, other: ExploredMode) -> str:
    """Describe the odds; the other solution can be more probable only if there were too few runs to verify it."""
    lead = best.elbo - other.elbo
    if abs(lead) < math.log(1.5):
        return "and is as probable"
    if lead < 0.0:
        return "and may be the more probable one, but there were too few runs to verify this"
    return f"though this one is {math.exp(lead):.0f} times as probable"
