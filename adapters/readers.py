"""Numbers out of the text that a simulator wrote."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import numpy as np

from .protocol import Floats

SIZE_LIMIT = 64 * 2**20
"""Bytes; an output file above it is refused."""

_SHOWN = 60  # characters of a word that is no number
_COUNTED = 10_000  # words too many, after which the count ends: a huge file is not worth it
# Fortran writes 1.0D+03, and drops the letter from an exponent of three digits: 1.0+103.
_FORTRAN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[dDqQ]([+-]?\d+)|([+-]\d+))", re.ASCII)


def read_text(path: Path, limit: int = SIZE_LIMIT) -> str:
    """Read a text file of at most `limit` bytes; bytes that are no UTF-8 become replacement characters.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is not a regular file, or is larger than `limit`.
    """
    size = path.stat().st_size
    # Opening a named pipe would wait for ever.
    if not path.is_file():
        raise ValueError("is not a regular file")
    if size > limit:
        raise ValueError(f"holds {size} bytes, over the limit of {limit} bytes")
    with path.open("rb") as file:
        return file.read(limit).decode(errors="replace")


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
    numbers = np.empty(count)
    found = 0
    for position, line in enumerate(StringIO(text), start=1):
        if position <= skip_lines or line.lstrip().startswith("#"):
            continue
        words = line.replace(",", " ").split()
        for place, word in enumerate(words[: max(count - found, 0)], start=found):
            numbers[place] = _number(word, position)
        found += len(words)
        if found > count + _COUNTED:
            raise ValueError(f"expected {count} number{'s' * (count != 1)}, found {found} or more")
    if found != count:
        raise ValueError(f"expected {count} number{'s' * (count != 1)}, found {found}")
    return numbers


def _number(word: str, line: int) -> float:
    try:
        if "_" not in word:  # Python reads 1_0 as 10
            return float(word)
    except ValueError:
        fortran = _FORTRAN.fullmatch(word)
        if fortran is not None:
            return float(f"{fortran[1]}e{fortran[2] or fortran[3]}")
    shown = word if len(word) <= _SHOWN else word[:_SHOWN] + "..."
    raise ValueError(f"line {line}: {shown!r} is not a number")
