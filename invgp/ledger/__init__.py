"""The run ledger: a SQLite file that records the inputs and the outcome of every simulator run."""

from .ledger_address import LedgerAddress
from .recorder import ClaimResult, FinishedRuns, LookupResult, Recorder
from .store import Ledger, RecordedModel, RecordedRun

__all__ = [
    "ClaimResult",
    "FinishedRuns",
    "Ledger",
    "LedgerAddress",
    "LookupResult",
    "RecordedModel",
    "RecordedRun",
    "Recorder",
]
