"""Text files of a simulator, and the numbers in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np

from ..protocol import Floats
from .file_access import read_bytes

LINE_LIMIT = 1_000_000
"""Largest number of lines of a table, or of matches in a text."""

Word = tuple[str, int]

_QUOTED = 60  # characters of a word that is not a number
_LONGEST = 1000  # characters of a number; the conversion takes time with the square of the length
_MOST_EXCESS = 10_000  # superfluous words after which they are not counted any more
# Fortran writes 1.0D+03, and leaves out the letter of an exponent of three digits: 1.0+103.
_FORTRAN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[dDqQ]([+-]?\d+)|([+-]\d+))", re.ASCII)


def read_text(directory: Path, path: str | None) -> str:
    """Read a text file of a run, as with `read_bytes`; invalid UTF-8 is replaced."""
    return read_bytes(directory, path).decode(errors="replace")


def read_lines(directory: Path, path: str | None) -> list[str]:
    """Read the lines of a text file of a run, as with `read_text`; raise `ValueError` beyond `LINE_LIMIT` lines."""
    text = read_text(directory, path)
    check_line_count(text, LINE_LIMIT)
    return text.split("\n")


def check_line_count(text: str, limit: int) -> None:
    """Raise `ValueError` if a text has too many lines."""
    count = text.count("\n")
    if count > limit:
        raise ValueError(f"holds {count} lines, over the limit of {limit} lines")


def read_numbers(text: str, count: int, skip_lines: int = 0) -> Floats:
    """Read all numbers of a text, in order.

    Numbers are separated by white space or commas. Lines that start with ``#`` are ignored. ``nan``, ``inf`` and
    Fortran exponents (``1.0D+03``) are allowed.

    Parameters
    ----------
    text : str
    count : int
        Required number of numbers.
    skip_lines : int
        Number of lines to skip at the start.

    Returns
    -------
    array, shape (count,)

    Raises
    ------
    ValueError
        A word is not a number (the message quotes it, with its line), the number of numbers differs, or there are more
        than `LINE_LIMIT` lines without a number.
    """
    check_line_count(text, LINE_LIMIT + skip_lines + count)
    read: list[Word] = []
    found = 0
    for position, line in enumerate(StringIO(text), start=1):
        if position <= skip_lines or line.lstrip().startswith("#"):
            continue
        words = line.replace(",", " ").split()
        read += ((word, position) for word in words[: max(count - found, 0)])
        found += len(words)
        if found > count + _MOST_EXCESS:
            raise count_error(count, f"{found} or more")
    if found > count:
        for word, position in read:  # an invalid number is a better message than the count
            parse_number(word, f"line {position}")
        raise count_error(count, found)
    return convert_words(read, count, cut=not text.endswith(("\n", " ", ",")))


class IncompleteError(ValueError):
    """Some of the numbers of a file cannot be read.

    Parameters
    ----------
    sentence : str
    numbers : array
        All numbers; NaN for those that cannot be read.
    """

    def __init__(self, sentence: str, numbers: Floats) -> None:
        super().__init__(sentence)
        self.numbers = numbers


def convert_words(words: Sequence[Word], count: int, *, cut: bool = False, called: str = "") -> Floats:
    """Convert words to numbers.

    Parameters
    ----------
    words : sequence of tuple
        Each word with the number of its line.
    count : int
        Required number of words.
    cut : bool
        Whether the last word may be incomplete if there are too few.
    called : str
        Name of the column in an error.

    Returns
    -------
    array, shape (count,)

    Raises
    ------
    IncompleteError
        A word is not a number, or there are too few words.
    ValueError
        There are too many words.
    """
    if len(words) > count:
        raise count_error(count, len(words))
    numbers, sentence = np.full(count, np.nan), ""
    for place, (word, line) in enumerate(words):
        try:
            numbers[place] = parse_number(word, f"line {line}, {called}" if called else f"line {line}")
        except ValueError as error:
            sentence = sentence or str(error)
    if cut and 0 < len(words) < count:
        numbers[len(words) - 1] = np.nan
    if not sentence and len(words) < count:
        sentence = str(count_error(count, len(words)))
    if sentence:
        raise IncompleteError(sentence, numbers)
    return numbers


def count_error(count: int, found: int | str) -> ValueError:
    """Return the error for a wrong number of numbers."""
    return ValueError(f"expected {count} number{'s' * (count != 1)}, found {found}")


def parse_number(word: str, where: str) -> float:
    """Parse a number of Python or Fortran; raise `ValueError`, with `where` at its start, if it is invalid."""
    try:
        if "_" not in word and len(word) <= _LONGEST:  # Python reads 1_0 as 10
            return float(word)
    except ValueError:
        fortran = _FORTRAN.fullmatch(word)
        if fortran is not None:
            return float(f"{fortran[1]}e{fortran[2] or fortran[3]}")
    shown = word if len(word) <= _QUOTED else word[:_QUOTED] + "..."
    what = "is empty, and must be a number" if not word else f"{shown!r} is not a number"
    raise ValueError(f"{where}: {what}")
