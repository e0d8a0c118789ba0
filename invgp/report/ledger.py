"""What a ledger says of the runs of one simulator: how many, how long, what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from invgp.ledger import Ledger

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
        rows = list(ledger.select("SELECT status, seconds FROM runs WHERE model = ?", (model.number,)))
        failed = ledger.select(
            "SELECT run, label, message FROM runs WHERE model = ? AND status <> 'ok' ORDER BY run LIMIT ?",
            (model.number, MOST_FAILURES),
        )
        failures = [(int(run), str(label), str(message)) for run, label, message in failed]
    counts: dict[str, int] = {}
    for status, _ in rows:
        counts[status] = counts.get(status, 0) + 1
    seconds = np.asarray([second for _, second in rows])
    return RunsKept(path.name, counts, float(seconds.sum()), float(np.median(seconds)), float(seconds.max()), failures)
