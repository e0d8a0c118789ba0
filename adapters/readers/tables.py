"""A column of a table: plain, or CSV with a header."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from ..protocol import AdapterError, Floats, Quantity
from ..quantities import did_you_mean, size_of
from .base import OneFile, Rows, check_rows, pick_rows
from .text import IncompleteError, gathered, read_lines

Lines = list[tuple[int, list[str]]]


@dataclass(frozen=True)
class TableFile(OneFile):
    """A column of a table without header; its entries stand between white space or commas.

    Blank lines and lines that start with ``#`` are passed over, and are no rows.

    Parameters
    ----------
    path, outputs : as of `OneFile`.
    column : which column, from 1.
    row : which row, or rows, from 1; -1 for the last; None for all.
    skip_lines : how many lines to pass over at its start.
    """

    column: int = 1
    row: Rows = None
    skip_lines: int = 0

    def __post_init__(self) -> None:
        check_rows(self.row)
        if self.column < 1:
            raise AdapterError("column", f"must be at least 1, the first column; it is {self.column}")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the column."""
        lines = enumerate(read_lines(directory, self.path), start=1)
        rows = [(i, line) for i, line in lines if i > self.skip_lines and line.strip() and line.lstrip()[0] != "#"]
        picked = [(i, line.replace(",", " ").split()) for i, line in pick_rows(rows, self.row)]
        return _column(picked, self.column - 1, size_of(quantities))


@dataclass(frozen=True)
class CsvFile(OneFile):
    """A column of a CSV file with a header.

    Parameters
    ----------
    path, outputs : as of `OneFile`.
    column : which column: its name, or its number from 1.
    row : which row below the header, or rows, from 1; -1 for the last; None for all.
    skip_lines : how many lines to pass over above the header.
    delimiter : the character between entries.
    """

    column: str | int = 1
    row: Rows = None
    skip_lines: int = 0
    delimiter: str = ","

    def __post_init__(self) -> None:
        check_rows(self.row)
        if isinstance(self.column, int) and self.column < 1:
            raise AdapterError("column", f"must be a name, or at least 1, the first column; it is {self.column}")
        if len(self.delimiter) != 1 or self.delimiter in '\r\n"':
            raise AdapterError("delimiter", f"must be a single character; it is {self.delimiter!r}")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the column."""
        content = [line.removesuffix("\r").removeprefix("\ufeff") for line in read_lines(directory, self.path)]
        lines = csv.reader(content[self.skip_lines :], delimiter=self.delimiter, skipinitialspace=True)
        try:
            rows = [(self.skip_lines + lines.line_num, entries) for entries in lines if any(entries)]
        except csv.Error as error:
            raise ValueError(f"is not CSV: {error}") from error
        if not rows:
            raise ValueError("has no header")
        place = self._place([name.strip() for name in rows[0][1]])
        return _column(pick_rows(rows[1:], self.row), place, size_of(quantities))

    def _place(self, header: list[str]) -> int:
        if isinstance(self.column, int):
            return self.column - 1
        if header.count(self.column) > 1:
            raise ValueError(f"has {header.count(self.column)} columns {self.column!r}")
        if self.column not in header:
            raise ValueError(f"has no column {self.column!r}; {did_you_mean(self.column, header)}")
        return header.index(self.column)


def _column(picked: Lines, place: int, count: int) -> Floats:
    short = [(line, len(entries)) for line, entries in picked if len(entries) <= place]
    words = [(entries[place].strip() if len(entries) > place else "nan", line) for line, entries in picked]
    numbers = gathered(words, count)
    if short:
        line, columns = short[0]
        raise IncompleteError(f"line {line}: has no column {place + 1}, only {columns}", numbers)
    return numbers
