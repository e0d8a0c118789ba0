"""Searches on an emulator from several starting points, for the whole survey or a subset of sites."""

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

PAIRS = 2  # pairs of starts, mirrored about the prior mean: of shifted fields, and of samples from the prior
MANY_SITES, FEWER_PAIRS = 1000, 1  # number of pairs if there are more sites
PRECISION = 3.0  # site precision of a start relative to the prior precision, divided among neighbours
FEWEST_APART = 3.0  # smallest distance between two solutions at the site where they differ most, in standard deviations
PART = 32  # sites of a subset: enough for correlations, few enough to be cheap
PART_REACH = 5.0  # radius of a subset, in length-scales


def subset_of_sites(problem: Problem, rng: np.random.Generator, most: int = PART) -> NDArray[np.intp]:
    """Select at most `most` sites (B,) near a random site; all sites if there are fewer."""
    X = problem.survey.X
    if len(X) <= most:
        return np.arange(len(X))
    centre = X[rng.integers(len(X))]
    distance = np.mean([np.linalg.norm((X - centre) / v.length_scale, axis=1) for v in problem.latents], axis=0)
    nearest = np.argsort(distance, kind="stable")
    within = max(int(np.sum(distance <= PART_REACH)), most)
    return np.sort(nearest[np.linspace(0, within - 1, most).astype(np.intp)])


class Multistart:
    """Searches at some sites (B,), with the hyperparameters of the first solution.

    The emulator error is added to the noise.

    Parameters
    ----------
    inversion : EmulatedInversion
    sites : array of int, shape (B,)
    first : GaussianPosterior
        First solution.
    """

    def __init__(self, inversion: EmulatedInversion, sites: NDArray[np.intp], first: GaussianPosterior) -> None:
        self.inversion, self.sites, backend = inversion, sites, inversion.backend
        self.whole = len(sites) == inversion.problem.survey.size
        problem = with_learned_hyperparameters(inversion.with_emulator_error(), first).select_sites(sites)
        prior = first.prior if self.whole else prior_of(problem, backend)
        likelihood = likelihood_of(problem, backend)
        rough, exact = (
            [self._stage(stage) for stage in stages] for stages in (inversion.stages()[:1], inversion.emulator_stages)
        )
        self.rough, self.exact = (CoupledSavigp(prior, stages, likelihood) for stages in (rough, exact))
        self.optimiser = Optimiser(problem, backend, inversion.multistart)
        self.first = first

    def _stage(self, stage: Stage) -> Stage:
        """Return the stage with sample points for these sites."""
        samples, latents = stage.points.base.shape
        points = Points.draw(self.inversion.multistart, samples, len(self.sites), latents, self.inversion.backend)
        return Stage(stage.kind, points, stage.tolerance, stage.max_movement)

    def alternatives(self) -> Iterator[tuple[float, Candidate]]:
        """Yield distinct alternative solutions, each with its bound minus the bound of the first solution."""
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
        """Return the first solution for these sites; None if it cannot be computed."""
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
        """Return the candidate with the hyperparameters of the inversion, if it is for all sites."""
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
        """Yield starting points: shifted fields and samples from the prior, each with its mirror image about the mean.

        The first shift is one prior standard deviation of every latent, up or down, the second two, and so on.
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
        neighbour_counts = effective_neighbours(self.optimiser.problem, rng)
        share = backend.asarray(PRECISION / neighbour_counts)[:, None, None]
        for offset in (fields[k, ...] for fields in (shifts, drawn) for k in range(pairs)):
            for sign in (1.0, -1.0):
                yield self.rough.posterior(site_factors_at(start, prior.mean + sign * offset, share), start.hyper)


def are_distinct(one: GaussianPosterior, other: GaussianPosterior) -> bool:
    """Return whether two posteriors are different solutions, and not the same one with different accuracy."""
    between = (one.marginals.mean - other.marginals.mean)[..., None]
    return math.sqrt(max(_largest_square(p.factor, between) for p in (one, other))) > FEWEST_APART


def _largest_square(factor: Array, between: Array) -> float:
    """Return the largest squared length of vectors (N, Q, 1) in units of the factors (N, Q, Q)."""
    xp = array_namespace(factor)
    return float(xp.max(xp.sum(xp.square(xp.linalg.solve(factor, between)), axis=(-2, -1))))
