"""Causes for which a run fails, and the checks that find them."""

from __future__ import annotations

import errno
import math
import signal
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .processes import KEPT, LOG_LIMIT, Ending, Outcome
from .protocol import AdapterError, Floats, Quantity, Status
from .quantities import describe_nonfinite

QUOTED = 2000
"""Characters of the output of a program that a message quotes."""
QUOTED_OUTPUT = 400
"""Characters of standard output that are quoted besides standard error."""

_STREAMS = {Ending.STDOUT_LIMIT: "standard output", Ending.STDERR_LIMIT: "standard error"}


class RunError(Exception):
    """A run failed.

    Parameters
    ----------
    status : Status
    cause : str
        Part of a message.
    """

    def __init__(self, status: Status, cause: str) -> None:
        super().__init__(cause)
        self.status = status


def check_settings(timeout: float | None, threads: int, environment: Mapping[str, str]) -> None:
    """Raise `AdapterError` if a program cannot be run with these settings."""
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise AdapterError("timeout", f"must be a positive number of seconds; it is {timeout!r}")
    if threads < 1:
        raise AdapterError("threads", f"must be at least 1; it is {threads!r}")
    for key, value in environment.items():
        if not key or "=" in key or "\0" in key + value:
            raise AdapterError("environment", f"{key!r} = {value!r} cannot be an environment variable")


def check_inputs(inputs: tuple[Quantity, ...], row: Floats) -> None:
    """Raise `RunError` if an input in `row`, shape (I,), is not finite. The program is not run for such a row."""
    bad = describe_nonfinite(inputs, row)
    if bad is not None:
        raise RunError(Status.NAN, f"input {bad}, so the program was not run")


def check_outputs(outputs: tuple[Quantity, ...], row: Floats, *, partial: bool) -> tuple[Status, str]:
    """Check that the outputs of a run are finite; those that are not become NaN.

    Parameters
    ----------
    outputs : tuple of Quantity
    row : array, shape (P,)
    partial : bool
        Whether a run may lack some of its outputs.

    Returns
    -------
    status : Status
        `Status.OK` or `Status.PARTIAL`.
    message : str
        Description of the missing outputs; empty if there are none.

    Raises
    ------
    RunError
        Some outputs are missing and `partial` is False, or all are missing.
    """
    bad = describe_nonfinite(outputs, row)
    if bad is None:
        return Status.OK, ""
    found = np.isfinite(row)
    if not partial or not found.any():
        raise RunError(Status.NAN, f"output {bad}")
    row[~found] = np.nan
    return Status.PARTIAL, f"{np.count_nonzero(~found)} of {len(row)} outputs are missing: output {bad}"


def check_ending(outcome: Outcome, timeout: float | None) -> None:
    """Raise `RunError` if invgp ended the program."""
    if outcome.ending is Ending.TIMEOUT:
        raise RunError(Status.TIMEOUT, f"timed out after {timeout:g} s")
    if outcome.ending in _STREAMS:
        raise RunError(
            Status.KILLED,
            f"killed, since it wrote more than {LOG_LIMIT // 2**20} MiB to {_STREAMS[outcome.ending]}, "
            f"of which the first and last {KEPT // 2**10} KiB are kept",
        )


def check_intact(*, intact: bool) -> None:
    """Raise `RunError` if the program replaced its run directory."""
    if not intact:
        raise RunError(Status.UNREADABLE, "the program removed its directory, or put something else in its place")


def check_success(outcome: Outcome, target: Path | None) -> None:
    """Raise `RunError` unless the program succeeded.

    Parameters
    ----------
    outcome : Outcome
    target : Path, optional
        A file that the program writes if it succeeds; without it, success is the exit code 0.
    """
    if target is not None and target.is_file():
        return
    missing = "" if target is None else f", and the target file {target.name!r} was not written"
    if outcome.returncode < 0:
        raise RunError(Status.KILLED, f"killed by signal {_signal_name(-outcome.returncode)}{missing}")
    if outcome.returncode > 0 or target is not None:
        raise RunError(Status.EXIT_CODE, f"exit code {outcome.returncode}{missing}")


def start_error(error: OSError) -> RunError:
    """Return the error of a run whose program could not be started."""
    return RunError(Status.NOT_STARTED, f"could not be started: {describe_os_error(error)}")


def describe_os_error(error: OSError) -> str:
    """Return the text of an error, with advice for a script without interpreter."""
    if error.errno == errno.ENOEXEC:
        return f"{error}; a script must start with a line such as #!/bin/sh"
    return str(error)


def quote_output(outcome: Outcome, *, has_results: bool = False) -> str:
    """Return the end of standard error and of standard output as part of a message; empty if there is neither.

    Many programs report errors on standard output. Its end is shorter if there is something on standard error.

    Parameters
    ----------
    outcome : Outcome
    has_results : bool
        Whether standard output contains the outputs; it is then quoted only if the program ended with an error.
    """
    errors = _join_lines(outcome.standard_error)
    output = "" if has_results and outcome.returncode == 0 else _join_lines(outcome.standard_output)
    most = QUOTED_OUTPUT if errors else QUOTED
    quoted = f"; standard error: {errors}" if errors else ""
    return f"{quoted}; end of standard output: {output[-most:].lstrip(' |')}" if output else quoted


def quote(text: str | bytes, most: int = QUOTED) -> str:
    """Return the last `most` characters of a text on one line, without unprintable characters."""
    if isinstance(text, bytes):
        text = text[-4 * most :].decode(errors="replace")
    return _join_lines(text[-most:])


def _join_lines(text: str) -> str:
    line = " | ".join(part.strip() for part in text.splitlines() if part.strip())
    return "".join(character if character.isprintable() else "?" for character in line)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)
