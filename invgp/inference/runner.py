"""Simulator runs of one inversion: their budget and their failures, the trace of the bound, and the latest state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from invgp.errors import RunsFailedError
from invgp.execution.simulator import Batch, Simulator, TooManyFailures
from invgp.inference.search_state import SearchResult
from invgp.problem import Floats


class HasMoments(Protocol):
    """The part of a state of a search that its monitor sees."""

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean (N, Q) and covariance (N, Q, Q) of the latent processes."""


StateT = TypeVar("StateT", bound=HasMoments)
MOST_REJECTED = 5  # most consecutive steps that are rejected because too many runs failed
MOST_FAILED = 0.5  # most failed runs, as a fraction, of the first runs that an emulator is fitted to


class BudgetSpent(Exception):  # noqa: N818 - not an error
    """The next batch needs more runs than the budget has left."""

    def __init__(self, runs: int) -> None:
        super().__init__(f"{runs} runs are more than are left")
        self.runs = runs


@dataclass
class Runner:
    """Makes the simulator runs of a search within its budget, and records its progress.

    Parameters
    ----------
    simulator : Simulator
    coarse : Simulator or None
        Runs of a coarse model, which the simulator corrects.

    Attributes
    ----------
    trace : list of (float, int)
        Bound and total number of runs after each accepted evaluation.
    latest : state of the search, or None
        What an interruption, or the end of the budget, leaves.
    rejected : int
        Consecutive batches in which too many runs failed.
    """

    simulator: Simulator
    coarse: Simulator | None = None
    trace: list[tuple[float, int]] = field(default_factory=list)
    latest: Any = None
    rejected: int = 0

    @property
    def bound(self) -> float:
        """The latest accepted bound, in nats."""
        return self.trace[-1][0]

    @property
    def out_of_runs(self) -> SearchResult:
        """Outcome of a search that has used all runs of the budget."""
        default = ", its default," if self.simulator.problem.inference.max_runs is None else ""
        status = f"stopped at inference.max_runs = {self.simulator.budget}{default} before the posterior converged"
        return SearchResult(status, converged=False)

    def keep(self, state: StateT) -> StateT:
        """Keep a state as the latest one, report its posterior to the monitor, and return it.

        Parameters
        ----------
        state : SearchState or FieldSearchState
            State that remains after an interruption.
        """
        self.latest = state
        self.simulator.monitor.report_posterior(state.moments)
        return state

    def begin(self, planned_runs: int) -> None:
        """Report the number of runs to the monitor: as planned, and the most that are allowed.

        Parameters
        ----------
        planned_runs : int
            Runs that the inversion makes if all goes well.
        """
        most = self.simulator.budget
        planned = planned_runs if most is None else min(planned_runs, most)
        more = 0 if self.coarse is None else self.coarse.budget or 0
        self.simulator.monitor.start(planned + more, (planned if most is None else most) + more)

    def record(self, elbo: float, *, accepted: bool) -> None:
        """Record an evaluation of the bound in the trace, if accepted, and report it to the monitor.

        Parameters
        ----------
        elbo : float
            Evidence lower bound in nats.
        accepted : bool
            Whether the posterior was accepted.
        """
        if accepted:
            self.trace.append((elbo, self.simulator.runs))
        self.simulator.monitor.report_bound(elbo, accepted=accepted)

    def report_stage(self, stage: str) -> None:
        """Report a computation without runs to the monitor.

        Parameters
        ----------
        stage : str
            Computation without runs.
        """
        self.simulator.monitor.report_stage(stage)

    def require(self, runs: int) -> None:
        """Raise `BudgetSpent` if the budget has fewer runs left.

        Parameters
        ----------
        runs : int
            Number of runs.
        """
        if not self.simulator.can_afford(runs):
            raise BudgetSpent(runs)

    def evaluate(self, latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:
        """Run the simulator at latent values (S, B, Q) of sites (B,), for an evaluation of the bound.

        If too many runs fail, no output of the batch is valid.

        Raises
        ------
        BudgetSpent
            The budget has too few runs left.
        RunsFailedError
            Too many runs failed at the start, or in more than `MOST_REJECTED` consecutive batches.
        """
        return self._evaluate(latents, label, sites, None)

    def sample(self, latents: Floats, label: str, sites: NDArray[np.intp]) -> Batch:
        """Run the simulator at latent values (S, B, Q) of sites (B,), to fit or to verify an emulator.

        Runs may fail: the others are used. A simulator may not work in a part of the prior.

        Raises
        ------
        BudgetSpent
            The budget has too few runs left.
        RunsFailedError
            More than `MOST_FAILED` of the first runs failed, or all first runs of more than `MOST_REJECTED` consecutive
            batches.
        """
        first = not self.trace
        batch = self._evaluate(latents, label, sites, 1.0)
        simulated = batch.valid[:, np.isin(sites, self.simulator.problem.simulated)]
        most = max(MOST_FAILED, self.simulator.problem.inference.max_failed_share)
        if first and simulated.size and 1.0 - simulated.mean() > most:
            raise self.too_many_failures()
        return batch

    def _evaluate(self, latents: Floats, label: str, sites: NDArray[np.intp], allowed: float | None) -> Batch:
        samples, count = latents.shape[:2]
        self.require(self.simulator.count_runs(samples, sites))
        try:
            batch = self.simulator.run(latents, label, sites, allowed=allowed)
        except TooManyFailures:
            self.rejected += 1
            if not self.trace or self.rejected > MOST_REJECTED:
                raise self.too_many_failures() from None
            return Batch.all_failed(samples, count, self.simulator.problem.noise_std.shape[1])
        self.rejected = 0
        return batch

    def too_many_failures(self) -> RunsFailedError:
        """Return the error of an inversion that stops because too many runs failed."""
        allowed = self.simulator.problem.inference.max_failed_share
        return RunsFailedError(
            self.simulator.describe_failures(f"the inversion stopped at inference.max_failed_share = {allowed:g}")
        )
