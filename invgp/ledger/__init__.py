"""The run ledger: what became of every run, in one SQLite file that outlives the process."""

from .recorder import Finished, Known, Recorder
from .store import Ledger, Model, Run

__all__ = ["Finished", "Known", "Ledger", "Model", "Recorder", "Run"]
