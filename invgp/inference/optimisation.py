"""Optimisation of a coupled posterior: ask, evaluate, tell until convergence."""

from __future__ import annotations

import warnings
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
from invgp.inference.sample_sizes import sites_at_once
from invgp.inference.search_state import Candidate, SearchResult
from invgp.problem import Floats, Problem

Sites = NDArray[np.intp]
Evaluate = Callable[[Floats, str, Sites], Batch]


# Called after each evaluation of the bound with its value, and with the posterior if the step was accepted.
Report = Callable[[float, Candidate | None], None]

# Called with each accepted posterior; returns whether the search ends there.
Stop = Callable[[GaussianPosterior], bool]

ENDED = SearchResult("stopped because the posterior leaves the region of the runs", converged=False)


class Optimum(NamedTuple):
    """Outcome of an optimisation, and the best posterior; None if no step was accepted."""

    result: SearchResult
    candidate: Candidate | None


@dataclass(frozen=True)
class Optimiser:
    """Optimisation of the posterior of a problem, on the simulator or an emulator.

    Parameters
    ----------
    problem : Problem
    backend : Backend
    shuffles : numpy.random.Generator
        Order of the mini-batches.
    """

    problem: Problem
    backend: Backend
    shuffles: np.random.Generator

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Mask (N, P) of the observations."""
        return np.isfinite(self.problem.survey.Y)

    def batch_size(self, stages: Sequence[Stage]) -> int:
        """Return the number of sites in a mini-batch."""
        return sites_at_once(self.problem, max(stage.points.base.shape[0] for stage in stages))

    def __call__(
        self, algorithm: CoupledSavigp, state: State, evaluate: Evaluate, report: Report, stop: Stop | None = None
    ) -> Optimum:
        """Optimise from a state, with all sites together or, if there are too many, with mini-batches.

        Parameters
        ----------
        algorithm : CoupledSavigp
        state : State
        evaluate : callable
            Evaluates latent values (S, B, Q) at sites (B,).
        report : callable
            Receives the bound of each evaluation, and the posterior if it was accepted.
        stop : callable, optional
            Whether the search ends at an accepted posterior; not used with mini-batches.
        """
        size = self.batch_size(algorithm.stages)
        if size < self.problem.survey.size:
            return self._by_batches(algorithm, state, evaluate, report, size)
        candidate, all_sites = None, np.arange(self.problem.survey.size)
        while not state.finished:
            if state.evaluations >= self.problem.inference.max_evaluations:
                return Optimum(self._stopped, candidate)
            batch = evaluate(to_numpy(algorithm.ask(state)), f"evaluation-{state.evaluations + 1}", all_sites)
            state, info = algorithm.tell(state, *self._updates(batch, all_sites))
            if kept := info.accepted and state.best is not None:
                candidate = Candidate(state.best, *predictions(batch))
            report(info.elbo, candidate if kept else None)
            if kept and stop is not None and candidate is not None and stop(candidate.posterior):
                return Optimum(ENDED, candidate)
        return Optimum(SearchResult(state.finished, state.converged), candidate)

    def _by_batches(
        self, algorithm: CoupledSavigp, start: State, evaluate: Evaluate, report: Report, size: int
    ) -> Optimum:
        """Optimise with mini-batches of sites; a pass over all sites counts as one evaluation of the bound."""
        batches = MiniBatches(algorithm, size, self.shuffles)
        state, candidate = batches.init(start.trial, start.stage), None
        predicted, predicted_std = (np.full(self.problem.noise_std.shape, np.nan) for _ in range(2))
        while not state.finished:
            if state.passes >= self.problem.inference.max_evaluations:
                return Optimum(self._stopped, candidate)
            rows, latents = batches.ask(state)
            batch = evaluate(to_numpy(latents), f"pass-{state.passes + 1}", rows)
            predicted[rows], predicted_std[rows] = predictions(batch)
            state, info = batches.tell(state, *self._updates(batch, rows))
            if info is not None:
                if info.accepted:
                    candidate = Candidate(state.verified or state.posterior, predicted.copy(), predicted_std.copy())
                report(info.elbo, candidate if info.accepted else None)
        if candidate is not None:
            candidate = replace(candidate, posterior=state.posterior)
        return Optimum(SearchResult(state.finished, state.converged), candidate)

    def bound(self, algorithm: CoupledSavigp, posterior: GaussianPosterior, evaluate: Evaluate) -> float:
        """Compute the bound at a posterior with the estimator of the last stage."""
        state = algorithm.start_from(posterior, near_optimum=True)
        all_sites = np.arange(self.problem.survey.size)
        batch = evaluate(to_numpy(algorithm.ask(state)), "bound", all_sites)
        return algorithm.tell(state, *self._updates(batch, all_sites))[1].elbo

    def _updates(self, batch: Batch, sites: Sites) -> tuple[object, object]:
        """Return outputs and mask of a batch at sites (B,), as `tell` takes them."""
        return self.backend.asarray(batch.fill_unobserved(self.observed[sites])), self.backend.asmask(batch.valid)

    @property
    def _stopped(self) -> SearchResult:
        most = self.problem.inference.max_evaluations
        return SearchResult(
            f"stopped at inference.max_evaluations = {most} before the posterior converged", converged=False
        )


def predictions(batch: Batch) -> tuple[Floats, Floats]:
    """Compute mean and standard deviation (N, P) of the outputs of the valid runs."""
    modelled = np.where(batch.valid[..., None], batch.outputs, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # outputs of other sources are missing in all samples
        return np.nanmean(modelled, axis=0), np.nanstd(modelled, axis=0)
