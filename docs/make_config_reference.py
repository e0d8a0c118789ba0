"""Write docs/config.md from the schema: python docs/make_config_reference.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from invgp.config import output_files, schema, simulators
from invgp.config.section import Section
from invgp.config.values import Kind

INTRODUCTION = """# The config file
One TOML file describes a survey, the unknown fields below it, the simulator, the noise, the inference and the output.
Relative paths are relative to the file. Every key is listed here; an unknown one is an error. This page is made from
the code by `python docs/make_config_reference.py`.

A percentage such as `"15%"` is of the prior mean (`latents.*.std`) or of the observed value (`noise.std.*`). Prior mean
and standard deviation are those of the physical quantity, also with `link = "log"`; with `link = "increasing"` the mean
is that of the quantity, the standard deviation that of its increments. Where a latent or an observation has a
`dimension`, its lists have one entry for each label of `[dimensions]`, and one number stands for all.
"""


def tables() -> list[tuple[str, str, type[Section]]]:
    """Heading, note and section, in the order of a config file."""
    return [
        ("The top of the file", "", schema.Config),
        ("[survey]", "", schema.SurveySection),
        ("[survey.coordinates.NAME], [survey.covariates.NAME]", "", schema.ColumnSection),
        ("[survey.observations.NAME]", "", schema.ObservationSection),
        ("[grid]", "For field models; [field.md](field.md) says what they are.", schema.GridSection),
        ("[grid.coordinates.NAME]", "", schema.AxisSection),
        ("[latents.NAME]", "", schema.LatentSection),
        ("[latents.NAME.kernel]", "", schema.KernelSection),
        ("[latents.NAME.learn]", LEARN, schema.LearnSection),
        ('[forward] with adapter = "callable"', CALLABLE, simulators.CallableSection),
        ('[forward] with adapter = "executable"', EXECUTABLE, simulators.ExecutableSection),
        ('[forward] with adapter = "persistent"', PERSISTENT, simulators.PersistentSection),
        ('[forward] with adapter = "batched"', BATCHED, simulators.BatchedSection),
        ('[forward] with adapter = "pest"', PEST, simulators.PestSection),
        ('[forward] with adapter = "dakota"', DAKOTA, simulators.DakotaSection),
        ('[forward] with adapter = "umbridge"', UMBRIDGE, simulators.UmbridgeSection),
        ("an entry of forward.inputs", "A string is short for `{ name = ... }`.", simulators.InputSection),
        ("an entry of forward.outputs", "A string is short for `{ name = ... }`.", simulators.OutputSection),
        ("an entry of forward.input_files", TEMPLATE, simulators.InputFileSection),
        ("an entry of forward.files", "", simulators.LocalFileSection),
        ("an entry of forward.bounds", BOUNDS, simulators.BoundsSection),
        ("an entry of forward.output_files", READER, output_files.OutputFileSection),
        ('an entry of forward.output_files with format = "table"', TABLE, output_files.TableFileSection),
        ('an entry of forward.output_files with format = "csv"', "", output_files.CsvFileSection),
        ('an entry of forward.output_files with format = "json"', JSON, output_files.JsonFileSection),
        ('an entry of forward.output_files with format = "regex"', REGEX, output_files.RegexFileSection),
        ('an entry of forward.output_files with format = "netcdf"', NETCDF, output_files.NetcdfFileSection),
        ('an entry of forward.output_files with format = "ins"', INS, output_files.InstructionFileSection),
        ('an entry of forward.output_files with format = "python"', PYTHON, output_files.PythonFileSection),
        ("[noise]", "", schema.NoiseSection),
        ("[inference]", "", schema.InferenceSection),
        ("[output]", "", schema.FileSection),
    ]


LEARN = """What of the prior is learnt from the data, starting at what the latent says. With `true` there is no prior on
it. A number above 1 is a factor: the prior is log-normal, what the latent says is its median, and a change by that
factor is one standard deviation."""
CALLABLE = """The function gets its inputs by name: arrays (B,) or, for an input with labels, (B, L), when `vectorised`;
otherwise numbers or arrays (L,), one row at a time. It returns an array for one output, or a dictionary by output
name."""
EXECUTABLE = """Each run has a private directory, removed when it went well and kept when it failed. A program named
with a slash is found beside the config, otherwise on the path. There is no shell. Arguments may hold placeholders as
templates do. A run that writes more than 64 MiB to standard output or to standard error is killed, and an output file
of more is refused. Where there is a `fallback`, a run whose command failed, in whatever way, is made again with it,
in a fresh directory."""
PEST = """A model as PEST runs it: a control file of either style with its templates, instructions and model command
line, none of them edited. Inputs are parameters and outputs are observations by name, whatever their case: `depth`
with label 1 is `depth[1]`, `depth_1` or `depth1`; with label `"hk"` it may also be `hk`. Values are PEST's; the model
reads them times SCALE plus OFFSET. A parameter that is no input keeps its initial value, fixed or not; a tied one
keeps its ratio to its parent. Bounds, weights, groups and prior information are not looked at. Each run has a private
directory: files that the command line names are copied there, and all others that the model reads must be among
`files`. There is no shell: a command line with pipes, redirections or `&&` must become a script that starts with
`#!/bin/sh`."""
DAKOTA = """A driver as Dakota's fork interface runs it, with the names of a parameters file and of a results file as
its last two arguments, in Dakota's JSON or text. Inputs and outputs without labels have Dakota's descriptors as their
names. Function values alone are asked for. A driver reports a failure by `"fail": "true"`, or by `fail` at the start
of its results file."""
UMBRIDGE = """Each input and each output is one block of the model, in order, with one number for each label. Sizes are
compared when a server is first used, so also by `invgp check`. [UM-Bridge](umbridge.md) has more."""
BOUNDS = """The key is the name of an output, the value a table, such as `time = { min = 0, max = 10 }`."""
TABLE = """Rows of entries between white space or commas; blank lines and lines that start with `#` are no rows. One
column for each entry of `output_files`; several may read the same file."""
JSON = """A number, or a list of numbers, of lists and so on, in order; `null` is not a number."""
REGEX = (
    """`^` and `$` are the ends of a line. With `row`, some of the matches: `-1` is the last of a log of iterations."""
)
NETCDF = """The whole variable, the last dimension fastest; `row` picks along its first dimension. What is missing is
not a number."""
INS = """Observations of the instructions are outputs by name, as for PEST's templates; others are read and dropped."""
PYTHON = """The function gets the path of the file, and returns the numbers in order, or a dictionary by output name."""
PERSISTENT = """The program is started once by each worker, and then gets a line of JSON on its standard input for each
run, `{"id": 7, "inputs": {"depth": [100.0, 250.0]}}`, and answers each with a line on its standard output,
`{"id": 7, "outputs": {"time": [0.1, 0.2]}}` or `{"id": 7, "error": "why"}`. A program that crashes, hangs or answers
anything else is ended, and a fresh one goes on. [Bringing your simulator](simulators.md) has an example."""
BATCHED = """The program is started once for many runs. It reads a table with a line of column names, such as
`depth[1],depth[2]`, and a line for each run, and writes one with a line for each run. A run that it could not do is
`nan`. If it fails for a batch, the runs of that batch are made one by one."""
TEMPLATE = """In a template, `{depth[1]}` is the number of label 1, `{elevation}` an input without labels; Python
format specs work (`{depth[1]:.3f}`), and without one the number is written so that it reads back exactly. `{{` is a
brace. In a PEST template, the number of `depth` with label 1 is `depth[1]`, `depth_1` or `depth1`, and with label
`"sand"` also `sand`, in any case."""
READER = """The numbers in the file, separated by white space or commas, in order; lines that start with `#` are passed
over. Fortran's exponents are read (`1.0D+03`). There must be exactly as many as the outputs that it
holds."""


def kind(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """A type in words: its own, where it brings some."""
    own = [item.words for item in metadata if isinstance(item, Kind)]
    if own:
        return own[0]
    if get_origin(annotation) is Annotated:
        return kind(annotation.__origin__, annotation.__metadata__)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{shown(value)}`" for value in get_args(annotation))
    if get_args(annotation):
        return kind_of_several(annotation)
    if issubclass(annotation, Section):
        return "table"
    return {str: "string", int: "integer", float: "number", bool: "true or false"}[annotation]


def kind_of_several(annotation: Any) -> str:
    """A union, a list or a table in words."""
    kinds = list(dict.fromkeys(kind(a) for a in get_args(annotation) if a is not type(None)))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(kinds)
    if get_origin(annotation) is list:
        return f"list of {kinds[0]}s"
    return "table of tables" if kinds[-1] == "table" else f"table, each value a {kinds[-1]}"


def default(field: FieldInfo) -> str:
    """The default, or that there is none."""
    if field.is_required():
        return "required"
    value = field.default
    if value is None:  # unless the description says what stands in
        return "" if "by default" in str(field.description) else "none"
    if value in ("", [], {}) or isinstance(value, Section):
        return ""
    if isinstance(value, list) and isinstance(value[0], Section):
        return ""
    return f"`{shown(value)}`"


def shown(value: object) -> str:
    """A value as TOML writes it."""
    return json.dumps(value)


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for heading, note, section in tables():
        parts.append(f"## {heading}\n")
        if note:
            parts.append(note.strip() + "\n")
        parts.append("| key | kind | default | what it is |\n| --- | --- | --- | --- |")
        parts += [
            f"| `{name}` | {kind(field.annotation, field.metadata)} | {default(field)} | {field.description} |"
            for name, field in section.keys().items()
        ]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("config.md").write_text(page(), encoding="utf-8")
