"""Numbers by name: from JSON, netCDF, or text that a regular expression knows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import regex

from ..protocol import AdapterError, Floats, Quantity
from ..quantities import did_you_mean, kind_of, size_of
from .base import OneFile, Rows, check_rows, pick_rows
from .files import read_bytes
from .text import LINE_LIMIT, gathered, number, read_text, wrong_count

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")


@dataclass(frozen=True)
class JsonFile(OneFile):
    """A number, or a list of numbers, inside a JSON file.

    Parameters
    ----------
    path, outputs : as of `OneFile`.
    key : the way to it, ``results.times[0].arrival``; entries of a list count from 0, -1 is the last.
    """

    key: str = ""

    def __post_init__(self) -> None:
        if "".join(match[0] for match in _STEP.finditer(self.key)) != self.key:
            raise AdapterError("key", f"must be a way such as 'results.times[0]'; it is {self.key!r}")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the numbers at the key; lists within lists are read in order, and null is NaN."""
        try:
            value = json.loads(read_text(directory, self.path))
        except RecursionError as error:
            raise ValueError("is nested too deeply") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"is not JSON: {error}") from error
        for match in _STEP.finditer(self.key):
            value = _entry(value, int(match[2])) if match[2] else _member(value, match[1])
        numbers = [json_number(item, self.key or "the file") for item in _flat(value)]
        if len(numbers) != size_of(quantities):
            raise wrong_count(size_of(quantities), len(numbers))
        return np.array(numbers, dtype=np.float64)


def json_number(value: object, where: str) -> float:
    """Read a number of a JSON file; null is NaN, and text must be a number as ``"nan"`` is."""
    if value is None:
        return float("nan")
    if isinstance(value, str):
        return number(value, where)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where}: {kind_of(value)} is not a number")  # noqa: TRY004 - a fault of the file
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"has {kind_of(value)} where {name!r} was to be looked up")  # noqa: TRY004 - as above
    if name not in value:
        raise ValueError(f"has no {name!r}; {did_you_mean(name, value)}")
    return value[name]


def _entry(value: Any, place: int) -> Any:
    if not isinstance(value, list):
        raise ValueError(f"has {kind_of(value)} where entry {place} was to be looked up")  # noqa: TRY004 - as above
    if not -len(value) <= place < len(value):
        raise ValueError(f"has no entry {place} in a list of {len(value)}")
    return value[place]


def _flat(value: Any) -> Iterator[Any]:
    """The items of lists within lists, in order, however deep they are."""
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
    path, outputs : as of `OneFile`.
    pattern : as Python's ``re`` knows them; ``^`` and ``$`` are the ends of a line. Its groups are the numbers, or
        the whole match if it has none.
    row : which match, or matches, from 1; -1 for the last; None for all.
    timeout : seconds that the search may take: some patterns take time that doubles with each character. The timeout of
        a program whose output it reads counts as well.
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
        """Read the groups of each match."""
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
            raise wrong_count(size_of(quantities), len(words))
        found = [((word or "").strip(), text.count("\n", 0, match.start()) + 1) for match, word in words]
        return gathered(found, size_of(quantities))


@dataclass(frozen=True)
class NetcdfFile(OneFile):
    """A variable of a netCDF file.

    Parameters
    ----------
    path, outputs : as of `OneFile`.
    variable : its name; ``group/name`` within a group.
    row : which entry, or entries, along its first dimension, from 1; -1 for the last; None for all.
    """

    variable: str = ""
    row: Rows = None

    def __post_init__(self) -> None:
        check_rows(self.row)
        if self.path is None:
            raise AdapterError("path", "must name a file: standard output cannot be netCDF")
        if not self.variable:
            raise AdapterError("variable", "must name a variable, but is empty")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the variable, flattened with the last dimension fastest; what is missing is NaN."""
        from netCDF4 import Dataset  # noqa: PLC0415 - slow to import, and few need it

        try:
            # Its bytes, since the library takes no descriptor and would follow a link.
            with Dataset("output", memory=read_bytes(directory, self.path)) as file:
                return self._values(file, size_of(quantities))
        except RuntimeError as error:  # what the library says of a damaged file
            raise ValueError(f"variable {self.variable!r} cannot be read: {error}") from error

    def _values(self, file: Any, expected: int) -> Floats:
        variable = self._find(file)
        if getattr(variable.dtype, "kind", "O") not in "iuf":
            raise ValueError(f"variable {self.variable!r} holds no numbers")
        shape = variable.shape
        wanted = slice(None) if self.row is None else pick_rows(range(shape[0] if shape else 0), self.row, "entry")
        # Counted before it is read: a small file can hold a huge variable.
        count = math.prod(shape if isinstance(wanted, slice) else (len(wanted), *shape[1:]))
        if count != expected:
            raise wrong_count(expected, count)
        values = variable[wanted] if shape else variable[...]
        return np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan).reshape(-1)

    def _find(self, file: Any) -> Any:
        *groups, name = self.variable.strip("/").split("/")
        for group in groups:
            if group not in file.groups:
                raise ValueError(f"has no group {group!r}; {did_you_mean(group, file.groups)}")
            file = file.groups[group]
        if name not in file.variables:
            raise ValueError(f"has no variable {name!r}; {did_you_mean(name, file.variables)}")
        return file.variables[name]
