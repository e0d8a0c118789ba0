"""What a part of the campaign counted, and the table of all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

COUNTS = ("lost", "repeated", "hangs", "tracebacks", "destroyed", "left")
NOTE = 600  # characters of a note that are shown at once
HEADINGS = ("part", "cases", "lost", "repeated", "hangs", "tracebacks", "files destroyed", "processes left")


@dataclass
class Tally:
    """The counts of one part.

    Attributes
    ----------
    cases : runs, signals, moves or files that were tried.
    lost : outcomes that are missing, or are not what they must be.
    repeated : runs that were made again although their outcome was recorded.
    hangs : cases that were ended because they took too long.
    tracebacks : cases in which an exception escaped.
    destroyed : canary files and directories that were changed or removed.
    left : processes that outlived what started them.
    notes : one sentence per fault.
    """

    part: str
    cases: int = 0
    lost: int = 0
    repeated: int = 0
    hangs: int = 0
    tracebacks: int = 0
    destroyed: int = 0
    left: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, count: str, sentence: str, times: int = 1) -> None:
        """Count a fault, with a sentence about it."""
        if times:
            setattr(self, count, getattr(self, count) + times)
            self.notes.append(f"{count}: {sentence}")

    @property
    def faults(self) -> int:
        """All faults together."""
        return sum(getattr(self, count) for count in COUNTS)


def summary(tally: Tally, what: str) -> str:
    """A line about a tally, and the start of each of its notes."""
    notes = [f"    {note[:NOTE]}" for note in tally.notes]
    return "\n".join([f"  {tally.part}: {tally.cases} {what}, {tally.faults} faults", *notes])


def has_traceback(text: str) -> bool:
    """Whether a traceback was printed; one that a message quotes from a program's standard error is on its line."""
    return any(line.startswith("Traceback (most recent call last)") for line in text.splitlines())


def combine(part: str, tallies: list[Tally]) -> Tally:
    """The sum of several tallies."""
    whole = Tally(part, notes=[f"{tally.part}: {note}" for tally in tallies for note in tally.notes])
    for name in ("cases", *COUNTS):
        setattr(whole, name, sum(getattr(tally, name) for tally in tallies))
    return whole


def table(tallies: list[Tally]) -> str:
    """The tallies as a Markdown table, with their sum."""
    rows = [HEADINGS]
    for tally in (*tallies, combine("all", tallies)):
        rows.append((tally.part, f"{tally.cases:,}", *(str(getattr(tally, count)) for count in COUNTS)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    rule = ("-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:]))
    return "\n".join(_line(row, widths) for row in (rows[0], rule, *rows[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return f"| {' | '.join([cells[0].ljust(widths[0]), *numbers])} |"
