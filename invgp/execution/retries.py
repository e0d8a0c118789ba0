"""One task of runs, tried again where it fails; and parts of batches."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import Evaluations, ForwardModel, RunContext
from invgp.ledger import FinishedRuns
from invgp.problem import Floats

Rows = NDArray[np.intp]


def attempt(model: ForwardModel, values: Floats, context: RunContext, retries: int = 0) -> FinishedRuns:
    """Run the model at rows of inputs (B, I), in this process; those that fail up to `retries` times more."""
    outcome, seconds = _timed(model, values, context)
    attempts = np.ones(len(values), dtype=np.int64)
    for _ in range(retries):
        bad = np.flatnonzero(~outcome.ok)
        if not bad.size:
            break
        again, more = _timed(model, values[bad], some_of(context, bad))
        outcome = replaced(outcome, bad, again)
        attempts[bad] += 1
        seconds += more
    return FinishedRuns(outcome, attempts, seconds / max(len(values), 1), f"{platform.node()}:{os.getpid()}")


def _timed(model: ForwardModel, values: Floats, context: RunContext) -> tuple[Evaluations, float]:
    """What became of runs, and the seconds that they took, all in all."""
    started = time.perf_counter()
    outcome = model.evaluate(values, context)
    elapsed = time.perf_counter() - started
    return outcome, elapsed if outcome.seconds is None else outcome.seconds


def some_of(context: RunContext, rows: Rows) -> RunContext:
    """The context of some of the runs."""
    return replace(context, labels=[context.labels[i] for i in rows])


def picked(outcome: Evaluations, rows: Rows) -> Evaluations:
    """The outcome of some of the runs."""
    return Evaluations(
        outcome.outputs[rows], tuple(outcome.status[i] for i in rows), tuple(outcome.messages[i] for i in rows)
    )


def replaced(outcome: Evaluations, rows: Rows, new: Evaluations) -> Evaluations:
    """The outcome of all runs, with that of some of them changed."""
    outputs, status, messages = outcome.outputs.copy(), list(outcome.status), list(outcome.messages)
    outputs[rows] = new.outputs
    for i, one, message in zip(rows, new.status, new.messages, strict=True):
        status[i], messages[i] = one, message
    return Evaluations(outputs, tuple(status), tuple(messages))
