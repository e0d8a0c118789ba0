"""Progress of an inversion: the protocol of its reports, and displays in a terminal, a notebook or a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import Any, Protocol

from invgp.formatting import count_noun, format_duration


class Monitor(Protocol):
    """Receives a call for each step of an inversion. An implementation must return quickly."""

    def start(self, planned_runs: int, most_runs: int) -> None:
        """Report the start of an inversion: runs that it makes if all goes well, and the most that it may make.

        Parameters
        ----------
        planned_runs : int
            Runs if all goes well.
        most_runs : int
            Largest number of runs.
        """

    def start_batch(self, purpose: str, runs: int) -> None:
        """Report the start of a batch of runs for a purpose such as ``"evaluation 3"``.

        Parameters
        ----------
        purpose : str
        runs : int
            Number of runs of the batch.
        """

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Report finished runs; `reused` of them were taken from the ledger.

        Parameters
        ----------
        succeeded, failed : int
            Runs that have finished.
        reused : int
            How many of them were taken from the ledger.
        """

    def report_waiting(self, runs: int, owner: str) -> None:
        """Report that another process, the `owner`, makes runs that are needed here. The call is repeated.

        Parameters
        ----------
        runs : int
            Runs that the other process makes.
        owner : str
            Host and number of that process.
        """

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Report the evidence lower bound of a new posterior, and whether the posterior was accepted.

        Parameters
        ----------
        elbo : float
            Evidence lower bound, in nats.
        accepted : bool
            Whether the posterior was accepted.
        """

    def report_stage(self, stage: str) -> None:
        """Report a computation without runs, such as ``"draws, likelihood power 0.03"``. The call is repeated.

        Parameters
        ----------
        stage : str
            Name of the computation.
        """

    def report_failures(self, messages: Sequence[str]) -> None:
        """Report the messages of runs that failed.

        Parameters
        ----------
        messages : sequence of str
        """

    def report_concurrency(self, runs: float) -> None:
        """Report how many runs were made at the same time, on average since the start.

        Parameters
        ----------
        runs : float
            Average number of simultaneous runs.
        """

    def report_posterior(self, moments: Callable[[], tuple[Any, Any]]) -> None:
        """Report a new posterior by a function that any thread may call, at any time.

        It returns the mean (N, Q) and the covariance (N, Q, Q) of the latent processes at the sites or nodes.

        Parameters
        ----------
        moments : callable
            Returns mean (N, Q) and covariance (N, Q, Q) of the latent processes.
        """


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

    def report_failures(self, messages: Sequence[str]) -> None:
        """Do nothing."""

    def report_concurrency(self, runs: float) -> None:
        """Do nothing."""

    def report_posterior(self, moments: Callable[[], tuple[Any, Any]]) -> None:
        """Do nothing."""


SECONDS_BETWEEN_LINES = 30.0
SECONDS_BEFORE_FIRST_LINE = 1.0
SECONDS_BETWEEN_STAGES = 10.0  # lines of a computation without runs
SECONDS_BETWEEN_UPDATES = 0.25  # in a notebook
MESSAGES_KEPT = 5  # of failed runs
BAR_WIDTH = 40  # characters


@dataclass
class ProgressState:
    """The numbers that all displays show; an implementation of `invgp.progress.Monitor`.

    Attributes
    ----------
    planned_runs, most_runs : int
        Number of runs of the inversion if all goes well, and the most that it may make.
    purpose : str
        Purpose of the current batch of runs.
    batch_size, batch_done : int
        Number of runs in the current batch, and how many of them are finished.
    evaluations : int
        Number of evaluations of the bound.
    elbo : float or None
        Last accepted bound, in nats.
    done, reused, failed : int
        Numbers of finished, reused and failed runs.
    elsewhere : str
        Text about runs that another process makes.
    messages : list of str
        Latest messages of failed runs, each once.
    at_once : float
        Average number of runs at the same time.
    moments : callable or None
        Returns mean and covariance of the latest posterior, as `Monitor.report_posterior` takes it.
    posteriors : int
        Number of posteriors so far.
    running : float
        Seconds spent waiting for runs, without the computations between them.
    since, started : float
        Times of the last finished run and of the start, in seconds.
    """

    planned_runs: int = 0
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
    messages: list[str] = field(default_factory=list)
    at_once: float = 0.0
    moments: Callable[[], tuple[Any, Any]] | None = None
    posteriors: int = 0
    running: float = 0.0
    since: float = field(default_factory=time.perf_counter)
    started: float = field(default_factory=time.perf_counter)

    def start(self, planned_runs: int, most_runs: int) -> None:
        """Set the start of the inversion."""
        self.planned_runs, self.most_runs, self.started = planned_runs, most_runs, time.perf_counter()

    def start_batch(self, purpose: str, runs: int) -> None:
        """Set the start of a batch of runs."""
        self.purpose, self.batch_size, self.batch_done, self.elsewhere = purpose, runs, 0, ""
        self.since = time.perf_counter()

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Add finished runs."""
        self.done += succeeded + failed
        self.reused += reused
        self.batch_done += succeeded + failed
        self.failed += failed
        now = time.perf_counter()
        self.running, self.since = self.running + now - self.since, now

    def report_waiting(self, runs: int, owner: str) -> None:
        """Set the text about runs that another process makes."""
        self.elsewhere = f", waiting for {owner} to make {runs:,} of them"

    def report_stage(self, stage: str) -> None:
        """Set the text of a computation without runs."""
        self.purpose, self.batch_size, self.batch_done, self.elsewhere = stage, 0, 0, ""

    def report_failures(self, messages: Sequence[str]) -> None:
        """Keep the latest messages."""
        self.messages = list(dict.fromkeys([*messages, *self.messages]))[:MESSAGES_KEPT]

    def report_concurrency(self, runs: float) -> None:
        """Set the average number of runs at the same time."""
        self.at_once = runs

    def report_posterior(self, moments: Callable[[], tuple[Any, Any]]) -> None:
        """Keep the function that returns the moments."""
        self.moments = moments
        self.posteriors += 1

    def finish(self) -> None:
        """Set the end of the inversion: no run follows."""
        self.report_stage("finished")
        self.planned_runs = self.most_runs = self.done

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Add an evaluation of the bound, and keep the bound if it was accepted."""
        self.evaluations += 1
        if accepted:
            self.elbo = elbo

    @property
    def text(self) -> tuple[str, str, str]:
        """Three texts: current step, bound, and runs with the remaining time."""
        if not self.purpose:
            return "starting", "", ""
        seconds = max(self.running, 1e-9)
        made = self.done - self.reused  # reused runs take no time
        within = (
            f", {self.batch_done:,} of {count_noun(self.batch_size, 'run')}"
            if self.batch_done < self.batch_size
            else ""
        )
        elbo = "-" if self.elbo is None else f"{self.elbo:.2f}"
        return (
            f"{self.purpose}{within}{self.elsewhere if within else ''}",
            f"iteration {self.evaluations:,} | ELBO {elbo}",
            f"{count_noun(self.done, 'run')}, {self.failed:,} failed | "
            f"{format_rate(made / seconds) if made else '- runs/s'}{self._time_left(seconds / made if made else None)}",
        )

    @property
    def share_done(self) -> float:
        """Finished runs over the most runs that the plan, or the budget, still allows; 1 at the end."""
        total = self.done + self._runs_left()
        return self.done / total if total else float(self.purpose == "finished")

    def _time_left(self, pace: float | None) -> str:
        """Return the time of the runs that follow, at a pace in s per run: as planned, and at most.

        It does not contain the time of the inference itself, which is most of the time if runs are fast.
        """
        left, most = self._runs_left(), max(self.most_runs - self.done, self.batch_size - self.batch_done)
        if pace is None:
            return " | up to - of runs"
        if not left:
            return ""
        planned = f"{format_duration(left * pace)}, at most " if left < most else "up to "
        return f" | {planned}{format_duration(most * pace)} of runs"

    def _runs_left(self) -> int:
        """Return the most runs that may follow: those of the plan, or all that are allowed once it is exceeded."""
        unfinished = self.batch_size - self.batch_done
        exceeded = self.done + unfinished > self.planned_runs
        return max((self.most_runs if exceeded else self.planned_runs) - self.done, unfinished)


class LogDisplay(ProgressState):
    """Prints one line per evaluation of the bound, and further lines during long batches and computations."""

    last: float = 0.0

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Add finished runs, and print a line if the last one is old."""
        super().add_runs(succeeded, failed, reused=reused)
        longest = SECONDS_BETWEEN_LINES if self.last else SECONDS_BEFORE_FIRST_LINE
        if time.perf_counter() - max(self.last, self.started) > longest:
            self._print()

    def report_waiting(self, runs: int, owner: str) -> None:
        """Print a line, once per batch."""
        first = not self.elsewhere
        super().report_waiting(runs, owner)
        if first:
            self._print()

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Add an evaluation and print a line."""
        super().report_bound(elbo, accepted=accepted)
        self._print()

    def report_stage(self, stage: str) -> None:
        """Set the text, and print a line if the last one is old."""
        super().report_stage(stage)
        if time.perf_counter() - max(self.last, self.started) > SECONDS_BETWEEN_STAGES:
            self._print()

    def _print(self) -> None:
        self.last = time.perf_counter()
        print(" | ".join(self.text), file=sys.stderr, flush=True)


class TerminalDisplay(ProgressState):
    """Four lines that are updated in place, short enough for a terminal with 80 columns."""

    def __rich__(self) -> str:
        where, bound, runs = self.text
        full = round(BAR_WIDTH * self.share_done)
        bar = f"[cyan]{'━' * full}[/][dim]{'━' * (BAR_WIDTH - full)}[/]"
        return f"[bold cyan]inverting[/] {where}\n          {bound}\n          {runs}\n          {bar}"


class NotebookDisplay(ProgressState):
    """One output of a notebook cell that is updated in place, without widgets."""

    last: float = 0.0
    handle: Any = None

    def start(self, planned_runs: int, most_runs: int) -> None:
        """Set the start of the inversion and show the display."""
        super().start(planned_runs, most_runs)
        self.handle = import_module("IPython.display").display(self, display_id=True)

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        """Add finished runs, and update the display if the last update is old."""
        super().add_runs(succeeded, failed, reused=reused)
        if time.perf_counter() - self.last > SECONDS_BETWEEN_UPDATES:
            self.draw()

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        """Add an evaluation, and update the display if the last update is old."""
        super().report_bound(elbo, accepted=accepted)
        if time.perf_counter() - self.last > SECONDS_BETWEEN_UPDATES:
            self.draw()

    def report_stage(self, stage: str) -> None:
        """Set the text, and update the display if the last update is old."""
        super().report_stage(stage)
        if time.perf_counter() - self.last > SECONDS_BETWEEN_UPDATES:
            self.draw()

    def draw(self) -> None:
        """Update the display."""
        if self.handle is not None:
            self.last = time.perf_counter()
            self.handle.update(self)

    def __repr__(self) -> str:
        return "\n".join(self.text)

    def _repr_html_(self) -> str:
        return f'<progress value="{self.share_done:.3f}"></progress> ' + "<br>".join(escape(line) for line in self.text)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook; not for IPython in a terminal."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


@contextmanager
def show_status(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a line in a terminal until the block ends, so that a user sees at once that something happens.

    Parameters
    ----------
    text : str
        The line.
    quiet : bool
        Whether nothing is displayed.
    """
    shown = not quiet and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if shown:
        print(text, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[ProgressState]:
    """Show the progress of an inversion: in a notebook, in the terminal, or as log lines on standard error.

    Parameters
    ----------
    quiet : bool
        Whether nothing is displayed.

    Yields
    ------
    ProgressState
        The monitor of the inversion.
    """
    if quiet:
        yield ProgressState()
        return
    if in_notebook():
        cell = NotebookDisplay()
        try:
            yield cell
            cell.finish()
        finally:
            cell.draw()
        return
    if not sys.stderr.isatty():
        yield LogDisplay()
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live as Display  # noqa: PLC0415

    live = TerminalDisplay()
    console = Console(stderr=True, highlight=False)
    with Display(live, console=console, refresh_per_second=8, transient=True):
        yield live


def format_rate(per_second: float) -> str:
    """Return a rate with a suitable unit: ``1,200 runs/s``, ``2.5 runs/s``, ``12 runs/min`` or ``3 runs/h``.

    Parameters
    ----------
    per_second : float
        Runs per second.

    Returns
    -------
    str
    """
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_second * seconds >= 1 or unit == "h":
            break
    number = per_second * seconds
    return f"{number:,.0f} runs/{unit}" if number >= 10 else f"{number:.2g} runs/{unit}"
