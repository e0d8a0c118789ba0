"""The text that a simulator wrote, and the numbers in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np

from ..protocol import Floats
from .files import SIZE_LIMIT, read_bytes

LINE_LIMIT = 1_000_000
"""Lines of a table, or matches in a text, above which it is refused."""

Word = tuple[str, int]

_SHOWN = 60  # characters of a word that is no number
_LONGEST = 1000  # characters of a number; a longer word would take time that grows with its square
_COUNTED = 10_000  # words too many, after which the count ends: a huge file is not worth it
# Fortran writes 1.0D+03, and drops the letter from an exponent of three digits: 1.0+103.
_FORTRAN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[dDqQ]([+-]?\d+)|([+-]\d+))", re.ASCII)


def read_text(directory: Path, path: str | None, limit: int = SIZE_LIMIT) -> str:
    """Read a text file of a run, as `read_bytes` does; bytes that are no UTF-8 become replacement characters."""
    return read_bytes(directory, path, limit).decode(errors="replace")


def read_lines(directory: Path, path: str | None, limit: int = LINE_LIMIT) -> list[str]:
    """Read a text file of a run of at most `limit` lines, as `read_text` does."""
    text = read_text(directory, path)
    count = text.count("\n")
    if count > limit:
        raise ValueError(f"holds {count} lines, over the limit of {limit} lines")
    return text.split("\n")


def read_numbers(text: str, count: int, skip_lines: int = 0) -> Floats:
    """Every number of a text, in order.

    Numbers stand between white space or commas; lines that start with ``#`` are ignored; ``nan``, ``inf`` and
    Fortran exponents (``1.0D+03``) are understood.

    Parameters
    ----------
    text : the text.
    count : how many numbers it must hold, exactly.
    skip_lines : how many lines to pass over at its start.

    Returns
    -------
    (count,) numbers.

    Raises
    ------
    ValueError
        If a word is not a number (the sentence quotes it, with its line), or the count differs.
    """
    told: list[Word] = []
    found = 0
    for position, line in enumerate(StringIO(text), start=1):
        if position <= skip_lines or line.lstrip().startswith("#"):
            continue
        words = line.replace(",", " ").split()
        told += ((word, position) for word in words[: max(count - found, 0)])
        found += len(words)
        if found > count + _COUNTED:
            raise wrong_count(count, f"{found} or more")
    if found > count:
        for word, position in told:  # one that is no number says more than the count
            number(word, f"line {position}")
        raise wrong_count(count, found)
    return gathered(told, count, cut=not text.endswith(("\n", " ", ",")))


class IncompleteError(ValueError):
    """Some of the numbers of a file cannot be read.

    Attributes
    ----------
    numbers : all of them; NaN for those that cannot be read.
    """

    def __init__(self, sentence: str, numbers: Floats) -> None:
        super().__init__(sentence)
        self.numbers = numbers


def gathered(words: Sequence[Word], count: int, *, cut: bool = False) -> Floats:
    """The numbers, (count,), that words of some lines say.

    Parameters
    ----------
    words : each with the number of its line.
    cut : whether the last of too few may have been cut short.

    Raises
    ------
    IncompleteError
        If one is not a number, or there are too few; the numbers that there are come with it.
    ValueError
        If there are too many.
    """
    if len(words) > count:
        raise wrong_count(count, len(words))
    numbers, sentence = np.full(count, np.nan), ""
    for place, (word, line) in enumerate(words):
        try:
            numbers[place] = number(word, f"line {line}")
        except ValueError as error:
            sentence = sentence or str(error)
    if cut and 0 < len(words) < count:
        numbers[len(words) - 1] = np.nan
    if not sentence and len(words) < count:
        sentence = str(wrong_count(count, len(words)))
    if sentence:
        raise IncompleteError(sentence, numbers)
    return numbers


def wrong_count(count: int, found: int | str) -> ValueError:
    """Say how many numbers were to be found, and how many were."""
    return ValueError(f"expected {count} number{'s' * (count != 1)}, found {found}")


def number(word: str, where: str) -> float:
    """Read a number as Python or Fortran writes it; `where` starts the sentence if it is none."""
    try:
        if "_" not in word and len(word) <= _LONGEST:  # Python reads 1_0 as 10
            return float(word)
    except ValueError:
        fortran = _FORTRAN.fullmatch(word)
        if fortran is not None:
            return float(f"{fortran[1]}e{fortran[2] or fortran[3]}")
    shown = word if len(word) <= _SHOWN else word[:_SHOWN] + "..."
    raise ValueError(f"{where}: {shown!r} is not a number")
