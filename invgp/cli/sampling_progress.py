"""How far the chains of a comparison are, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import click

from invgp.cli.console import current_console
from invgp.cli.progress import SECONDS_BETWEEN_LINES, rate
from invgp.formatting import count_noun, format_duration


@dataclass
class Tally:
    """How far the chains are; a monitor of the simulator as well.

    Attributes
    ----------
    runs : made now; what a ledger answers is none.
    first, began : where the chains stood when they began, or went on, and when.
    """

    runs: int = 0
    failed: int = 0
    done: int = 0
    goal: int = 0
    first: int | None = None
    began: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def start(self, most_runs: int) -> None:
        """Nothing: the chains say how much there is to do."""

    def start_batch(self, purpose: str, runs: int) -> None:
        """Nothing: batches are small."""

    def report_waiting(self, runs: int, owner: str) -> None:
        """Nothing: the line is full."""

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Nothing: there is no bound."""

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Count runs."""
        self.runs += succeeded + failed - reused
        self.failed += failed

    def told(self, done: int, goal: int) -> None:
        """Count iterations."""
        if self.first is None:
            self.first, self.began = done, time.perf_counter()
        self.done, self.goal = done, goal

    @property
    def text(self) -> str:
        """Where the chains are."""
        now = time.perf_counter()
        seconds = max(now - self.started, 1e-9)
        spent = f"{count_noun(self.runs, 'run')}, {self.failed:,} failed | {rate(self.runs / seconds)}"
        if not self.goal:
            return f"fitting a Gaussian | {spent}"
        gone = self.done - (self.first or 0)
        left = format_duration((self.goal - self.done) * (now - self.began) / gone) if gone else "-"
        return f"iteration {self.done:,} of {self.goal:,} | {spent} | about {left} left"


class Lines(Tally):
    """A plain line now and then."""

    last: float = 0.0

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Count and say."""
        super().add_runs(succeeded, failed, reused=reused)
        if time.perf_counter() - max(self.last, self.started) > SECONDS_BETWEEN_LINES:
            self.last = time.perf_counter()
            click.echo(self.text, err=True)


class Live(Tally):
    """A line that is drawn again and again."""

    def __rich__(self) -> str:
        return f"[bold cyan]sampling[/] {self.text}"


@contextmanager
def progress() -> Iterator[Tally]:
    """The display that fits where standard error goes."""
    if current_console().quiet:
        yield Tally()
        return
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live as Display  # noqa: PLC0415

    live = Live()
    with Display(live, console=Console(stderr=True, highlight=False), refresh_per_second=8, transient=True):
        yield live
