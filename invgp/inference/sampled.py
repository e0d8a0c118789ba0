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

from invgp.core.backend import to_numpy
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Surrogate, fit_emulators
from invgp.emulation.run_schedule import run_budget, runs_in_a_step, simulated_parts, source_runs_in_a_step
from invgp.formatting import count_noun
from invgp.inference.averaged_draws import average_draws
from invgp.inference.emulator_search import fit, optimise_on_emulator, outer_steps, search_on_emulator
from invgp.inference.exact_draws import (
    EmulatedPosterior,
    Report,
    SamplingOptions,
    draw_by_hamiltonian,
    draw_by_importance,
    find_gaps,
)
from invgp.inference.gaussian import (
    search_emulated,
    search_from_narrower_starts,
    search_gaussian,
    search_simulated,
)
from invgp.inference.multistart import subset_of_sites
from invgp.inference.restart import unexplained_sites
from invgp.inference.runner import Runner
from invgp.inference.search_state import SampledTarget, SearchResult, SearchState
from invgp.inference.site_evaluation import run_errors
from invgp.inference.site_model import SiteModel, uses_emulator
from invgp.inference.tempered_draws import draw_by_tempering
from invgp.inference.unexplored import fits_data, unexplored_values
from invgp.latent_model.learned_problem import with_learned_hyperparameters
from invgp.latent_model.learnt_parameters import LearntParameters
from invgp.latent_model.prior import prior_of
from invgp.posterior import Samples
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class RoundOptions:
    """Tuning of the rounds of sampling, runs and fits.

    Parameters
    ----------
    gaussian_steps : int
        Most outer steps of the Gaussian approximation.
    most_rounds : int
        Most rounds.
    tempered_share : float
        Runs from the tempered posterior, relative to those from the posterior itself.
    good : float
        Root mean square error of the emulator at draws that ends the rounds, relative to `inference.emulator_error`.
    good_tempered : float
        The same for the draws of the tempered posterior.
    bad : float
        Error of a single run that counts as bad, relative to `inference.emulator_error`.
    most_bad : float
        Largest share of bad runs.
    stalled : float
        Relative decrease of the error in two rounds below which it is taken for noise of the simulator.
    tolerable : float
        Largest error, in noise standard deviations, of an emulator whose error no longer decreases.
    predicted : int
        Draws for the predicted outputs.
    searched : int
        Largest number of variables (sites times latents) of the search for modes.
    most_sampled : int
        Largest number of variables that are sampled; beyond, the posterior is a Gaussian approximation.
    extreme : float
        Distance of a draw from the others, in standard deviations, beyond which the emulator is verified there.
    gaussian_error : float
        Largest distance of the Gaussian approximation from the draws, in standard deviations, at which no runs are
        made beyond the posterior.
    largest_widening : float
        Factor on the noise due to the error of the emulator above which a note is added.
    largest_change : float
        Smallest change of a posterior by this error for the note: of the mean, in standard deviations, or of the
        logarithm of the standard deviation.
    """

    gaussian_steps: int = 4
    most_rounds: int = 15
    tempered_share: float = 0.5
    good: float = 0.5
    good_tempered: float = 3.0
    bad: float = 2.0
    most_bad: float = 0.05
    stalled: float = 0.2
    tolerable: float = 0.5
    predicted: int = 500
    searched: int = 128
    most_sampled: int = 100_000
    extreme: float = 6.0
    gaussian_error: float = 0.25
    largest_widening: float = 1.2
    largest_change: float = 0.1


Chosen = tuple[Floats, NDArray[np.intp]]  # latents (S, B, Q) for new runs, and their sites (B,)
# Between batches of runs, which need fewer draws than the result. The search for modes uses the same options: the draws
# of one particle stay close together, and a mode has several of the 128 or more particles.
DRAFT = SamplingOptions(
    proposals=1000,
    fewest_effective=250,
    draws=500,
    chains=32,
    warmup=40,
    iterations=24,
    largest_r_hat=1.2,
    populations=2,
    fewest_particles=64,
    most_particles=128,
    numbers_at_once=16_000,
    gap=0.8,
    smallest_mode=0.04,
    bridged=0,
)


_NOT_ACCURATE = SearchResult("stopped before the emulator was accurate at the draws", converged=False)


def search_sampled(model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
    """Find a Gaussian approximation, then draw from the exact posterior on the emulator.

    Without an emulator the result is the Gaussian posterior.
    """
    if not uses_emulator(model.problem):
        return search_gaussian(model, runner, state)
    return search_from_narrower_starts(sampled_search(model), model, runner, state)


def sampled_search(model: SiteModel) -> SampledSearch:
    """Return the search with the random streams of a model."""
    sampling, design, modes = np.random.default_rng([model.seed, 1]).spawn(3)
    return SampledSearch(sampling, design, modes, np.random.default_rng([model.seed, 3]))


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
    """

    sampling: np.random.Generator
    design: np.random.Generator
    modes: np.random.Generator
    averaging: np.random.Generator
    options: SamplingOptions = field(default_factory=SamplingOptions)
    rounds: RoundOptions = field(default_factory=RoundOptions)

    def __call__(self, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
        """Search from a state; the new one has draws if an emulator could be fitted."""
        problem = model.problem
        if problem.survey.size * problem.latent_count > self.rounds.most_sampled:
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
        return self._sample_in_rounds(model, runner, state)

    def _sample_in_rounds(self, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
        """Sample, verify the emulator at draws and fit it again, until its error is small or the budget is used."""
        problem, errors = model.problem, list[float]()
        stage = int(state.runs.stage.max()) + 1
        for count in range(self.rounds.most_rounds):
            if state.emulator is None:
                break
            report = _stage(runner, f"draws for the runs of round {count + 1}")
            target = self._next_target(model, state, state.emulator, _stage(runner, "search for modes"))
            draft, tempered = self._draw(model, target, DRAFT, report)
            state = runner.keep(replace(state, target=target, samples=draft))
            chosen, wide = self._choose_runs(problem, draft, tempered)
            cost = sum(latents.shape[0] * len(sites) for latents, sites in (*chosen, *wide))
            if not _affords(problem, runner, cost):
                state = self._draw_result(model, runner, state, target)
                state, holds = self._verify_extremes(model, runner, state, stage + count)
                if not holds:
                    return replace(state, result=_NOT_ACCURATE)
                return replace(state, result=self._out_of_runs(problem, runner, state, errors))
            label, found, verification = f"sampling-round-{count + 1}", [], state.verification.copy()
            for k, (latents, sites) in enumerate((*chosen, *wide)):
                state, error = _verify(model, runner, state, latents, sites, label, stage + count)
                found.append(error.ravel())
                if k < len(chosen):
                    verification[sites] = _root_mean_square(error, axis=0)
            near = np.concatenate(found[: len(chosen)])
            beyond = np.concatenate(found[len(chosen) :]) if wide else None
            state = runner.keep(replace(state, verification=verification))
            errors.append(float(_root_mean_square(near)))
            if self._is_good(problem, near, beyond):
                state, holds = self._verify_extremes(model, runner, state, stage + count)
                if holds:
                    state, holds = self._explore(model, runner, state)
                if holds:
                    state = runner.keep(self._draw_result(model, runner, state, target))
                    state, holds = self._verify_extremes(model, runner, state, stage + count)
                if holds:
                    return replace(state, result=self.judge_draws(state))
            elif self._has_stalled(errors):
                state = self._draw_result(model, runner, state, target).with_note(
                    f"The error of the emulator does not fall below {errors[-1]:.2g} noise standard deviations with "
                    "more runs: the simulator may be noisy. The error is part of the posterior."
                )
                return replace(state, result=self.judge_draws(state))
            state = self._refit(model, runner, state)
        if state.target is not None:
            state = self._draw_result(model, runner, state, state.target)
        return replace(state, result=_NOT_ACCURATE)

    def _next_target(self, model: SiteModel, state: SearchState, emulator: Surrogate, report: Report) -> SampledTarget:
        """Return what a round samples; once several modes were found, they are not searched for again."""
        explained = state.result.converged and not unexplained_sites(model, state).any()
        several = state.target is not None and state.target.several_modes
        return SampledTarget(
            state.posterior, emulator, explained, several or self._suspects_modes(model, state, report)
        )

    def sample_emulated(self, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
        """Return the state with draws from the posterior on its emulator, without new runs."""
        if state.emulator is None:
            raise ValueError("there is no emulator yet")
        target = self._next_target(model, state, state.emulator, _stage(runner, "search for modes"))
        return self._draw_result(model, runner, state, target)

    def _draw_result(self, model: SiteModel, runner: Runner, state: SearchState, target: SampledTarget) -> SearchState:
        """Return the state with the draws of the result instead of a draft."""
        samples, _ = self._draw(model, target, self.options, _stage(runner, "draws of the result"))
        if LearntParameters(model.problem):
            runner.report_stage("average over the hyperparameters")
        return replace(state, target=target, samples=self._average(model, target, samples))

    def _average(self, model: SiteModel, target: SampledTarget, samples: Samples) -> Samples:
        """Average draws over the learnt hyperparameters, if there are any and if it is possible."""
        problem = model.with_emulator_error(target.emulator)
        if not LearntParameters(problem):
            return samples
        posterior = _posterior_on(model, target.emulator, target.gaussian)
        algorithm = model.algorithm(model.emulator_stages, problem)
        found = average_draws(samples, posterior, target.gaussian, algorithm, problem, self.averaging, self.options)
        return samples if found is None else found

    def _verify_extremes(
        self, model: SiteModel, runner: Runner, state: SearchState, stage: int
    ) -> tuple[SearchState, bool]:
        """Run the simulator at draws far from the others; return whether the emulator is accurate there too.

        A regression can reach the data far outside of its runs. So few draws go there that other checks miss them, but
        they decide the standard deviation.
        """
        if state.samples is None:
            return state, True
        latents, sites = extreme_draws(state.samples.latents, self.rounds.extreme)
        simulated = np.isin(sites, model.problem.simulated)
        latents, sites = latents[:, simulated], sites[simulated]
        if not sites.size:
            return state, True
        few = self.design.permutation(len(sites))[: runs_in_a_step(model.problem)]
        if not runner.simulator.can_afford(len(few)):
            note = (
                f"At {count_noun(len(sites), 'site')} some draws are far from the others, and no runs are left to "
                "verify them: standard deviations there are doubtful."
            )
            return state.with_note(note), True
        state, errors = _verify(model, runner, state, latents[:, few], sites[few], "extreme-draws", stage)
        known = errors[np.isfinite(errors)]
        return state, bool(np.all(known <= self.rounds.bad * model.problem.inference.emulator_error))

    def _explore(self, model: SiteModel, runner: Runner, state: SearchState) -> tuple[SearchState, bool]:
        """Run the simulator where the emulator may miss a part of the posterior; return whether it did not.

        No runs are made beyond the budget of the emulator.
        """
        if state.emulator is None:
            return state, True
        problem = with_learned_hyperparameters(model.with_emulator_error(state.emulator), state.posterior)
        latents, sites = unexplored_values(problem, state.emulator, state.posterior, self.design)
        few = np.sort(self.design.permutation(len(sites))[: runs_in_a_step(model.problem)])
        if not few.size or not _affords(model.problem, runner, len(few)):
            return state, True
        sites = sites[few]
        batch = runner.evaluate(latents[:, few], "unexplored-values", sites)
        # As old runs: the error of the emulator is that at draws, not where it was expected to be wrong.
        runs = state.runs.append(latents[:, few], batch.outputs, batch.valid, sites, int(state.runs.stage.min()))
        noise = np.where(np.isfinite(problem.survey.Y), problem.noise_std, np.inf)[sites]
        residuals = (problem.survey.Y[sites] - np.nan_to_num(batch.outputs, nan=np.inf)) / noise
        missed = fits_data(residuals, noise) & batch.valid
        return replace(state, runs=runs), not missed.any()

    def _refit(self, model: SiteModel, runner: Runner, state: SearchState) -> SearchState:
        """Fit the emulator to all runs, and find the Gaussian approximation on it."""
        fitted = fit(model, state, state.posterior)
        if fitted.emulator is None:
            return fitted
        try:
            return optimise_on_emulator(model, runner, fitted, state.posterior)
        except np.linalg.LinAlgError:
            return runner.keep(fitted)

    def _draw(
        self, model: SiteModel, target: SampledTarget, options: SamplingOptions, report: Report
    ) -> tuple[Samples, Floats | None]:
        """Draw from the posterior with the cheapest sampler that is right; tempered draws if it is not Gaussian."""
        gaussian = target.gaussian
        posterior = _posterior_on(model, target.emulator, gaussian)
        size = posterior.target.prior.site_count * posterior.target.prior.latent_count
        can_temper = gaussian.prior.dense and size <= options.most_tempered
        if target.several_modes and can_temper:
            return draw_by_tempering(posterior, gaussian.sites, self.sampling, options, report)
        k_hat = np.nan
        if target.explained:
            samples, effective = draw_by_importance(posterior, gaussian, self.sampling, options)
            k_hat = samples.k_hat
            if k_hat <= options.largest_k_hat and effective >= options.fewest_effective:
                return samples, None
        samples = replace(draw_by_hamiltonian(posterior, gaussian, self.sampling, options, report), k_hat=k_hat)
        if samples.r_hat.max() > options.largest_r_hat and can_temper:
            return draw_by_tempering(posterior, gaussian.sites, self.sampling, options, report)
        near = target.explained and self._is_gaussian(samples, gaussian)
        return samples, None if near else self._tempered(posterior, gaussian)

    def _is_gaussian(self, samples: Samples, gaussian: GaussianPosterior) -> bool:
        """Return whether the draws hardly differ from the Gaussian approximation at any site."""
        marginals = gaussian.marginals
        error = samples.distance_from(to_numpy(marginals.mean), to_numpy(marginals.covariance))
        return bool(error.max() <= self.rounds.gaussian_error)

    def _tempered(self, posterior: EmulatedPosterior, gaussian: GaussianPosterior) -> Floats:
        """Draw from a wider distribution: the Gaussian approximation with twice its spread."""
        root, mean = to_numpy(gaussian.q.root), to_numpy(gaussian.q.mean).ravel()
        normals = self.sampling.standard_normal((256, posterior.target.size))
        v = np.concatenate([mean + 2.0 * normals[:, : len(mean)] @ root, normals[:, len(mean) :]], axis=1)
        return posterior.latents(v)

    def _suspects_modes(self, model: SiteModel, state: SearchState, report: Report) -> bool:
        """Search some neighbouring sites for several modes, from the prior, on an emulator for all runs."""
        problem, gaussian = model.problem, state.posterior
        learned = with_learned_hyperparameters(problem, gaussian)
        emulator = fit_emulators(problem, state.runs, noise_std=learned.noise_std, rng=self.modes, everywhere=True)
        if emulator is None:
            return False
        sites = model.all_sites
        if problem.survey.size * problem.latent_count > self.rounds.searched:
            sites = subset_of_sites(problem, self.modes, self.rounds.searched // problem.latent_count)
        posterior = _posterior_on(model, emulator, gaussian, sites)
        xp, backend = model.backend.namespace, model.backend
        index = xp.asarray(sites.astype(np.int32), device=backend.device)
        factors = SiteFactors(*(xp.take(part, index, axis=0) for part in gaussian.sites))
        samples, _ = draw_by_tempering(posterior, factors, self.modes, DRAFT, report)
        separate, _ = find_gaps(samples.latents, DRAFT)
        return bool(separate.any())

    def _choose_runs(
        self, problem: Problem, samples: Samples, tempered: Floats | None
    ) -> tuple[list[Chosen], list[Chosen]]:
        """Choose draws for the next runs of each simulator: of the posterior, and tempered ones."""
        pairs = list(zip(simulated_parts(problem), source_runs_in_a_step(problem), strict=True))
        chosen = [_pick(samples.latents, each, part.sites, self.design) for part, each in pairs]
        if tempered is None:
            return chosen, []
        share = self.rounds.tempered_share
        return chosen, [_pick(tempered, math.ceil(share * each), part.sites, self.design) for part, each in pairs]

    def _is_good(self, problem: Problem, near: Floats, beyond: Floats | None = None) -> bool:
        """Return whether the emulator's errors at draws, and at tempered draws if there are any, are small enough."""
        limit, options = problem.inference.emulator_error, self.rounds
        known = near[np.isfinite(near)]
        if not known.size or _root_mean_square(known) > options.good * limit:
            return False
        if np.mean(known > options.bad * limit) > options.most_bad:
            return False
        return beyond is None or not _root_mean_square(beyond) > options.good_tempered * limit

    def _has_stalled(self, errors: list[float]) -> bool:
        if len(errors) < 4:
            return False
        before, now = min(errors[-4:-2]), min(errors[-2:])
        return now <= self.rounds.tolerable and now > (1.0 - self.rounds.stalled) * before

    def judge_draws(self, state: SearchState) -> SearchResult:
        """Return whether the draws have converged, once the emulator is accurate enough."""
        if state.samples is None or state.samples.r_hat.max() > self.options.largest_r_hat:
            return SearchResult("stopped before the chains of draws agreed", converged=False)
        return SearchResult("the draws have converged", converged=True)

    def _out_of_runs(self, problem: Problem, runner: Runner, state: SearchState, errors: list[float]) -> SearchResult:
        if errors and errors[-1] <= problem.inference.emulator_error:
            return self.judge_draws(state)
        left = runner.simulator.runs_left
        if left is not None and left < runs_in_a_step(problem):
            return runner.out_of_runs
        limit = problem.inference.runs_per_site
        status = f"stopped at inference.runs_per_site = {limit} before the emulator was accurate at the draws"
        return SearchResult(status, converged=False)


def _verify(
    model: SiteModel,
    runner: Runner,
    state: SearchState,
    latents: Floats,
    sites: NDArray[np.intp],
    label: str,
    stage: int,
) -> tuple[SearchState, Floats]:
    """Run the simulator at latents (S, B, Q) of sites (B,); return the state with the runs, and the errors (S, B)."""
    batch = runner.evaluate(latents, label, sites)
    state = replace(state, runs=state.runs.append(latents, batch.outputs, batch.valid, sites, stage))
    return state, run_errors(model, state, batch, latents, sites)


def extreme_draws(draws: Floats, distance: float) -> tuple[Floats, NDArray[np.intp]]:
    """Return the draw of a site that is farthest from the others, (1, B, Q), at sites (B,) where it is very far.

    The distance from the median is in units of the standard deviation of a normal distribution with the same quartiles.
    """
    low, median, high = np.quantile(draws, [0.25, 0.5, 0.75], axis=0)
    scale = np.maximum((high - low) / 1.349, 1e-300)
    far = (np.abs(draws - median) / scale).max(axis=2)
    farthest = far.argmax(axis=0)
    sites = np.flatnonzero(far.max(axis=0) > distance)
    return draws[farthest[sites], sites][None], sites


def _posterior_on(
    model: SiteModel, emulator: Surrogate, gaussian: GaussianPosterior, sites: NDArray[np.intp] | None = None
) -> EmulatedPosterior:
    """Return the posterior on an emulator, with its error in the noise: of all sites, or of some with a dense prior."""
    problem = with_learned_hyperparameters(model.with_emulator_error(emulator), gaussian)
    if sites is None:
        return EmulatedPosterior(problem, emulator, model.all_sites, gaussian.prior, model.backend)
    part = problem.select_sites(sites)
    return EmulatedPosterior(part, emulator, sites, prior_of(part, model.backend), model.backend)


def _stage(runner: Runner, stage: str) -> Report:
    """Return a function that reports a part of a stage to the monitor."""
    return lambda part: runner.report_stage(f"{stage}, {part}")


def _affords(problem: Problem, runner: Runner, runs: int) -> bool:
    return runner.simulator.can_afford(runs) and runner.simulator.runs + runs <= run_budget(problem)


def _pick(draws: Floats, runs: int, sites: NDArray[np.intp], rng: np.random.Generator) -> Chosen:
    """Pick a different draw for each of about `runs` runs: latents (S, B, Q), and their sites (B,).

    Each site gets the same number of runs; if there are more sites than runs, a random selection gets one each.
    """
    chosen = sites if runs >= len(sites) else np.sort(rng.choice(sites, runs, replace=False))
    numbers = rng.integers(len(draws), size=(max(runs // len(chosen), 1), len(chosen)))
    return draws[numbers, chosen], chosen


def _root_mean_square(errors: Floats, axis: int | None = None) -> Floats:
    """Return the root mean square without NaN; NaN if all are."""
    known = np.isfinite(errors)
    count = known.sum(axis=axis)
    mean = np.where(known, errors, 0.0)
    return np.sqrt(np.where(count > 0, (mean**2).sum(axis=axis) / np.maximum(count, 1), np.nan))
