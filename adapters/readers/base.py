"""What every reader of outputs has in common, and the plainest of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from ..protocol import AdapterError, Floats, Quantity
from ..quantities import size_of
from .text import read_numbers, read_text

Rows = int | tuple[int, ...] | None
T = TypeVar("T")


class Reader(Protocol):
    """Reads some of the outputs from a run's directory; a frozen dataclass, so that its ``repr`` tells all of it."""

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The files that it reads, relative to the run's directory; None for standard output."""

    @property
    def outputs(self) -> tuple[str, ...] | None:
        """Names of the outputs that it reads, in its order; None for all, in the model's order."""

    def check(self, quantities: tuple[Quantity, ...]) -> None:
        """Raise `AdapterError` if it cannot read `quantities`, whatever the program writes."""

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the numbers of `quantities`, (their sizes' sum,).

        Raises
        ------
        FileNotFoundError, OSError, ValueError
            If they cannot be read; the sentence says why.
        """


def select(reader: Reader, quantities: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
    """Pick those of `quantities` that `reader` reads, in its order."""
    if reader.outputs is None:
        return quantities
    known = {quantity.name: quantity for quantity in quantities}
    return tuple(known[name] for name in reader.outputs)


def check_rows(rows: Rows) -> None:
    """Raise `AdapterError` if a row is number 0."""
    if rows is not None and (rows == 0 or (isinstance(rows, tuple) and (not rows or 0 in rows))):
        raise AdapterError("row", f"must be 1 for the first, -1 for the last, or a list of such; it is {rows!r}")


def pick_rows(items: Sequence[T], rows: Rows, called: str = "row") -> list[T]:
    """Pick items by number: 1 is the first, -1 the last, None all.

    Raises
    ------
    ValueError
        If there are too few.
    """
    if rows is None:
        return list(items)
    picked = []
    for row in (rows,) if isinstance(rows, int) else rows:
        if abs(row) > len(items):
            raise ValueError(f"has no {called} {row}, only {len(items)} of them")
        picked.append(items[row - 1 if row > 0 else row])
    return picked


@dataclass(frozen=True)
class OneFile:
    """A reader of one file.

    Parameters
    ----------
    path : where the program writes it, relative to the run's directory; None for standard output.
    outputs : names of the quantities that it holds, in its order; None for all, in the model's order.
    """

    path: str | None = None
    outputs: tuple[str, ...] | None = None

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The one file."""
        return (self.path,)

    def check(self, quantities: tuple[Quantity, ...]) -> None:
        """Nothing is known before there is a file."""


@dataclass(frozen=True)
class OutputFile(OneFile):
    """All the numbers of a text file, in order.

    Parameters
    ----------
    path, outputs : as of `OneFile`.
    skip_lines : how many lines to pass over at its start.
    """

    skip_lines: int = 0

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read every number of the file."""
        return read_numbers(read_text(directory, self.path), size_of(quantities), self.skip_lines)
