"""Progress of a command, unless the person wants quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from invgp.cli.console import current_console
from invgp.progress import SECONDS_BETWEEN_LINES, Live, Tally, rate
from invgp.progress import progress as displayed

__all__ = ["SECONDS_BETWEEN_LINES", "Live", "Tally", "progress", "rate"]


@contextmanager
def progress() -> Iterator[Tally]:
    """The display that fits where standard error goes; none if the person wants quiet."""
    if current_console().quiet:
        yield Tally()
        return
    with displayed() as tally:
        yield tally
