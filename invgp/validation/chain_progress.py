"""Progress of the chains of a comparison, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from invgp.formatting import count_noun, format_duration
from invgp.progress import SECONDS_BETWEEN_LINES, format_rate


@dataclass
class ChainMonitor:
    """Counts of iterations and runs; a monitor of the simulator that displays nothing.

    Attributes
    ----------
    runs, failed : int
        Runs of this call, without those that the ledger answered; failed runs.
    done, goal : int
        Iterations done, and of the finished chains.
    first : int or None
        Iterations done when the chains started or continued.
    began : float
        Time at which the chains started or continued.
    """

    runs: int = 0
    failed: int = 0
    done: int = 0
    goal: int = 0
    first: int | None = None
    began: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def start(self, planned_runs: int, most_runs: int) -> None:
        """Do nothing: the chains report the number of iterations."""

    def start_batch(self, purpose: str, runs: int) -> None:
        """Do nothing: batches are small."""

    def report_waiting(self, runs: int, owner: str) -> None:
        """Do nothing."""

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Do nothing: there is no bound."""

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Count runs."""
        self.runs += succeeded + failed - reused
        self.failed += failed

    def count_iterations(self, done: int, goal: int) -> None:
        """Count iterations."""
        if self.first is None:
            self.first, self.began = done, time.perf_counter()
        self.done, self.goal = done, goal

    @property
    def text(self) -> str:
        """Iterations, runs and the time left."""
        now = time.perf_counter()
        seconds = max(now - self.started, 1e-9)
        spent = f"{count_noun(self.runs, 'run')}, {self.failed:,} failed | {format_rate(self.runs / seconds)}"
        if not self.goal:
            return f"fitting a Gaussian | {spent}"
        gone = self.done - (self.first or 0)
        left = format_duration((self.goal - self.done) * (now - self.began) / gone) if gone else "-"
        return f"iteration {self.done:,} of {self.goal:,} | {spent} | about {left} left"


class _Lines(ChainMonitor):
    """Print a line from time to time."""

    last: float = 0.0

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        super().add_runs(succeeded, failed, reused=reused)
        if time.perf_counter() - max(self.last, self.started) > SECONDS_BETWEEN_LINES:
            self.last = time.perf_counter()
            print(self.text, file=sys.stderr, flush=True)


class _Live(ChainMonitor):
    """One line that rich redraws."""

    def __rich__(self) -> str:
        return f"[bold cyan]sampling[/] {self.text}"


@contextmanager
def show_chains() -> Iterator[ChainMonitor]:
    """Display the progress: one line that is redrawn on a terminal, and lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    monitor = _Live()
    with Live(monitor, console=Console(stderr=True, highlight=False), refresh_per_second=8, transient=True):
        yield monitor
