"""PEST instruction files, which describe where the numbers are in an output file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

import numpy as np

from ..flat_names import file_names, match_names
from ..protocol import AdapterError, Floats, Quantity
from ..readers.text import parse_number, read_text
from .files import read_setting

_IGNORED = "dum"


class InstructionError(ValueError):
    """An instruction file is invalid."""


class Kind(Enum):
    """Types of instructions."""

    MARKER = auto()  # find a text
    ADVANCE = auto()  # go down some lines
    WHITESPACE = auto()  # go to the end of the next white space
    TAB = auto()  # go to a column
    FIXED = auto()  # read the number in these columns
    SEMI_FIXED = auto()  # read the number that reaches into these columns
    FREE = auto()  # read the next number


@dataclass(frozen=True)
class Instruction:
    """One instruction: its type, its text or name, and its columns or counts."""

    kind: Kind
    text: str = ""
    start: int = 0
    stop: int = 0


_PATTERNS = {
    Kind.ADVANCE: re.compile(r"l(?P<start>\d+)(?=\s|$)", re.IGNORECASE),
    Kind.WHITESPACE: re.compile(r"w(?=\s|$)", re.IGNORECASE),
    Kind.TAB: re.compile(r"t(?P<start>\d+)(?=\s|$)", re.IGNORECASE),
    Kind.FIXED: re.compile(r"\[(?P<text>[^\s\]]+)\](?P<start>\d+):(?P<stop>\d+)"),
    Kind.SEMI_FIXED: re.compile(r"\((?P<text>[^\s)]+)\)(?P<start>\d+):(?P<stop>\d+)"),
    Kind.FREE: re.compile(r"!(?P<text>[^\s!]+)!"),
}
_READS = (Kind.FIXED, Kind.SEMI_FIXED, Kind.FREE)


@dataclass(frozen=True, repr=False)
class Instructions:
    """The text of an ``.ins`` file.

    Parameters
    ----------
    text : str
        The instructions; the first line is ``pif`` and the delimiter of markers.
    delimiters : str
        Characters that separate numbers in the output file, besides white space and commas.

    Raises
    ------
    InstructionError
        The text is invalid; the message names the line.
    """

    text: str
    delimiters: str = ""
    _lines: tuple[tuple[int, tuple[Instruction, ...]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lines", tuple(_parse(self.text)))
        for name, times in Counter(self.names).items():
            if times > 1:
                raise InstructionError(f"the observation {name!r} is read {times} times")

    def __repr__(self) -> str:
        """Return the text, and the delimiters if there are some: the digest of a model contains it."""
        more = f", delimiters={self.delimiters!r}" if self.delimiters else ""
        return f"Instructions(text={self.text!r}{more})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the observations, in lower case."""
        return tuple(item.text for _, items in self._lines for item in items if _is_observation(item))

    def read(self, text: str) -> Mapping[str, float]:
        """Read the text of an output file.

        Parameters
        ----------
        text : str

        Returns
        -------
        dict of str to float
            Numbers by observation.

        Raises
        ------
        ValueError
            The text does not match the instructions, or a word is not a number; the message names both lines.
        """
        cursor = _Cursor(text.replace("\r\n", "\n").split("\n"), self.delimiters)
        numbers: dict[str, float] = {}
        for line, items in self._lines:
            try:
                numbers.update(cursor.follow(items))
            except ValueError as error:
                raise ValueError(f"{error} (line {line} of the instructions)") from error
        return numbers


class _Cursor:
    """A position in an output file: a line, and a column, 0 before the first character."""

    def __init__(self, lines: list[str], delimiters: str) -> None:
        self._lines = lines
        more = re.escape(delimiters)
        self._blank, self._word = re.compile(rf"[\s{more}]"), re.compile(rf"[^\s{more}]")
        self._entry = re.compile(rf"[^\s,{more}]+")
        self._row = -1
        self._column = 0

    def follow(self, items: tuple[Instruction, ...]) -> Iterator[tuple[str, float]]:
        """Follow a line of instructions; yield the observations."""
        leading = 0
        while leading < len(items) and items[leading].kind is Kind.MARKER:
            leading += 1
        if leading:
            self._search([item.text for item in items[:leading]])
        rest = items[leading:]
        for item, after in zip(rest, (*rest[1:], None), strict=False):
            if item.kind in _READS:
                word = self._read(item, after)
                if item.text != _IGNORED:
                    yield item.text, parse_number(word, f"line {self._row + 1}, {item.text!r}")
            else:
                self._move(item)

    @property
    def _line(self) -> str:
        return self._lines[self._row]

    def _error(self, what: str) -> ValueError:
        return ValueError(f"line {self._row + 1}: {what}")

    def _search(self, texts: list[str]) -> None:
        """Go to the next line that contains all of `texts`, in order."""
        for row in range(self._row + 1, len(self._lines)):
            end = 0
            for text in texts:
                place = self._lines[row].find(text, end)
                if place < 0:
                    break
                end = place + len(text)
            else:
                self._row, self._column = row, end
                return
        shown = " and ".join(repr(text) for text in texts)
        raise ValueError(f"no line below line {self._row + 1} holds {shown}")

    def _move(self, item: Instruction) -> None:
        if item.kind is Kind.ADVANCE:
            if self._row + item.start >= len(self._lines):
                raise ValueError(f"ends with line {len(self._lines)}, before line {self._row + item.start + 1}")
            self._row, self._column = self._row + item.start, 0
            return
        if item.kind is Kind.TAB:
            if not self._column <= item.start <= len(self._line):
                raise self._error(f"column {item.start} lies before the cursor or beyond the end")
            self._column = item.start
            return
        if item.kind is Kind.MARKER:
            place = self._line.find(item.text, self._column)
            end, what = place + len(item.text), f"text {item.text!r}"
        else:
            # The cursor moves to the last blank before the next word. Two searches, because a single pattern would
            # take time with the square of the number of blanks.
            blank = self._blank.search(self._line, self._column)
            word = self._word.search(self._line, blank.end()) if blank else None
            place = end = word.start() if word else -1
            what = "word after white space"
        if place < 0:
            raise self._error(f"there is no {what} after column {self._column}")
        self._column = end

    def _read(self, item: Instruction, after: Instruction | None) -> str:
        if item.kind is Kind.FREE:
            match = self._entry.search(self._line, self._column)
            if match is None:
                raise self._error(f"{item.text!r} was not found after column {self._column}")
            word, end = match[0], match.end()
            if after is not None and after.kind is Kind.MARKER and word.find(after.text) > 0:
                cut = len(word) - word.find(after.text)
                word, end = word[:-cut], end - cut
        elif item.kind is Kind.FIXED:
            word, end = self._line[item.start - 1 : item.stop].strip(), item.stop
        else:
            overlapping = [
                m for m in self._entry.finditer(self._line) if m.end() >= item.start and m.start() < item.stop
            ]
            word, end = (overlapping[0][0], overlapping[0].end()) if overlapping else ("", 0)
        if not word:
            raise self._error(f"{item.text!r} was not found in columns {item.start} to {item.stop}")
        self._column = end
        return word


def _is_observation(item: Instruction) -> bool:
    return item.kind in _READS and item.text != _IGNORED


def _parse(text: str) -> list[tuple[int, tuple[Instruction, ...]]]:
    first, *lines = text.replace("\r\n", "\n").split("\n")
    header = re.fullmatch(r"pif\s+(\S)\s*", first, re.IGNORECASE)
    if header is None or header[1].isalnum():
        raise InstructionError(f"line 1: must be 'pif' and a delimiter, as 'pif @'; it is {first.strip()[:60]!r}")
    parsed: list[tuple[int, tuple[Instruction, ...]]] = []
    for line, content in enumerate(lines, start=2):
        continued = content.lstrip().startswith("&")
        items = tuple(_parse_line(content.lstrip()[1:] if continued else content, header[1], line))
        if any(item.kind is Kind.ADVANCE for item in (items if continued else items[1:])):
            raise InstructionError(f"line {line}: only at its start can a line advance")
        if continued and parsed:
            start, before = parsed.pop()
            parsed.append((start, before + items))
        elif items and (continued or items[0].kind not in (Kind.MARKER, Kind.ADVANCE)):
            raise InstructionError(f"line {line}: must start with a marker, or with 'l' and a number")
        elif items:
            parsed.append((line, items))
    return parsed


def _parse_line(content: str, delimiter: str, line: int) -> Iterator[Instruction]:
    place = 0
    while rest := content[place:].lstrip():
        place = len(content) - len(rest)
        if rest[0] == delimiter:
            end = rest.find(delimiter, 1)
            if end < 2:
                raise InstructionError(f"line {line}: has a marker without text or without its end {delimiter!r}")
            yield Instruction(Kind.MARKER, rest[1:end])
            place += end + 1
            continue
        match, kind = next(((m, k) for k, p in _PATTERNS.items() if (m := p.match(rest))), (None, None))
        if match is None or kind is None:
            raise InstructionError(f"line {line}: {rest.split()[0][:60]!r} is no instruction")
        found = match.groupdict()
        start, stop = int(found.get("start") or 0), int(found.get("stop") or 0)
        if kind in (Kind.FIXED, Kind.SEMI_FIXED) and not 1 <= start <= stop:
            raise InstructionError(f"line {line}: columns {start}:{stop} must grow from 1")
        if kind is Kind.ADVANCE and start < 1:
            raise InstructionError(f"line {line}: must advance by one line at least")
        yield Instruction(kind, found.get("text", "").lower(), start, stop)
        place += match.end()


def load_instructions(setting: str, path: Path, delimiters: str = "") -> Instructions:
    """Read an instruction file; `setting` is named in an error, `delimiters` are those of `Instructions`."""
    try:
        return Instructions(read_setting(setting, path), delimiters)
    except InstructionError as error:
        raise AdapterError(setting, f"{path}, {error}") from error


@dataclass(frozen=True)
class InstructionFile:
    """Output files read by PEST instructions.

    Observations are assigned to outputs by name, see `file_names`. Other observations are read and ignored.

    Parameters
    ----------
    files : tuple of tuple
        Pairs of instructions and their output file, relative to the run directory.
    outputs : tuple of str, optional
        Names of the quantities in the files; None for all.
    """

    files: tuple[tuple[Instructions, str | None], ...]
    outputs: tuple[str, ...] | None = None

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The output files."""
        return tuple(path for _, path in self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all observations of the instructions, in lower case."""
        return tuple(name for instructions, _ in self.files for name in instructions.names)

    def check(self, quantities: tuple[Quantity, ...]) -> None:
        """Raise `AdapterError` unless each quantity is an observation that is read once."""
        for name, times in Counter(self.names).items():
            if times > 1:
                raise AdapterError("instructions", f"the observation {name!r} is read {times} times")
        match_names("outputs", quantities, self.names, "an observation of the instructions")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read each file with its instructions."""
        numbers: dict[str, float] = {}
        for instructions, path in self.files:
            try:
                numbers.update(instructions.read(read_text(directory, path)))
            except (FileNotFoundError, ValueError) as error:
                if len(self.files) == 1:
                    raise
                what = "was not written" if isinstance(error, FileNotFoundError) else str(error)
                raise ValueError(f"{path!r}: {what}") from error
        return np.array([_find_number(numbers, names) for names in file_names(quantities).values()])


def _find_number(numbers: dict[str, float], names: tuple[str, ...]) -> float:
    return next(numbers[name] for name in names if name in numbers)
