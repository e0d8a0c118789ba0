"""The conformance check of adapters."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np

from .protocol import (
    Evaluations,
    Floats,
    ForwardModel,
    Quantity,
    RunContext,
    Status,
    input_size,
    output_size,
)


def check_forward_model(model: ForwardModel, values: Floats, directory: Path, rtol: float = 1e-9) -> None:
    """Check that a model fulfils the contract of `ForwardModel`.

    Parameters
    ----------
    model : ForwardModel
    values : array, shape (B, I)
        Inputs, in the units of the model; at least two rows must differ, and at least one run must succeed.
    directory : Path
        An existing directory for run directories.
    rtol : float
        Largest relative difference between the outputs of a row alone and in a batch. It is not 0, because vector
        instructions may round differently at the end of an array. Repetitions must be bit-identical.

    Raises
    ------
    AssertionError
        The model violates the contract; the message states how.
    """
    _check_attributes(model)
    values = np.array(values, dtype=np.float64)
    _require(
        values.ndim == 2 and len(values) >= 2 and values.shape[1] == input_size(model),
        f"the check needs values of shape (B >= 2, {input_size(model)}), got {values.shape}",
    )
    _require(not (values == values[0]).all(), "the check needs rows of values that differ")
    runs = _Runs(model, directory)
    reference = runs.evaluate(values)
    _require(bool(reference.ok.any()), f"no run succeeded, so nothing can be checked: {reference.messages[0]}")
    _check_repetition(runs, values, reference)
    _check_rows(runs, values, reference, rtol)
    _check_edges(runs, values, reference, rtol)


class _Runs:
    """Evaluates with new labels, and checks the form of the result."""

    def __init__(self, model: ForwardModel, directory: Path) -> None:
        self.model = model
        self._directory = directory
        self._batch = 0

    def evaluate(self, values: Floats, model: ForwardModel | None = None) -> Evaluations:
        self._batch += 1
        context = RunContext([f"check-{self._batch}-{i}" for i in range(len(values))], self._directory)
        # Workers receive large arrays as read-only memory maps.
        read_only = values.copy()
        read_only.flags.writeable = False
        result = (model or self.model).evaluate(read_only, context)
        _check_form(self.model, result, context)
        return result


def _check_attributes(model: ForwardModel) -> None:
    missing = [n for n in ("name", "inputs", "outputs", "digest", "rows_per_task", "evaluate") if not hasattr(model, n)]
    _require(not missing, f"{type(model).__name__} has no {', '.join(missing)}")
    _require(isinstance(model.name, str) and model.name != "", f"name must be a text, not {model.name!r}")
    for side, quantities in (("inputs", model.inputs), ("outputs", model.outputs)):
        _require(
            isinstance(quantities, tuple) and all(isinstance(q, Quantity) for q in quantities) and len(quantities) > 0,
            f"{side} must be a tuple of at least one Quantity, not {quantities!r}",
        )
        names = [q.name for q in quantities]
        _require(len(set(names)) == len(names), f"the names of {side} must differ, not {names}")
        for q in quantities:
            _require(isinstance(q.unit, str) and q.unit != "", f"{q.name} needs a unit; '1' if it has none")
            _require(q.labels is None or len(set(q.labels)) == q.size > 0, f"the labels of {q.name} must differ")
    _require(
        isinstance(model.digest, str) and re.fullmatch(r"[0-9a-f]{16,}", model.digest) is not None,
        f"digest must be at least 16 hexadecimal digits, not {model.digest!r}",
    )
    _require(model.digest == model.digest, "digest must not change")
    rows = model.rows_per_task
    _require(type(rows) is int and rows > 0, f"rows_per_task must be a positive int, not {rows!r}")


def _check_form(model: ForwardModel, result: Evaluations, context: RunContext) -> None:
    count = len(context.labels)
    _require(isinstance(result, Evaluations), f"evaluate must return Evaluations, not {type(result).__name__}")
    outputs = result.outputs
    _require(isinstance(outputs, np.ndarray), f"outputs must be a NumPy array, not {type(outputs).__name__}")
    _require(outputs.dtype == np.float64, f"outputs must be float64, not {outputs.dtype}")
    _require(
        outputs.shape == (count, output_size(model)),
        f"outputs must have shape {(count, output_size(model))}, not {outputs.shape}",
    )
    _require(len(result.status) == count, f"status must have {count} entries, not {len(result.status)}")
    _require(len(result.messages) == count, f"messages must have {count} entries, not {len(result.messages)}")
    for label, row, status, message in zip(context.labels, outputs, result.status, result.messages, strict=True):
        _require(isinstance(status, Status), f"the status of run {label} must be a Status, not {status!r}")
        if status is Status.OK:
            _require(message == "", f"run {label} succeeded, but has the message {message!r}")
            _require(bool(np.isfinite(row).all()), f"run {label} has the status OK, but its outputs are {row}")
            _require(
                not (context.directory / label).exists(),
                f"run {label} succeeded, but left its directory behind",
            )
        elif status is Status.PARTIAL:
            _require(bool(np.isfinite(row).any()), f"run {label} has the status PARTIAL, but no output")
            _require(bool(np.isnan(row).any()), f"run {label} lacks outputs, so one must be NaN, not {row}")
            _require(label in message, f"the message of a run that lacks outputs must name it, {label}: {message!r}")
        else:
            _require(bool(np.isnan(row).all()), f"run {label} failed, so its outputs must all be NaN, not {row}")
            _require(label in message, f"the message of a failed run must name it, {label}; it is {message!r}")


def _check_repetition(runs: _Runs, values: Floats, reference: Evaluations) -> None:
    _compare(runs.evaluate(values), reference, 0.0, "the same values twice gave different results")
    copy = pickle.loads(pickle.dumps(runs.model))  # noqa: S301 -- our own bytes
    _require(copy.digest == runs.model.digest, "the digest changed on the way through pickle")
    _compare(runs.evaluate(values, copy), reference, 0.0, "the model gave different results after pickling")


def _check_rows(runs: _Runs, values: Floats, reference: Evaluations, rtol: float) -> None:
    for i in range(len(values)):
        alone = runs.evaluate(values[i : i + 1])
        _compare(alone, _select_rows(reference, [i]), rtol, f"row {i} alone gave another result than in its batch")
    order = list(range(len(values)))[::-1]
    backwards = runs.evaluate(values[order])
    _compare(backwards, _select_rows(reference, order), rtol, "the rows in reverse order gave other results")


def _check_edges(runs: _Runs, values: Floats, reference: Evaluations, rtol: float) -> None:
    runs.evaluate(values[:0])
    for wrong in (values[:, :-1], np.hstack([values, values[:, :1]])):
        try:
            runs.evaluate(wrong)
        except ValueError:
            continue
        raise AssertionError(f"values of shape {wrong.shape} must raise ValueError")
    disturbed = np.insert(values, 1, np.nan, axis=0)
    try:
        result = runs.evaluate(disturbed)
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"a row of NaN must not raise, but raised {type(error).__name__}: {error}") from error
    others = [i for i in range(len(disturbed)) if i != 1]
    _compare(_select_rows(result, others), reference, rtol, "a row of NaN disturbed the rows beside it")


def _select_rows(result: Evaluations, rows: list[int]) -> Evaluations:
    return Evaluations(
        outputs=result.outputs[rows],
        status=tuple(result.status[i] for i in rows),
        messages=tuple(result.messages[i] for i in rows),
    )


def _compare(result: Evaluations, expected: Evaluations, rtol: float, sentence: str) -> None:
    for i, (got, wanted) in enumerate(zip(result.status, expected.status, strict=True)):
        _require(got == wanted, f"{sentence}: run {i} was '{wanted}', then '{got}': {result.messages[i]}")
    same = np.isclose(result.outputs, expected.outputs, rtol=rtol, atol=0.0, equal_nan=True).all(axis=1)
    for i in np.flatnonzero(~same).tolist():
        raise AssertionError(f"{sentence}: run {i} gave {expected.outputs[i]}, then {result.outputs[i]}")


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise AssertionError(sentence)
