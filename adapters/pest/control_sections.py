"""Sections of a PEST control file: their lines, and their rows by name of column."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..protocol import AdapterError
from .files import find_file, read_setting

SETTING = "control"

# The columns of the older style, in order; an external table of the newer style names its own.
COLUMNS = {
    "parameter data": (
        "parnme", "partrans", "parchglim", "parval1", "parlbnd", "parubnd", "pargp", "scale", "offset", "dercom",
    ),
    "observation data": ("obsnme", "obsval", "weight", "obgnme"),
    "model input/output": ("pest_file", "model_file"),
    "model input": ("pest_file", "model_file"),
    "model output": ("pest_file", "model_file"),
    "prior information": ("pilbl", "equation", "weight", "obgnme"),
}  # fmt: skip
# PEST++ also accepts these names of the columns of an external table.
_SHORT_NAMES = {
    "parameter data": {
        "name": "parnme", "transform": "partrans", "value": "parval1", "lower_bound": "parlbnd",
        "upper_bound": "parubnd", "group": "pargp", "tied_to": "partied",
    },
    "observation data": {"name": "obsnme", "value": "obsval", "group": "obgnme"},
    "prior information": {"name": "pilbl", "group": "obgnme"},
}  # fmt: skip
_OTHER_SPELLINGS = {"regularization": "regularisation"}
_VERSIONS = ("1", "2")
_MISSING_OPTIONS = ("missing_value", "missing_values")  # both are in use
_MISSING = ("", "nan", "na")
# A quote is one only at the start of a word: an apostrophe in a name is a letter.
_WORD = re.compile(r"\"([^\"]*)\"(?=\s|$)|'([^']*)'(?=\s|$)|(\S+)")
_OPTION = re.compile(r"([^\s()+]+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
# Names of the same option of PEST++.
_OTHER_OPTIONS = {
    "parameter_covariance": "parcov", "parcov_filename": "parcov",
    "observation_covariance": "obscov", "obscov_filename": "obscov", "predictions": "forecasts",
}  # fmt: skip

Row = Mapping[str, str]
Line = tuple[int, str]


def split_words(line: str) -> list[str]:
    """Split a line at white space; words in quotes may contain it. A word that starts with ``#`` begins a comment."""
    words: list[str] = []
    for match in _WORD.finditer(line):
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is None and match[3].startswith("#"):
            break
        words.append(quoted if quoted is not None else match[3])
    return words


@dataclass
class ControlSections:
    """The lines of each section, without comments.

    Parameters
    ----------
    path : Path
        The control file.

    Attributes
    ----------
    options : dict of str to str
        Options of PEST++ (lines that start with ``++``) and the keywords of the control data, in lower case.
    unread : list of tuple of str
        Parts of the file that were not understood, and why.

    Raises
    ------
    AdapterError
        It is no control file, or contains a section twice.
    """

    path: Path
    options: dict[str, str] = field(default_factory=dict)
    unread: list[tuple[str, str]] = field(default_factory=list)
    keyword: bool = False
    _lines: dict[str, list[Line]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lines = [*enumerate(read_setting(SETTING, self.path).splitlines(), start=1)]
        filled = [(n, text) for n, line in lines if (text := line.strip()) and not text.startswith("#")]
        if not filled or filled[0][1].split()[0].lower() != "pcf":
            raise AdapterError(SETTING, f"{self.path} is no control file: its first line must start with 'pcf'")
        first = filled[0][1]
        version = re.search(r"version\s*=\s*(\S+)", first.lower())
        if version is not None and version[1] not in _VERSIONS:
            must = "must be of version 2, or of the older style, which says no version"
            raise AdapterError(SETTING, f"{self.path} {must}; its first line is {first!r}")
        current: list[Line] = []
        in_no_section = current
        for position, text in filled[1:]:
            if text.startswith("++"):
                self._read_options(position, text)
            elif text.startswith("*"):
                current = self._start(position, text)
            else:
                current.append((position, text))
        self.unread += [
            (f"line {position} ({text})", "not used: it is in no section") for position, text in in_no_section
        ]
        for position, line in self.lines("control data keyword"):
            name, *values = split_words(line.replace("=", " ", 1))
            self._add_option(position, name, " ".join(values))

    def _read_options(self, position: int, text: str) -> None:
        """Read a line of options of PEST++, which accepts only the form ``name(value)``."""
        text = text.partition("#")[0]
        for name, value in _OPTION.findall(text):
            self._add_option(position, name, value)
        for part in _OPTION.sub("\n", text).splitlines():
            if left := part.strip("+ \t"):
                self.unread.append(
                    (f"line {position} (++{left})", "not used: an option must be written as name(value)")
                )

    def _add_option(self, position: int, name: str, value: str) -> None:
        name, value = name.lower(), value.strip(" \t\"'")
        same = _OTHER_OPTIONS.get(name, name)
        if same in self.options:
            self.unread.append((f"line {position} ({name}({value}))", "not used: the option was given before"))
        else:
            self.options[same] = value

    def _start(self, position: int, text: str) -> list[Line]:
        words = text[1:].partition("#")[0].lower().split()
        name = " ".join(_OTHER_SPELLINGS.get(word, word) for word in words)
        if name in self._lines:
            raise self.error(position, f"the section '* {name}' comes twice; the file must have it once")
        self.keyword |= name == "control data keyword"
        return self._lines.setdefault(name, [])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sections in the order of the file, without ``external``."""
        return tuple(dict.fromkeys(name.removesuffix(" external") for name in self._lines))

    def lines(self, section: str) -> list[Line]:
        """Return the lines of a section with their numbers."""
        return self._lines.get(section, [])

    def rows(self, section: str) -> Iterator[Row]:
        """Yield the rows of a section, by name of column, from its lines and its external tables."""
        columns = COLUMNS[section]
        for position, line in self.lines(section):
            words = split_words(line)
            # Two words among the parameters tie one to another.
            if section == "parameter data" and len(words) == 2:
                yield {"parnme": words[0], "partied": words[1]}
                continue
            needed = 4 if section == "parameter data" else 2 if "model" in section else 1
            if len(words) < needed:
                raise self.error(position, f"must have the columns {', '.join(columns[:needed])}")
            yield dict(zip(columns, words, strict=False))
        yield from self.table_rows(section)

    def table_rows(self, section: str) -> Iterator[Row]:
        """Yield the rows of the external tables of a section."""
        columns = COLUMNS[section]
        for position, line in self.lines(f"{section} external"):
            yield from self._table(section, position, line, columns if "model" in section else columns[:1])

    def error(self, position: int, what: str) -> AdapterError:
        """Return the error of a line."""
        return AdapterError(SETTING, f"{self.path}, line {position}: {what}")

    def _table(self, section: str, position: int, line: str, needed: tuple[str, ...]) -> Iterator[Row]:
        name, *options = split_words(line)
        settings = {key.lower(): value for key, value in zip(options[::2], options[1::2], strict=False)}
        unknown = [key for key in settings if key not in ("sep", *_MISSING_OPTIONS)]
        if unknown:
            raise self.error(position, f"an external table has the options sep and missing_value, not {unknown[0]!r}")
        separator = settings.get("sep", ",").lower()
        text = read_setting(SETTING, find_file(self.path.parent, name))
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if separator == "w":
            rows = [split_words(line) for line in lines]
        elif len(separator) == 1:
            rows = [row for row in csv.reader(lines, delimiter=separator, skipinitialspace=True) if any(row)]
        else:
            raise self.error(position, f"sep must be 'w' for white space or a single character, was {separator!r}")
        short = _SHORT_NAMES.get(section, {})
        header = [short.get(entry.strip().lower(), entry.strip().lower()) for entry in (rows[0] if rows else [])]
        for column in needed:
            if column not in header:
                raise self.error(position, f"the table {name!r} has no column {column!r}")
        missing = (*_MISSING, *(settings.get(key, "").lower() for key in _MISSING_OPTIONS))
        for number, row in enumerate(rows[1:], start=1):
            entries = [entry.strip() for entry in row]
            found = {key: entry for key, entry in zip(header, entries, strict=False) if entry.lower() not in missing}
            for column in needed:
                if column not in found:
                    raise self.error(position, f"row {number} of the table {name!r} has no {column!r}")
            yield found
