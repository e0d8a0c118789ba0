"""Verification and refinement of an emulator in a survey with more sites than runs.

Most sites rely on runs at other sites. Where the emulator is not accurate enough, the remedy is not the simulator at
each of these sites, whose number grows with the survey, but a few more runs among them for the emulator of all sites.
New runs at a random selection of sites, and at those that earlier runs serve least, show whether the emulator is
accurate. Their number does not depend on the size of the survey.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.emulation.emulator_inputs import Inputs
from invgp.emulation.joint_emulator import select_runs
from invgp.emulation.run_schedule import simulated_parts, source_runs_in_a_check
from invgp.emulation.space_filling import farthest_points
from invgp.inference.draw_checks import root_mean_square
from invgp.inference.emulator_search import fit, optimise_on_emulator
from invgp.inference.runner import Runner
from invgp.inference.search_state import SearchResult, SearchState
from invgp.inference.site_evaluation import draw_at, run_errors
from invgp.inference.site_model import SiteModel
from invgp.problem import Floats, Part

Sites = NDArray[np.intp]
NOT_EVERYWHERE = SearchResult("stopped before the emulator was accurate at all sites", converged=False)


@dataclass(frozen=True)
class RefinementOptions:
    """Tuning of the verification and refinement.

    Errors are relative to `inference.emulator_error`, unless stated otherwise.

    Parameters
    ----------
    most_rounds : int
        Most rounds of new runs.
    checked_sites, draws : int
        Sites that are searched for values outside the region of the runs, a random selection; and draws at each.
    good : float
        Largest root mean square error at a random selection of sites.
    good_beyond : float
        The same at the sites that the earlier runs serve least.
    shared, shared_beyond : float
        The same two limits relative to the noise divided by the square root of the number of neighbouring sites, which
        share the error.
    bad : float
        Error of a single run that counts as bad.
    most_bad : float
        Largest share of bad runs, and of sites where the emulator is not accurate enough.
    stalled : float
        Relative decrease of the error in two rounds below which further runs do not help.
    """

    most_rounds: int = 6
    checked_sites: int = 10_000
    draws: int = 8
    good: float = 0.5
    good_beyond: float = 1.0
    shared: float = 0.3
    shared_beyond: float = 1.0
    bad: float = 2.0
    most_bad: float = 0.05
    stalled: float = 0.2


class Check(NamedTuple):
    """Errors of an emulator at new runs, in standard deviations of the noise.

    Attributes
    ----------
    typical : array, shape (B,)
        At a random selection of sites; NaN where a run failed.
    beyond : array, shape (C,)
        At sites that earlier runs serve least.
    """

    typical: Floats
    beyond: Floats

    def is_accurate(self, limit: float, options: RefinementOptions) -> bool:
        """Return whether the errors are small for `inference.emulator_error` = `limit`, except at a few sites."""
        known = self.typical[np.isfinite(self.typical)]
        if not known.size or np.mean(known > options.bad * limit) > options.most_bad:
            return False
        return self._is_below(options.good * limit, options.good_beyond * limit)

    def is_good(self, limit: float, neighbours: float, options: RefinementOptions) -> bool:
        """Return whether the errors are also small if as many neighbouring sites share them."""
        root = math.sqrt(neighbours)
        return self.is_accurate(limit, options) and self._is_below(options.shared / root, options.shared_beyond / root)

    def _is_below(self, typical: float, beyond: float) -> bool:
        if root_mean_square(self.typical) > typical:
            return False
        return not root_mean_square(self.beyond) > beyond  # also if there are none


def verify_and_refine(
    model: SiteModel, runner: Runner, state: SearchState, options: RefinementOptions = RefinementOptions()
) -> SearchState:
    """Verify the emulator with new runs and fit it again, until its errors are small or do not decrease.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : SearchState
        State with an emulator and a candidate.
    options : RefinementOptions

    Returns
    -------
    SearchState
        `inaccurate` marks the sites where the emulator is not accurate enough.
    """
    limit = model.problem.inference.emulator_error
    neighbours, errors = float(np.median(model.neighbour_counts)), list[float]()
    doubtful = model.all_sites
    for _ in range(options.most_rounds):
        chosen = _choose_runs(model, state, options)
        if not runner.simulator.can_afford(sum(len(sites) for _, sites, _ in chosen)):
            break
        state, check = _verify(model, runner, state, chosen)
        failed = np.flatnonzero(np.nan_to_num(state.verification) > options.bad * limit)
        doubtful = failed if check.is_accurate(limit, options) else model.all_sites
        good = check.is_good(limit, neighbours, options)
        if good and not failed.size:
            break
        state = _refit(model, runner, state)
        errors.append(float(root_mean_square(np.concatenate([check.typical, check.beyond]))))
        if good or (len(errors) > 2 and min(errors[-2:]) > (1.0 - options.stalled) * min(errors[:-2])):
            break
    inaccurate = np.zeros(model.problem.survey.size, dtype=bool)
    for sites in np.array_split(doubtful, -(-len(doubtful) // options.checked_sites) or 1):
        inaccurate[sites] = ~_trusted(model, state, sites, options)[1] if len(sites) else False
    return runner.keep(replace(state, inaccurate=inaccurate))


def judge_accuracy(state: SearchState, options: RefinementOptions = RefinementOptions()) -> SearchState:
    """Return the state with the outcome that the search has not converged if the emulator fails at many sites.

    Parameters
    ----------
    state : SearchState
    options : RefinementOptions

    Returns
    -------
    SearchState
    """
    if state.inaccurate is None or np.mean(state.inaccurate) <= options.most_bad:
        return state
    return replace(state, result=NOT_EVERYWHERE)


def _trusted(
    model: SiteModel, state: SearchState, sites: Sites, options: RefinementOptions
) -> tuple[Floats, NDArray[np.bool_]]:
    """Draw latents (S, B, Q) at sites (B,), and return whether the emulator is accurate enough there (B,)."""
    if state.emulator is None:
        raise ValueError("there is no emulator yet")
    latents = draw_at(model, state.posterior, sites, options.draws)
    return latents, state.emulator.trusted_sites(latents, sites, model.problem.inference.emulator_error)


def _choose_runs(
    model: SiteModel, state: SearchState, options: RefinementOptions
) -> list[tuple[Floats, Sites, NDArray[np.bool_]]]:
    """Choose latents (1, B, Q) and sites (B,) of new runs of each simulator, and which (B,) earlier runs serve least.

    Up to half of the runs are at sites where the emulator is not trusted, as far from all other runs as possible; the
    others at a random selection of sites.
    """
    rng, chosen = model.streams.design, []
    for part, count in zip(simulated_parts(model.problem), source_runs_in_a_check(model.problem), strict=True):
        few = part.sites
        if len(few) > options.checked_sites:
            few = np.sort(rng.choice(few, options.checked_sites, replace=False))
        latents, trusted = _trusted(model, state, few, options)
        candidates, places = latents[0, ~trusted], few[~trusted]
        picked = _fill_gaps(model, state, part, candidates, places, count // 2)
        others = rng.choice(np.setdiff1d(part.sites, places[picked]), count - len(picked), replace=False)
        beyond = np.arange(len(picked) + len(others)) < len(picked)
        drawn = draw_at(model, state.posterior, others, 1)
        chosen.append(
            (
                np.concatenate([candidates[picked][None], drawn], axis=1),
                np.concatenate([places[picked], others]),
                beyond,
            )
        )
    return chosen


def _fill_gaps(
    model: SiteModel, state: SearchState, part: Part, candidates: Floats, sites: Sites, count: int
) -> NDArray[np.intp]:
    """Choose from latents (B, Q) at sites (B,) those that are farthest from the runs and from each other."""
    runs, inputs = state.runs, Inputs.of(part.problem)
    if model.problem.sources:
        runs = select_runs(runs, part)
    known = inputs.rows(runs.latents[runs.has_output], runs.sites[runs.has_output])
    return farthest_points(inputs.rows(candidates, part.numbers[sites]), known, count)


def _verify(
    model: SiteModel, runner: Runner, state: SearchState, chosen: list[tuple[Floats, Sites, NDArray[np.bool_]]]
) -> tuple[SearchState, Check]:
    """Make runs, which are added to the state, and compare the emulator with them."""
    stage, found, failed = int(state.runs.stage.max()) + 1, [], list[NDArray[np.bool_]]()
    verification = np.full(model.problem.survey.size, np.nan)
    for latents, sites, beyond in chosen:
        batch = runner.sample(latents, "verification", sites)
        state = replace(state, runs=state.runs.append(latents, batch.outputs, batch.valid, sites, stage))
        errors = run_errors(model, state, batch, latents, sites)[0]
        verification[sites] = errors
        found.append((errors[~beyond], errors[beyond]))
        failed.append(~batch.valid[:, ~beyond].ravel())
    typical, least_served = (np.concatenate(errors) for errors in zip(*found, strict=True))
    known = np.concatenate(failed)
    share = float(known.mean()) if known.size else 0.0
    return runner.keep(replace(state, verification=verification, failed_share=share)), Check(typical, least_served)


def _refit(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Fit the emulator to all runs, and optimise the posterior on it."""
    fitted = fit(model, state, state.posterior)
    if fitted.emulator is None:
        return state
    return optimise_on_emulator(model, runner, fitted, state.posterior, near_optimum=True)
