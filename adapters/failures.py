"""What the adapters of a program that takes many rows have in common: its settings, its inputs, its words."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .outcomes import RunError, reason
from .protocol import AdapterError, Floats, Quantity, Status
from .quantities import first_bad_output

QUOTED = 2000
"""Characters of what a program said that a message quotes."""


def check_settings(timeout: float | None, threads: int, environment: Mapping[str, str]) -> None:
    """Raise `AdapterError` if a program cannot be run with these."""
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise AdapterError("timeout", f"must be a positive number of seconds; it is {timeout!r}")
    if threads < 1:
        raise AdapterError("threads", f"must be at least 1; it is {threads!r}")
    for key, value in environment.items():
        if not key or "=" in key or "\0" in key + value:
            raise AdapterError("environment", f"{key!r} = {value!r} cannot be an environment variable")


def check_inputs(inputs: tuple[Quantity, ...], row: Floats) -> None:
    """Raise `RunError` if a number of `row`, (I,), is not finite: no program is asked about those."""
    bad = first_bad_output(inputs, row)
    if bad is not None:
        raise RunError(Status.NAN, f"{bad.replace('output', 'input', 1)}, so the program was not asked")


def judged(outputs: tuple[Quantity, ...], row: Floats, *, partial: bool) -> tuple[Status, str]:
    """Whether a row of outputs, (P,), is whole, and if not, what is missing; what is not finite becomes NaN.

    Raises
    ------
    RunError
        If something is missing, and not `partial`, or if all is.
    """
    bad = first_bad_output(outputs, row)
    if bad is None:
        return Status.OK, ""
    found = np.isfinite(row)
    if not partial or not found.any():
        raise RunError(Status.NAN, bad)
    row[~found] = np.nan
    return Status.PARTIAL, f"{np.count_nonzero(~found)} of {len(row)} outputs are missing: {bad}"


def not_started(error: OSError) -> RunError:
    """A program that the system would not start."""
    return RunError(Status.NOT_STARTED, f"could not be started: {reason(error)}")


def quoted(text: str | bytes, most: int = QUOTED) -> str:
    """What a program said, on one line, printable and short; its end, if it is long."""
    if isinstance(text, bytes):
        text = text[-4 * most :].decode(errors="replace")
    line = " | ".join(part.strip() for part in text[-most:].splitlines() if part.strip())
    return "".join(character if character.isprintable() else "?" for character in line)
