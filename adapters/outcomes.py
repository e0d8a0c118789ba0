"""How a run of a program came to nothing, in words."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

from .processes import KEPT, LOG_LIMIT, Ending, Outcome
from .protocol import Status

_FLOODED = {Ending.STDOUT_LIMIT: "standard output", Ending.STDERR_LIMIT: "standard error"}


class RunError(Exception):
    """One run did not give its outputs."""

    def __init__(self, status: Status, cause: str) -> None:
        super().__init__(cause)
        self.status = status


def check_ending(outcome: Outcome, timeout: float | None) -> None:
    """Raise `RunError` if the program was stopped by us."""
    if outcome.ending is Ending.TIMEOUT:
        raise RunError(Status.TIMEOUT, f"timed out after {timeout:g} s")
    if outcome.ending in _FLOODED:
        raise RunError(
            Status.KILLED,
            f"killed, since it wrote more than {LOG_LIMIT // 2**20} MiB to {_FLOODED[outcome.ending]}, "
            f"of which the first and last {KEPT // 2**10} KiB are kept",
        )


def check_intact(*, intact: bool) -> None:
    """Raise `RunError` if the program has put something else in the place of its directory."""
    if not intact:
        raise RunError(Status.UNREADABLE, "the program removed its directory, or put something else in its place")


def check_success(outcome: Outcome, target: Path | None) -> None:
    """Raise `RunError` unless the program ended well: with its target file, or if it has none, with exit code 0."""
    if target is not None and target.is_file():
        return
    missing = "" if target is None else f", and the target file {target.name!r} was not written"
    if outcome.returncode < 0:
        raise RunError(Status.KILLED, f"killed by signal {_signal_name(-outcome.returncode)}{missing}")
    if outcome.returncode > 0 or target is not None:
        raise RunError(Status.EXIT_CODE, f"exit code {outcome.returncode}{missing}")


def reason(error: OSError) -> str:
    """Say what went wrong, in words that a person without errno tables can use."""
    if error.errno == errno.ENOEXEC:
        return f"{error}; a script must start with a line such as #!/bin/sh"
    return str(error)


def last_words(outcome: Outcome) -> str:
    """Quote the end of standard error on one line, as part of a message; nothing if it said nothing."""
    line = " | ".join(part.strip() for part in outcome.standard_error.splitlines() if part.strip())
    printable = "".join(character if character.isprintable() else "?" for character in line)
    return f"; standard error: {printable}" if printable else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)
