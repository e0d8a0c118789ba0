"""How an inversion shows itself while it runs: a live display on a terminal, log lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import click

from invgp.wording import counted, duration

SECONDS_BETWEEN_LINES = 30.0


@dataclass
class Tally:
    """The counts that both displays show."""

    most_runs: int = 0
    purpose: str = ""
    batch_size: int = 0
    batch_done: int = 0
    evaluations: int = 0
    elbo: float | None = None
    done: int = 0
    failed: int = 0
    started: float = field(default_factory=time.perf_counter)

    def begin(self, most_runs: int) -> None:
        """The inversion starts."""
        self.most_runs, self.started = most_runs, time.perf_counter()

    def batch(self, purpose: str, runs: int) -> None:
        """A batch of runs starts."""
        self.purpose, self.batch_size, self.batch_done = purpose, runs, 0

    def ran(self, succeeded: int, failed: int) -> None:
        """Count runs."""
        self.done += succeeded + failed
        self.batch_done += succeeded + failed
        self.failed += failed

    def evaluated(self, elbo: float, *, accepted: bool) -> None:
        """Count evaluations; remember the last bound that was kept."""
        self.evaluations += 1
        if accepted:
            self.elbo = elbo

    @property
    def text(self) -> tuple[str, str, str]:
        """Where the inversion is; how the bound does; what its runs do."""
        if not self.purpose:
            return "starting", "", ""
        seconds = max(time.perf_counter() - self.started, 1e-9)
        left = max(self.most_runs - self.done, 0) * seconds / max(self.done, 1)
        within = (
            f", {self.batch_done:,} of {counted(self.batch_size, 'run')}" if self.batch_done < self.batch_size else ""
        )
        elbo = "-" if self.elbo is None else f"{self.elbo:.2f}"
        times = "once" if self.evaluations == 1 else f"{self.evaluations:,} times"
        return (
            f"{self.purpose}{within}",
            f"bound evaluated {times} | ELBO {elbo}",
            f"{counted(self.done, 'run')}, {self.failed:,} failed | "
            f"{rate(self.done / seconds) if self.done else '- runs/s'} | "
            f"at most {duration(left) if self.done else '-'} left",
        )


class Lines(Tally):
    """A plain line for each evaluation of the bound, and now and then within a long one."""

    last: float = 0.0

    def ran(self, succeeded: int, failed: int) -> None:
        """Count runs; say so if there has been no line for a while."""
        super().ran(succeeded, failed)
        if time.perf_counter() - max(self.last, self.started) > SECONDS_BETWEEN_LINES:
            self._say()

    def evaluated(self, elbo: float, *, accepted: bool) -> None:
        """Count and say."""
        super().evaluated(elbo, accepted=accepted)
        self._say()

    def _say(self) -> None:
        self.last = time.perf_counter()
        click.echo(" | ".join(self.text), err=True)


class Live(Tally):
    """Three lines that are drawn again and again, short enough for a terminal of 80 columns."""

    def __rich__(self) -> str:
        where, bound, runs = self.text
        return f"[bold cyan]inverting[/] {where}\n          {bound}\n          {runs}"


@contextmanager
def progress() -> Iterator[Tally]:
    """The display that fits where standard error goes."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live as Display  # noqa: PLC0415

    live = Live()
    console = Console(stderr=True, highlight=False)
    with Display(live, console=console, refresh_per_second=8, transient=True):
        yield live


def rate(per_second: float) -> str:
    """``1,200 runs/s``, ``2.5 runs/s``, ``12 runs/min`` or ``3 runs/h``."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_second * seconds >= 1 or unit == "h":
            break
    number = per_second * seconds
    return f"{number:,.0f} runs/{unit}" if number >= 10 else f"{number:.2g} runs/{unit}"
