"""Search on an emulator at a random selection of the sites of a large survey, before all of them.

The emulator is one function for all sites, and a few thousand of them are enough to find it. Their posterior is wider
than that of all sites, so that the runs at its draws surround the final posterior. The number of runs, and the time
until the emulator is accurate, do not depend on the size of the survey.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Runs
from invgp.emulation.run_schedule import shares_runs, simulated_parts
from invgp.execution.simulator import Batch
from invgp.inference.emulator_search import fit, optimise_on_emulator, outer_steps, search_on_emulator
from invgp.inference.optimisation import Optimiser
from invgp.inference.runner import BudgetSpent, Runner, StateT
from invgp.inference.search_options import fewest_sites_for_a_part, size_of_part
from invgp.inference.search_state import SearchState, Step
from invgp.inference.shared_runs import verify_and_refine
from invgp.inference.site_model import SiteModel, emulator_stages
from invgp.latent_model.problem_prior import prior_of
from invgp.problem import Floats, Problem

Sites = NDArray[np.intp]


@dataclass
class PartialRunner(Runner):
    """Runs of a part of the sites. The monitor sees the runs, but not the posterior of the part.

    Parameters
    ----------
    sites : array of int, shape (B,)
        Numbers of these sites in the survey.
    """

    sites: Sites = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    def keep(self, state: StateT) -> StateT:
        """Keep a state as the latest one."""
        self.latest = state
        return state

    def record(self, elbo: float, *, accepted: bool) -> None:
        """Record an evaluation of the bound of the part."""
        if accepted:
            self.trace.append((elbo, self.simulator.runs))

    def evaluate(self, latents: Floats, label: str, sites: Sites) -> Batch:
        """Run the simulator at latents (S, B, Q) of sites (B,), by their numbers in the part."""
        return super().evaluate(latents, label, self.sites[sites])

    def sample(self, latents: Floats, label: str, sites: Sites) -> Batch:
        """Run the simulator at latents (S, B, Q) of sites (B,) of the part, for the emulator."""
        return super().sample(latents, label, self.sites[sites])


def is_worth_a_part(model: SiteModel) -> bool:
    """Return whether the survey is so large that the emulator is fitted at a part of its sites first."""
    fewest = fewest_sites_for_a_part(model.problem, model.options)
    return model.uses_minibatches and shares_runs(model.problem) and model.problem.survey.size >= fewest


def search_on_part(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Find the emulator at a part of the sites, and with it the posterior of all sites.

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
        The emulator is None if it could not be fitted.

    Raises
    ------
    BudgetSpent
        The budget has too few runs. The runner has the posterior of all sites, if an emulator could be fitted.
    """
    sites = _select_sites(model, state)
    part = _part_of(model, runner, sites)
    start = _restrict(part, state.start, sites)
    size = len(sites)
    first = SearchState(
        start=start,
        runs=_runs_at(state.runs, sites),
        direct=np.zeros(size, dtype=bool),
        verification=np.full(size, np.nan),
        shape_errors=np.full((size, model.problem.latent_count), np.nan),
        steps=_steps(model.problem, part.problem),
    )
    runner.report_stage(f"search at {size:,} of {model.problem.survey.size:,} sites")
    own, spent = PartialRunner(runner.simulator, sites=sites), None
    try:
        found = search_on_emulator(part, own, own.keep(first))
        if found.emulator is not None:
            found = verify_and_refine(part, own, found)
    except BudgetSpent as error:
        found, spent = own.latest, error
    finally:  # after an interruption too, the runs are kept
        state = runner.keep(_with_runs(state, own.latest, sites))
    if found.emulator is None or found.candidate is None:
        if spent is not None:
            raise spent
        return state
    posterior = _extend(model, state.start, found.posterior, sites)
    state = fit(model, replace(state, solver_noise=found.solver_noise), posterior)
    if state.emulator is not None:
        runner.report_stage("search at all sites")
        state = optimise_on_emulator(model, runner, state, posterior, near_optimum=True)
    if spent is not None:
        raise spent
    return state


def _steps(problem: Problem, part: Problem) -> tuple[Step, ...]:
    """Return the outer steps of a problem with at most one run for each site of a part."""
    sizes = [len(source.sites) for source in simulated_parts(part)]
    steps = []
    for step in outer_steps(problem):
        runs = tuple(min(pair) for pair in zip(step.source_runs, sizes, strict=True))
        steps.append(Step(step.number, sum(runs), runs))
    return tuple(steps)


def _select_sites(model: SiteModel, state: SearchState) -> Sites:
    """Select sites of each source at random, and those that have runs of earlier inversions."""
    rng, size, chosen = model.streams.design, size_of_part(model.problem, model.options), list[Any]()
    for part in model.problem.parts:
        share = max(size * len(part.sites) // model.problem.survey.size, model.options.fewest_part_sites)
        chosen.append(rng.choice(part.sites, min(share, len(part.sites)), replace=False))
    known = np.unique(state.runs.sites)
    return np.unique(np.concatenate([*chosen, rng.permutation(known)[:size]]))


def _part_of(model: SiteModel, runner: Runner, sites: Sites) -> SiteModel:
    """Return the model of some sites, whose emulator must be as accurate as that of all sites."""
    problem, streams = model.problem.select_sites(sites), model.streams
    part = replace(
        model,
        problem=problem,
        prior=prior_of(problem, model.backend, streams.inducing),
        optimiser=Optimiser(problem, model.backend, streams.shuffles),
        neighbour_counts=model.neighbour_counts[sites],
        emulator_stages=[],
    )
    return replace(part, emulator_stages=emulator_stages(part, runner))


def _restrict(part: SiteModel, posterior: GaussianPosterior, sites: Sites) -> GaussianPosterior:
    """Return the posterior of a part with the factors of its sites."""
    algorithm = part.algorithm(part.emulator_stages)
    index = part.backend.namespace.asarray(sites.astype(np.int32), device=part.backend.device)
    factors = SiteFactors(*(part.backend.namespace.take(factor, index, axis=0) for factor in posterior.sites))
    return algorithm.posterior(factors, algorithm.init().trial.hyper)


def _extend(
    model: SiteModel, start: GaussianPosterior, posterior: GaussianPosterior, sites: Sites
) -> GaussianPosterior:
    """Return the posterior of all sites with the factors and hyperparameters of a part.

    The other sites have the factors of the start.
    """
    xp, backend = model.backend.namespace, model.backend
    numbers, inside = np.zeros((2, model.problem.survey.size), dtype=np.int32)
    numbers[sites], inside[sites] = np.arange(len(sites)), 1
    index, chosen = xp.asarray(numbers, device=backend.device), backend.asmask(inside.astype(bool))
    precision, shift = (xp.take(factor, index, axis=0) for factor in posterior.sites)
    factors = SiteFactors(
        xp.where(chosen[:, None, None], precision, start.sites.precision),
        xp.where(chosen[:, None], shift, start.sites.shift),
    )
    hyper = start.hyper._replace(theta=posterior.hyper.theta, noise=posterior.hyper.noise)
    return model.algorithm(model.emulator_stages).posterior(factors, hyper)


def _runs_at(runs: Runs, sites: Sites) -> Runs:
    """Return the runs at some sites (B,), with the numbers of these sites."""
    kept = np.isin(runs.sites, sites)
    return Runs(np.searchsorted(sites, runs.sites[kept]), runs.latents[kept], runs.outputs[kept], runs.stage[kept])


def _with_runs(state: SearchState, found: SearchState, sites: Sites) -> SearchState:
    """Return a state with the new runs of a part of the sites."""
    new, old = found.runs, state.runs
    fresh = new.stage >= 0  # the others are those of the state
    runs = Runs(
        np.concatenate([old.sites, sites[new.sites[fresh]]]),
        np.concatenate([old.latents, new.latents[fresh]]),
        np.concatenate([old.outputs, new.outputs[fresh]]),
        np.concatenate([old.stage, new.stage[fresh]]),
    )
    return replace(state, runs=runs, steps=())
