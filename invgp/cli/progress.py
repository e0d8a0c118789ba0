"""How an inversion shows itself while it runs: a live display on a terminal, log lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import click

from invgp.inference.monitor import Monitor

SECONDS_BETWEEN_LINES = 30.0


@dataclass
class Tally:
    """The counts that both displays show."""

    runs_per_evaluation: int = 0
    max_evaluations: int = 0
    evaluation: int = 0
    elbo: float | None = None
    done: int = 0
    failed: int = 0
    started: float = field(default_factory=time.perf_counter)

    def begin(self, runs_per_evaluation: int, max_evaluations: int) -> None:
        """The inversion starts."""
        self.runs_per_evaluation, self.max_evaluations = runs_per_evaluation, max_evaluations
        self.started = time.perf_counter()

    def ran(self, succeeded: int, failed: int) -> None:
        """Count runs."""
        self.done += succeeded + failed
        self.failed += failed

    def evaluated(self, evaluation: int, elbo: float, *, accepted: bool) -> None:
        """Count evaluations; remember the best bound."""
        self.evaluation = evaluation
        if accepted:
            self.elbo = elbo

    def text(self) -> str:
        """One line that says it all."""
        rate = self.done / max(time.perf_counter() - self.started, 1e-9)
        left = (self.runs_per_evaluation * self.max_evaluations - self.done) / max(rate, 1e-9)
        elbo = "-" if self.elbo is None else f"{self.elbo:.2f}"
        return (
            f"evaluation {self.evaluation} of at most {self.max_evaluations} | ELBO {elbo} | "
            f"{self.done:,} runs, {self.failed:,} failed | {rate:,.0f} runs/s | at most {duration(left)} left"
        )


class Lines(Tally):
    """A plain line for each evaluation of the bound, and now and then within a long one."""

    last: float = 0.0

    def ran(self, succeeded: int, failed: int) -> None:
        """Count runs; say so if there has been no line for a while."""
        super().ran(succeeded, failed)
        if time.perf_counter() - max(self.last, self.started) > SECONDS_BETWEEN_LINES:
            self._say()

    def evaluated(self, evaluation: int, elbo: float, *, accepted: bool) -> None:
        """Count and say."""
        super().evaluated(evaluation, elbo, accepted=accepted)
        self._say()

    def _say(self) -> None:
        self.last = time.perf_counter()
        click.echo(self.text(), err=True)


class Live(Tally):
    """One line that is drawn again and again."""

    def __rich__(self) -> str:
        return f"[cyan]inverting[/cyan] {self.text()}"


@contextmanager
def progress() -> Iterator[Monitor]:
    """The display that fits where standard error goes."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live as Display  # noqa: PLC0415

    live = Live()
    with Display(live, console=Console(stderr=True), refresh_per_second=8, transient=True):
        yield live


def duration(seconds: float) -> str:
    """``5 s``, ``3 min``, ``2.5 h`` or ``4 days``."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:,.0f} days"
