"""The protocol of readers, and the reader of a text file with numbers."""

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
    """Reads outputs from a run directory; a frozen dataclass, because its ``repr`` is in the digest."""

    @property
    def paths(self) -> tuple[str | None, ...]:
        """Files that it reads, relative to the run directory; None for standard output."""

    @property
    def outputs(self) -> tuple[str, ...] | None:
        """Names of the outputs that it reads, in its order; None for all, in the model's order."""

    def check(self, quantities: tuple[Quantity, ...]) -> None:
        """Raise `AdapterError` if it can never read `quantities`."""

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the outputs of a run.

        Parameters
        ----------
        directory : Path
            The run directory.
        quantities : tuple of Quantity
            The outputs to read.

        Returns
        -------
        array, shape (sum of the sizes of `quantities`,)

        Raises
        ------
        FileNotFoundError, OSError, ValueError
            They cannot be read; the message gives the cause.
        """


def select(reader: Reader, quantities: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
    """Return the quantities that a reader reads, in its order."""
    if reader.outputs is None:
        return quantities
    known = {quantity.name: quantity for quantity in quantities}
    return tuple(known[name] for name in reader.outputs)


def check_rows(rows: Rows) -> None:
    """Raise `AdapterError` if a row is number 0."""
    if rows is not None and (rows == 0 or (isinstance(rows, tuple) and (not rows or 0 in rows))):
        raise AdapterError("row", f"must be 1 for the first, -1 for the last, or a list of such; it is {rows!r}")


def pick_rows(items: Sequence[T], rows: Rows, called: str = "row") -> list[T]:
    """Return some of the items.

    Parameters
    ----------
    items : sequence
    rows : int, tuple of int or None
        Numbers of the items: 1 is the first, -1 the last, None stands for all.
    called : str
        Name of an item in an error.

    Raises
    ------
    ValueError
        There are too few items.
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
    path : str, optional
        The file, relative to the run directory; None for standard output.
    outputs : tuple of str, optional
        Names of the quantities in the file, in its order; None for all, in the order of the model.
    """

    path: str | None = None
    outputs: tuple[str, ...] | None = None

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The file."""
        return (self.path,)

    def check(self, quantities: tuple[Quantity, ...]) -> None:
        """Do nothing: the file does not exist yet."""


@dataclass(frozen=True)
class OutputFile(OneFile):
    """All numbers of a text file, in order.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    skip_lines : int
        Number of lines to skip at the start.
    """

    skip_lines: int = 0

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read every number of the file."""
        return read_numbers(read_text(directory, self.path), size_of(quantities), self.skip_lines)
