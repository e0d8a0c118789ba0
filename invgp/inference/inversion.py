"""Base class of inversions: budget and failures of runs, trace of the bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Backend
from invgp.errors import ConfigError, RunsFailedError
from invgp.execution.simulator import Batch, Simulator, TooManyFailures
from invgp.posterior import Solution
from invgp.problem import Floats, Problem

WORTH_THREADS = 500  # sites below which one BLAS thread is faster than several
RETRACES = 5  # most consecutive steps that are rejected because too many runs failed


class BudgetSpent(Exception):  # noqa: N818 - not an error
    """The next batch needs more runs than the budget has left."""

    def __init__(self, runs: int) -> None:
        super().__init__(f"{runs} runs are more than are left")
        self.runs = runs


@dataclass(frozen=True)
class SearchResult:
    """Outcome of a search for a posterior.

    Attributes
    ----------
    status : str
        Why the search ended, as a phrase for users.
    converged : bool
        Whether it ended because the posterior had converged.
    """

    status: str
    converged: bool


class Inversion(ABC):
    """State of one inversion.

    Parameters
    ----------
    problem : Problem
    backend : Backend
        Array library and device.
    simulator : Simulator
    seed : int
        Random seed.

    Attributes
    ----------
    trace : list of (float, int)
        Bound and total number of runs after each accepted evaluation.
    """

    def __init__(self, problem: Problem, backend: Backend, simulator: Simulator, seed: int) -> None:
        self.problem, self.backend, self.simulator, self.seed = problem, backend, simulator, seed
        self.trace: list[tuple[float, int]] = []
        self.retraced = 0

    @classmethod
    def threads(cls, problem: Problem) -> int | None:
        """Return the number of BLAS threads for a problem; None for the default."""
        return 1 if problem.survey.size < WORTH_THREADS else None

    @abstractmethod
    def search(self) -> SearchResult:
        """Find the posterior."""

    @abstractmethod
    def solution(self, result: SearchResult) -> tuple[Problem, Solution] | None:
        """Return the best posterior so far.

        Parameters
        ----------
        result : SearchResult
            Outcome of the search.

        Returns
        -------
        (Problem, Solution) or None
            The problem with learnt hyperparameters, and the posterior; None if there is none yet.
        """

    def run(self) -> SearchResult:
        """Find the posterior within the budget.

        Raises
        ------
        ConfigError
            The budget is too small for a first posterior.
        """
        try:
            return self.search()
        except BudgetSpent as spent:
            if not self.trace:
                needed = self.simulator.runs + spent.runs
                raise ConfigError(
                    f"inference.max_runs: must be at least {needed:,} for a first posterior, "
                    f"was {self.simulator.budget:,}"
                ) from None
            return self.out_of_runs

    @property
    def out_of_runs(self) -> SearchResult:
        """Outcome of a search that has used all runs of the budget."""
        status = f"stopped at inference.max_runs = {self.simulator.budget} before the posterior converged"
        return SearchResult(status, converged=False)

    def begin(self, most_runs: int) -> None:
        """Report the largest possible number of runs to the monitor."""
        left = self.simulator.runs_left
        self.simulator.monitor.start(most_runs if left is None else min(most_runs, left))

    def record(self, elbo: float, *, accepted: bool) -> None:
        """Record an evaluation of the bound in the trace, if accepted, and report it to the monitor."""
        if accepted:
            self.trace.append((elbo, self.simulator.runs))
        self.simulator.monitor.report_bound(elbo, accepted=accepted)

    def evaluate_simulator(self, latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:
        """Run the simulator at latent values (S, B, Q) of sites (B,).

        If too many runs fail, no output of the batch is valid.
        """
        runs = latents.shape[0] * latents.shape[1]
        if not self.simulator.can_afford(runs):
            raise BudgetSpent(runs)
        try:
            batch = self.simulator.run(latents, label, sites)
        except TooManyFailures:
            self._retrace()
            return Batch.all_failed(latents.shape[0], latents.shape[1], self.problem.noise_std.shape[1])
        self.retraced = 0
        return batch

    def _retrace(self) -> None:
        """Count a rejected step; raise `RunsFailedError` at the start, or after `RETRACES` consecutive ones."""
        self.retraced += 1
        if not self.trace or self.retraced > RETRACES:
            allowed = self.problem.inference.max_failed_share
            raise RunsFailedError(
                self.simulator.describe_failures(f"the inversion stopped at inference.max_failed_share = {allowed:g}")
            )


def predictions(batch: Batch) -> tuple[Floats, Floats]:
    """Compute mean and standard deviation (N, P) of the outputs of the valid runs."""
    modelled = np.where(batch.valid[..., None], batch.outputs, np.nan)
    return np.nanmean(modelled, axis=0), np.nanstd(modelled, axis=0)
