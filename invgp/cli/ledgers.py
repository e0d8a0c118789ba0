"""Which ledger a command keeps its runs in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invgp.problem import Problem

CHEAP_ROWS = 1000  # in a task, or more: quicker to run again than to look up


def ledger_of(problem: Problem, posterior: Path) -> Path | None:
    """Where the runs are kept, if they are worth it: a model that takes many rows at once is not long at one."""
    wanted, forward = problem.output.ledger, problem.forward
    kept = forward.rows_per_task < CHEAP_ROWS if wanted is None else wanted
    return posterior.with_suffix(".ledger.sqlite") if kept else None


def holds_runs(ledger: Path) -> bool:
    """Whether there is something to go on from."""
    from invgp.ledger import Ledger  # noqa: PLC0415 - it waits for NumPy

    with Ledger(ledger, read_only=True) as opened:
        return bool(opened.models())
