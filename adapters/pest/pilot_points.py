"""Coordinates of parameters: of pilot points in template files, and of tables."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path

from ..protocol import AdapterError
from ..readers.text import parse_number
from .control import Control
from .control_sections import split_words
from .files import find_file, read_setting

Point = tuple[float, float]

_NAMES, _EASTINGS, _NORTHINGS = ("parnme", "name", "parameter"), ("x", "easting"), ("y", "northing")
_NAMED_POINT = re.compile(r"(?:^|_)x:([^_]+)_y:([^_]+)(?:_|$)")
_SHORTEST = 3  # words before the value of a pilot point: name, x, y, often a zone


def find_coordinates(case: Control, folder: Path) -> dict[str, Point]:
    """Return the coordinates of those parameters that have some, by name in lower case.

    They come from the columns ``x`` and ``y`` of an external table of parameters, from a template of a file of pilot
    points, whose lines are a name, x, y, usually a zone, and the value, or from names that pyEMU writes.

    Parameters
    ----------
    case : Control
    folder : Path
        Directory of the control file.
    """
    found: dict[str, Point] = {}
    for pest_file, _ in case.files:
        path = find_file(folder, pest_file)
        text = read_setting("control", path)
        if text[:3].lower() == "ptf":
            found |= _points_of_template(text)
    for name, parameter in case.parameters.items():
        point = _point_of_row(parameter.columns) or _point_of_name(name)
        if point is not None:
            found[name] = point
    return found


def read_coordinates(setting: str, path: Path) -> dict[str, Point]:
    """Read a table of coordinates: a CSV file with columns ``name``, ``x`` and ``y``, or a file of pilot points.

    Parameters
    ----------
    setting : str
        Setting that an error names.
    path : Path

    Returns
    -------
    dict of str to tuple of float
        x and y by name in lower case.
    """
    lines = [line for line in read_setting(setting, path).splitlines() if line.strip()]
    if lines and "," in lines[0]:
        rows = [{k.strip().lower(): (v or "").strip() for k, v in row.items() if k} for row in csv.DictReader(lines)]
        named = [(next((row[key] for key in _NAMES if row.get(key)), ""), _point_of_row(row)) for row in rows]
    else:
        words = [split_words(line) for line in lines]
        named = [(row[0], _numbers(row[1:3])) for row in words if len(row) >= _SHORTEST]
    found = {name.lower(): point for name, point in named if name and point is not None}
    if not found:
        raise AdapterError(setting, f"{path} must have the columns name, x and y, as CSV or as a file of pilot points")
    return found


def _points_of_template(text: str) -> dict[str, Point]:
    first, *lines = text.splitlines() or [""]
    delimiter = first.split()[1] if len(first.split()) > 1 else "~"
    found: dict[str, Point] = {}
    for line in lines:
        parts = line.split(delimiter)
        if len(parts) != 3:  # one parameter per line
            if len(parts) > 1:
                return {}
            continue
        words = parts[0].replace(",", " ").split()
        point = _numbers(words[1:3]) if _SHORTEST <= len(words) <= _SHORTEST + 1 else None
        if point is None or parts[2].strip():
            return {}
        found[parts[1].strip().lower()] = point
    return found if len(set(found.values())) == len(found) > 1 else {}


def _point_of_row(row: Mapping[str, str]) -> Point | None:
    words = [next((row[key] for key in keys if key in row), "") for keys in (_EASTINGS, _NORTHINGS)]
    return _numbers(words)


def _point_of_name(name: str) -> Point | None:
    """Return the point in a name of pyEMU, such as ``pname:k_inst:0_ptype:gr_pstyle:m_i:0_j:1_x:150.00_y:550.00``."""
    found = _NAMED_POINT.search(name)
    return None if found is None else _numbers([found[1], found[2]])


def _numbers(words: list[str]) -> Point | None:
    try:
        x, y = (parse_number(word, "") for word in words)
    except ValueError:
        return None
    return (x, y) if math.isfinite(x) and math.isfinite(y) else None
