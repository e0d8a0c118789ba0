"""The simulator of a problem, at latent values: every run of an inversion goes through here and is counted."""

from __future__ import annotations

import math
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import SPARE, Evaluations, RunContext, Status
from invgp.execution.concurrency import Concurrency
from invgp.execution.evaluate import BatchStopped, evaluate
from invgp.execution.failure_patterns import Outcomes
from invgp.execution.missing_outputs import Gaps
from invgp.execution.monitor import Monitor, Silent
from invgp.execution.pools import Loop, Pool
from invgp.execution.run_directories import remove_run
from invgp.ledger import Recorder
from invgp.ledger.kept_directories import without_removed_directory
from invgp.problem import Floats, Problem

MESSAGES_SHOWN = 3
HOPELESS = 20  # runs: if the first of a batch all fail, so will the rest
DIRECTORIES_KEPT = 100  # of failed runs: enough to find a cause, too few to fill a disk


class Batch(NamedTuple):
    """What the simulator made of latent values.

    Attributes
    ----------
    outputs : (S, B, P), in the observations' order and units; NaN for an output that is missing of a run that did not
        fail; whatever a failed run holds is to be ignored.
    valid : (S, B), False where the run failed.
    """

    outputs: Floats
    valid: NDArray[np.bool_]

    def whole(self, observed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(S, B), False where the run failed or lacks an output that was observed (B, P) at its site."""
        return np.asarray(self.valid & (np.isfinite(self.outputs) | ~observed).all(axis=-1))

    def needed(self, observed: NDArray[np.bool_]) -> Floats:
        """The outputs (S, B, P), anything for those that were not observed (B, P): nobody misses them."""
        return np.where(observed, self.outputs, np.nan_to_num(self.outputs))

    @staticmethod
    def failed(samples: int, sites: int, outputs: int) -> Batch:
        """A batch without a valid run."""
        return Batch(np.full((samples, sites, outputs), np.nan), np.zeros((samples, sites), dtype=bool))


class TooManyFailed(BatchStopped):
    """More runs of a batch failed than `inference.max_failed_share` allows; the rest of the batch was not run."""


@dataclass
class Simulator:
    """The forward model of a problem, run in parallel, with a record of what became of the runs.

    Parameters
    ----------
    directory : where the runs have their directories.
    pool : where runs are made.
    budget : runs that may be spent in all; None for any number.
    recorder : the ledger of the model's runs; None for none. A run that it answers counts as one that was made: an
        inversion that is taken up again must decide as it would have, had it not been stopped.
    temporary : whether `directory` is removed in the end, so that no message is to name what is in it.
    """

    problem: Problem
    directory: Path
    pool: Pool = field(default_factory=Loop)
    monitor: Monitor = field(default_factory=Silent)
    budget: int | None = None
    recorder: Recorder | None = None
    concurrency: Concurrency = field(default_factory=Concurrency)
    temporary: bool = False
    runs: int = 0
    failed: int = 0
    partial: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    purposes: Counter[str] = field(default_factory=Counter)
    outcomes: Outcomes = field(default_factory=Outcomes)
    gaps: Gaps = field(init=False)

    def __post_init__(self) -> None:
        self.gaps = Gaps(np.isfinite(self.problem.survey.Y))

    def run(self, f: Floats, label: str, sites: NDArray[np.intp] | None = None) -> Batch:
        """Run the model at latent values f (S, B, Q), on the scale of the Gaussian process.

        Parameters
        ----------
        label : what the runs are for; their directories are named by it, the site and the sample.
        sites : numbers (B,) of the sites the values are for; by default all N.

        Raises
        ------
        TooManyFailed
            A larger share failed than `inference.max_failed_share`; the runs made are counted all the same.
        """
        problem = self.problem
        numbers = np.arange(problem.survey.size) if sites is None else sites
        samples = f.shape[0]
        runs = [f"site{n + 1}-sample{s + 1}" for s in range(samples) for n in numbers]
        batch = self._evaluated(problem.to_simulator(problem.to_physical(f), numbers), label, runs)
        valid = batch.ok.reshape(samples, len(numbers))
        self.outcomes.add(f, numbers, valid)
        outputs = problem.from_simulator(batch.outputs, samples)
        self.gaps.add(outputs, valid, numbers)
        return Batch(outputs, valid)

    def run_fields(self, f: Floats, label: str) -> tuple[Floats, NDArray[np.bool_]]:
        """Run a field model at latent values f (S, G, Q) on its grid; outputs (S, N, P), and which runs went well (S,).

        Raises
        ------
        TooManyFailed
            As for `run`.
        """
        runs = [f"sample{s + 1}" for s in range(len(f))]
        batch = self._evaluated(self.problem.field_to_simulator(self.problem.to_physical(f)), label, runs)
        return self.problem.field_from_simulator(batch.outputs), batch.ok

    def _evaluated(self, rows: Floats, label: str, runs: Sequence[str]) -> Evaluations:
        """What became of rows (B, I), for this purpose and with these names of their own."""
        problem = self.problem
        if not self.affords(len(rows)):
            raise ValueError(f"{len(rows)} runs are more than the {self.left} that are left")
        purpose = label.replace("-", " ")
        self.purposes[label] += 1
        if self.purposes[label] > 1:  # the directories of its failed runs must not be taken for those of another batch
            label = f"{label}-{self.purposes[label]}"
        labels = [f"{label}-{run}" for run in runs]
        self.monitor.batch(purpose, len(labels))
        watch = _Watch(len(labels), problem.inference.max_failed_share)
        try:
            batch = evaluate(
                problem.forward,
                rows,
                RunContext(labels, self.directory, more=True),
                pool=self.pool,
                retries=problem.inference.retries,
                recorder=self.recorder,
                monitor=self.monitor,
                watch=watch.saw,
                concurrency=self.concurrency,
            )
        except TooManyFailed:
            self._count(Evaluations.concatenate(watch.seen), labels)
            raise
        self._count(batch, labels)
        return batch

    @property
    def answered(self) -> int:
        """Runs that were taken from the ledger."""
        return 0 if self.recorder is None else self.recorder.reused

    @property
    def lost(self) -> str:
        """What became of runs that did not tell all, in words."""
        return "failed or lack outputs" if self.partial else "failed"

    @property
    def left(self) -> int | None:
        """Runs that may still be spent; None for any number."""
        return None if self.budget is None else self.budget - self.runs

    def affords(self, runs: int) -> bool:
        """Whether so many runs are within the budget."""
        return self.left is None or runs <= self.left

    def failures(self, opening: str) -> str:
        """What failed, in words."""
        causes = ", ".join(f"{cause} ({count})" for cause, count in self.causes.most_common())
        text = f"{opening}: {self.failed} of {self.runs} runs failed"
        if self.partial:
            text += f", and {self.partial} gave only some of their outputs"
        again = []
        if self.answered:
            again = [
                f"{self.answered} of these runs are known from the ledger; `invgp runs rerun` tries failed ones again"
            ]
        never = [sentence] if (sentence := self.gaps.never_given(self.problem)) else []
        return "\n  ".join([f"{text}: {causes}" if causes else text, *self.messages, *never, *again])

    def notes(self, mean: Floats, covariance: Floats) -> list[str]:
        """What its runs mean for a posterior with these marginals (N, Q) and (N, Q, Q), in words."""
        some, problem = [], self.problem
        each = problem.noise.kind == "gaussian" and problem.inference.posterior == "coupled gaussian"
        if self.partial:
            some = [
                f"{self.partial} of {self.runs} runs gave only some of their outputs; "
                + (
                    "each output was inferred from the runs that have it."
                    if each
                    else "where one that was observed is missing, the run was left out."
                )
            ]
        return some + self.outcomes.pattern(self.problem, mean, covariance)

    def _count(self, batch: Evaluations, labels: Sequence[str]) -> None:
        bad = np.flatnonzero(~batch.ok)
        for i in bad[max(DIRECTORIES_KEPT - self.failed, 0) :]:
            remove_run(self.directory, labels[i])
        self.runs += len(batch.status)
        self.failed += len(bad)
        self.partial += sum(status is Status.PARTIAL for status in batch.status)
        self.causes.update(batch.status[i].value for i in bad)
        if len(self.messages) < MESSAGES_SHOWN:  # each once: equal inputs are run once, and have one message
            said = dict.fromkeys(
                [*self.messages, *(without_removed_directory(batch.messages[i], temporary=self.temporary) for i in bad)]
            )
            self.messages = list(said)[:MESSAGES_SHOWN]


@dataclass
class _Watch:
    """Stops a batch as soon as it cannot end well: nobody should pay for the rest."""

    size: int
    allowed: float
    seen: list[Evaluations] = field(default_factory=list)
    runs: int = 0
    failed: int = 0

    def saw(self, part: Evaluations) -> None:
        self.seen.append(part)
        self.runs += len(part.status)
        self.failed += int((~part.ok).sum())
        hopeless = self.failed == self.runs >= min(HOPELESS, self.size)
        # A small batch may have bad luck: two standard deviations more than its share are let pass.
        luck = 2.0 * math.sqrt(self.allowed * (1.0 - self.allowed) * self.size)
        if hopeless or self.failed > self.allowed * self.size + luck:
            raise TooManyFailed


@contextmanager
def own_directory(parent: str | Path) -> Iterator[Path]:
    """A directory for the runs of one inversion alone: two that share an output must not share their runs."""
    directory = Path(parent).resolve() / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{secrets.token_hex(2)}"
    try:
        yield directory
    finally:
        for spare in directory.glob(f"{SPARE}*"):
            with suppress(OSError):
                spare.rmdir()
        with suppress(OSError):  # it stays if it holds the directory of a failed run
            directory.rmdir()
