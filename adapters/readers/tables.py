"""Readers of a column of a plain table or of a CSV file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from ..protocol import AdapterError, Floats, Quantity
from ..quantities import did_you_mean, size_of
from .reader import OneFile, Rows, check_rows, pick_rows
from .text import IncompleteError, convert_words, read_lines

Lines = list[tuple[int, list[str]]]


@dataclass(frozen=True)
class TableFile(OneFile):
    """A column of a table without header, with entries separated by white space or commas.

    Blank lines and lines that start with ``#`` are ignored and not counted.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    column : int
        Number of the column, from 1.
    row : int, tuple of int or None
        Which rows, from 1; -1 for the last; None for all.
    skip_lines : int
        Number of lines to skip at the start.
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
        return _read_column(picked, self.column - 1, size_of(quantities), f"column {self.column}")


@dataclass(frozen=True)
class CsvFile(OneFile):
    """A column of a CSV file with a header.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    column : str or int
        Name of the column, or its number from 1.
    row : int, tuple of int or None
        Which rows below the header, from 1; -1 for the last; None for all.
    skip_lines : int
        Number of lines to skip above the header.
    delimiter : str
        Character between entries.
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
        place = self._find_column([name.strip() for name in rows[0][1]])
        called = f"column {self.column!r}"
        return _read_column(pick_rows(rows[1:], self.row), place, size_of(quantities), called)

    def _find_column(self, header: list[str]) -> int:
        if isinstance(self.column, int):
            return self.column - 1
        if header.count(self.column) > 1:
            raise ValueError(f"has {header.count(self.column)} columns {self.column!r}")
        if self.column not in header:
            raise ValueError(f"has no column {self.column!r}; {did_you_mean(self.column, header)}")
        return header.index(self.column)


def _read_column(picked: Lines, place: int, count: int, called: str) -> Floats:
    short = [(line, len(entries)) for line, entries in picked if len(entries) <= place]
    words = [(entries[place].strip() if len(entries) > place else "nan", line) for line, entries in picked]
    numbers = convert_words(words, count, called=called)
    if short:
        line, columns = short[0]
        raise IncompleteError(f"line {line}: has no column {place + 1}, only {columns}", numbers)
    return numbers
