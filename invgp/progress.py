"""How an inversion shows itself while it runs: live on a terminal or in a notebook, log lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import Any

from invgp.formatting import count_noun, format_duration

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_DRAWINGS = 0.25  # in a notebook


@dataclass
class Tally:
    """The counts that all displays show.

    Attributes
    ----------
    running : seconds that runs were waited for; what an inversion computes between them says nothing of how long the
        runs that are left will take.
    """

    most_runs: int = 0
    purpose: str = ""
    batch_size: int = 0
    batch_done: int = 0
    evaluations: int = 0
    elbo: float | None = None
    done: int = 0
    reused: int = 0
    failed: int = 0
    elsewhere: str = ""
    running: float = 0.0
    since: float = field(default_factory=time.perf_counter)
    started: float = field(default_factory=time.perf_counter)

    def start(self, most_runs: int) -> None:
        """The inversion starts."""
        self.most_runs, self.started = most_runs, time.perf_counter()

    def start_batch(self, purpose: str, runs: int) -> None:
        """A batch of runs starts."""
        self.purpose, self.batch_size, self.batch_done, self.elsewhere = purpose, runs, 0, ""
        self.since = time.perf_counter()

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Count runs."""
        self.done += succeeded + failed
        self.reused += reused
        self.batch_done += succeeded + failed
        self.failed += failed
        now = time.perf_counter()
        self.running, self.since = self.running + now - self.since, now

    def report_waiting(self, runs: int, owner: str) -> None:
        """Remember what is waited for."""
        self.elsewhere = f", waiting for {owner} to make {runs:,} of them"

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Count evaluations; remember the last bound that was kept."""
        self.evaluations += 1
        if accepted:
            self.elbo = elbo

    @property
    def text(self) -> tuple[str, str, str]:
        """Where the inversion is; how the bound does; what its runs do."""
        if not self.purpose:
            return "starting", "", ""
        seconds = max(self.running, 1e-9)
        made = self.done - self.reused  # what the ledger answers says nothing of how long a run takes
        left = max(self.most_runs - self.done, 0) * seconds / max(made, 1)
        within = (
            f", {self.batch_done:,} of {count_noun(self.batch_size, 'run')}"
            if self.batch_done < self.batch_size
            else ""
        )
        elbo = "-" if self.elbo is None else f"{self.elbo:.2f}"
        times = "once" if self.evaluations == 1 else f"{self.evaluations:,} times"
        return (
            f"{self.purpose}{within}{self.elsewhere if within else ''}",
            f"bound evaluated {times} | ELBO {elbo}",
            f"{count_noun(self.done, 'run')}, {self.failed:,} failed | "
            f"{rate(made / seconds) if made else '- runs/s'} | "
            f"at most {format_duration(left) if made else '-'} of runs",
        )


class Lines(Tally):
    """A plain line for each evaluation of the bound, and now and then within a long one."""

    last: float = 0.0

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Count runs; say so if there has been no line for a while."""
        super().add_runs(succeeded, failed, reused=reused)
        if time.perf_counter() - max(self.last, self.started) > SECONDS_BETWEEN_LINES:
            self._say()

    def report_waiting(self, runs: int, owner: str) -> None:
        """Say so, once a batch."""
        first = not self.elsewhere
        super().report_waiting(runs, owner)
        if first:
            self._say()

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Count and say."""
        super().report_bound(elbo, accepted=accepted)
        self._say()

    def _say(self) -> None:
        self.last = time.perf_counter()
        print(" | ".join(self.text), file=sys.stderr, flush=True)


class Live(Tally):
    """Three lines that are drawn again and again, short enough for a terminal of 80 columns."""

    def __rich__(self) -> str:
        where, bound, runs = self.text
        return f"[bold cyan]inverting[/] {where}\n          {bound}\n          {runs}"


class Notebook(Tally):
    """One output of a cell, drawn again and again; it needs no widgets."""

    last: float = 0.0
    handle: Any = None

    def start(self, most_runs: int) -> None:
        """Show that there is something to wait for."""
        super().start(most_runs)
        self.handle = import_module("IPython.display").display(self, display_id=True)

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Count, and draw if the last drawing is a while ago."""
        super().add_runs(succeeded, failed, reused=reused)
        if time.perf_counter() - self.last > SECONDS_BETWEEN_DRAWINGS:
            self.draw()

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Count, and draw as above."""
        super().report_bound(elbo, accepted=accepted)
        if time.perf_counter() - self.last > SECONDS_BETWEEN_DRAWINGS:
            self.draw()

    def draw(self) -> None:
        """Draw again in the same place."""
        if self.handle is not None:
            self.last = time.perf_counter()
            self.handle.update(self)

    def __repr__(self) -> str:
        return "\n".join(self.text)

    def _repr_html_(self) -> str:
        share = min(self.done / self.most_runs, 1.0) if self.most_runs else 0.0
        return f'<progress value="{share:.3f}"></progress> ' + "<br>".join(escape(line) for line in self.text)


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, and not IPython on a terminal or no IPython at all."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


@contextmanager
def progress() -> Iterator[Tally]:
    """The display that fits a notebook, or where standard error goes."""
    if in_notebook():
        cell = Notebook()
        try:
            yield cell
        finally:
            cell.draw()
        return
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
