"""Write docs/config.md from the settings: python docs/make_config_reference.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from invgp.settings import configuration, inference_settings, output_files, simulators
from invgp.settings.section import Section
from invgp.settings.values import Kind

INTRODUCTION = """# Configuration reference
One TOML file describes the survey, the unknown fields, the simulator, the noise, the inference and the output. Relative
paths refer to the directory of the file. This page lists all keys; an unknown key is an error.
`python docs/make_config_reference.py` generates this page from the code.

A percentage such as `"15%"` refers to the prior mean (`latents.*.std`) or to the observed value (`noise.std.*`). Prior
mean and standard deviation refer to the physical quantity, also with `link = "log"`. With `link = "increasing"`, the
mean refers to the quantity and the standard deviation to its increments. If a latent or an observation has a
`dimension`, its lists have one entry per label of `[dimensions]`, and a single number applies to all labels.
"""


def tables() -> list[tuple[str, str, type[Section]]]:
    """Heading, note and section, in the order of a config file."""
    return [
        ("Top level", "", configuration.Config),
        ("[survey]", "", configuration.SurveySection),
        ("[survey.coordinates.NAME], [survey.covariates.NAME]", "", configuration.ColumnSection),
        ("[survey.observations.NAME]", "", configuration.ObservationSection),
        ("[grid]", "Only for [field models](field.md).", configuration.GridSection),
        ("[grid.coordinates.NAME]", "", configuration.AxisSection),
        ("[latents.NAME]", "", configuration.LatentSection),
        ("[latents.NAME.mean], [latents.NAME.std], an entry of trend", MAP, configuration.MapSection),
        ("[latents.NAME.kernel]", KERNEL, configuration.KernelSection),
        ("[latents.NAME.learn]", LEARN, configuration.LearnSection),
        ("[sources.NAME]", SOURCES, configuration.SourceSection),
        ("[direct.NAME]", DIRECT, configuration.DirectSection),
        ("[direct.NAME.coordinates.NAME]", PLACE, configuration.PlaceSection),
        ("[direct.NAME.values.NAME]", "", configuration.DirectValueSection),
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
        ('an entry of forward.output_files with format = "eclipse"', ECLIPSE, output_files.EclipseFileSection),
        ('an entry of forward.output_files with format = "ins"', INS, output_files.InstructionFileSection),
        ('an entry of forward.output_files with format = "python"', PYTHON, output_files.PythonFileSection),
        ("[noise]", "", configuration.NoiseSection),
        ("[noise.discrepancy.NAME]", DISCREPANCY, configuration.DiscrepancySection),
        ("[inference]", "", inference_settings.InferenceSettings),
        ("[output]", "", inference_settings.OutputSettings),
    ]


MAP = """A string that ends in `.csv`, `.nc` or `.tif` is short for `{ file = ... }`. See [Maps and
trends](choosing.md#maps-and-trends)."""

KERNEL = """[Choosing a kernel](choosing.md#kernel) explains the kinds. `squared exponential`, `exponential`,
`matern 3/2`, `matern 5/2` and `rational quadratic` need a `length_scale`, `periodic` a `period`, `linear` a
`length_scale` and a `centre`, `sum` and `product` their `parts`, which are tables with the same keys. The kernel is
scaled so that `std` of the latent is its standard deviation; that of a linear kernel is `std` at the distance
`length_scale` from the centre. The length-scale of a periodic kernel has no unit and is 1 by default. In Python,
`kernel` can also be an object of [`invgp.kernels`](models.md#kernels)."""
LEARN = """The parameters of the prior that are learnt from the data. The search starts at the value of the
latent. The prior of each parameter is log-normal, and its median is the value of the latent. A number above 1 is a
factor: a change by that factor is one standard deviation. With `true` the factor is 10, a weak prior. With
`posterior = "sampled"` the posterior is averaged over the parameters; otherwise they have their most probable
values. In a kernel with several parts, the parameters of a name are learnt in all parts that have them, each by
itself."""
DISCREPANCY = """See [What the simulator cannot explain](choosing.md#what-the-simulator-cannot-explain)."""

SOURCES = """A further data set with its own sites, simulator and noise, for a [joint inversion](joint.md). Its tables
`[sources.NAME.survey]`, `[sources.NAME.forward]` and `[sources.NAME.noise]` have the keys of the tables above."""
DIRECT = """Direct data need no simulator: the values of a borehole, for example. See [Boreholes and joint
inversion](joint.md). NAME is a name of your choice."""
PLACE = """A number, a list of numbers or the name of a column is short for `{ at = ... }`."""
CALLABLE = """The function receives its inputs by name. If it is `vectorised`, the inputs are arrays (B,) or, for
an input with labels, (B, L). Otherwise they are numbers or arrays (L,), one row at a time. The function returns
an array for one output, or a dictionary by output name."""
EXECUTABLE = """Each run has a private directory, which is removed after success and kept after a failure. The
directories of the first 100 failed runs of an inversion are kept. A program name with a slash is relative to
the directory of the configuration; otherwise invgp searches for it on the PATH. No shell is used. Arguments can
contain placeholders like templates. A run that writes more than 64 MiB to standard output or to standard error
is killed, and a larger output file is rejected. If there is a `fallback` command, it repeats a run whose
command failed for any reason, in a new directory."""
PEST = """An unchanged PEST model: a control file of either version with its templates, instructions and model
command line. Inputs are PEST parameters and outputs are PEST observations, identified by name without regard to
case. `depth` with label 1 is `depth[1]`, `depth_1` or `depth1`; with label `"hk"` it can also be `hk`. The values
are those of PEST; the model reads them multiplied by SCALE, plus OFFSET. A parameter that is not an input keeps
its initial value, fixed or not. A tied parameter keeps its ratio to its parent. Bounds, weights, groups and prior
information are ignored. Each run has a private directory. Files that the command line names are copied there;
list all other files that the model reads in `files`. A command line with pipes, redirections or `&&` is run by
`/bin/sh`, as by PEST."""
DAKOTA = """A driver for the fork interface of Dakota. Its last two arguments are the names of a parameters file
and of a results file, in the JSON or text format of Dakota. The names of inputs and outputs without labels are
the descriptors of Dakota. Only function values are requested. A driver reports a failure with `"fail": "true"`,
or with `fail` at the start of its results file."""
UMBRIDGE = """Each input and each output is one block of the model, in order, with one number per label. The sizes
are checked when a server is first used, for example by `invgp check`. See [UM-Bridge](umbridge.md)."""
BOUNDS = """The key is the name of an output and the value is a table, such as `time = { min = 0, max = 10 }`."""
TABLE = """Rows of entries separated by white space or commas. Blank lines and lines that start with `#` are
ignored. Each entry of `output_files` reads one column; several entries can read the same file."""
JSON = """A number, or a (nested) list of numbers, in order. `null` counts as NaN."""
REGEX = """`^` and `$` match at the ends of a line. `row` selects among the matches; `-1` is the last one."""
NETCDF = """The whole variable; the last dimension varies fastest. `row` selects along the first dimension.
Missing values are NaN."""
ECLIPSE = """The numbers of the first vector at all steps, then those of the second, and so on. Report steps are those
of the schedule; `times` can also name steps between them. Needs `pip install 'invgp[eclipse]'`."""
INS = (
    """The observations of the instructions are outputs, identified by name as in PEST templates. Others are ignored."""
)
PYTHON = """The function takes the path of the file and returns the numbers in order, or a dictionary by output
name."""
PERSISTENT = """Each worker starts the program once. For each run it writes one line of JSON to the standard input
of the program, `{"id": 7, "inputs": {"depth": [100.0, 250.0]}}`. The program answers with one line on its
standard output, `{"id": 7, "outputs": {"time": [0.1, 0.2]}}` or `{"id": 7, "error": "why"}`. A program that
crashes, hangs or gives any other answer is terminated and started again. See [Connecting a
simulator](simulators.md#persistent-programs) for an example."""
BATCHED = """The program is started once for many runs. It reads a table with one line of column names, such as
`depth[1],depth[2]`, and one line per run. It writes a table with one line per run. A run that it could not
compute is `nan`. If the program fails for a batch, its runs are repeated one by one."""
TEMPLATE = """In a template, `{depth[1]}` is the number of label 1 and `{elevation}` is an input without labels.
You can use Python format specifications (`{depth[1]:.3f}`); without one, the number is written with full
precision. `{{` is a brace. In a PEST template, the number of `depth` with label 1 is `depth[1]`, `depth_1` or
`depth1`, and with label `"sand"` also `sand`, without regard to case."""
READER = """The numbers in the file, separated by white space or commas, in order. Lines that start with `#` are
ignored. Fortran's exponents are read (`1.0D+03`). The count of numbers must match the outputs of the entry."""


def kind(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """A type in words: its own, where it brings some."""
    own = [item.words for item in metadata if isinstance(item, Kind)]
    if own:
        return own[0]
    if get_origin(annotation) is Annotated:
        return kind(annotation.__origin__, annotation.__metadata__)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{toml_value(value)}`" for value in get_args(annotation))
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


def describe_default(field: FieldInfo) -> str:
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
    return f"`{toml_value(value)}`"


def toml_value(value: object) -> str:
    """Return a value as TOML has it."""
    return json.dumps(str(value) if isinstance(value, Path) else value)


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for heading, note, section in tables():
        parts.append(f"## {heading}\n")
        if note:
            parts.append(note.strip() + "\n")
        parts.append("| key | type | default | description |\n| --- | --- | --- | --- |")
        parts += [
            f"| `{name}` | {kind(field.annotation, field.metadata)} | {describe_default(field)} | {field.description} |"
            for name, field in section.keys().items()
        ]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("config.md").write_text(page(), encoding="utf-8")
