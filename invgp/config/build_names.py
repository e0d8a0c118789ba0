"""Names of single numbers of inputs and outputs in the files of PEST and Dakota."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from invgp.adapters import Quantity
from invgp.config.build_grid import read_grid_table
from invgp.config.survey_tables import Table
from invgp.errors import ConfigError
from invgp.settings.configuration import Config
from invgp.settings.simulators import NamesColumn

NAMING_ADAPTERS = ("pest", "dakota", "executable")
_FIELD = re.compile(r"\{(?:(?P<text>name|label)|(?:number)?(?P<format>:0?\d*d)?)\}")

Names = str | list[str] | NamesColumn


def name_numbers(quantity: Quantity, names: Names, key: str, adapter: str, column: Callable[[], list[str]]) -> Quantity:
    """Return a quantity with the name of each of its numbers.

    Parameters
    ----------
    quantity : Quantity
        With one label per number; a label of a node or site ends with its number.
    names : str, list of str or NamesColumn
        A pattern, the names, or the column that holds them.
    key : str
        Key of the configuration, for errors.
    adapter : str
        Type of the simulator.
    column : callable
        Returns the texts of the column.
    """
    if adapter not in NAMING_ADAPTERS:
        raise ConfigError(f"{key}: must be left out with forward.adapter = {adapter!r}, which names no single number")
    if isinstance(names, str):
        found = _fill_pattern(quantity, names, key)
    else:
        found = names if isinstance(names, list) else column()
    if len(found) != quantity.size:
        raise ConfigError(f"{key}: must be {quantity.size} names, one for each number, was {len(found)}")
    bad = next((name for name in found if not name or len(name.split()) != 1), None)
    if bad is not None:
        raise ConfigError(f"{key}: must be names without white space, was {bad!r}")
    return Quantity(quantity.name, quantity.unit, quantity.labels, tuple(found))


def text_column(
    config: Config, names: Names, key: str, *, nodes: bool, table: Table | None, directory: Path
) -> list[str]:
    """Return a column of text of the grid file, with `nodes`, or else of the survey file."""
    column = names.column if isinstance(names, NamesColumn) else ""
    if nodes:
        if config.grid is None or config.grid.file is None:
            raise ConfigError(f"{key}: must be a pattern or a list without grid.file, was the column {column!r}")
        table = read_grid_table(config.grid, directory)
    return table.texts(column, f"{key}.column") if table is not None else []


def _fill_pattern(quantity: Quantity, pattern: str, key: str) -> list[str]:
    if not _FIELD.search(pattern) and quantity.size == 1:
        return [pattern]
    if not _FIELD.search(pattern) or re.search(r"[{}]", _FIELD.sub("", pattern)):
        raise ConfigError(
            f'{key}: must be a list of names, a column such as {{ column = "name" }}, or a pattern with {{label}}, '
            f"{{name}} or a number such as {{:02d}}, was {pattern!r}"
        )
    return [_fill(pattern, quantity.name, *parts) for parts in _split_labels(quantity.labels or ("",))]


def _split_labels(labels: Sequence[str | int]) -> list[tuple[str, int]]:
    """Return the label and the number of each column: of a node or site its own, otherwise its place from 1."""
    found = []
    for place, label in enumerate(labels, start=1):
        text, comma, number = str(label).rpartition(",")
        if isinstance(label, int):
            found.append((str(label), label))
        elif comma and number.isdecimal():
            found.append((text, int(number)))
        else:
            found.append((str(label), place))
    return found


def _fill(pattern: str, name: str, label: str, number: int) -> str:
    def replace(match: re.Match[str]) -> str:
        if match["text"]:
            return name if match["text"] == "name" else label
        return format(number, (match["format"] or ":d")[1:])

    return _FIELD.sub(replace, pattern)
