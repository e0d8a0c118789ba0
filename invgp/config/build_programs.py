"""Adapters of programs with input and output files, and names of single numbers in files of PEST and Dakota."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from invgp.adapters import (
    AdapterError,
    CsvFile,
    EclipseFile,
    ExecutableModel,
    InputFile,
    InstructionFile,
    JsonFile,
    LocalFile,
    NetcdfFile,
    OutputFile,
    PythonFile,
    Quantity,
    Reader,
    RegexFile,
    TableFile,
    dakota_model,
    load_instructions,
    pest_model,
)
from invgp.config.build_survey import read_grid_table
from invgp.config.survey_tables import Table
from invgp.errors import ConfigError
from invgp.settings.configuration import Config
from invgp.settings.output_files import AnyOutputFile, InstructionFileSection, PythonFileSection
from invgp.settings.section import Section
from invgp.settings.simulators import DakotaSection, ExecutableSection, FilesSection, NamesColumn, PestSection

_READERS: dict[str, Callable[..., Reader]] = {
    "numbers": OutputFile,
    "table": TableFile,
    "csv": CsvFile,
    "json": JsonFile,
    "regex": RegexFile,
    "netcdf": NetcdfFile,
    "eclipse": EclipseFile,
    "python": PythonFile,
}

Quantities = tuple[Quantity, ...]
S = TypeVar("S")
T = TypeVar("T")


def build_executable(
    section: ExecutableSection, inputs: Quantities, outputs: Quantities, directory: Path
) -> ExecutableModel:
    """Build the adapter of an executable."""
    return ExecutableModel(
        command=tuple(section.command),
        inputs=inputs,
        outputs=outputs,
        input_files=tuple(InputFile(directory / f.template, f.path, f.format) for f in section.input_files),
        output_files=_build_each("output_files", section.output_files, lambda file: _reader(file, directory)),
        target_file=section.target_file,
        fallback=tuple(section.fallback),
        search_path=directory,
        **_common_settings(section),
    )


def build_pest(section: PestSection, inputs: Quantities, outputs: Quantities, directory: Path) -> ExecutableModel:
    """Build the adapter of a PEST model."""
    return pest_model(directory / section.control, inputs, outputs, **_common_settings(section))


def build_dakota(section: DakotaSection, inputs: Quantities, outputs: Quantities, directory: Path) -> ExecutableModel:
    """Build the adapter of a Dakota driver."""
    return dakota_model(
        tuple(section.driver),
        inputs,
        outputs,
        format=section.format,
        descriptor=section.descriptor,
        search_path=directory,
        jacobian=section.jacobian,
        jacobian_cost=section.jacobian_cost,
        **_common_settings(section),
    )


def settings_of(section: Section, *handled: str) -> dict[str, Any]:
    """Return the keys of a table as keyword arguments of an adapter or reader, without those in `handled`."""
    # Not model_dump: it would turn a function that is an instance of a dataclass into a dict.
    keys = {key: getattr(section, key) for key in type(section).model_fields if key not in handled}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in keys.items()}


def _common_settings(section: FilesSection) -> dict[str, Any]:
    """Return the settings of all programs with files."""
    return {
        "files": tuple(LocalFile(Path(f.source), f.path, f.link) for f in section.files),
        "bounds": {
            name: (-math.inf if b.min is None else b.min, math.inf if b.max is None else b.max)
            for name, b in section.bounds.items()
        },
        "keep": section.keep,
        "partial": section.partial,
        "timeout": section.timeout,
        "threads": section.threads,
        "environment": section.environment,
    }


def _build_each(key: str, sections: Iterable[S], build: Callable[[S], T]) -> tuple[T, ...]:
    """Build each entry of a list; an error names the entry."""
    built = []
    for i, section in enumerate(sections):
        try:
            built.append(build(section))
        except AdapterError as error:
            raise AdapterError(f"{key}[{i}].{error.setting}", error.sentence) from error
    return tuple(built)


def _reader(section: AnyOutputFile, directory: Path) -> Reader:
    settings = settings_of(section, "format")
    if isinstance(section, InstructionFileSection):
        instructions = load_instructions("instructions", directory / section.instructions)
        return InstructionFile(((instructions, section.path),), settings["outputs"])
    if isinstance(section, PythonFileSection):
        settings["search_path"] = directory
    return _READERS[section.format](**settings)


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
