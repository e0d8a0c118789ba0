"""The conformance check itself: it lets a sound model pass, and names what is wrong with any other."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invgp.adapters import Evaluations, ForwardModel, Quantity, RunContext, Status
from invgp.adapters.testing import check_forward_model

VALUES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


class Sound:
    name = "sound"
    inputs: Any = (Quantity("a", "m"), Quantity("b", "m"))
    outputs: Any = (Quantity("c", "m"),)
    digest: Any = "0123456789abcdef"
    rows_per_task: Any = 4

    def evaluate(self, values: Any, context: RunContext) -> Any:
        if values.shape[1] != 2:
            raise ValueError("two columns")
        outputs = self.simulate(values)
        ok = np.isfinite(outputs).all(axis=1)
        outputs[~ok] = np.nan
        return Evaluations(
            outputs,
            tuple(Status.OK if good else Status.NAN for good in ok),
            tuple("" if good else f"run {label}: nan" for good, label in zip(ok, context.labels, strict=True)),
        )

    def simulate(self, values: Any) -> Any:
        return values.sum(axis=1, keepdims=True)


class NoName(Sound):
    name = ""


class TwinNames(Sound):
    inputs = (Quantity("a", "m"), Quantity("a", "m"))


class NoUnit(Sound):
    outputs = (Quantity("c", ""),)


class ListOfInputs(Sound):
    inputs = [*Sound.inputs]  # noqa: RUF012


class TwinLabels(Sound):
    inputs = (Quantity("a", "m", (1, 1)),)


class BadDigest(Sound):
    digest = "not hexadecimal"


class NoRows(Sound):
    rows_per_task = 0


class WrongShape(Sound):
    outputs = (Quantity("c", "m", (1, 2)),)


class SinglePrecision(Sound):
    def simulate(self, values: Any) -> Any:
        return super().simulate(values).astype(np.float32)


class NotEvaluations(Sound):
    def evaluate(self, values: Any, context: RunContext) -> Any:
        return super().evaluate(values, context).outputs


class Altered(Sound):
    def evaluate(self, values: Any, context: RunContext) -> Any:
        e = super().evaluate(values, context)
        return self.alter(e, context)

    def alter(self, e: Evaluations, context: RunContext) -> Evaluations:
        return e


class StatusMissing(Altered):
    def alter(self, e: Evaluations, context: RunContext) -> Evaluations:
        return Evaluations(e.outputs, e.status[1:], e.messages)


class MessageMissing(Altered):
    def alter(self, e: Evaluations, context: RunContext) -> Evaluations:
        return Evaluations(e.outputs, e.status, e.messages[1:])


class Talkative(Altered):
    def alter(self, e: Evaluations, context: RunContext) -> Evaluations:
        return Evaluations(e.outputs, e.status, tuple("fine" for _ in e.messages))


class Anonymous(Altered):
    def alter(self, e: Evaluations, context: RunContext) -> Evaluations:
        return Evaluations(e.outputs, e.status, tuple("a run: nan" if m else "" for m in e.messages))


class FailedWithNumbers(Altered):
    def alter(self, e: Evaluations, context: RunContext) -> Evaluations:
        return Evaluations(np.nan_to_num(e.outputs), e.status, e.messages)


class CallsNanWell(Altered):
    def alter(self, e: Evaluations, context: RunContext) -> Evaluations:
        return Evaluations(e.outputs, (Status.OK,) * len(e.status), ("",) * len(e.status))


class Untidy(Altered):
    def alter(self, e: Evaluations, context: RunContext) -> Evaluations:
        for label in context.labels:
            (context.directory / label).mkdir()
        return e


class AlwaysFails(Sound):
    def simulate(self, values: Any) -> Any:
        return np.full((len(values), 1), np.nan)


class Random(Sound):
    calls = itertools.count()

    def simulate(self, values: Any) -> Any:
        return super().simulate(values) + next(self.calls)


class Forgetful(Sound):
    extra = 0.0

    def __setstate__(self, state: Any) -> None:
        self.extra = 1.0

    def __getstate__(self) -> Any:
        return {"a": 1}

    def simulate(self, values: Any) -> Any:
        return super().simulate(values) + self.extra


class Unpicklable(Sound):
    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle this")


class Neighbourly(Sound):
    def simulate(self, values: Any) -> Any:
        return super().simulate(values) + len(values)


class Ordered(Sound):
    def simulate(self, values: Any) -> Any:
        return super().simulate(values) + (len(values) > 1 and values[0, 0] > values[-1, 0])


class Lenient(Sound):
    def evaluate(self, values: Any, context: RunContext) -> Any:
        padded = np.hstack([values, np.zeros((len(values), 2))])[:, :2]
        return super().evaluate(padded, context)


class NanRaises(Sound):
    def simulate(self, values: Any) -> Any:
        if np.isnan(values).any():
            raise FloatingPointError("nan")
        return super().simulate(values)


class NanSpreads(Sound):
    def simulate(self, values: Any) -> Any:
        return super().simulate(values) + 0 * values.sum()


class WorksInPlace(Sound):
    def simulate(self, values: Any) -> Any:
        values *= 1.0
        return super().simulate(values)


def test_that_a_sound_model_passes(tmp_path: Path) -> None:
    model = Sound()
    assert isinstance(model, ForwardModel)
    check_forward_model(model, VALUES, tmp_path)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (NoName, "name must be a text"),
        (TwinNames, "names of inputs must differ"),
        (NoUnit, "c needs a unit"),
        (ListOfInputs, "inputs must be a tuple"),
        (TwinLabels, "labels of a must differ"),
        (BadDigest, "digest must be"),
        (NoRows, "rows_per_task must be a positive int"),
        (WrongShape, r"outputs must have shape \(3, 2\), not \(3, 1\)"),
        (SinglePrecision, "outputs must be float64, not float32"),
        (NotEvaluations, "must return Evaluations, not ndarray"),
        (StatusMissing, "status must have 3 entries, not 2"),
        (MessageMissing, "messages must have 3 entries, not 2"),
        (Talkative, "succeeded, but has the message 'fine'"),
        (Anonymous, "the message of a failed run must name it"),
        (FailedWithNumbers, "failed, so its outputs must all be NaN"),
        (CallsNanWell, "has the status OK, but its outputs are"),
        (Untidy, "left its directory behind"),
        (AlwaysFails, "no run succeeded"),
        (Random, "the same values twice gave different results"),
        (Forgetful, "different results after pickling"),
        (Neighbourly, "row 0 alone gave another result"),
        (Ordered, "the rows in reverse order gave other results"),
        (Lenient, "must raise ValueError"),
        (NanRaises, "a row of NaN must not raise, but raised FloatingPointError"),
        (NanSpreads, "a row of NaN disturbed the rows beside it"),
    ],
)
def test_that_a_broken_model_is_reported(broken: type[Sound], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_forward_model(broken(), VALUES, tmp_path)


def test_that_a_model_that_does_not_pickle_or_writes_its_values_does_not_pass(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        check_forward_model(Unpicklable(), VALUES, tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        check_forward_model(WorksInPlace(), VALUES, tmp_path)


def test_that_a_missing_attribute_is_reported(tmp_path: Path) -> None:
    class Bare:
        name = "bare"

    with pytest.raises(AssertionError, match="Bare has no inputs, outputs, digest, rows_per_task, evaluate"):
        check_forward_model(Bare(), VALUES, tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [VALUES[:1], VALUES[0], VALUES[:, :1], np.ones((3, 2))])
def test_that_values_that_prove_nothing_are_refused(values: Any, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the check needs"):
        check_forward_model(Sound(), values, tmp_path)
