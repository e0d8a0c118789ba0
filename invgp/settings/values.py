"""Types of values that TOML and pydantic do not have: names, units, standard deviations, percentages, labels, paths."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator

from invgp.units import is_unit, suggest_unit

_EXAMPLE_UNITS = "such as 'm', 'm s-1', 'ohm m' or '1'"


def percentage(value: object) -> float | None:
    """Convert ``"15%"`` to 0.15; return None for a value that is not a percentage."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*%\s*", value) if isinstance(value, str) else None
    try:
        return float(match[1]) / 100.0 if match else None
    except ValueError:
        return None


MAP_SUFFIXES = (".csv", ".nc", ".nc4", ".cdf", ".tif", ".tiff")


def is_map_file(text: str) -> bool:
    """Return whether a text is the name of a map file."""
    return text.lower().endswith(MAP_SUFFIXES)


def _unit(text: str) -> str:
    hint = suggest_unit(text)
    if hint or not is_unit(text):
        raise ValueError(f"must be a unit that UDUNITS knows, {hint or _EXAMPLE_UNITS}")
    return text


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text):
        raise ValueError(
            "must have a name of letters, digits and underscores that starts with a letter (it names variables)"
        )
    return text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def check_numbers(value: object) -> object:
    """Return a value that is a finite number or a list of them; raise `ValueError` otherwise."""
    items = _items(value)
    if not items or not all(_is_number(v) for v in items):
        raise ValueError("must be a finite number or a list of them")
    return value


def _positives(value: object) -> object:
    items = _items(value)
    if not items or not all(_is_positive(v) for v in items):
        raise ValueError("must be a positive number, or a list of one for each coordinate")
    return value


def _positive(value: object) -> object:
    if not _is_positive(value):
        raise ValueError("must be a positive number")
    return value


def _zones(value: object) -> object:
    items = value if isinstance(value, list) else []
    if not (isinstance(value, str) and value) and not (items and all(_is_number(v) for v in items)):
        raise ValueError("must be a GeoJSON file, or a list of positions along a single coordinate")
    return value


def _is_spread(value: object) -> bool:
    share = percentage(value)
    items = _items(value) if share is None else [share]
    return bool(items) and all(_is_positive(v) for v in items)


def check_spreads(value: object) -> object:
    """Return a value that is a standard deviation, or a list of them; raise `ValueError` otherwise."""
    if not _is_spread(value):
        raise ValueError("must be a positive number, a list of them, or a percentage such as '15%'")
    return value


def _noise_spreads(value: object) -> object:
    names = _items(value)
    are_columns = bool(names) and all(isinstance(v, str) and percentage(v) is None for v in names)
    if not are_columns and not _is_spread(value):
        raise ValueError(
            "must be a positive number, a list of them, a percentage such as '5%', or the survey's column or columns"
        )
    return value


def _is_column(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _places(value: object) -> object:
    items = _items(value)
    if not items or not (all(_is_number(v) for v in items) or (_is_column(value) and not isinstance(value, list))):
        raise ValueError("must be a number, a list with one for each place, or a column of the file")
    return value


def _check_measure(value: object) -> object:
    items = [v for item in _items(value) for v in _items(item)]
    if not items or not (all(_is_number(v) for v in items) or all(_is_column(v) for v in items)):
        raise ValueError(
            "must be a number, a list of numbers (one for each place, or each label), a list of such lists, or the "
            "file's column or columns"
        )
    return value


def _labels(value: object) -> object:
    items = value if isinstance(value, list) else []
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in items)
    if not items or not (whole or all(isinstance(v, str) for v in items)):
        raise ValueError("must be a list of labels, all whole numbers or all text")
    if len(set(items)) < len(items):
        raise ValueError("must be labels that all differ")
    return value


def _quantiles(value: object) -> object:
    items = value if isinstance(value, list | tuple) else []
    if not items or not all(_is_number(v) and 0 < v < 1 for v in items) or len(set(items)) < len(items):
        raise ValueError("must be a list of numbers between 0 and 1 that all differ")
    return tuple(sorted(items))


def _path(value: object) -> Path:
    if not isinstance(value, str | Path):
        raise ValueError("must be text in quotes")  # noqa: TRY004 - pydantic reports ValueError, not TypeError
    return Path(value)


def _factor(value: object) -> object:
    if value is not True and not (_is_number(value) and value > 1):  # type: ignore[operator]
        raise ValueError("must be true, a number above 1 (a factor: one standard deviation of its prior) or left out")
    return value


def _correlation(value: object) -> object:
    rows = value if isinstance(value, list) else []
    square = bool(rows) and all(isinstance(row, list) and len(row) == len(rows) for row in rows)
    if not square or not all(_is_number(v) for row in rows for v in row):
        raise ValueError("must be a square matrix: a list of rows, each a list of numbers")
    wrong = any(
        row[i] != 1 or any(row[j] != rows[j][i] or not -1 < row[j] < 1 for j in range(i)) for i, row in enumerate(rows)
    )
    if wrong:
        raise ValueError(
            "must be a correlation matrix: symmetric, 1 on its diagonal and numbers between -1 and 1 elsewhere"
        )
    return value


def _correlation_number(value: object) -> object:
    if not _is_number(value) or not -1 < value < 1:  # type: ignore[operator]
        raise ValueError("must be a number between -1 and 1")
    return value


def _label_correlation(value: object) -> object:
    return _correlation(value) if isinstance(value, list) else _correlation_number(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _row_numbers(value: object) -> object:
    items = _items(value)
    if not items or not all(_is_whole(v) and v != 0 for v in items):
        raise ValueError("must be 1 for the first, -1 for the last, any other whole number but 0, or a list of them")
    return value


def _name_or_number(value: object) -> object:
    if not (isinstance(value, str) and value) and not (_is_whole(value) and value > 0):  # type: ignore[operator]
        raise ValueError("must be a name, or a whole number from 1")
    return value


def _function(value: object) -> object:
    if not isinstance(value, str) and not callable(value):  # a config has the name, `invgp.define` the function
        raise ValueError("must be text in quotes")  # noqa: TRY004 - pydantic reports ValueError, not TypeError
    return value


MOST = 10**9  # of anything that is counted
LONGEST = 1e9  # s; the clocks of the system take no more


class Kind(NamedTuple):
    """Description of a type for the configuration reference."""

    words: str


Name = Annotated[str, AfterValidator(_name)]
UnitText = Annotated[str, AfterValidator(_unit)]
Numbers = Annotated[Any, BeforeValidator(check_numbers), Kind("number or list of numbers")]
Positives = Annotated[Any, BeforeValidator(_positives), Kind("number or list of numbers")]
Positive = Annotated[Any, BeforeValidator(_positive), Kind("number")]
Spreads = Annotated[Any, BeforeValidator(check_spreads), Kind("number, list of numbers or percentage")]
Zones = Annotated[Any, BeforeValidator(_zones), Kind("file name or list of numbers")]
NoiseSpreads = Annotated[
    Any,
    BeforeValidator(_noise_spreads),
    Kind("number, list of numbers, percentage, column name or list of column names"),
]
Places = Annotated[Any, BeforeValidator(_places), Kind("number, list of numbers or column name")]
Measured = Annotated[
    Any,
    BeforeValidator(_check_measure),
    Kind("number, list of numbers, list of lists of numbers, column name or list of column names"),
]
LabelList = Annotated[Any, BeforeValidator(_labels), Kind("list of integers or list of strings")]
Factor = Annotated[Any, BeforeValidator(_factor), Kind("number or `true`")]
CorrelationNumber = Annotated[Any, BeforeValidator(_correlation_number), Kind("number")]
LabelCorrelation = Annotated[Any, BeforeValidator(_label_correlation), Kind("number or list of lists of numbers")]
Correlation = Annotated[Any, BeforeValidator(_correlation), Kind("list of lists of numbers")]
Quantiles = Annotated[tuple[float, ...], BeforeValidator(_quantiles), Kind("list of numbers")]
FilePath = Annotated[Path, BeforeValidator(_path), Kind("string")]
RowNumbers = Annotated[Any, BeforeValidator(_row_numbers), Kind("integer or list of integers")]
FunctionName = Annotated[Any, BeforeValidator(_function), Kind("string")]
NameOrNumber = Annotated[Any, BeforeValidator(_name_or_number), Kind("string or integer")]
