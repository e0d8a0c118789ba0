"""Searches on an emulator that start elsewhere than at the prior, of a whole survey or of a part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.coupled.stage import Stage
from invgp.core.point_sets import Points
from invgp.emulation.run_schedule import effective_neighbours
from invgp.execution.simulator import Batch
from invgp.inference.optimisation import Candidate, Optimiser
from invgp.inference.restart import site_factors_at
from invgp.latent_model.learned_problem import with_learned_hyperparameters
from invgp.latent_model.noise_density import likelihood_of
from invgp.latent_model.prior import prior_of
from invgp.problem import Floats, Problem

if TYPE_CHECKING:
    from invgp.inference.emulated import EmulatedInversion

PAIRS = 2  # of starts on either side of the prior's mean: of fields shifted as a whole, and of fields from the prior
MANY_SITES, FEWER_PAIRS = 1000, 1
PRECISION = 3.0  # in units of the prior's, that a start has everywhere: neighbours share it
APART = 3.0  # standard deviations between the means of two solutions at the site where they differ most, at least
PART = 32  # sites: enough to hold each other, few enough to cost next to nothing
PART_REACH = 5.0  # length-scales


def subset_of_sites(problem: Problem, rng: np.random.Generator) -> NDArray[np.intp]:
    """Some sites (B,), within some length-scales of one of them; all sites, if they are few."""
    X = problem.survey.X
    if len(X) <= PART:
        return np.arange(len(X))
    centre = X[rng.integers(len(X))]
    distance = np.mean([np.linalg.norm((X - centre) / v.length_scale, axis=1) for v in problem.latents], axis=0)
    nearest = np.argsort(distance, kind="stable")
    within = max(int(np.sum(distance <= PART_REACH)), PART)
    return np.sort(nearest[np.linspace(0, within - 1, PART).astype(np.intp)])


class Multistart:
    """Searches at some sites (B,), with the kernels and the noise of a solution that was found.

    The emulator's error counts as noise.
    """

    def __init__(self, inversion: EmulatedInversion, sites: NDArray[np.intp], first: GaussianPosterior) -> None:
        self.inversion, self.sites, backend = inversion, sites, inversion.backend
        self.whole = len(sites) == inversion.problem.survey.size
        problem = with_learned_hyperparameters(inversion.with_emulator_error(), first).at_sites(sites)
        prior = first.prior if self.whole else prior_of(problem, backend)
        likelihood = likelihood_of(problem, backend)
        rough, exact = (
            [self._stage(stage) for stage in stages] for stages in (inversion.stages()[:1], inversion.emulator_stages)
        )
        self.rough, self.exact = (CoupledSavigp(prior, stages, likelihood) for stages in (rough, exact))
        self.optimiser = Optimiser(problem, backend, inversion.multistart)
        self.first = first

    def _stage(self, stage: Stage) -> Stage:
        """An estimator with points for these sites alone."""
        samples, latents = stage.points.base.shape
        points = Points.draw(self.inversion.multistart, samples, len(self.sites), latents, self.inversion.backend)
        return Stage(stage.kind, points, stage.tolerance, stage.max_movement)

    def alternatives(self) -> Iterator[tuple[float, Candidate]]:
        """Solutions that are neither the first one nor each other, with the lead of their bounds over the first's."""
        here = self._first()
        if here is None:
            return
        seen, bound = [here], self.optimiser.bound(self.exact, here, self._answer)
        for start in self.starts():
            candidate = self._optimise(self.rough, start)
            if candidate is not None and all(are_distinct(candidate.posterior, other) for other in seen):
                candidate = self._optimise(self.exact, candidate.posterior)
            if candidate is not None and all(are_distinct(candidate.posterior, other) for other in seen):
                seen.append(candidate.posterior)
                yield (
                    self.optimiser.bound(self.exact, candidate.posterior, self._answer) - bound,
                    self._for_all(candidate),
                )

    def _first(self) -> GaussianPosterior | None:
        """The first solution: as it is, or as it would be with these sites alone."""
        xp = array_namespace(self.first.sites.shift)
        if self.whole:
            return self.exact.posterior(self.first.sites, self.exact.init().trial.hyper)
        index = xp.asarray(self.sites, dtype=xp.int32, device=self.first.sites.shift.device)
        said = SiteFactors(*(xp.take(part, index, axis=0) for part in self.first.sites))
        try:
            candidate = self._optimise(self.exact, self.exact.posterior(said, self.exact.init().trial.hyper))
        except np.linalg.LinAlgError:
            return None
        return None if candidate is None else candidate.posterior

    def _for_all(self, candidate: Candidate) -> Candidate:
        """The same, with the hyperparameters that the inversion holds."""
        if not self.whole:
            return candidate
        return Candidate(
            self.inversion.algorithm(self.inversion.emulator_stages).posterior(
                candidate.posterior.sites, self.first.hyper
            ),
            candidate.predicted,
            candidate.predicted_std,
        )

    def _optimise(self, algorithm: CoupledSavigp, posterior: GaussianPosterior) -> Candidate | None:
        state = algorithm.start_from(posterior, near_optimum=False)
        return self.optimiser(algorithm, state, self._answer, lambda _elbo, _found: None).candidate

    def _answer(self, latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:
        return self.inversion.evaluate_emulator(latents, label, self.sites[sites])

    def starts(self) -> Iterator[GaussianPosterior]:
        """Fields shifted as a whole, and fields drawn from the prior, each with its mirror image about its mean.

        Shifts are of one standard deviation of every latent, up or down, then of two, and so on.
        """
        prior, start, rng, backend = (
            self.rough.prior,
            self.rough.init().trial,
            self.inversion.multistart,
            self.inversion.backend,
        )
        pairs = PAIRS if prior.site_count <= MANY_SITES else FEWER_PAIRS
        xp = backend.namespace
        spread = xp.sqrt(xp.linalg.diagonal(start.marginals.covariance))
        signs = rng.choice((-1.0, 1.0), (pairs, 1, prior.latent_count)) * np.arange(1.0, pairs + 1.0)[:, None, None]
        shifts = backend.asarray(signs) * spread
        normals = backend.asarray(rng.standard_normal((pairs, prior.latent_count * prior.inducing_count)))
        drawn = start.q.sample_sites(prior, normals) - prior.mean
        alike = effective_neighbours(self.optimiser.problem, rng)
        share = backend.asarray(PRECISION / alike)[:, None, None]
        for offset in (fields[k, ...] for fields in (shifts, drawn) for k in range(pairs)):
            for sign in (1.0, -1.0):
                yield self.rough.posterior(site_factors_at(start, prior.mean + sign * offset, share), start.hyper)


def are_distinct(one: GaussianPosterior, other: GaussianPosterior) -> bool:
    """Whether two positions are different solutions, and not one that was found roughly twice."""
    between = (one.marginals.mean - other.marginals.mean)[..., None]
    return math.sqrt(max(_largest_square(p.factor, between) for p in (one, other))) > APART


def _largest_square(factor: Array, between: Array) -> float:
    """Of vectors (N, Q, 1) in units of a factor (N, Q, Q)."""
    xp = array_namespace(factor)
    return float(xp.max(xp.sum(xp.square(xp.linalg.solve(factor, between)), axis=(-2, -1))))
