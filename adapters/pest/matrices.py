"""Matrices and uncertainty files of PEST: variances and covariances of parameters or observations, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..protocol import AdapterError, Floats
from ..readers.text import parse_number
from .binary_matrices import read_binary_matrix
from .control_sections import split_words
from .files import find_file, read_bytes, read_setting

_LARGEST = 20_000  # rows of a matrix
_BINARY = (".jcb", ".jco", ".bin")
_ORDER = "the names of rows and of columns must be the same, in the same order"
_BLOCK_SETTINGS = ("file", "variance_multiplier", "first_parameter", "last_parameter")


@dataclass(frozen=True)
class NamedCovariance:
    """A covariance matrix.

    Parameters
    ----------
    names : tuple of str
        Name of each row, in lower case.
    matrix : array, shape (n, n)
    """

    names: tuple[str, ...]
    matrix: Floats

    @property
    def variances(self) -> dict[str, float]:
        """Variance by name."""
        return dict(zip(self.names, np.diag(self.matrix).tolist(), strict=True))

    @property
    def is_diagonal(self) -> bool:
        """Whether all covariances are zero."""
        return bool(np.count_nonzero(self.matrix - np.diag(np.diag(self.matrix))) == 0)


def read_covariance(setting: str, path: Path, parameters: Sequence[str] = ()) -> NamedCovariance:
    """Read a matrix (``.cov``, ``.mat`` as text, ``.jcb``, ``.jco`` binary) or an uncertainty file (``.unc``) of PEST.

    Parameters
    ----------
    setting : str
        Setting that an error names.
    path : Path
    parameters : sequence of str
        Names of all parameters in the order of the control file, for the settings ``first_parameter`` and
        ``last_parameter`` of an uncertainty file.

    Returns
    -------
    NamedCovariance

    Raises
    ------
    AdapterError
        The file is invalid.
    """
    try:
        if path.suffix.lower() == ".unc":
            blocks = list(_read_uncertainty(read_setting(setting, path), path, parameters))
        else:
            blocks = [_read_file(setting, path)]
    except ValueError as error:
        raise AdapterError(setting, f"{path}: {error}") from error
    if any(not np.all(np.isfinite(block.matrix)) for block in blocks):
        raise AdapterError(setting, f"{path}: a number is not finite")
    names = tuple(name for block in blocks for name in block.names)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise AdapterError(setting, f"{path}: {twice!r} comes twice")
    matrix = np.zeros((len(names), len(names)))
    start = 0
    for block in blocks:
        end = start + len(block.names)
        matrix[start:end, start:end] = block.matrix
        start = end
    return NamedCovariance(names, matrix)


def _read_file(setting: str, path: Path) -> NamedCovariance:
    """Read a matrix as text or, with the name or the content of a binary one, as that."""
    data = read_bytes(setting, path)
    if path.suffix.lower() not in _BINARY and b"\0" not in data:
        return _read_matrix(read_setting(setting, path))
    rows, columns, values = read_binary_matrix(data, _LARGEST)
    if rows != columns:
        raise ValueError(_ORDER)
    return NamedCovariance(rows, values)


def _read_matrix(text: str) -> NamedCovariance:
    """Read the ASCII format: numbers of rows and columns and a code, the numbers, then the names after a ``*``."""
    head, _, rest = text.lstrip().partition("\n")
    sizes = head.split()
    if len(sizes) < 3 or not all(word.lstrip("+-").isdecimal() for word in sizes[:3]):
        raise ValueError("line 1: must be the numbers of rows and columns, and a code, such as '10 10 1'")
    rows, columns, code = (int(word) for word in sizes[:3])
    if rows != columns or not 0 < rows <= _LARGEST:
        raise ValueError(f"must be a square matrix of at most {_LARGEST} rows, has {rows} rows and {columns} columns")
    body, _, tail = rest.partition("*")
    words = body.split()
    count = rows if code == -1 else rows * columns  # -1: a diagonal matrix, of which only the diagonal is given
    if len(words) != count:
        raise ValueError(f"must have {count} numbers, has {len(words)}")
    numbers = np.array([parse_number(word, "the matrix") for word in words])
    parts = [[line.strip().lower() for line in part.splitlines()[1:] if line.strip()] for part in tail.split("*")]
    if len(parts[0]) != rows:
        raise ValueError(f"must have {rows} names of rows, has {len(parts[0])}")
    if len(parts) > 1 and parts[1] != parts[0]:  # code 2: names of rows and of columns
        raise ValueError(_ORDER)
    return NamedCovariance(tuple(parts[0]), np.diag(numbers) if code == -1 else numbers.reshape(rows, columns))


def _read_uncertainty(text: str, path: Path, parameters: Sequence[str]) -> Iterator[NamedCovariance]:
    """Read the blocks STANDARD_DEVIATION and COVARIANCE_MATRIX."""
    kind, lines = "", list[list[str]]()
    for number, line in enumerate(text.splitlines(), start=1):
        words = split_words(line)
        if not words:
            continue
        edge, name = words[0].lower(), words[1].lower() if len(words) > 1 else ""
        if edge == "start" and not kind:
            kind, lines = name, []
        elif edge == "end" and kind:
            if name != kind:
                raise ValueError(f"line {number}: the block {kind.upper()} ends with {line.strip()!r}")
            yield _read_block(kind, lines, path, parameters)
            kind = ""
        elif kind and edge not in ("start", "end"):
            lines.append(words)
        else:
            raise ValueError(f"line {number}: {line.strip()[:60]!r} must be in a block that starts with START")
    if kind:
        raise ValueError(f"the block {kind.upper()} has no end")


def _read_block(kind: str, lines: list[list[str]], path: Path, parameters: Sequence[str]) -> NamedCovariance:
    short = next((words for words in lines if len(words) != 2), None)
    if short is not None:
        raise ValueError(f"a line of the block {kind.upper()} must be a name and a value, was {' '.join(short)!r}")
    settings = {name.lower(): value for name, value in lines}
    if len(settings) < len(lines):
        raise ValueError(f"a name comes twice in the block {kind.upper()}")
    if kind == "standard_deviation":
        factor = parse_number(settings.pop("std_multiplier", "1"), "std_multiplier")
        values = np.array([factor * parse_number(word, f"{name!r}") for name, word in settings.items()])
        return NamedCovariance(tuple(settings), np.diag(values**2))
    if kind != "covariance_matrix":
        raise ValueError(f"the block {kind.upper()!r} cannot be read; use STANDARD_DEVIATION and COVARIANCE_MATRIX")
    unknown = [name for name in settings if name not in _BLOCK_SETTINGS]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} cannot be read in a block COVARIANCE_MATRIX, only {', '.join(_BLOCK_SETTINGS)}"
        )
    if "file" not in settings:
        raise ValueError("a block COVARIANCE_MATRIX has no 'file'")
    factor = parse_number(settings.get("variance_multiplier", "1"), "variance_multiplier")
    file = find_file(path.parent, settings["file"])
    try:
        found = _read_file("control", file)
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from error
    names = _names_between(settings, parameters, len(found.names)) or found.names
    return NamedCovariance(names, factor * found.matrix)


def _names_between(settings: Mapping[str, str], parameters: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the parameters from ``first_parameter`` to ``last_parameter``, in the order of the control file."""
    ends = [settings[key].lower() for key in ("first_parameter", "last_parameter") if key in settings]
    if not ends:
        return ()
    if len(ends) < 2 or any(name not in parameters for name in ends):
        raise ValueError("first_parameter and last_parameter must be parameters of the control file")
    first, last = (parameters.index(name) for name in ends)
    names = tuple(parameters[first : last + 1])
    if len(names) != count:
        raise ValueError(f"there are {len(names)} parameters from {ends[0]!r} to {ends[1]!r}, but {count} rows")
    return names
