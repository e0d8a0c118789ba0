"""Progress of the chains of a comparison, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from invgp.formatting import count_noun, format_duration
from invgp.progress import SECONDS_BETWEEN_LINES, SilentMonitor, format_rate


@dataclass
class ChainMonitor(SilentMonitor):
    """Counts of draws and runs; a monitor of the simulator that displays nothing.

    Attributes
    ----------
    runs, failed : int
        Runs of this call, without those that the ledger answered; failed runs.
    reused : int
        Runs that the ledger answered.
    limit : int
        Largest number of runs.
    power : float
        Power of the likelihood that the chains have reached: they start at 0, the prior, and draw at 1, the posterior.
    draws : int
        Draws of each chain.
    """

    runs: int = 0
    failed: int = 0
    reused: int = 0
    limit: int = 0
    power: float = 0.0
    draws: int = 0
    started: float = field(default_factory=time.perf_counter)

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Count runs."""
        self.runs += succeeded + failed - reused
        self.failed += failed
        self.reused += reused

    def report_chains(self, power: float, draws: int) -> None:
        """Store the state of the chains."""
        self.power, self.draws = power, draws

    @property
    def text(self) -> str:
        """State of the chains, runs, and the longest time left."""
        seconds = max(time.perf_counter() - self.started, 1e-9)
        made = self.runs + self.reused
        stage = f"draw {self.draws:,} of each chain" if self.draws else f"power of the likelihood {self.power:.2g}"
        spent = f"{made:,} of at most {count_noun(self.limit, 'run')}, {self.failed:,} failed"
        left = format_duration((self.limit - made) * seconds / made) if made else "-"
        return f"{stage} | {spent} | {format_rate(self.runs / seconds)} | at most {left} left"


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
