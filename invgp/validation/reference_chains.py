"""Reference chains of a problem, with the simulator itself as the target, and their progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from invgp.formatting import count_noun, format_duration
from invgp.problem import Problem
from invgp.progress import SECONDS_BETWEEN_LINES, SilentMonitor, format_rate
from invgp.sampling.exact_target import Chains
from invgp.sampling.simulated_field import SimulatedField
from invgp.sampling.simulated_sites import SimulatedSites
from invgp.sampling.tempered_chains import Limits, TemperedOptions, sample_chains
from invgp.sampling.tolerant_simulator import TolerantSimulator

LARGEST_R_HAT, FEWEST_EFFECTIVE = 1.01, 400  # Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021)
RUNS_PER_SITE = 30_000  # default limit; for a field model, in all
FEWEST_CHAINS, MOST_CHAINS = 64, 256  # default number of chains
NUMBERS_AT_ONCE = 60_000  # variables of all chains together, by which the default is limited


def reference(
    problem: Problem,
    simulator: TolerantSimulator,
    *,
    runs: int | None = None,
    chains: int | None = None,
    effective: int = 1000,
    seed: int = 0,
    report: Callable[[float, int], None] | None = None,
) -> Chains:
    """Sample the posterior of a problem on its simulator.

    Parameters
    ----------
    problem : Problem
        A site model or a field model. Learnt hyperparameters are fixed at their values in the problem.
    simulator : TolerantSimulator
    runs : int, optional
        Largest number of simulator runs; by default that of `default_runs`.
    chains : int, optional
        Number of chains, a multiple of 4; by default that of `default_chains`.
    effective : int
        Effective sample size of each latent value at which the chains end.
    seed : int
        Random seed.
    report : callable, optional
        See `invgp.sampling.tempered_chains.sample_chains`.

    Raises
    ------
    RunsSpent
        The limit of runs was reached before there were draws from the posterior.
    RunsFailedError
        All runs failed at some site.
    """
    target = SimulatedSites(problem, simulator) if problem.grid is None else SimulatedField(problem, simulator)
    limits = Limits(default_runs(problem) if runs is None else runs, LARGEST_R_HAT, effective)
    count = default_chains(target.blocks * target.size) if chains is None else chains
    return sample_chains(target, count, np.random.default_rng(seed), limits, report=report)


def default_runs(problem: Problem) -> int:
    """Return the default limit of runs: as many per site with observations, or for a field model."""
    if problem.grid is not None:
        return RUNS_PER_SITE
    return RUNS_PER_SITE * max(int(np.isfinite(problem.survey.Y).any(axis=1).sum()), 1)


def default_chains(variables: int) -> int:
    """Return the default number of chains for a number of variables, a multiple of the number of populations."""
    populations = TemperedOptions().populations
    most = NUMBERS_AT_ONCE // variables // populations * populations
    return int(np.clip(most, FEWEST_CHAINS, MOST_CHAINS))


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
