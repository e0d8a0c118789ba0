"""Matrices and uncertainty files of PEST: variances and covariances of parameters or observations, by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..protocol import AdapterError, Floats
from ..readers.text import parse_number
from .control_sections import split_words
from .files import find_file, read_setting

_LARGEST = 20_000  # rows of a matrix


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


def read_covariance(setting: str, path: Path) -> NamedCovariance:
    """Read a matrix file (``.cov``, ``.mat``) or an uncertainty file (``.unc``) of PEST, both as text.

    Parameters
    ----------
    setting : str
        Setting that an error names.
    path : Path

    Returns
    -------
    NamedCovariance

    Raises
    ------
    AdapterError
        The file is invalid, or binary.
    """
    if path.suffix.lower() in (".jcb", ".jco", ".bin"):
        raise AdapterError(setting, f"{path} is a binary matrix; write it as text with 'pyemu.Cov.to_ascii'")
    text = read_setting(setting, path)
    try:
        blocks = _read_uncertainty(text, path) if path.suffix.lower() == ".unc" else [_read_matrix(text)]
    except ValueError as error:
        raise AdapterError(setting, f"{path}: {error}") from error
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
    names = tuple(line.strip().lower() for line in tail.partition("*")[0].splitlines()[1:] if line.strip())
    if len(names) != rows:
        raise ValueError(f"must have {rows} names of rows, has {len(names)}")
    return NamedCovariance(names, np.diag(numbers) if code == -1 else numbers.reshape(rows, columns))


def _read_uncertainty(text: str, path: Path) -> list[NamedCovariance]:
    """Read the blocks STANDARD_DEVIATION and COVARIANCE_MATRIX."""
    blocks: list[NamedCovariance] = []
    kind, lines = "", list[list[str]]()
    for line in text.splitlines():
        words = split_words(line)
        start = re.match(r"\s*(start|end)\s+(\w+)", line, re.IGNORECASE)
        if start is None:
            if kind and words:
                lines.append(words)
        elif start[1].lower() == "start":
            kind, lines = start[2].lower(), []
        else:
            blocks += _read_block(kind, lines, path)
            kind = ""
    return blocks


def _read_block(kind: str, lines: list[list[str]], path: Path) -> list[NamedCovariance]:
    settings = {words[0].lower(): words[1] for words in lines if len(words) > 1}
    if kind == "standard_deviation":
        factor = parse_number(settings.pop("std_multiplier", "1"), "std_multiplier")
        values = np.array([factor * parse_number(word, f"{name!r}") for name, word in settings.items()])
        return [NamedCovariance(tuple(settings), np.diag(values**2))]
    if kind == "covariance_matrix":
        factor = parse_number(settings.get("variance_multiplier", "1"), "variance_multiplier")
        if "file" not in settings:
            raise ValueError("a block COVARIANCE_MATRIX has no 'file'")
        found = _read_matrix(read_setting("control", find_file(path.parent, settings["file"])))
        return [NamedCovariance(found.names, factor * found.matrix)]
    raise ValueError(f"the block {kind.upper()!r} cannot be read; there are STANDARD_DEVIATION and COVARIANCE_MATRIX")
