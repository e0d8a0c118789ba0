"""Summary of the runs of one simulator in a ledger: number, duration and outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from invgp.adapters.protocol import Status
from invgp.ledger import Ledger
from invgp.ledger.kept_directories import without_removed_directory

MOST_FAILURES = 8  # in a report


@dataclass(frozen=True)
class LedgerSummary:
    """Summary of the runs of a simulator in a ledger.

    Attributes
    ----------
    file : str
        Name of the ledger.
    counts : dict of str to int
        Number of runs by status.
    seconds, median, longest : float
        Total, median and longest duration of the runs, in seconds.
    failures : list of tuple
        Number, label and message of the first failed runs.
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


def summarise_ledger(path: Path, simulator_digest: str) -> LedgerSummary | None:
    """Return a summary of the runs of a simulator in a ledger.

    Parameters
    ----------
    path : Path
        The ledger.
    simulator_digest : str

    Returns
    -------
    LedgerSummary or None
        None if the ledger contains no run of the simulator.

    Raises
    ------
    LedgerError
        The ledger cannot be read.
    """
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
    return LedgerSummary(
        path.name, counts, float(seconds.sum()), float(np.median(seconds)), float(seconds.max()), failures
    )
