"""Progress reports of an inversion."""

from __future__ import annotations

from typing import Protocol


class Monitor(Protocol):
    """Receives a call for each step of an inversion. An implementation must return quickly."""

    def start(self, planned_runs: int, most_runs: int) -> None:
        """Report the start of an inversion: runs that it makes if all goes well, and the most that it may make."""

    def start_batch(self, purpose: str, runs: int) -> None:
        """Report the start of a batch of runs for a purpose such as ``"evaluation 3"``."""

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Report finished runs; `reused` of them were taken from the ledger."""

    def report_waiting(self, runs: int, owner: str) -> None:
        """Report that another process, the `owner`, makes runs that are needed here. The call is repeated."""

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Report the evidence lower bound of a new posterior, and whether the posterior was accepted."""

    def report_stage(self, stage: str) -> None:
        """Report a computation without runs, such as ``"draws, likelihood power 0.03"``. The call is repeated."""


class SilentMonitor:
    """A monitor that reports nothing."""

    def start(self, planned_runs: int, most_runs: int) -> None:
        """Do nothing."""

    def start_batch(self, purpose: str, runs: int) -> None:
        """Do nothing."""

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Do nothing."""

    def report_waiting(self, runs: int, owner: str) -> None:
        """Do nothing."""

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Do nothing."""

    def report_stage(self, stage: str) -> None:
        """Do nothing."""
