"""Readers of JSON, and of text with a regular expression."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import regex

from ..protocol import AdapterError, Floats, Quantity
from ..quantities import did_you_mean, size_of, type_name
from .reader import OneFile, Rows, check_rows, pick_rows
from .text import LINE_LIMIT, convert_words, count_error, parse_number, read_text

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")


@dataclass(frozen=True)
class JsonFile(OneFile):
    """A number, or a list of numbers, in a JSON file.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    key : str
        Path to it, such as ``results.times[0].arrival``; list entries are counted from 0, and -1 is the last.
    """

    key: str = ""

    def __post_init__(self) -> None:
        if "".join(match[0] for match in _STEP.finditer(self.key)) != self.key:
            raise AdapterError("key", f"must be a path such as 'results.times[0]'; it is {self.key!r}")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the numbers at the key; nested lists are read in order, and null is NaN."""
        try:
            value = json.loads(read_text(directory, self.path))
        except RecursionError as error:
            raise ValueError("is nested too deeply") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"is not JSON: {error}") from error
        for match in _STEP.finditer(self.key):
            value = _get_entry(value, int(match[2])) if match[2] else _get_member(value, match[1])
        numbers = [json_number(item, self.key or "the file") for item in _flatten(value)]
        if len(numbers) != size_of(quantities):
            raise count_error(size_of(quantities), len(numbers))
        return np.array(numbers, dtype=np.float64)


def json_number(value: object, where: str) -> float:
    """Convert a value of a JSON file to a number; null is NaN, and text must be a number, for example ``"nan"``."""
    if value is None:
        return float("nan")
    if isinstance(value, str):
        return parse_number(value, where)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where}: {type_name(value)} is not a number")  # noqa: TRY004 - a fault of the file
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _get_member(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"has {type_name(value)} where {name!r} was to be looked up")  # noqa: TRY004 - as above
    if name not in value:
        raise ValueError(f"has no {name!r}; {did_you_mean(name, value)}")
    return value[name]


def _get_entry(value: Any, place: int) -> Any:
    if not isinstance(value, list):
        raise ValueError(f"has {type_name(value)} where entry {place} was to be looked up")  # noqa: TRY004 - as above
    if not -len(value) <= place < len(value):
        raise ValueError(f"has no entry {place} in a list of {len(value)}")
    return value[place]


def _flatten(value: Any) -> Iterator[Any]:
    """Yield the items of nested lists, in order, for any depth."""
    waiting = [iter([value])]
    while waiting:
        for item in waiting[-1]:
            if isinstance(item, list):
                waiting.append(iter(item))
                break
            yield item
        else:
            waiting.pop()


@dataclass(frozen=True)
class RegexFile(OneFile):
    """Numbers that a regular expression finds in a text.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    pattern : str
        Regular expression in the syntax of ``re``; ``^`` and ``$`` match at each line. The numbers are its groups, or
        the whole match if it has none.
    row : int, tuple of int or None
        Which matches, from 1; -1 for the last; None for all.
    timeout : float
        Time limit of the search in s: for some patterns the time doubles with each character. The timeout of the
        program also applies.
    """

    pattern: str = ""
    row: Rows = None
    timeout: float = field(default=60.0, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_rows(self.row)
        try:
            re.compile(self.pattern)
            regex.compile(self.pattern, regex.MULTILINE)
        except (re.error, regex.error) as error:
            raise AdapterError("pattern", f"{self.pattern!r} is no regular expression: {error}") from error
        if not self.pattern:
            raise AdapterError("pattern", r"must be a regular expression such as 'misfit = (\S+)', but is empty")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the numbers of each match."""
        text = read_text(directory, self.path)
        try:
            search = regex.finditer(self.pattern, text, regex.MULTILINE, concurrent=True, timeout=self.timeout)
            matches = list(islice(search, LINE_LIMIT + 1))
        except TimeoutError:
            raise ValueError(f"the search for {self.pattern!r} took longer than {self.timeout:g} s") from None
        if len(matches) > LINE_LIMIT:
            raise ValueError(f"holds more than {LINE_LIMIT} matches")
        if not matches:
            raise ValueError(f"has no match of {self.pattern!r}")
        picked = pick_rows(matches, self.row, "match")
        words = [(match, word) for match in picked for word in (match.groups() or (match[0],))]
        if len(words) > size_of(quantities):
            raise count_error(size_of(quantities), len(words))
        found = [((word or "").strip(), text.count("\n", 0, match.start()) + 1) for match, word in words]
        return convert_words(found, size_of(quantities))
