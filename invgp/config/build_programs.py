"""Adapters of programs with input and output files: executables, PEST models, Dakota drivers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
from invgp.settings.output_files import AnyOutputFile, InstructionFileSection, PythonFileSection
from invgp.settings.section import Section
from invgp.settings.simulators import DakotaSection, ExecutableSection, FilesSection, PestSection

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
