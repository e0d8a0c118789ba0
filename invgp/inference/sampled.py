"""Inversion with draws from the exact posterior, on an emulator that is verified at the draws.

A Gaussian approximation is found first, with a few runs per site. Then the posterior is sampled with the emulator in
the simulator's place, the simulator is run at some of the draws, and the emulator is fitted again, until its error at
new draws is small compared with the noise. If the posterior is not Gaussian, part of the runs comes from a wider,
tempered posterior: an emulator that is tested only where its own posterior lies would confirm itself.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Backend, to_numpy
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Emulator, fit_emulator
from invgp.emulation.run_schedule import run_budget, runs_in_a_step, runs_of_steps
from invgp.execution.simulator import Simulator
from invgp.formatting import count_noun
from invgp.inference.coupled import CoupledInversion, to_stored_factors
from invgp.inference.diagnostics import diagnose, find_unexplained
from invgp.inference.emulated import EmulatedInversion
from invgp.inference.exact_draws import (
    EmulatedPosterior,
    SamplingOptions,
    draw_by_hamiltonian,
    draw_by_importance,
    draw_by_tempering,
    find_gaps,
)
from invgp.inference.inversion import Inversion, SearchResult
from invgp.inference.multistart import subset_of_sites
from invgp.latent_model.learned_problem import with_learned_hyperparameters
from invgp.latent_model.prior import prior_of
from invgp.posterior import EmulatorReport, Samples, Solution
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
    gaussian_error : float
        Largest distance of the Gaussian approximation from the draws, in standard deviations, at which no runs are
        made beyond the posterior.
    largest_widening : float
        Factor on the noise due to the error of the emulator above which a note is added.
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
    most_sampled: int = 20_000
    gaussian_error: float = 0.25
    largest_widening: float = 1.2


# The draws of one particle stay close together: a mode has several of the 128 or more particles.
SEARCH = SamplingOptions(
    populations=2, fewest_particles=64, most_particles=128, numbers_at_once=16_000, gap=0.8, smallest_mode=0.04
)


class SampledInversion(Inversion):
    """Inversion that ends with draws from the exact posterior on the emulator.

    If no emulator can be fitted, the result is the Gaussian posterior of `CoupledInversion`.
    """

    def __init__(self, problem: Problem, backend: Backend, simulator: Simulator, seed: int) -> None:
        super().__init__(problem, backend, simulator, seed)
        self.gaussian = EmulatedInversion(problem, backend, simulator, seed)
        self.trace = self.gaussian.trace
        self.options, self.rounds = SamplingOptions(), RoundOptions()
        self.sampling, self.design, self.modes = np.random.default_rng([seed, 1]).spawn(3)
        self.samples: Samples | None = None
        self.emulator: Emulator | None = None
        self.notes: list[str] = []

    def search(self) -> SearchResult:
        """Find a Gaussian approximation, then sample."""
        return self.gaussian.search_from_narrower_starts(self._search_from_start)

    def _search_from_start(self) -> SearchResult:
        gaussian, steps = self.gaussian, runs_of_steps(self.problem)[: self.rounds.gaussian_steps]
        gaussian.steps = deque(enumerate(steps))
        self.begin(run_budget(self.problem))
        result = gaussian.search_on_emulator(gaussian.start.trial)
        if gaussian.emulator is None or gaussian.candidate is None:
            return self._search_without_emulator()
        if self.problem.survey.size * self.problem.latent_count > self.rounds.most_sampled:
            self.notes.append(
                f"The survey has more than {self.rounds.most_sampled:,} unknowns, too many for the sampler: the "
                "posterior is a Gaussian approximation."
            )
            gaussian.verify(runs_in_a_step(self.problem))
            return result
        return self._sample_in_rounds(result)

    def _search_without_emulator(self) -> SearchResult:
        self.notes.append(
            f"No emulator could be fitted, since too many of its runs {self.simulator.failure_words}: the simulator "
            "was used for every step, and the posterior is a Gaussian approximation."
        )
        return CoupledInversion.search_from_start(self.gaussian)

    def _sample_in_rounds(self, result: SearchResult) -> SearchResult:
        """Sample, verify the emulator at draws and fit it again, until its error is small or the budget is used."""
        gaussian, errors = self.gaussian, list[float]()
        stage = int(gaussian.known.stage.max()) + 1
        for count in range(self.rounds.most_rounds):
            emulator, candidate = gaussian.emulator, gaussian.candidate
            if emulator is None or candidate is None:
                break
            explained = result.converged and not self._unexplained().any()
            samples, tempered = self._draw(candidate.posterior, emulator, gaussian_holds=explained)
            self.samples, self.emulator = samples, emulator
            batches = self._choose_runs(samples, tempered)
            if not self._affords(sum(latents.shape[0] * len(sites) for latents, sites in batches)):
                return self._out_of_runs(samples, errors)
            near, *beyond = [
                self._verify(latents, sites, f"sampling-round-{count + 1}", stage + count) for latents, sites in batches
            ]
            gaussian.verification[batches[0][1]] = _root_mean_square(near, axis=0)
            errors.append(float(_root_mean_square(near)))
            if self._is_good(near, *beyond):
                return self._judge_draws(samples)
            if self._has_stalled(errors):
                self.notes.append(
                    f"The error of the emulator does not fall below {errors[-1]:.2g} noise standard deviations with "
                    "more runs: the simulator may be noisy. The error is part of the posterior."
                )
                return self._judge_draws(samples)
            if not gaussian.fit(candidate.posterior):
                break
            try:
                result = gaussian.optimise_on_emulator(candidate.posterior)
            except np.linalg.LinAlgError:
                gaussian.candidate = candidate
        return SearchResult("stopped before the emulator was accurate at the draws", converged=False)

    def _draw(
        self, gaussian: GaussianPosterior, emulator: Emulator, *, gaussian_holds: bool
    ) -> tuple[Samples, Floats | None]:
        """Draw from the posterior with the cheapest sampler that is right; tempered draws if it is not Gaussian."""
        posterior = self._posterior(emulator, gaussian, self.gaussian.all_sites)
        size = posterior.target.prior.site_count * posterior.target.prior.latent_count
        can_temper = gaussian.prior.dense and size <= self.options.most_tempered
        several = can_temper and self._suspects_modes(gaussian)
        k_hat, samples = np.nan, None
        if gaussian_holds and not several:
            samples, effective = draw_by_importance(posterior, gaussian, self.sampling, self.options)
            k_hat = samples.k_hat
            if k_hat <= self.options.largest_k_hat and effective >= self.options.fewest_effective:
                return samples, None
        if not several:
            samples = replace(draw_by_hamiltonian(posterior, gaussian, self.sampling, self.options), k_hat=k_hat)
            if samples.r_hat.max() <= self.options.largest_r_hat or not can_temper:
                near = gaussian_holds and self._is_gaussian(samples, gaussian)
                return samples, None if near else self._tempered(posterior, gaussian)
        return draw_by_tempering(posterior, gaussian.sites, self.sampling, self.options)

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

    def _posterior(self, emulator: Emulator, gaussian: GaussianPosterior, sites: NDArray[np.intp]) -> EmulatedPosterior:
        """Return the posterior of some sites on an emulator, with its error in the noise."""
        problem = with_learned_hyperparameters(self.gaussian.with_emulator_error(emulator), gaussian)
        if len(sites) == self.problem.survey.size:
            return EmulatedPosterior(problem, emulator, sites, gaussian.prior, self.backend)
        part = problem.select_sites(sites)
        return EmulatedPosterior(part, emulator, sites, prior_of(part, self.backend), self.backend)

    def _suspects_modes(self, gaussian: GaussianPosterior) -> bool:
        """Search some neighbouring sites for several modes, from the prior, on an emulator for all runs."""
        problem, known = self.problem, self.gaussian.known
        learned = with_learned_hyperparameters(problem, gaussian)
        emulator = fit_emulator(problem, known, noise_std=learned.noise_std, rng=self.modes, everywhere=True)
        if emulator is None:
            return False
        sites = self.gaussian.all_sites
        if problem.survey.size * problem.latent_count > self.rounds.searched:
            sites = subset_of_sites(problem, self.modes, self.rounds.searched // problem.latent_count)
        posterior = self._posterior(emulator, gaussian, sites)
        xp, backend = self.backend.namespace, self.backend
        index = xp.asarray(sites.astype(np.int32), device=backend.device)
        factors = SiteFactors(*(xp.take(part, index, axis=0) for part in gaussian.sites))
        samples, _ = draw_by_tempering(posterior, factors, self.modes, SEARCH)
        separate, _ = find_gaps(samples.latents, SEARCH)
        return bool(separate.any())

    def _choose_runs(self, samples: Samples, tempered: Floats | None) -> list[tuple[Floats, NDArray[np.intp]]]:
        """Choose draws for the next runs, latents (S, B, Q) at sites (B,): of the posterior, then tempered ones."""
        N, each = self.problem.survey.size, runs_in_a_step(self.problem)
        chosen = [_pick(samples.latents, each, N, self.design)]
        if tempered is not None:
            wide = math.ceil(self.rounds.tempered_share * each)
            chosen.append(_pick(tempered, wide, N, self.design))
        return chosen

    def _verify(self, latents: Floats, sites: NDArray[np.intp], label: str, stage: int) -> Floats:
        """Run the simulator at latents (S, B, Q) of sites (B,), keep the runs, and return the errors (S, B)."""
        gaussian = self.gaussian
        batch = gaussian.evaluate_simulator(latents, label, sites)
        gaussian.known = gaussian.known.append(latents, batch.outputs, batch.valid, sites, stage)
        return gaussian.run_errors(batch, latents, sites)

    def _is_good(self, near: Floats, beyond: Floats | None = None) -> bool:
        """Return whether the emulator's errors at draws, and at tempered draws if there are any, are small enough."""
        limit, options = self.problem.inference.emulator_error, self.rounds
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

    def _affords(self, runs: int) -> bool:
        return self.simulator.can_afford(runs) and self.simulator.runs + runs <= run_budget(self.problem)

    def _judge_draws(self, samples: Samples) -> SearchResult:
        """Return whether the draws have converged, once the emulator is accurate enough."""
        if samples.r_hat.max() > self.options.largest_r_hat:
            return SearchResult("stopped before the chains of draws agreed", converged=False)
        return SearchResult("the draws have converged", converged=True)

    def _out_of_runs(self, samples: Samples, errors: list[float]) -> SearchResult:
        if errors and errors[-1] <= self.problem.inference.emulator_error:
            return self._judge_draws(samples)
        if self.simulator.runs_left is not None and self.simulator.runs_left < runs_in_a_step(self.problem):
            return self.out_of_runs
        limit = self.problem.inference.runs_per_site
        status = f"stopped at inference.runs_per_site = {limit} before the emulator was accurate at the draws"
        return SearchResult(status, converged=False)

    def _unexplained(self) -> NDArray[np.bool_]:
        candidate = self.gaussian.candidate
        if candidate is None:
            return np.zeros(self.problem.survey.size, dtype=bool)
        problem = with_learned_hyperparameters(self.problem, candidate.posterior)
        return find_unexplained(problem, candidate.predicted, candidate.predicted_std)

    def solution(self, result: SearchResult) -> tuple[Problem, Solution] | None:
        """Return the draws, or the Gaussian posterior if there are none; see `Inversion.solution`."""
        found = self.gaussian.solution(result)
        candidate, samples, emulator = self.gaussian.candidate, self.samples, self.emulator
        if found is None or candidate is None:
            return found
        if samples is None or emulator is None:
            problem, approximation = found
            sentences = (*self.notes, *approximation.diagnostics.sentences)
            return problem, replace(approximation, diagnostics=replace(approximation.diagnostics, sentences=sentences))
        problem, approximation = found
        few = samples.thin(self.rounds.predicted)
        predicted = emulator.predict(samples.latents[few], self.gaussian.all_sites)
        mean, covariance = samples.moments()
        predicted_mean, predicted_std = predicted.mean(axis=0), predicted.std(axis=0)
        report = EmulatorReport(
            emulator.name, emulator.error, self.gaussian.verification, np.zeros(problem.survey.size, dtype=bool)
        )
        notes = [*self.notes, *self.gaussian.all_notes(candidate.posterior), *self._sampling_notes(samples)]
        notes += self._emulator_notes(emulator)
        return problem, replace(
            approximation,
            mean=mean,
            covariance=covariance,
            draws=samples.latents[samples.thin(problem.output.realizations)],
            processes=to_stored_factors(candidate.posterior),
            predicted=predicted_mean,
            predicted_std=predicted_std,
            diagnostics=diagnose(
                problem, predicted_mean, predicted_std, np.empty(0), notes, converged=result.converged
            ),
            emulator=report,
            samples=replace(
                samples, gaussian_error=samples.distance_from(approximation.mean, approximation.covariance)
            ),
        )

    def _emulator_notes(self, emulator: Emulator) -> list[str]:
        """Name the sites where the error of the emulator, which is part of the noise, widens the posterior."""
        widened = self.gaussian.with_emulator_error(emulator).noise_std / self.problem.noise_std
        widened = np.where(np.isfinite(self.problem.survey.Y), widened, 1.0).max(axis=1)
        sites = np.flatnonzero(widened > self.rounds.largest_widening)
        if not sites.size:
            return []
        worst = ", ".join(str(n + 1) for n in sites[np.argsort(-widened[sites])][:5])
        return [
            f"At {sites.size} of {count_noun(len(widened), 'site')} the error of the emulator is not small compared "
            f"with the noise, and widens the posterior: site {worst}{' and others' if sites.size > 5 else ''}."
        ]

    def _sampling_notes(self, samples: Samples) -> list[str]:
        notes = []
        worst = float(samples.r_hat.max())
        if worst > self.options.largest_r_hat:
            sites = int((samples.r_hat > self.options.largest_r_hat).any(axis=1).sum())
            notes.append(
                f"The draws of {count_noun(sites, 'site')} have not converged (R-hat up to {worst:.2f}): means and "
                "spreads there are doubtful."
            )
        modes = int(samples.mode.max()) + 1
        if modes > 1:
            shares = np.bincount(samples.mode) / len(samples.mode)
            listed = ", ".join(f"{share:.0%}" for share in shares[:3])
            notes.append(
                f"The posterior has {modes if modes < self.options.most_modes else 'many'} modes, with probabilities "
                f"{listed}{' and others' if modes > 3 else ''}: means and standard deviations summarise all of "
                "them; look at the draws of each mode."
            )
        return notes


def _pick(draws: Floats, runs: int, sites: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.intp]]:
    """Pick a different draw for each of about `runs` runs: latents (S, B, Q), and their sites (B,).

    Each site gets the same number of runs; if there are more sites than runs, a random selection gets one each.
    """
    chosen = np.arange(sites) if runs >= sites else np.sort(rng.choice(sites, runs, replace=False))
    numbers = rng.integers(len(draws), size=(max(runs // len(chosen), 1), len(chosen)))
    return draws[numbers, chosen], chosen


def _root_mean_square(errors: Floats, axis: int | None = None) -> Floats:
    """Return the root mean square without NaN; NaN if all are."""
    known = np.isfinite(errors)
    count = known.sum(axis=axis)
    mean = np.where(known, errors, 0.0)
    return np.sqrt(np.where(count > 0, (mean**2).sum(axis=axis) / np.maximum(count, 1), np.nan))
