"""What a ledger says of the runs of one simulator: how many, how long, what became of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from invgp.adapters.protocol import Status
from invgp.ledger import Ledger
from invgp.ledger.kept_directories import without_removed_directory

MOST_FAILURES = 8  # that are told


@dataclass(frozen=True)
class RunsKept:
    """The runs of a simulator in a ledger.

    Attributes
    ----------
    counts : runs by status.
    seconds : that all runs took together; longest : that the longest took; median : half of them took less.
    failures : number, label and message of the first runs that failed.
    """

    file: str
    counts: dict[str, int]
    seconds: float
    median: float
    longest: float
    failures: list[tuple[int, str, str]]

    @property
    def total(self) -> int:
        """Number of runs."""
        return sum(self.counts.values())


def runs_kept(path: Path, simulator_digest: str) -> RunsKept | None:
    """The runs of the simulator with this digest; None if the ledger holds none of them."""
    with Ledger(path, read_only=True) as ledger:
        model = next((model for model in ledger.models() if model.digest == simulator_digest), None)
        if model is None:
            return None
        runs = list(ledger.runs(model=model))
    if not runs:
        return None
    failed = [run for run in runs if run.status is not Status.OK][:MOST_FAILURES]
    failures = [(run.run, run.label, without_removed_directory(run.message)) for run in failed]
    counts = dict(Counter(run.status.value for run in runs))
    seconds = np.asarray([run.seconds for run in runs])
    return RunsKept(path.name, counts, float(seconds.sum()), float(np.median(seconds)), float(seconds.max()), failures)
