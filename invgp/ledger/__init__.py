"""The run ledger: what became of every run, in one SQLite file that outlives the process."""

from .reach import Reach
from .recorder import Claimed, Finished, Known, Recorder
from .store import Ledger, Model, Run

__all__ = ["Claimed", "Finished", "Known", "Ledger", "Model", "Reach", "Recorder", "Run"]
