"""The keys of the table [forward], for each adapter."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationError

from invgp.adapters import BatchedModel, CallableModel, ExecutableModel, PersistentModel, UmbridgeModel
from invgp.formatting import did_you_mean, format_value, join_names
from invgp.settings.output_files import OutputFiles, OutputFileSection
from invgp.settings.section import Section, WholeSentenceError, sentences
from invgp.settings.values import LONGEST, MOST, FunctionName, Kind, Name, UnitText


class NamesColumn(Section):
    """The column of a table that holds names."""

    described: ClassVar[str] = 'a table such as { column = "name" }'
    column: str = Field(description="a column of text of the grid file, or of the survey file for an output")


NAMES: Any = Field(
    default=None,
    description="with PEST or Dakota, the name of each number: a list; a pattern such as '{label}' or 'k_{:02d}', with "
    "the number of the node or site from 1; or { column = ... }, a column of the grid file, or of the survey file for "
    "an output; by default made of name and label",
)


class InputSection(Section):
    """An input of the simulator."""

    name: Name = Field(description="the simulator's name for it")
    source: str | None = Field(
        default=None, description="the latent, covariate or coordinate it takes; by default the same name"
    )
    unit: UnitText | None = Field(default=None, description="the simulator's unit; by default the source's")
    names: str | list[str] | NamesColumn | None = NAMES


class OutputSection(Section):
    """An output of the simulator."""

    name: Name = Field(description="the simulator's name for it")
    observation: str | None = Field(
        default=None, description="the observation that it models; by default the same name"
    )
    unit: UnitText | None = Field(default=None, description="the simulator's unit; by default the observation's")
    names: str | list[str] | NamesColumn | None = NAMES


def _name_alone(value: object) -> object:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        example = '{ name = "depth", unit = "m" }'
        raise ValueError(f"must be a name in quotes or a table such as {example}")  # noqa: TRY004 - as above
    return value


Inputs = Annotated[
    list[Annotated[InputSection, BeforeValidator(_name_alone)]], Field(min_length=1), Kind("list of names or tables")
]
Outputs = Annotated[
    list[Annotated[OutputSection, BeforeValidator(_name_alone)]], Field(min_length=1), Kind("list of names or tables")
]


def _alone_in_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


ADAPTERS = ("callable", "executable", "persistent", "batched", "pest", "dakota", "umbridge")
ADAPTER: Any = Field(description=join_names(ADAPTERS, "or"))
COMMAND = Field(description="the program and its arguments, each a string", min_length=1)
PARTIAL: Any = Field(
    default=False,
    description="whether a run with missing outputs is used for its other outputs; otherwise it counts as failed",
)


class InputFileSection(Section):
    """An input file that is written for each run."""

    template: str = Field(description="the template's path, relative to the config")
    path: str = Field(description="the file's path in the run's directory")
    format: Literal["plain", "tpl"] = Field(
        default="plain", description="format of the template: that of invgp or that of PEST"
    )


class LocalFileSection(Section):
    """A file or directory that each run finds in its directory."""

    source: str = Field(
        description="the file's path, relative to the config (or to the control file of PEST), or a pattern such as "
        "'data/*.dat'"
    )
    path: str = Field(
        default="", description="its path in the run's directory; by default its own name; of a pattern, the directory"
    )
    link: bool = Field(
        default=False, description="whether runs have a link to it instead of a copy; they must then not write to it"
    )


def _path_alone(value: object) -> object:
    if isinstance(value, str):
        return {"source": value}
    if not isinstance(value, dict):
        raise ValueError('must be a path in quotes or a table such as { source = "k.dat" }')  # noqa: TRY004 - as above
    return value


Files = Annotated[list[Annotated[LocalFileSection, BeforeValidator(_path_alone)]], Kind("list of paths or tables")]


class BoundsSection(Section):
    """Bounds of an output; a run outside them has failed."""

    described: ClassVar[str] = "a table such as { min = 0, max = 10 }"
    min: float | None = Field(default=None, description="the smallest number; none: any")
    max: float | None = Field(default=None, description="the largest number; none: any")


def _check_coarse(value: object) -> object:
    """Check the table of a coarse model, which may have any adapter; None stays None."""
    if value is None:
        return None
    try:
        return CoarseSection.model_validate({"forward": value}).forward
    except ValidationError as error:
        raise WholeSentenceError([text.removeprefix("forward.") for text in sentences(error)]) from None


class ForwardSection(Section):
    """Keys of all simulators."""

    kind: Literal["site", "field"] = Field(
        default="site",
        description="'site' if a run takes the latents at one site and returns its data; 'field' if it takes them on "
        "the whole [grid] and returns the data of all sites",
    )
    inputs: Inputs = Field(description="a list of the latents and site columns that go in, in the simulator's order")
    outputs: Outputs = Field(description="a list of the observations that come out, in the simulator's order")
    coarse: Annotated[Any, BeforeValidator(_check_coarse), Kind("table")] = Field(
        default=None,
        description="for field models, a cheaper model of the same outputs: a table [forward.coarse] with the keys of "
        "[forward]; by default with its inputs and outputs",
    )


class ProgramSection(ForwardSection):
    """Keys of all programs."""

    timeout: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST,
        description="time limit of a run in seconds; none: no limit",
    )
    partial: bool = PARTIAL
    threads: int = Field(default=1, ge=1, le=10**4, description="number of threads of one run")
    environment: dict[str, str] = Field(default={}, description="environment variables for the program")


class FilesSection(ProgramSection):
    """Keys of programs that are started in a private directory for each run."""

    files: Files = Field(
        default=[],
        description="files and directories copied or linked into each run's directory, each a path, a pattern such as "
        "'data/*.dat', or a table",
    )
    bounds: dict[str, BoundsSection] = Field(
        default={},
        description="for some outputs, a table such as { min = 0, max = 10 }, in the simulator's unit; a run with a "
        "number outside has failed",
    )
    keep: Literal["failed", "all", "none"] = Field(default="failed", description="which run directories are kept")


class CallableSection(ForwardSection):
    """A Python function."""

    adapter: Literal["callable"] = ADAPTER
    function: FunctionName = Field(
        description="'package.module:function', of a module that is installed or next to the config"
    )
    vectorised: bool = Field(default=CallableModel.vectorised, description="whether it takes many rows at once")
    partial: bool = PARTIAL
    jacobian: bool = Field(
        default=CallableModel.jacobian,
        description="whether it returns a pair of the outputs and their derivatives by the inputs; for field models",
    )
    jacobian_cost: float = Field(
        default=CallableModel.jacobian_cost,
        description="cost of these derivatives, in runs",
        ge=0.0,
        allow_inf_nan=False,
    )
    arrays: str = Field(
        default=CallableModel.arrays,
        description="library of the arrays that it receives: 'numpy', 'cupy', 'jax' or 'torch', on the default device "
        "of the library; it may return arrays of any of them",
    )


class ExecutableSection(FilesSection):
    """A program with input and output files."""

    adapter: Literal["executable"] = ADAPTER
    command: list[str] = COMMAND
    input_files: list[InputFileSection] = Field(default=[], description="files written from templates")
    output_files: OutputFiles = Field(
        default=[OutputFileSection()], description="files read; by default standard output"
    )
    target_file: str = Field(
        default="",
        description="a file in the run's directory that a successful run creates, whatever the exit code; by default "
        "exit code 0 means success",
    )
    fallback: list[str] = Field(default=[], description="program and arguments that repeat a run whose command failed")


class PestSection(FilesSection):
    """A model that PEST runs."""

    adapter: Literal["pest"] = ADAPTER
    control: str = Field(description="the path of the .pst file, relative to the config")


class DakotaSection(FilesSection):
    """A driver that Dakota runs."""

    adapter: Literal["dakota"] = ADAPTER
    driver: list[str] = Field(description="the driver and its arguments, each a string", min_length=1)
    format: Literal["json", "text", "aprepro"] = Field(
        default="json",
        description="format of the parameters file and the results file; 'aprepro': that of the parameters file",
    )
    descriptor: str = Field(
        default="{name}_{label}", description="descriptor of one number of an input or output with labels"
    )
    jacobian: bool = Field(
        default=ExecutableModel.jacobian,
        description="whether gradients are requested of the driver; for field models",
    )
    jacobian_cost: float = Field(
        default=ExecutableModel.jacobian_cost,
        description="cost of these gradients, in runs",
        ge=0.0,
        allow_inf_nan=False,
    )


class PersistentSection(ProgramSection):
    """A program that stays running and answers one row at a time."""

    adapter: Literal["persistent"] = ADAPTER
    command: list[str] = COMMAND
    timeout: float = Field(
        default=PersistentModel.timeout,
        gt=0,
        le=LONGEST,
        description="time limit of one answer in seconds, including the start of the program; then "
        "it is terminated and a new process continues",
    )


class BatchedSection(ProgramSection):
    """A program that reads a table of many rows and writes a table."""

    adapter: Literal["batched"] = ADAPTER
    command: list[str] = COMMAND
    input_file: str = Field(default=BatchedModel.input_file, description="input table of the program, in its directory")
    output_file: str = Field(
        default=BatchedModel.output_file, description="output table of the program, in the same directory"
    )
    format: Literal["csv", "table"] = Field(
        default="csv", description="format of the input table: with commas, or with spaces and '#' before the names"
    )
    skip_lines: int = Field(
        default=0, ge=0, le=MOST, description="number of lines to skip at the top of the output table"
    )
    rows: int = Field(default=BatchedModel.rows, ge=1, le=MOST, description="maximum number of rows per batch")
    timeout: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST,
        description="time limit of a batch in seconds; none: no limit",
    )


class UmbridgeSection(ForwardSection):
    """A model on UM-Bridge servers."""

    adapter: Literal["umbridge"] = ADAPTER
    urls: Annotated[list[str], BeforeValidator(_alone_in_list), Kind("list of strings, or string")] = Field(
        description="a list of the servers' addresses, such as ['http://localhost:4242'], or the name of a text file "
        "with one address per line; the servers share the runs",
        min_length=1,
    )
    model: str = Field(description="the name of the model on the servers")
    config: Annotated[dict[str, Any], Kind("table")] = Field(
        default={}, description="passed on to the model with each run"
    )
    timeout: float = Field(
        default=UmbridgeModel.timeout,
        gt=0,
        le=LONGEST,
        description="time limit of a run in seconds, including communication",
    )
    retries: int = Field(
        default=UmbridgeModel.retries,
        ge=0,
        le=MOST,
        description="how often an interrupted run is repeated, or a server that cannot be reached is tried again",
    )
    connections: int = Field(
        default=UmbridgeModel.connections,
        ge=1,
        le=10**4,
        description="number of simultaneous requests per server; more than one if it runs them in parallel",
    )
    version: str = Field(
        default="", description="identifies the version of the model, because the servers do not report it"
    )
    jacobian: bool = Field(
        default=UmbridgeModel.jacobian,
        description="whether the derivatives are requested as well, from Gradient or ApplyJacobian; for field models",
    )
    jacobian_cost: float = Field(
        default=UmbridgeModel.jacobian_cost,
        description="cost of these derivatives, in runs",
        ge=0.0,
        allow_inf_nan=False,
    )


def _complete_coarse(forward: dict[str, Any]) -> dict[str, Any]:
    """Return a table [forward] whose coarse model has the inputs and outputs of the fine one, unless it has its own."""
    coarse = forward.get("coarse")
    if not isinstance(coarse, dict):
        return forward
    kind = forward.get("kind", "site")
    if "coarse" in coarse:
        raise WholeSentenceError(["coarse.coarse: must be left out, was given; there are two fidelities"])
    if coarse.get("kind", kind) != kind:
        raise WholeSentenceError([f"coarse.kind: must be that of [forward], {kind!r}, was {coarse['kind']!r}"])
    shared = {key: forward[key] for key in ("kind", "inputs", "outputs") if key in forward}
    return forward | {"coarse": shared | coarse}


def _known_adapter(value: object) -> object:
    """Check `adapter`, by which pydantic selects the table."""
    if not isinstance(value, dict):
        raise ValueError("must be a table")  # noqa: TRY004 - pydantic reports ValueError, not TypeError
    if "adapter" not in value:
        raise WholeSentenceError([f"adapter: is missing; it must be {join_names(ADAPTERS, 'or')}"])
    adapter = value["adapter"]
    if adapter not in ADAPTERS:
        raise WholeSentenceError(
            [
                f"adapter: must be {join_names(ADAPTERS, 'or')}, was "
                f"{format_value(adapter)}{did_you_mean(adapter, ADAPTERS)}"
            ]
        )
    return _complete_coarse(value)


AnySimulator = (
    CallableSection
    | ExecutableSection
    | PersistentSection
    | BatchedSection
    | PestSection
    | DakotaSection
    | UmbridgeSection
)
Forward = Annotated[Annotated[AnySimulator, Field(discriminator="adapter")], BeforeValidator(_known_adapter)]


class CoarseSection(Section):
    """A coarse model, checked by itself: a table that contains itself would be checked twice by pydantic."""

    forward: Forward
