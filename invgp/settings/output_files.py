"""The keys of an entry of `forward.output_files`, for each format."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from invgp.formatting import did_you_mean, format_value, join_names
from invgp.settings.section import Section, WholeSentenceError
from invgp.settings.values import MOST, Kind, NameOrNumber, RowNumbers

HOW = "how the file is read"
FORMAT: Any = Field(description=HOW)
SKIP_LINES = Field(default=0, ge=0, le=MOST, description="number of lines to skip at the top")
ROW = Field(default=None, description="row to read, or a list of rows; 1 is the first, -1 the last; none: all")


class ReaderSection(Section):
    """A file that is read after each run."""

    path: str | None = Field(default=None, description="the file's path in the run's directory; none: standard output")
    outputs: list[str] | None = Field(default=None, description="the outputs that it holds, in order; none: all")


class OutputFileSection(ReaderSection):
    """All numbers of a file, in order."""

    format: Literal["numbers"] = Field(default="numbers", description=HOW)
    skip_lines: int = SKIP_LINES


class TableFileSection(ReaderSection):
    """A column of a table without header."""

    format: Literal["table"] = FORMAT
    column: int = Field(default=1, ge=1, le=MOST, description="number of the column, from 1")
    row: RowNumbers = ROW
    skip_lines: int = SKIP_LINES


class CsvFileSection(ReaderSection):
    """A column of a CSV file with a header."""

    format: Literal["csv"] = FORMAT
    column: NameOrNumber = Field(description="the column's name, or its number from 1")
    row: RowNumbers = ROW
    skip_lines: int = Field(default=0, ge=0, description="number of lines to skip above the header")
    delimiter: str = Field(default=",", description="the character between entries")


class JsonFileSection(ReaderSection):
    """Numbers of a JSON file."""

    format: Literal["json"] = FORMAT
    key: str = Field(
        description="the path to a number or a list of numbers, such as 'results.times[0]'; lists count from 0"
    )


class RegexFileSection(ReaderSection):
    """Numbers that match a regular expression."""

    format: Literal["regex"] = FORMAT
    pattern: str = Field(description="Python's regular expression; its groups are the numbers, or the whole match")
    row: RowNumbers = ROW


class NetcdfFileSection(ReaderSection):
    """A variable of a netCDF file."""

    path: str = Field(description="the file's path in the run's directory")
    format: Literal["netcdf"] = FORMAT
    variable: str = Field(description="the variable's name; 'group/name' within a group")
    row: RowNumbers = ROW


class EclipseFileSection(ReaderSection):
    """Vectors of a summary file of Eclipse or OPM Flow."""

    path: str = Field(description="the path of the .UNSMRY file in the run's directory, with its .SMSPEC next to it")
    format: Literal["eclipse"] = FORMAT
    vectors: list[str] = Field(description="a list of names such as 'FOPR', 'WOPR:PROD' or 'BPR:3,5,1'", min_length=1)
    row: RowNumbers = Field(
        default=None, description="report step to read, or a list of steps; 1 is the first, -1 the last; none: all"
    )
    times: list[float] | None = Field(
        default=None,
        description="instead of `row`, values of the vector TIME (usually days) at which the simulator writes a step",
    )


class InstructionFileSection(ReaderSection):
    """A file for which there are PEST instructions."""

    format: Literal["ins"] = FORMAT
    instructions: str = Field(description="the path of the .ins file, relative to the config")


class PythonFileSection(ReaderSection):
    """A file that a Python function reads."""

    format: Literal["python"] = FORMAT
    function: str = Field(description="'package.module:function', of a module that is installed or next to the config")


READERS = ("numbers", "table", "csv", "json", "regex", "netcdf", "eclipse", "ins", "python")
_SECTIONS: tuple[type[ReaderSection], ...] = (
    OutputFileSection,
    TableFileSection,
    CsvFileSection,
    JsonFileSection,
    RegexFileSection,
    NetcdfFileSection,
    EclipseFileSection,
    InstructionFileSection,
    PythonFileSection,
)
_KEYS = {name: set(section.model_fields) for name, section in zip(READERS, _SECTIONS, strict=True)}


def _known_format(value: object) -> object:
    """Check `format`, by which pydantic selects the table."""
    if not isinstance(value, dict):
        raise ValueError('must be a table such as { path = "times.txt" }')  # noqa: TRY004 - as above
    chosen = value.get("format", "numbers")
    if chosen not in READERS:
        raise WholeSentenceError(
            [f"format: must be {join_names(READERS, 'or')}, was {format_value(chosen)}{did_you_mean(chosen, READERS)}"]
        )
    if "format" not in value:
        for key in value:
            formats = [name for name, keys in _KEYS.items() if key in keys]
            if formats and "numbers" not in formats:
                raise WholeSentenceError(
                    [f"format: must be given, since {key!r} is a key of {join_names(formats, 'or')} only, was left out"]
                )
    return {"format": chosen, **value}


AnyOutputFile = (
    OutputFileSection
    | TableFileSection
    | CsvFileSection
    | JsonFileSection
    | RegexFileSection
    | NetcdfFileSection
    | EclipseFileSection
    | InstructionFileSection
    | PythonFileSection
)
OutputFiles = Annotated[
    list[Annotated[Annotated[AnyOutputFile, Field(discriminator="format")], BeforeValidator(_known_format)]],
    Field(min_length=1),
    Kind("list of tables"),
]
