"""Inversion with draws from the exact posterior, on an emulator that is verified at the draws.

A Gaussian approximation is found first, with a few runs per site. Then the posterior is sampled with the emulator in
the simulator's place, the simulator is run at some of the draws, and the emulator is fitted again, until its error at
new draws is small compared with the noise. If the posterior is not Gaussian, part of the runs comes from a wider,
tempered posterior: an emulator that is tested only where its own posterior lies would confirm itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from invgp.emulation import Surrogate
from invgp.emulation.run_schedule import run_budget, runs_in_a_step, simulated_parts, source_runs_in_a_step
from invgp.formatting import count_noun
from invgp.inference.averaged_draws import average_draws
from invgp.inference.draw_checks import (
    CheckOptions,
    Chosen,
    extreme_draws,
    pick_draws,
    root_mean_square,
    run_outskirts,
    run_unexplored,
    sites_widened_by_error,
    verify_at,
)
from invgp.inference.emulated_draws import DRAFT, draw_on_emulator, modes_of_draws, posterior_on, search_modes
from invgp.inference.emulated_posterior import Report, SamplingOptions
from invgp.inference.emulator_search import fit, optimise_on_emulator, outer_steps, search_on_emulator
from invgp.inference.gaussian import (
    search_emulated,
    search_from_narrower_starts,
    search_gaussian,
    search_simulated,
)
from invgp.inference.restart import unexplained_sites
from invgp.inference.runner import Runner
from invgp.inference.search_options import RoundOptions, can_draw
from invgp.inference.search_state import NOT_ACCURATE, SampledTarget, SearchResult, SearchState, judge_failures
from invgp.inference.simulated_draws import outputs_at_draws, sample_with_simulator
from invgp.inference.site_model import SiteModel, StreamPurpose, uses_emulator
from invgp.latent_model.learnt_parameters import LearntParameters
from invgp.posterior import Samples
from invgp.problem import Floats, Problem


def search_sampled(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Find a Gaussian approximation, then draw from the exact posterior on the emulator.

    Without an emulator the result is the Gaussian posterior.

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
    if not uses_emulator(model.problem):
        return search_gaussian(model, runner, state)
    return search_from_narrower_starts(sampled_search(model), model, runner, state)


def sampled_search(model: SiteModel) -> SampledSearch:
    """Return the search with the random streams of a model.

    Parameters
    ----------
    model : SiteModel
        What is constant during the search.

    Returns
    -------
    SampledSearch
    """
    sampling, design, modes = model.new_stream(StreamPurpose.SAMPLING).spawn(3)
    return SampledSearch(sampling, design, modes, model.new_stream(StreamPurpose.AVERAGING))


@dataclass(frozen=True)
class SampledSearch:
    """Rounds of draws, runs at the draws and fits of the emulator.

    Parameters
    ----------
    sampling, design, modes, averaging : numpy.random.Generator
        Random streams of the draws, of the choice of runs, of the search for modes, and of the average over
        hyperparameters.
    options : SamplingOptions
    rounds : RoundOptions
    checks : CheckOptions
    """

    sampling: np.random.Generator
    design: np.random.Generator
    modes: np.random.Generator
    averaging: np.random.Generator
    options: SamplingOptions = field(default_factory=SamplingOptions)
    rounds: RoundOptions = field(default_factory=RoundOptions)
    checks: CheckOptions = field(default_factory=CheckOptions)

    def __call__(self, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
        """Search from a state; the new one has draws if an emulator could be fitted."""
        problem = model.problem
        if not can_draw(problem, self.rounds):
            state = state.with_note(
                f"The survey has more than {self.rounds.most_sampled:,} unknowns, too many for the sampler: the "
                "posterior is a Gaussian approximation."
            )
            return search_emulated(model, runner, state)
        runner.begin(run_budget(problem))
        steps = outer_steps(problem)[: self.rounds.gaussian_steps]
        state = search_on_emulator(model, runner, replace(state, steps=steps))
        if state.emulator is None or state.candidate is None:
            return search_simulated(
                model,
                runner,
                state.with_note(
                    f"No emulator could be fitted, since too many of its runs {runner.simulator.failure_words}: the "
                    "simulator was used for every step, and the posterior is a Gaussian approximation."
                ),
            )
        state, good = self._sample_in_rounds(model, runner, state)
        return self._finish(model, runner, state, good=good)

    def _sample_in_rounds(self, model: SiteModel, runner: Runner, state: SearchState) -> tuple[SearchState, bool]:
        """Sample, verify the emulator at draws and fit it again, until its error is small or the budget is used.

        The second result is whether the emulator was found good.
        """
        problem, errors, good = model.problem, list[float](), False
        state, holds = run_outskirts(model, runner, state, self.design)
        state = state if holds else self._refit(model, runner, state)
        stage = int(state.runs.stage.max()) + 1
        for count in range(self.rounds.most_rounds):
            if state.emulator is None:
                break
            report = _stage(runner, f"draws for the runs of round {count + 1}")
            target = self._next_target(model, state, state.emulator, _stage(runner, "search for modes"))
            draft, tempered = draw_on_emulator(model, target, DRAFT, self.sampling, report)
            state = runner.keep(replace(state, target=target, samples=draft))
            chosen, wide = self._choose_runs(problem, draft, tempered)
            cost = sum(latents.shape[0] * len(sites) for latents, sites in (*chosen, *wide))
            if not _affords(problem, runner, cost):
                break
            label, verification = f"sampling-round-{count + 1}", state.verification.copy()
            found, failed = list[Floats](), list[NDArray[np.bool_]]()
            for k, (latents, sites) in enumerate((*chosen, *wide)):
                state, check = verify_at(model, runner, state, latents, sites, label, stage + count)
                found.append(check.errors.ravel())
                failed.append(check.failed.ravel())
                if k < len(chosen):
                    verification[sites] = root_mean_square(check.errors, axis=0)
            near = np.concatenate(found[: len(chosen)])
            beyond = np.concatenate(found[len(chosen) :]) if wide else None
            share = float(np.mean(np.concatenate(failed[: len(chosen)])))
            state = runner.keep(replace(state, verification=verification, failed_share=share))
            errors.append(float(root_mean_square(near)))
            if self._is_good(problem, near, beyond) and share <= problem.inference.max_failed_share:
                state, holds = self._verify_extremes(model, runner, state)
                if holds:
                    state, good = run_unexplored(model, runner, state, self.design)
                if good:
                    break
            elif self._has_stalled(errors):
                break
            state = self._refit(model, runner, state)
        return state, good

    def _finish(self, model: SiteModel, runner: Runner, state: SearchState, *, good: bool) -> SearchState:
        """Draw the result, verify it, and use the simulator at sites that the emulator cannot serve.

        An emulator that the rounds did not find good may still be good enough: the last round has improved it, and its
        error may not change the posterior. New runs confirm its estimate.
        """
        if state.emulator is None:
            return replace(state, result=NOT_ACCURATE)
        target, holds = state.target, False
        for repeat in range(self.rounds.most_repeats + 1):
            if target is None or target.emulator is not state.emulator:
                target = self._next_target(model, state, state.emulator, _stage(runner, "search for modes"))
            state = runner.keep(self._draw_result(model, runner, state, target))
            state, holds = self._verify_extremes(model, runner, state)
            if holds and (repeat or not good):
                state, holds = run_unexplored(model, runner, state, self.design)
            if holds or repeat == self.rounds.most_repeats:
                break
            state = self._refit(model, runner, state)
            if state.emulator is None:
                break
        state = self._use_simulator(model, runner, self._refine_widened(model, runner, state))
        if holds and not good:
            state, holds = self._confirm_error(model, runner, state)
        if not holds:
            result = NOT_ACCURATE
        elif np.mean(self._widened_sites(model, state)) > self.rounds.most_widened:
            result = self._out_of_runs(model.problem, runner)
        else:
            result = self.judge_draws(state)
        return judge_failures(model.problem, replace(state, result=result))

    def _confirm_error(self, model: SiteModel, runner: Runner, state: SearchState) -> tuple[SearchState, bool]:
        """Run the simulator at draws of the result; return whether the errors are as small as their estimates.

        Larger errors at a few draws, as next to a jump, may not matter either: the weights that would correct the draws
        are then nearly equal. Sites that were sampled with the simulator do not count.
        """
        if state.samples is None or state.emulator is None:
            return state, False
        chosen, _ = self._choose_runs(model.problem, state.samples, None)
        if not runner.simulator.can_afford(sum(latents.shape[0] * len(sites) for latents, sites in chosen)):
            return state, False
        emulator, limit = state.emulator, model.problem.inference.emulator_error
        ratios, log_weights, failed = list[Floats](), list[Floats](), list[NDArray[np.bool_]]()
        stage = int(state.runs.stage.max()) + 1
        for latents, sites in chosen:
            state, check = verify_at(model, runner, state, latents, sites, "confirmation", stage)
            verification = state.verification.copy()
            verification[sites] = root_mean_square(check.errors, axis=0)
            state = replace(state, verification=verification)
            expected = np.hypot(emulator.site_error(sites), limit)
            emulated = ~state.direct[sites]
            ratios.append((check.errors / expected)[:, emulated].ravel())
            log_weights.append(check.log_weights[:, emulated].ravel())
            failed.append(check.failed.ravel())
        state = replace(state, failed_share=float(np.mean(np.concatenate(failed))))
        found, weights = np.concatenate(ratios), np.exp(np.concatenate(log_weights))
        if not found.size:
            return state, True
        if not np.isfinite(found).any():
            return state, False
        surprising = root_mean_square(found) > self.rounds.surprising
        return state, not surprising or bool(np.mean((weights - 1.0) ** 2) <= self.rounds.largest_variance)

    def _widened_sites(self, model: SiteModel, state: SearchState) -> NDArray[np.bool_]:
        """Return a mask (N,) of the sites whose posterior the error of the emulator changes."""
        if state.samples is None or state.target is None:
            return np.zeros(model.problem.survey.size, dtype=bool)
        few = state.samples.latents[state.samples.thin(self.checks.predicted)]
        emulator = state.target.emulator
        outputs = outputs_at_draws(state, emulator, few, model.all_sites)
        return sites_widened_by_error(model, emulator, few, outputs, self.checks) & ~state.direct

    def _refine_widened(self, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
        """Make more runs at draws of the sites that the error of the emulator changes, and draw again.

        This takes far fewer runs than weights with the simulator, of which few draws remain effective. If it does not
        help, the draws stay as they were.
        """
        before = state
        for count in range(self.rounds.most_refined):
            sites = np.flatnonzero(self._widened_sites(model, state))
            sites = sites[np.isin(sites, model.problem.simulated)]
            cost = self.rounds.refining * len(sites)
            if state.samples is None or state.target is None or not cost or not runner.simulator.can_afford(cost):
                break
            latents, sites = pick_draws(state.samples.latents, cost, sites, self.design)
            stage = int(state.runs.stage.max()) + 1
            state, _ = verify_at(model, runner, state, latents, sites, f"refined-sites-{count + 1}", stage)
            refitted = self._refit(model, runner, state)
            if refitted.emulator is None or refitted.target is None:
                break
            target = replace(refitted.target, gaussian=refitted.posterior, emulator=refitted.emulator)
            state = replace(refitted, target=target)
        if state.emulator is None or state.emulator is before.emulator:
            return state
        if np.mean(self._widened_sites(model, state)) > self.rounds.most_widened:  # as next to a jump
            return replace(before, runs=state.runs)
        target = self._next_target(model, state, state.emulator, _stage(runner, "search for modes"))
        refined, holds = self._confirm_error(model, runner, self._draw_result(model, runner, state, target))
        return runner.keep(refined if holds else replace(before, runs=refined.runs))

    def _use_simulator(self, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
        """Sample sites that the error of the emulator changes with the simulator, within `inference.max_runs`."""
        widened = self._widened_sites(model, state)
        if not widened.any():
            return state
        return runner.keep(sample_with_simulator(model, runner, state, widened, self.design))

    def _next_target(self, model: SiteModel, state: SearchState, emulator: Surrogate, report: Report) -> SampledTarget:
        """Return what a round samples; draws that were tempered have searched for modes already."""
        explained = state.result.converged and not unexplained_sites(model, state).any()
        found = modes_of_draws(state.samples) or search_modes(model, state, self.modes, report)
        return SampledTarget(state.posterior, emulator, explained, found.several, found.starts)

    def sample_emulated(
        self, model: SiteModel, runner: Runner, state: SearchState, *, several_modes: bool | None = None
    ) -> SearchState:
        """Return the state with draws from the posterior on its emulator, without new runs.

        By default, it is searched for several modes.
        """
        if state.emulator is None:
            raise ValueError("there is no emulator yet")
        if several_modes is None:
            target = self._next_target(model, state, state.emulator, _stage(runner, "search for modes"))
        else:
            explained = state.result.converged and not unexplained_sites(model, state).any()
            target = SampledTarget(state.posterior, state.emulator, explained, several_modes)
        return self._draw_result(model, runner, state, target)

    def _draw_result(self, model: SiteModel, runner: Runner, state: SearchState, target: SampledTarget) -> SearchState:
        """Return the state with the draws of the result instead of a draft."""
        report = _stage(runner, "draws of the result")
        samples, _ = draw_on_emulator(model, target, self.options, self.sampling, report)
        if LearntParameters(model.problem):
            runner.report_stage("average over the hyperparameters")
        return replace(state, target=target, samples=self._average(model, target, samples))

    def _average(self, model: SiteModel, target: SampledTarget, samples: Samples) -> Samples:
        """Average draws over the learnt hyperparameters, if there are any and if it is possible."""
        problem = model.with_emulator_error(target.emulator)
        if not LearntParameters(problem):
            return samples
        posterior = posterior_on(model, target.emulator, target.gaussian)
        algorithm = model.algorithm(model.emulator_stages, problem)
        found = average_draws(samples, posterior, target.gaussian, algorithm, problem, self.averaging, self.options)
        return samples if found is None else found

    def _verify_extremes(self, model: SiteModel, runner: Runner, state: SearchState) -> tuple[SearchState, bool]:
        """Run the simulator at draws far from the others; return whether the emulator is accurate there too.

        A regression can reach the data far outside of its runs. So few draws go there that other checks miss them, but
        they decide the standard deviation.
        """
        if state.samples is None:
            return state, True
        latents, sites = extreme_draws(state.samples.latents, self.checks.extreme)
        simulated = np.isin(sites, model.problem.simulated)
        latents, sites = latents[:, simulated], sites[simulated]
        if not sites.size:
            return state, True
        few = self.design.permutation(len(sites))[: runs_in_a_step(model.problem)]
        doubt = f"At {count_noun(len(sites), 'site')} some draws are far from the others, and "
        if not runner.simulator.can_afford(len(few)):
            note = f"{doubt}no runs are left to verify them: standard deviations there are doubtful."
            return state.with_note(note), True
        # As old runs: the error of the emulator is that at draws, not where it was expected to be wrong.
        stage = int(state.runs.stage.min())
        state, check = verify_at(model, runner, state, latents[:, few], sites[few], "extreme-draws", stage)
        known = np.isfinite(check.errors)
        if not known.all():
            failed = f"{np.count_nonzero(~known):,} of {count_noun(known.size, 'run')} at them failed"
            state = state.with_note(f"{doubt}{failed}: standard deviations there are doubtful.")
        accurate = check.errors <= self.rounds.bad * model.problem.inference.emulator_error
        return state, bool(np.all(accurate | (np.abs(check.log_weights) <= self.rounds.largest_extreme) | ~known))

    def _refit(self, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
        """Fit the emulator to all runs, and find the Gaussian approximation on it."""
        fitted = fit(model, state, state.posterior)
        if fitted.emulator is None:
            return fitted
        try:
            return optimise_on_emulator(model, runner, fitted, state.posterior)
        except np.linalg.LinAlgError:
            return runner.keep(fitted)

    def _choose_runs(
        self, problem: Problem, samples: Samples, tempered: Floats | None
    ) -> tuple[list[Chosen], list[Chosen]]:
        """Choose draws for the next runs of each simulator: of the posterior, and tempered ones."""
        pairs = list(zip(simulated_parts(problem), source_runs_in_a_step(problem), strict=True))
        chosen = [pick_draws(samples.latents, each, part.sites, self.design) for part, each in pairs]
        if tempered is None:
            return chosen, []
        share = self.rounds.tempered_share
        return chosen, [pick_draws(tempered, math.ceil(share * each), part.sites, self.design) for part, each in pairs]

    def _is_good(self, problem: Problem, near: Floats, beyond: Floats | None = None) -> bool:
        """Return whether the emulator's errors at draws, and at tempered draws if there are any, are small enough."""
        limit, options = problem.inference.emulator_error, self.rounds
        known = near[np.isfinite(near)]
        if not known.size or root_mean_square(known) > options.good * limit:
            return False
        if np.mean(known > options.bad * limit) > options.most_bad:
            return False
        return beyond is None or not root_mean_square(beyond) > options.good_tempered * limit

    def _has_stalled(self, errors: list[float]) -> bool:
        if len(errors) < 4:
            return False
        before, now = min(errors[-4:-2]), min(errors[-2:])
        return now <= self.rounds.tolerable and now > (1.0 - self.rounds.stalled) * before

    def judge_draws(self, state: SearchState) -> SearchResult:
        """Return whether the draws have converged, once the emulator is accurate enough."""
        if state.samples is None or state.samples.r_hat.max() > self.options.largest_r_hat:
            return SearchResult("stopped before the chains of draws agreed", converged=False)
        if state.samples.effective.min() < self.options.least_effective:
            return SearchResult("stopped before there were enough effective draws", converged=False)
        return SearchResult("the draws have converged", converged=True)

    def _out_of_runs(self, problem: Problem, runner: Runner) -> SearchResult:
        left = runner.simulator.runs_left
        if left is not None and left < runs_in_a_step(problem):
            return runner.out_of_runs
        return NOT_ACCURATE


def _stage(runner: Runner, stage: str) -> Report:
    """Return a function that reports a part of a stage to the monitor."""
    return lambda part: runner.report_stage(f"{stage}, {part}")


def _affords(problem: Problem, runner: Runner, runs: int) -> bool:
    return runner.simulator.can_afford(runs) and runner.simulator.runs + runs <= run_budget(problem)
