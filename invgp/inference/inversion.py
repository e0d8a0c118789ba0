"""What every inversion has in common: runs that may fail or run out, and the best posterior so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Backend
from invgp.errors import ConfigError, RunsFailedError
from invgp.execution.simulator import Batch, Simulator, TooManyFailed
from invgp.posterior import Solution
from invgp.problem import Floats, Problem

WORTH_THREADS = 500  # sites: products of smaller matrices are slowed down by BLAS threads that wait for each other
RETRACES = 5  # steps in a row that are taken back because the simulator failed there


class BudgetSpent(Exception):  # noqa: N818 - it says what happened
    """The next batch would take more runs than are left."""

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
    """One inversion under way.

    Parameters
    ----------
    where : the arrays live there.
    seed : of all random numbers.
    """

    def __init__(self, problem: Problem, backend: Backend, simulator: Simulator, seed: int) -> None:
        self.problem, self.backend, self.simulator, self.seed = problem, backend, simulator, seed
        self.trace: list[tuple[float, int]] = []
        self.retraced = 0

    @classmethod
    def threads(cls, problem: Problem) -> int | None:
        """BLAS threads for the algebra of a problem; None for as many as there are."""
        return 1 if problem.survey.size < WORTH_THREADS else None

    @abstractmethod
    def search(self) -> SearchResult:
        """Find the posterior."""

    @abstractmethod
    def solution(self, result: SearchResult) -> tuple[Problem, Solution] | None:
        """The best posterior so far with the problem that it solves, hyperparameters learnt; None if there is none."""

    def run(self) -> SearchResult:
        """Find the posterior within the budget."""
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
        """Tell the monitor what to expect at the most."""
        left = self.simulator.left
        self.simulator.monitor.begin(most_runs if left is None else min(most_runs, left))

    def record(self, elbo: float, *, accepted: bool) -> None:
        """An evaluation of the bound."""
        if accepted:
            self.trace.append((elbo, self.simulator.runs))
        self.simulator.monitor.evaluated(elbo, accepted=accepted)

    def evaluate_simulator(self, latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:
        """Runs at some sites (B,), at latent values (S, B, Q); nothing valid, if the batch was cut short."""
        runs = latents.shape[0] * latents.shape[1]
        if not self.simulator.affords(runs):
            raise BudgetSpent(runs)
        try:
            batch = self.simulator.run(latents, label, sites)
        except TooManyFailed:
            self._retrace()
            return Batch.failed(latents.shape[0], latents.shape[1], self.problem.noise_std.shape[1])
        self.retraced = 0
        return batch

    def _retrace(self) -> None:
        """A step to where the simulator fails is taken back; at the start, or time and again, it is the end."""
        self.retraced += 1
        if not self.trace or self.retraced > RETRACES:
            allowed = self.problem.inference.max_failed_share
            raise RunsFailedError(
                self.simulator.failures(f"the inversion stopped at inference.max_failed_share = {allowed:g}")
            )


def predictions(batch: Batch) -> tuple[Floats, Floats]:
    """Mean and standard deviation (N, P) of the outputs of the valid runs."""
    modelled = np.where(batch.valid[..., None], batch.outputs, np.nan)
    return np.nanmean(modelled, axis=0), np.nanstd(modelled, axis=0)
