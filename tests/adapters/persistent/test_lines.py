"""Requests and answers, line by line."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.executable_models import DEPTH, SPEED, TIME
from invgp.adapters import Status
from invgp.adapters.persistent import RequestWriter, read_answer
from invgp.adapters.persistent_process import LostError
from invgp.adapters.run_errors import RunError

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.integers(1, 2**53), st.lists(FINITE, min_size=3, max_size=3))
def test_that_a_request_reads_back_exactly(number: int, values: list[float]) -> None:
    line = RequestWriter((SPEED, DEPTH)).write(number, values)
    assert line.count(b"\n") == 1
    request = json.loads(line)
    assert request == {"id": number, "inputs": {"speed": values[0], "depth": values[1:]}}
    assert math.copysign(1, request["inputs"]["speed"]) == math.copysign(1, values[0])


@given(st.integers(1, 2**53), st.lists(FINITE, min_size=3, max_size=3), st.booleans())
def test_that_an_answer_reads_back_exactly(number: int, values: list[float], single: bool) -> None:
    speed = values[:1] if single else values[0]
    answer = {"outputs": {"depth": values[1:], "speed": speed}, "id": number, "seconds": 0.1}
    assert read_answer(json.dumps(answer).encode(), number, (SPEED, DEPTH)) == values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "outputs", "error", "time", "x"]), inner),
)


def outcome_of(line: bytes) -> list[float] | RunError:
    try:
        return read_answer(line, 7, (TIME,))
    except RunError as error:
        return error


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_that_an_invalid_answer_raises_one_sentence(line: bytes) -> None:
    outcome = outcome_of(line)
    assert isinstance(outcome, list) or (str(outcome).isprintable() and len(str(outcome)) < 4000)


@pytest.mark.slow
@given(JSON)
def test_that_the_outputs_may_be_anything_and_the_program_continues(value: Any) -> None:
    outcome = outcome_of(json.dumps({"id": 7, "outputs": {"time": value}}).encode())
    if isinstance(outcome, list):
        assert len(outcome) == 2
    else:
        assert not isinstance(outcome, LostError)
        assert outcome.status is Status.UNREADABLE


def test_that_a_number_of_many_digits_is_a_number() -> None:
    digits = "9" * 10_000
    answer = read_answer(f'{{"id": 1, "outputs": {{"time": [{digits}, 1]}}}}'.encode(), 1, (TIME,))
    np.testing.assert_array_equal(answer, [np.inf, 1.0])
