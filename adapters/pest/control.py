"""PEST control files, of both styles: the parts that are needed to run the model."""

from __future__ import annotations

import csv
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..protocol import AdapterError
from ..readers.text import parse_number
from .instruction_file import read_setting

SETTING = "control"

# The columns of the older style, in order; an external table of the newer style names its own.
_COLUMNS = {
    "parameter data": (
        "parnme", "partrans", "parchglim", "parval1", "parlbnd", "parubnd", "pargp", "scale", "offset", "dercom",
    ),
    "observation data": ("obsnme", "obsval", "weight", "obgnme"),
    "model input/output": ("pest_file", "model_file"),
    "model input": ("pest_file", "model_file"),
    "model output": ("pest_file", "model_file"),
}  # fmt: skip
_VERSIONS = ("1", "2")
_TRANSFORMS = ("none", "log", "fixed", "tied")

Row = Mapping[str, str]


@dataclass(frozen=True)
class ControlParameter:
    """A parameter of a control file.

    Parameters
    ----------
    transform : {"none", "log", "fixed", "tied"}
        The logarithm affects only the search of PEST, not the values.
    value : float
        Initial value.
    scale, offset : float
        The model reads ``value * scale + offset``.
    tied_to : str
        Name, in lower case, of the parameter to which a tied one has a fixed ratio; otherwise empty.
    """

    transform: str
    value: float
    scale: float = 1.0
    offset: float = 0.0
    tied_to: str = ""


@dataclass(frozen=True)
class Control:
    """The content of a control file.

    Parameters
    ----------
    parameters : mapping of str to ControlParameter
        By name, in lower case.
    observations : tuple of str
        Names, in lower case.
    command : str
        Model command line.
    files : tuple of tuple of str
        Pairs of a template or instruction file, relative to the control file, and the file of the model.
    """

    parameters: Mapping[str, ControlParameter]
    observations: tuple[str, ...]
    command: str
    files: tuple[tuple[str, str], ...]


def read_control(path: Path) -> Control:
    """Read a control file of the older or the newer style, with its external tables.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Control

    Raises
    ------
    AdapterError
        It is invalid; the setting is ``control``.
    """
    sections = _Sections(path)
    commands = [line for _, line in sections.lines("model command line")]
    if len(commands) != 1:
        raise AdapterError(SETTING, f"{path} has {len(commands)} model command lines; exactly one can be run")
    pairs = [
        (row["pest_file"], row["model_file"])
        for section in ("model input/output", "model input", "model output")
        for row in sections.rows(section)
    ]
    observations = tuple(row["obsnme"].lower() for row in sections.rows("observation data"))
    case = Control(_parameters(sections), observations, commands[0], tuple(pairs))
    _check_counts(sections, case)
    return case


@dataclass
class _Sections:
    """The lines of each section, without comments."""

    path: Path
    _lines: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first, *lines = read_setting(SETTING, self.path).splitlines() or [""]
        if first.split()[:1] != ["pcf"]:
            raise AdapterError(SETTING, f"{self.path} is no control file: its first line must start with 'pcf'")
        version = re.search(r"version\s*=\s*(\S+)", first.lower())
        if version is not None and version[1] not in _VERSIONS:
            must = "must be of version 2, or of the older style, which says no version"
            raise AdapterError(SETTING, f"{self.path} {must}; its first line is {first.strip()!r}")
        current: list[tuple[int, str]] = []
        for position, line in enumerate(lines, start=2):
            text = line.strip()
            if text.startswith("*"):
                name = " ".join(text[1:].lower().split())
                current = self._lines.setdefault(name, [])
            elif text and not text.startswith(("#", "++")):
                current.append((position, text))

    def lines(self, section: str) -> list[tuple[int, str]]:
        return self._lines.get(section, [])

    def rows(self, section: str) -> Iterator[Row]:
        """Yield the rows of a section, by name of column, from its lines and its external tables."""
        columns = _COLUMNS[section]
        for position, line in self.lines(section):
            words = self._words(position, line)
            # Two words among the parameters tie one to another.
            if section == "parameter data" and len(words) == 2:
                yield {"parnme": words[0], "partied": words[1]}
                continue
            needed = 4 if section == "parameter data" else 2 if "model" in section else 1
            if len(words) < needed:
                raise self.error(position, f"must have the columns {', '.join(columns[:needed])}")
            yield dict(zip(columns, words, strict=False))
        for position, line in self.lines(f"{section} external"):
            yield from self._table(position, line, columns[:1] if "model" not in section else columns)

    def error(self, position: int, what: str) -> AdapterError:
        return AdapterError(SETTING, f"{self.path}, line {position}: {what}")

    def _words(self, position: int, line: str) -> list[str]:
        try:
            # A quoted name may contain blanks; a backslash is part of a path.
            lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
            lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", "#"
            return list(lexer)
        except ValueError as error:
            raise self.error(position, f"cannot be read: {error}") from error

    def _table(self, position: int, line: str, needed: tuple[str, ...]) -> Iterator[Row]:
        name, *options = self._words(position, line)
        settings = dict(zip(options[::2], options[1::2], strict=False))
        lines = read_setting(SETTING, self.path.parent / name).splitlines()
        if settings.get("sep", ",").lower() == "w":
            rows = [self._words(position, text) for text in lines if text.strip()]
        else:
            rows = [row for row in csv.reader(lines, delimiter=settings.get("sep", ",")) if any(row)]
        header = [entry.strip().lower() for entry in rows[0]] if rows else []
        for column in needed:
            if column not in header:
                raise self.error(position, f"the table {name!r} has no column {column!r}")
        for row in rows[1:]:
            entries = [entry.strip() for entry in row]
            missing = settings.get("missing_values", "")
            yield {key: entry for key, entry in zip(header, entries, strict=False) if entry not in ("", missing)}


def _check_counts(sections: _Sections, case: Control) -> None:
    """Raise `AdapterError` if the numbers in the control data are wrong: the file may be incomplete."""
    for (position, line), names in zip(
        sections.lines("control data")[1:3], ("NPAR and NOBS", "NTPLFLE and NINSFLE"), strict=False
    ):
        first, second = (*line.split()[:2], "", "")[:2]
        if not (first.isdecimal() and second.isdecimal()):
            raise sections.error(position, f"must start with the whole numbers {names}, was {line!r}")
        counts = {"template and instruction files": (int(first) + int(second), len(case.files))}
        if "NPAR" in names:
            counts = {
                "parameters": (int(first), len(case.parameters)),
                "observations": (int(second), len(case.observations)),
            }
        for what, (expected, found) in counts.items():
            if expected != found:
                raise sections.error(position, f"says {expected} {what} ({names}), but the file has {found}")


def _parameters(sections: _Sections) -> dict[str, ControlParameter]:
    parameters: dict[str, ControlParameter] = {}
    ties: dict[str, str] = {}
    for row in sections.rows("parameter data"):
        name = row["parnme"].lower()
        if "partied" in row:
            ties[name] = row["partied"].lower()
        if "parval1" in row:
            parameters[name] = _parameter(sections.path, name, row)
    for name, parameter in parameters.items():
        if parameter.transform == "tied":
            parent = ties.get(name, "")
            if parent not in parameters or parameters[parent].transform == "tied":
                must = "which must be a parameter that is not tied itself"
                raise AdapterError(SETTING, f"{sections.path}: {name!r} is tied to {parent!r}, {must}")
            parameters[name] = ControlParameter("tied", parameter.value, parameter.scale, parameter.offset, parent)
    if not parameters:
        raise AdapterError(SETTING, f"{sections.path} has no parameters")
    return parameters


def _parameter(path: Path, name: str, row: Row) -> ControlParameter:
    transform = row.get("partrans", "none").lower()
    if transform not in _TRANSFORMS:
        raise AdapterError(SETTING, f"{path}: the transform of {name!r} is {transform!r}, none of {_TRANSFORMS}")
    try:
        value, scale, offset = (
            parse_number(row.get(key, standard), key)
            for key, standard in (("parval1", ""), ("scale", "1"), ("offset", "0"))
        )
    except ValueError as error:
        raise AdapterError(SETTING, f"{path}: parameter {name!r}, {error}") from error
    if not (math.isfinite(value) and math.isfinite(scale) and math.isfinite(offset)):
        raise AdapterError(SETTING, f"{path}: parameter {name!r} has a number that is not finite")
    return ControlParameter(transform, value, scale, offset)
