"""Ask, evaluate, tell, until a coupled posterior converges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Backend, to_numpy
from invgp.core.coupled.coupled_minibatches import MiniBatches
from invgp.core.coupled.coupled_savigp import CoupledSavigp, State
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.coupled.stage import Stage
from invgp.execution.simulator import Batch
from invgp.inference.inversion import SearchResult, predictions
from invgp.inference.sample_sizes import sites_at_once
from invgp.problem import Floats, Problem

Sites = NDArray[np.intp]
Evaluate = Callable[[Floats, str, Sites], Batch]


@dataclass(frozen=True)
class Candidate:
    """The best posterior so far, with mean and standard deviation (N, P) of the outputs under it."""

    posterior: GaussianPosterior
    predicted: Floats
    predicted_std: Floats


# Told of each evaluation of the bound: its value, and the posterior if it was kept.
Report = Callable[[float, Candidate | None], None]


class Optimum(NamedTuple):
    """Outcome of an optimisation, and the best posterior; None if no step was accepted."""

    result: SearchResult
    candidate: Candidate | None


@dataclass(frozen=True)
class Optimiser:
    """Optimisation of the posterior of a problem, with any function that answers for its simulator.

    Parameters
    ----------
    shuffles : the order of mini-batches.
    """

    problem: Problem
    backend: Backend
    shuffles: np.random.Generator

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Where there is an observation, (N, P)."""
        return np.isfinite(self.problem.survey.Y)

    def batch_size(self, stages: Sequence[Stage]) -> int:
        """Sites in a mini-batch."""
        return sites_at_once(self.problem, max(stage.points.base.shape[0] for stage in stages))

    def __call__(self, algorithm: CoupledSavigp, state: State, evaluate: Evaluate, report: Report) -> Optimum:
        """From a state of the algorithm; all sites at once, or, if they are too many, on mini-batches."""
        size = self.batch_size(algorithm.stages)
        if size < self.problem.survey.size:
            return self._by_batches(algorithm, state, evaluate, report, size)
        candidate, everywhere = None, np.arange(self.problem.survey.size)
        while not state.finished:
            if state.evaluations >= self.problem.inference.max_evaluations:
                return Optimum(self._stopped, candidate)
            batch = evaluate(to_numpy(algorithm.ask(state)), f"evaluation-{state.evaluations + 1}", everywhere)
            state, info = algorithm.tell(state, *self._told(batch, everywhere))
            if kept := info.accepted and state.best is not None:
                candidate = Candidate(state.best, *predictions(batch))
            report(info.elbo, candidate if kept else None)
        return Optimum(SearchResult(state.finished, state.converged), candidate)

    def _by_batches(
        self, algorithm: CoupledSavigp, start: State, evaluate: Evaluate, report: Report, size: int
    ) -> Optimum:
        """The same on mini-batches of sites; an evaluation of the bound is a pass over all of them."""
        batches = MiniBatches(algorithm, size, self.shuffles)
        state, candidate = batches.init(start.trial, start.stage), None
        predicted, predicted_std = (np.full(self.problem.noise_std.shape, np.nan) for _ in range(2))
        while not state.finished:
            if state.passes >= self.problem.inference.max_evaluations:
                return Optimum(self._stopped, candidate)
            rows, latents = batches.ask(state)
            batch = evaluate(to_numpy(latents), f"pass-{state.passes + 1}", rows)
            predicted[rows], predicted_std[rows] = predictions(batch)
            state, info = batches.tell(state, *self._told(batch, rows))
            if info is not None:
                if info.accepted:
                    candidate = Candidate(state.verified or state.posterior, predicted.copy(), predicted_std.copy())
                report(info.elbo, candidate if info.accepted else None)
        if candidate is not None:
            candidate = replace(candidate, posterior=state.posterior)
        return Optimum(SearchResult(state.finished, state.converged), candidate)

    def bound(self, algorithm: CoupledSavigp, posterior: GaussianPosterior, evaluate: Evaluate) -> float:
        """The bound at a position, by the last estimator."""
        state = algorithm.start_from(posterior, near_optimum=True)
        everywhere = np.arange(self.problem.survey.size)
        batch = evaluate(to_numpy(algorithm.ask(state)), "bound", everywhere)
        return algorithm.tell(state, *self._told(batch, everywhere))[1].elbo

    def _told(self, batch: Batch, sites: Sites) -> tuple[object, object]:
        """What the algorithm is told of a batch at some sites (B,)."""
        return self.backend.asarray(batch.needed(self.observed[sites])), self.backend.asmask(batch.valid)

    @property
    def _stopped(self) -> SearchResult:
        most = self.problem.inference.max_evaluations
        return SearchResult(
            f"stopped at inference.max_evaluations = {most} before the posterior converged", converged=False
        )
