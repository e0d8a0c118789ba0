"""The conversation with a persistent program: one JSON object a line, each way.

We write ``{"id": 7, "inputs": {"depth": [100.0, 250.0], "elevation": 31.5}}``, and the program answers
``{"id": 7, "outputs": {"time": [0.1, 0.2]}}`` or ``{"id": 7, "error": "velocity must be positive"}``. A quantity
without labels is a number, one with labels a list. Numbers are written so that they read back exactly. JSON has no
NaN: none is ever sent, and ``null`` or ``NaN`` in an answer says that the program found no number.
"""

from __future__ import annotations

import json
import math
from typing import Any

from .failures import quoted
from .outcomes import RunError
from .protocol import Quantity, Status
from .quantities import kind_of, size_of

_LEAST_LIMIT = 2**20  # bytes, for an answer of few numbers and a long error
_BYTES_A_NUMBER = 64  # twice what any float takes
_SHOWN = 200  # characters of an answer that is no answer
# An integer of thousands of digits is a number too, and Python would refuse it.
_DECODER = json.JSONDecoder(parse_int=float)


class LostError(RunError):
    """A run failed in such a way that the program cannot be trusted with the next row."""


def line_limit(outputs: tuple[Quantity, ...]) -> int:
    """Bytes that an answer may have."""
    return _LEAST_LIMIT + _BYTES_A_NUMBER * size_of(outputs)


class RequestWriter:
    """Writes the line that asks for one run.

    Parameters
    ----------
    inputs : names and labels.
    """

    def __init__(self, inputs: tuple[Quantity, ...]) -> None:
        self._parts: list[tuple[str, int, int | None]] = []
        start = 0
        for quantity in inputs:
            before = ", " if self._parts else ""
            end = None if quantity.labels is None else start + quantity.size
            self._parts.append((f"{before}{json.dumps(quantity.name)}: ", start, end))
            start += quantity.size

    def write(self, number: int, values: list[float]) -> bytes:
        """The request `number` for I finite numbers."""
        # Python writes a finite number, and a list of them, as JSON does; its own encoder takes three times as long.
        named = "".join(
            f"{name}{values[start]!r}" if end is None else f"{name}{values[start:end]!r}"
            for name, start, end in self._parts
        )
        return f'{{"id": {number}, "inputs": {{{named}}}}}\n'.encode()


def read_answer(line: bytes, number: int, outputs: tuple[Quantity, ...]) -> list[float]:
    """The P numbers of the answer to request `number`; NaN where the program found none.

    Raises
    ------
    LostError
        If the line is no answer to that request.
    RunError
        If it is one, but says that the run failed, or does not hold the outputs.
    """
    answer = _parse(line)
    given = answer.get("id")
    if isinstance(given, bool) or given != number:
        raise _lost(f"the answer must have id {number}", line)
    if "error" in answer:
        raise RunError(Status.RAISED, f"the program says: {quoted(str(answer['error'])) or 'nothing'}")
    found = answer.get("outputs")
    if not isinstance(found, dict) or len(found) != len(outputs) or not all(q.name in found for q in outputs):
        names = [quantity.name for quantity in outputs]
        shown = f"one of {list(found)}" if isinstance(found, dict) else kind_of(found)
        raise RunError(Status.UNREADABLE, f"'outputs' must be an object of {names}, but is {quoted(shown, _SHOWN)}")
    return [number for quantity in outputs for number in _numbers(quantity, found[quantity.name])]


def _parse(line: bytes) -> dict[str, Any]:
    try:
        answer = _DECODER.decode(line.decode())
    except RecursionError:
        raise _lost("the answer is nested too deeply", line) from None
    except ValueError as error:  # JSON's errors and those of UTF-8
        raise _lost(f"the answer is not JSON ({error})", line) from error
    if not isinstance(answer, dict):
        raise _lost(f"the answer must be a JSON object, not {kind_of(answer)}", line)
    return answer


def _lost(cause: str, line: bytes) -> LostError:
    return LostError(Status.UNREADABLE, f"{cause}; it reads {quoted(line[:_SHOWN])!r}")


def _numbers(quantity: Quantity, value: Any) -> list[float]:
    values = value if isinstance(value, list) else [value]
    if len(values) != quantity.size or (quantity.labels is not None and not isinstance(value, list)):
        many = "a number" if quantity.labels is None else f"a list of {quantity.size}"
        was = f"a list of {len(value)}" if isinstance(value, list) else kind_of(value)
        raise RunError(Status.UNREADABLE, f"output {quantity.name} must be {many}, but is {was}")
    for item in values:
        if item is not None and not isinstance(item, float):
            raise RunError(Status.UNREADABLE, f"output {quantity.name} must hold numbers, but holds {kind_of(item)}")
    return [math.nan if item is None else item for item in values]
