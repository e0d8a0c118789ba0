"""A Python function that fails in one of many ways: x in, 2 x and x * x out, and the whole part of x chooses the fault.

It is imported by name from the folder of a batch, where `started` gets a line per call.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

KINDS = 128
OK = ("ok",)
RAISED = ("raised an exception",)
UNREADABLE = ("unreadable output", "raised an exception")
NOT_FINITE = ("not a finite number",)
KILLED = ("killed",)


class Treacherous:
    """An object that raises when it is made an array."""

    def __array__(self, *_, **__):
        raise RuntimeError("no array")


def fail(error: BaseException):
    raise error


def recurse(x):
    return recurse(x)


FAULTS = {
    "ok": (lambda x: (2 * x, x * x), OK),
    "a list": (lambda x: [2 * x, x * x], OK),
    "printing": (lambda x: print("x" * 1000) or (2 * x, x * x), OK),
    "raises": (lambda x: fail(ValueError("no")), RAISED),
    "raises without words": (lambda x: fail(Exception()), RAISED),
    "raises bytes": (lambda x: fail(ValueError(b"\xff\n\x1b[2J")), RAISED),
    "division by zero": (lambda x: 1 / 0, RAISED),
    "end of Python": (lambda x: sys.exit(3), RAISED),
    "end of memory": (lambda x: fail(MemoryError()), RAISED),
    "recursion": (recurse, RAISED),
    "missing module": (lambda x: __import__("no_such_module"), RAISED),
    "stop iteration": (lambda x: next(iter(())), RAISED),
    "NaN": (lambda x: (np.nan, x), NOT_FINITE),
    "infinity": (lambda x: (x, -np.inf), NOT_FINITE),
    "masked": (lambda x: np.ma.masked_array([1.0, 2.0], [True, False]), NOT_FINITE),
    "None": (lambda x: None, (*UNREADABLE, *NOT_FINITE)),
    "text": (lambda x: "1.0 2.0", UNREADABLE),
    "one too few": (lambda x: (x,), UNREADABLE),
    "one too many": (lambda x: (x, x, x), UNREADABLE),
    "a matrix": (lambda x: np.ones((2, 2)), UNREADABLE),
    "ragged": (lambda x: ([1.0, 2.0], [3.0]), UNREADABLE),
    "complex": (lambda x: (1j, 2.0), UNREADABLE),
    "huge integer": (lambda x: (10**400, 1), UNREADABLE),
    "generator": (lambda x: (i for i in range(2)), UNREADABLE),
    "dictionary of another name": (lambda x: {"z": [1.0, 2.0]}, UNREADABLE),
    "no array": (lambda x: Treacherous(), UNREADABLE),
    "kills its worker": (lambda x: os.kill(os.getpid(), signal.SIGKILL), KILLED),
    "ends its worker": (lambda x: os._exit(3), KILLED),
    "crashes its worker": (lambda x: signal.raise_signal(signal.SIGSEGV), KILLED),
}
NAMES = list(FAULTS)


def kind(x: float) -> str:
    """The fault that an input chooses."""
    number = int(x) % KINDS
    return NAMES[number] if number < len(NAMES) else "ok"


def respond(x):
    with (Path(__file__).parent / "started").open("a") as file:
        file.write(f"{x!r}\n")
    return FAULTS[kind(x)][0](x)
