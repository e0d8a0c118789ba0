"""Inversion with a posterior coupled across latents, on an emulator that is fitted to a few runs per site.

Each outer step runs the simulator at samples from the current posterior, refits the emulator to all runs so far, and
optimises the posterior on the emulator. At sites where the error of the emulator is not small compared with the noise,
the simulator is used afterwards. At the end, new runs verify the emulator at the other sites.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from invgp.core.backend import Backend, to_numpy
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.gaussian_posterior import GaussianPosterior, movement
from invgp.emulation import Emulator, fit_emulator
from invgp.emulation.run_schedule import FEWEST_STEPS, effective_neighbours, runs_in_a_step, runs_of_steps
from invgp.execution.simulator import Batch, Simulator
from invgp.formatting import count_noun
from invgp.inference.alternative_modes import search_alternative_modes
from invgp.inference.coupled import CoupledInversion
from invgp.inference.diagnostics import DOUBTFUL
from invgp.inference.earlier_runs import earlier_runs
from invgp.inference.exact_draws import EmulatedPosterior, SamplingOptions, check_gaussian
from invgp.inference.inversion import BudgetSpent, SearchResult
from invgp.inference.optimisation import Evaluate
from invgp.inference.restart import restart_around, restart_where_unexplained
from invgp.inference.sample_sizes import plan_emulator_stages
from invgp.latent_model.learned_problem import with_learned_hyperparameters
from invgp.posterior import EmulatorReport
from invgp.problem import Floats, Problem

MOST_CHECKED = 2000  # sites times latents up to which the whole posterior is checked
CONVERGED = 0.15  # largest movement of the posterior of a site in the last outer step, in standard deviations
WIDENED = 1.2  # factor on the posterior spread for new runs, so that the emulator does not extrapolate
GOOD_ENOUGH = 1.0  # largest emulator error at the start of a second search, in noise standard deviations
FARTHEST = 2.0  # most movement of a mean in one outer step, in standard deviations, to stay near the runs
LARGEST_ERROR = 1000.0  # noise standard deviations: upper limit of the emulator error, for sites without information


class EmulatedInversion(CoupledInversion):
    """Inversion with a Gaussian posterior with a full covariance, on an emulator."""

    emulates = True

    def __init__(self, problem: Problem, backend: Backend, simulator: Simulator, seed: int) -> None:
        super().__init__(problem, backend, simulator, seed)
        self.known = earlier_runs(problem, simulator.recorder, seed)
        self.emulator: Emulator | None = None
        self.direct = np.zeros(problem.survey.size, dtype=bool)
        self.verification = np.full(problem.survey.size, np.nan)
        self.neighbour_counts = effective_neighbours(problem, self.design)
        self.stages()  # unused; advances the random stream, so that a seed gives the same posterior as before
        self.emulator_stages = [self.stage(plan) for plan in plan_emulator_stages(problem)]
        self.steps: deque[tuple[int, int]] = deque()

    def search_from_start(self) -> SearchResult:
        """Search on the emulator, then with the simulator where the emulator is not accurate enough, and verify."""
        runs, steps = runs_in_a_step(self.problem), runs_of_steps(self.problem)
        self.steps = deque(enumerate(steps))
        self.begin(sum(steps) + runs)
        result = self.search_on_emulator(self.start.trial)
        result = search_alternative_modes(self, result)
        if not result.converged and self.steps and self.emulator is not None and self.candidate is not None:
            result = self.search_on_emulator(self.candidate.posterior, patient=True)
        if self.emulator is None:
            self.notes.append(
                f"No emulator could be fitted, since too many of its runs {self.simulator.failure_words}: the "
                "simulator was used for every step."
            )
            return super().search_from_start()
        self.direct = ~self.trusted_sites()
        if self.direct.any():
            result = self.search_with_simulator()
        self.verify(runs)
        if np.any(failed := np.nan_to_num(self.verification) > 2.0 * self.problem.inference.emulator_error):
            self.direct |= failed
            result = self.search_with_simulator()
        result = restart_where_unexplained(self, result)
        self.check_shape(self.evaluator, int(self.direct.sum()))
        result = self.restart_where_doubtful(result)
        self.check_whole_posterior()
        return result

    def check_whole_posterior(self) -> None:
        """Add a note if the posterior of all sites together is not Gaussian; the shape test sees single sites only."""
        emulator, candidate = self.emulator, self.candidate
        if emulator is None or candidate is None or not candidate.posterior.prior.dense:
            return
        if self.problem.survey.size * self.problem.latent_count > MOST_CHECKED:
            return
        gaussian = candidate.posterior
        problem = with_learned_hyperparameters(self.with_emulator_error(), gaussian)
        posterior = EmulatedPosterior(problem, emulator, self.all_sites, gaussian.prior, self.backend)
        check = check_gaussian(posterior, gaussian, np.random.default_rng([self.seed, 2]), SamplingOptions())
        if not check.holds:
            self.notes.append(
                f"The posterior of all sites together is not Gaussian (Pareto k {check.k_hat:.2g}): its standard "
                "deviations may be too small. inference.posterior = 'sampled' draws from the exact posterior."
            )

    def restart_where_doubtful(self, result: SearchResult) -> SearchResult:
        """Search again around sites that use the simulator and have a large shape error, if these are few.

        Such sites can be next to a jump of the simulator.
        """
        doubtful = self.direct & ~(self.shape_error <= DOUBTFUL)  # or not determined
        first = self.candidate
        if 2 * self.direct.sum() <= len(doubtful):
            result = restart_around(self, doubtful, result)
        if self.candidate is not first:
            self.check_shape(self.evaluator, int(self.direct.sum()))
        return result

    def search_on_emulator(self, posterior: GaussianPosterior, *, patient: bool = False) -> SearchResult:
        """Make outer steps from a posterior until it has converged and the error of the emulator is small.

        A search that does not converge though the error is small may be near a wrong solution. It ends after two such
        steps unless it is `patient`.
        """
        result, small = SearchResult("", converged=False), False
        verification = runs_in_a_step(self.problem)
        while self.steps:
            step, runs = self.steps.popleft()
            # Runs of earlier inversions replace the first step, if there are enough.
            if step or len(self.known) < runs or not self.fit(posterior):
                if not self.simulator.can_afford(runs + verification):
                    raise BudgetSpent(runs + verification)
                if not self.add_runs(posterior, runs, step):
                    self.emulator = None
                    if self.simulator.partial:  # further runs may have the missing outputs
                        continue
                    break
            algorithm = self.algorithm(self.emulator_stages, self.with_emulator_error())
            result = self.optimise_on_emulator(posterior, algorithm)
            if self.candidate is None or self.emulator is None:
                break
            moved = movement(posterior, self.candidate.posterior)
            posterior = algorithm.limit_movement(posterior, self.candidate.posterior, FARTHEST)
            was_small, small = small, self.emulator.error <= 0.5 * self.problem.inference.emulator_error
            if step + 1 < FEWEST_STEPS or not small:
                continue
            if result.converged and moved < CONVERGED:
                return result
            if was_small and not patient:
                return replace(result, converged=False)
        if self.candidate is not None and not result.converged:
            return result
        limit = self.problem.inference.runs_per_site
        status = f"stopped at inference.runs_per_site = {limit} before the emulator was good"
        return SearchResult(status, converged=False)

    def optimise_on_emulator(
        self, posterior: GaussianPosterior, algorithm: CoupledSavigp | None = None
    ) -> SearchResult:
        """Optimise on the emulator from a posterior."""
        algorithm = algorithm or self.algorithm(self.emulator_stages, self.with_emulator_error())
        return self.optimise(algorithm, algorithm.start_from(posterior, near_optimum=False), self.evaluate_emulator)

    def search_with_simulator(self) -> SearchResult:
        """Optimise with the simulator at the sites where the emulator is not accurate enough."""
        algorithm = self.algorithm(self.stages())
        start = (
            self.start if self.candidate is None else algorithm.start_from(self.candidate.posterior, near_optimum=False)
        )
        return self.optimise(algorithm, start, self.evaluate_mixed)

    def add_runs(self, posterior: GaussianPosterior, runs: int, step: int) -> bool:
        """Run the simulator at samples from a posterior and refit the emulator; return whether this was possible."""
        first = WIDENED if self.problem.inference.posterior == "sampled" else 1.0
        latents, sites = self.draw(posterior, runs, WIDENED if step else first)
        batch = self.evaluate_simulator(latents, f"emulator-step-{step + 1}", sites)
        self.known = self.known.append(latents, batch.outputs, batch.valid, sites, step)
        return self.fit(posterior) and bool(batch.valid.any())

    def fit(self, posterior: GaussianPosterior) -> bool:
        """Fit the emulator to all runs so far; return whether this was possible."""
        noise_std = with_learned_hyperparameters(self.problem, posterior).noise_std
        self.emulator = fit_emulator(self.problem, self.known, noise_std=noise_std, rng=self.design)
        return self.emulator is not None

    def with_emulator_error(self, emulator: Emulator | None = None) -> Problem:
        """Return the problem with the error of an emulator, by default the current one, added to the noise.

        Sites within a length-scale have nearly the same error, which does not average out; the error is scaled
        accordingly. Learnt noise includes the error anyway.
        """
        emulator = emulator or self.emulator
        if emulator is None:
            return self.problem
        error = np.minimum(emulator.output_error(self.all_sites), LARGEST_ERROR)
        for name in self.problem.noise.learn:
            error[:, self.problem.observation_slices[name]] = 0.0
        return self.problem.with_scaled_noise(np.hypot(1.0, np.sqrt(self.neighbour_counts)[:, None] * error))

    def draw(self, posterior: GaussianPosterior, runs: int, widened: float) -> tuple[Floats, NDArray[np.intp]]:
        """Draw latent values (S, B, Q) from a posterior for new runs, and select their sites (B,)."""
        N, Q = self.problem.survey.size, self.problem.latent_count
        some = self.all_sites if runs >= N else np.sort(self.design.choice(N, runs, replace=False))
        points = qmc.Sobol(Q, rng=self.design).random_base2(math.ceil(math.log2(runs)))[:runs]
        normals = ndtri(np.clip(points, 1e-6, 1.0 - 1e-6))
        normals = normals[self.design.permutation(runs)].reshape(-1, len(some), Q, 1)
        factor, mean = to_numpy(posterior.factor)[some], to_numpy(posterior.marginals.mean)[some]
        return mean + widened * (factor @ normals)[..., 0], some

    def evaluate_emulator(self, latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:  # noqa: ARG002 - as `evaluate_simulator`
        """Evaluate the emulator at latent values (S, B, Q) of sites (B,)."""
        if self.emulator is None:
            raise ValueError("there is no emulator yet")
        return Batch(self.emulator.predict(latents, sites), np.ones(latents.shape[:2], dtype=bool))

    @property
    def evaluator(self) -> Evaluate:
        """Function that evaluates latent values: the simulator, the emulator, or both."""
        if self.emulator is None:
            return self.evaluate_simulator
        return self.evaluate_mixed if self.direct.any() else self.evaluate_emulator

    def use_simulator_at(self, sites: NDArray[np.bool_], start: GaussianPosterior) -> None:
        """Use the simulator at these sites (N,), unless one run per site shows that the emulator is accurate enough."""
        if self.emulator is None:
            return
        latents, _ = self.draw(start, self.problem.survey.size, 1.0)
        chosen = np.flatnonzero(sites)
        batch = self.evaluate_simulator(latents[:, chosen], "second-start", chosen)
        errors = self.emulator_errors(batch, latents[:, chosen], chosen)
        if not np.all(errors <= GOOD_ENOUGH):  # or runs failed
            super().use_simulator_at(sites, start)

    def bound_of(self, algorithm: CoupledSavigp, posterior: GaussianPosterior) -> float:
        """Compute the bound at a posterior, without the emulator error in the noise."""
        if self.uses_minibatches:
            return super().bound_of(algorithm, posterior)
        return self.optimiser.bound(algorithm, posterior, self.evaluator)

    @property
    def uses_minibatches(self) -> bool:
        """Whether there are too many sites to process them together."""
        return self.optimiser.batch_size(self.emulator_stages) < self.problem.survey.size

    def emulated_bound(self, posterior: GaussianPosterior) -> float:
        """Compute the bound at a posterior on the emulator, without the emulator error in the noise."""
        return self.optimiser.bound(self.algorithm(self.emulator_stages), posterior, self.evaluate_emulator)

    def evaluate_mixed(self, latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:
        """Evaluate the emulator where it is accurate enough, and the simulator at the other sites."""
        batch, direct = self.evaluate_emulator(latents, label, sites), np.flatnonzero(self.direct[sites])
        if direct.size:
            real = self.evaluate_simulator(latents[:, direct], label, sites[direct])
            batch.outputs[:, direct], batch.valid[:, direct] = real
        return batch

    def trusted_sites(self) -> NDArray[np.bool_]:
        """Return a mask (N,) of the sites where the emulator is accurate enough."""
        if self.emulator is None or self.candidate is None:
            return np.zeros(self.problem.survey.size, dtype=bool)
        latents, _ = self.draw(self.candidate.posterior, 32 * self.problem.survey.size, 1.0)
        return self.emulator.trusted_sites(latents, self.all_sites, self.problem.inference.emulator_error)

    def verify(self, runs: int) -> None:
        """Verify the emulator with new runs from the posterior at its sites, if the budget has enough runs."""
        if self.emulator is None or self.candidate is None:
            return
        latents, sites = self.draw(self.candidate.posterior, min(runs, self.problem.survey.size), 1.0)
        kept = ~self.direct[sites]
        latents, sites = latents[:, kept], sites[kept]
        if not sites.size or not self.simulator.can_afford(latents.shape[0] * len(sites)):
            return
        self.verification[sites] = self.emulator_errors(
            self.evaluate_simulator(latents, "verification", sites), latents, sites
        )
        unverified = np.isnan(self.verification[sites]) & np.isfinite(self.problem.survey.Y[sites]).any(axis=1)
        if unverified.any():
            self.notes.append(
                f"At {unverified.sum()} of {count_noun(len(sites), 'site')} every run for the verification "
                "failed: the posterior there relies on runs elsewhere."
            )

    def emulator_errors(self, batch: Batch, latents: Floats, sites: NDArray[np.intp]) -> Floats:
        """Compute the root mean square emulator error (B,) at runs, in noise standard deviations; NaN if all failed."""
        return self._errors(batch, latents, sites, (0, 2))

    def run_errors(self, batch: Batch, latents: Floats, sites: NDArray[np.intp]) -> Floats:
        """Compute the root mean square emulator error (S, B) of each run over its outputs, as `emulator_errors`."""
        return self._errors(batch, latents, sites, 2)

    def _errors(self, batch: Batch, latents: Floats, sites: NDArray[np.intp], axis: int | tuple[int, int]) -> Floats:
        if self.emulator is None or self.candidate is None:
            return np.full(np.mean(batch.valid, axis=0 if axis != 2 else ()).shape, np.nan)
        noise_std = with_learned_hyperparameters(self.problem, self.candidate.posterior).noise_std[sites]
        errors = (batch.outputs - self.emulator.predict(latents, sites)) / noise_std
        observed = batch.valid[..., None] & np.isfinite(self.problem.survey.Y[sites]) & np.isfinite(errors)
        counts = observed.sum(axis=axis)
        error = np.sqrt(np.sum(np.where(observed, errors, 0.0) ** 2, axis=axis) / np.maximum(counts, 1))
        return np.where(counts > 0, error, np.nan)

    def report(self) -> EmulatorReport | None:
        """Return the accuracy of the emulator; None without an emulator."""
        if self.emulator is None:
            return None
        return EmulatorReport(self.emulator.name, self.emulator.error, self.verification, self.direct)
