"""Runs with retries, and parts of batches."""

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


def run_with_retries(model: ForwardModel, values: Floats, context: RunContext, retries: int = 0) -> FinishedRuns:
    """Run a model in this process, and repeat the runs that fail.

    Parameters
    ----------
    model : ForwardModel
    values : array, shape (B, I)
        Inputs, one row per run.
    context : RunContext
    retries : int
        Largest number of repetitions of a failed run.

    Returns
    -------
    FinishedRuns
    """
    outcome, seconds = _evaluate_timed(model, values, context)
    attempts = np.ones(len(values), dtype=np.int64)
    for _ in range(retries):
        bad = np.flatnonzero(~outcome.ok)
        if not bad.size:
            break
        repeated, more = _evaluate_timed(model, values[bad], select_context(context, bad))
        outcome = _replace_rows(outcome, bad, repeated)
        attempts[bad] += 1
        seconds += more
    return FinishedRuns(outcome, attempts, seconds / max(len(values), 1), f"{platform.node()}:{os.getpid()}")


def select_context(context: RunContext, rows: Rows) -> RunContext:
    """Return the context of some of the runs."""
    return replace(context, labels=[context.labels[i] for i in rows])


def select_rows(outcome: Evaluations, rows: Rows) -> Evaluations:
    """Return the outcome of some of the runs."""
    return Evaluations(
        outcome.outputs[rows], tuple(outcome.status[i] for i in rows), tuple(outcome.messages[i] for i in rows)
    )


def _evaluate_timed(model: ForwardModel, values: Floats, context: RunContext) -> tuple[Evaluations, float]:
    """Return the outcome of runs, and the sum of their durations in s."""
    start = time.perf_counter()
    outcome = model.evaluate(values, context)
    elapsed = time.perf_counter() - start
    return outcome, elapsed if outcome.seconds is None else outcome.seconds


def _replace_rows(outcome: Evaluations, rows: Rows, new: Evaluations) -> Evaluations:
    """Return the outcome of all runs, with some rows replaced."""
    outputs, status, messages = outcome.outputs.copy(), list(outcome.status), list(outcome.messages)
    outputs[rows] = new.outputs
    for i, one, message in zip(rows, new.status, new.messages, strict=True):
        status[i], messages[i] = one, message
    return Evaluations(outputs, tuple(status), tuple(messages))
