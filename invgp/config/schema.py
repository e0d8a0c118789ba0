"""The keys of a config file: their names, kinds and defaults, and what can be checked without other files."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from invgp.config.sentences import WholeSentenceError, did_you_mean, listed, nearest, path_of, shown, suggestion
from invgp.config.values import (
    Correlation,
    Factor,
    Kind,
    LabelList,
    Name,
    NameOrNumber,
    NoiseSpreads,
    Numbers,
    Positives,
    Quantiles,
    RowNumbers,
    Spreads,
    UnitText,
)
from invgp.core.kernels import CORRELATIONS
from invgp.links import LINKS

VERSION: Final = 1


class Section(BaseModel):
    """A table of the config: no unknown key, no missing one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    described: ClassVar[str] = "a table"

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise ValueError(f"must be {cls.described}")  # noqa: TRY004 - pydantic reports ValueError, not TypeError
        fields = list(cls.model_fields)
        unknown = [key for key in data if key not in fields]
        wrong = [f"{path_of(key)}: unknown key{suggestion(key, fields)}" for key in unknown]
        # A misspelt key is one mistake, not two.
        meant = {nearest(key, fields) for key in unknown}
        wrong += [
            f"{name}: is missing; it must be {field.description}"
            for name, field in cls.model_fields.items()
            if field.is_required() and name not in data and name not in meant
        ]
        if wrong:
            raise WholeSentenceError(wrong)
        return data


UNIT = Field(description="a unit that UDUNITS knows, such as 'm' or 'm s-1'")
LONG_NAME = Field(default="", description="what the figures call it")
POSITIVE: Any = Field(default="", description="'up' or 'down' for a vertical position")
STANDARD_NAME = Field(default="", description="its CF standard name, if it has one")
DIMENSION = Field(default=None, description="a key of [dimensions]")


class ColumnSection(Section):
    """A coordinate or a covariate."""

    column: str | None = Field(default=None, description="the survey file's column; by default the same name")
    unit: UnitText = UNIT
    long_name: str = LONG_NAME
    standard_name: str = STANDARD_NAME
    positive: Literal["", "up", "down"] = POSITIVE


class ObservationSection(Section):
    """What was measured."""

    columns: list[str] = Field(
        description="a list of the survey file's columns, one for each label of its dimension", min_length=1
    )
    unit: UnitText = UNIT
    dimension: str | None = DIMENSION
    long_name: str = LONG_NAME
    standard_name: str = STANDARD_NAME


class SurveySection(Section):
    """Sites and measurements."""

    file: str = Field(description="a netCDF file (.nc, .nc4, .cdf) or, with any other ending, a CSV file; a row a site")
    crs: str | None = Field(
        default=None,
        description="anything that PROJ understands, such as 'EPSG:28354'; the first two coordinates must be in a unit "
        "that converts to metres if it is projected, to degrees if it is geographic",
    )
    coordinates: dict[Name, ColumnSection] = Field(
        description="one to three tables such as [survey.coordinates.easting]", min_length=1, max_length=3
    )
    observations: dict[Name, ObservationSection] = Field(
        description="at least one table such as [survey.observations.time]", min_length=1
    )
    covariates: dict[Name, ColumnSection] = Field(
        default={}, description="columns that the forward model wants besides the latents"
    )


class KernelSection(Section):
    """How a latent varies from site to site."""

    described: ClassVar[str] = 'a table such as { kind = "matern 5/2", length_scale = 500 }'
    kind: Literal[tuple(CORRELATIONS)] = Field(  # type: ignore[valid-type]
        default="squared exponential", description="the covariance function"
    )
    length_scale: Positives = Field(
        description="a positive number in the coordinates' unit, or one for each coordinate, each in its unit; "
        "a list where the units differ"
    )


class LearnSection(Section):
    """What of a latent's prior is learnt from the data; a value that is learnt starts at what the latent says.

    With true there is no prior on it. A number is a log-normal prior whose median is what the latent says: a change by
    that factor is one standard deviation.
    """

    described: ClassVar[str] = "a table such as { length_scale = true, std = 2 }"
    length_scale: Factor | None = Field(
        default=None, description="the length-scales, one for each coordinate, shared by all labels; none: as given"
    )
    std: Factor | None = Field(
        default=None, description="the standard deviation; all labels are scaled by the same number; none: as given"
    )


class LatentSection(Section):
    """An unknown field."""

    unit: UnitText = UNIT
    dimension: str | None = DIMENSION
    mean: Numbers = Field(description="the prior mean, a number or one for each label of the dimension")
    std: Spreads = Field(
        description="the prior standard deviation: a positive number, one for each label of the dimension, or a "
        "percentage of the mean such as '15%'; with link = 'increasing', of each label's increment"
    )
    kernel: KernelSection = Field(description=KernelSection.described)
    link: Literal[tuple(LINKS)] = Field(  # type: ignore[valid-type]
        default="identity",
        description="'log' for a quantity that is positive; 'increasing' for one that grows from label to label, such "
        "as the depths of layers: its increments are then positive",
    )
    learn: LearnSection = Field(
        default=LearnSection(), description=f"{LearnSection.described}; for the coupled posterior"
    )
    positive: Literal["", "up", "down"] = POSITIVE
    long_name: str = LONG_NAME
    standard_name: str = STANDARD_NAME


class InputSection(Section):
    """An input of the simulator."""

    name: Name = Field(description="the simulator's name for it")
    source: str | None = Field(
        default=None, description="the latent, covariate or coordinate it takes; by default the same name"
    )
    unit: UnitText | None = Field(default=None, description="the simulator's unit; by default the source's")


class OutputSection(Section):
    """An output of the simulator."""

    name: Name = Field(description="the simulator's name for it")
    observation: str | None = Field(
        default=None, description="the observation that it models; by default the same name"
    )
    unit: UnitText | None = Field(default=None, description="the simulator's unit; by default the observation's")


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
INPUTS = Field(description="a list of the latents and site columns that go in, in the simulator's order")
OUTPUTS = Field(description="a list of the observations that come out, in the simulator's order")


ADAPTERS = ("callable", "executable", "persistent", "batched", "pest", "dakota", "umbridge")
ADAPTER: Any = Field(description=listed(ADAPTERS, "or"))
COMMAND = Field(description="the program and its arguments, each a string", min_length=1)
THREADS = Field(default=1, ge=1, description="threads that one run may use")
ENVIRONMENT: Any = Field(default={}, description="environment variables for the program")


class CallableSection(Section):
    """A Python function."""

    adapter: Literal["callable"] = ADAPTER
    function: str = Field(description="'package.module:function', of a module that is installed or beside the config")
    vectorised: bool = Field(default=True, description="whether it takes many rows at once")
    inputs: Inputs = INPUTS
    outputs: Outputs = OUTPUTS


class InputFileSection(Section):
    """A file that is written for each run."""

    template: str = Field(description="the template's path, relative to the config")
    path: str = Field(description="the file's path in the run's directory")
    format: Literal["plain", "tpl"] = Field(default="plain", description="of the template: ours, or PEST's")


class LocalFileSection(Section):
    """A file or directory that each run finds in its directory."""

    source: str = Field(description="the file's path, relative to the config (or to the control file of PEST)")
    path: str = Field(default="", description="its path in the run's directory; by default its own name")
    link: bool = Field(
        default=False, description="whether runs have a link to it instead of a copy; they must then not write to it"
    )


class BoundsSection(Section):
    """What an output may be in a run that went well."""

    described: ClassVar[str] = "a table such as { min = 0, max = 10 }"
    min: float | None = Field(default=None, description="the smallest number; none: any")
    max: float | None = Field(default=None, description="the largest number; none: any")


FILE_PATH = Field(default=None, description="the file's path in the run's directory; none: standard output")
FILE_OUTPUTS = Field(default=None, description="the outputs that it holds, in order; none: all")
SKIP_LINES = Field(default=0, ge=0, description="lines to pass over at the top")
ROW = Field(default=None, description="which of them, or a list: 1 is the first, -1 the last; none: all")


class OutputFileSection(Section):
    """A file that is read after each run: all its numbers, in order."""

    path: str | None = FILE_PATH
    format: Literal["numbers"] = Field(default="numbers", description="how the file is read")
    outputs: list[str] | None = FILE_OUTPUTS
    skip_lines: int = SKIP_LINES


class TableFileSection(Section):
    """A column of a table without header."""

    path: str | None = FILE_PATH
    format: Literal["table"] = Field(description="how the file is read")
    outputs: list[str] | None = FILE_OUTPUTS
    column: int = Field(default=1, ge=1, description="which column, from 1")
    row: RowNumbers = ROW
    skip_lines: int = SKIP_LINES


class CsvFileSection(Section):
    """A column of a CSV file with a header."""

    path: str | None = FILE_PATH
    format: Literal["csv"] = Field(description="how the file is read")
    outputs: list[str] | None = FILE_OUTPUTS
    column: NameOrNumber = Field(description="the column's name, or its number from 1")
    row: RowNumbers = ROW
    skip_lines: int = Field(default=0, ge=0, description="lines to pass over above the header")
    delimiter: str = Field(default=",", description="the character between entries")


class JsonFileSection(Section):
    """Numbers of a JSON file."""

    path: str | None = FILE_PATH
    format: Literal["json"] = Field(description="how the file is read")
    outputs: list[str] | None = FILE_OUTPUTS
    key: str = Field(
        description="the way to a number or a list of them, such as 'results.times[0]'; lists count from 0"
    )


class RegexFileSection(Section):
    """Numbers that a regular expression finds."""

    path: str | None = FILE_PATH
    format: Literal["regex"] = Field(description="how the file is read")
    outputs: list[str] | None = FILE_OUTPUTS
    pattern: str = Field(description="Python's regular expression; its groups are the numbers, or the whole match")
    row: RowNumbers = ROW


class NetcdfFileSection(Section):
    """A variable of a netCDF file."""

    path: str = Field(description="the file's path in the run's directory")
    format: Literal["netcdf"] = Field(description="how the file is read")
    outputs: list[str] | None = FILE_OUTPUTS
    variable: str = Field(description="the variable's name; 'group/name' within a group")
    row: RowNumbers = ROW


class InstructionFileSection(Section):
    """A file that PEST instructions read."""

    path: str | None = FILE_PATH
    format: Literal["ins"] = Field(description="how the file is read")
    outputs: list[str] | None = FILE_OUTPUTS
    instructions: str = Field(description="the path of the .ins file, relative to the config")


class PythonFileSection(Section):
    """A file that a Python function reads."""

    path: str | None = FILE_PATH
    format: Literal["python"] = Field(description="how the file is read")
    outputs: list[str] | None = FILE_OUTPUTS
    function: str = Field(description="'package.module:function', of a module that is installed or beside the config")


READERS = ("numbers", "table", "csv", "json", "regex", "netcdf", "ins", "python")


def _known_format(value: object) -> object:
    """Before pydantic looks at `format` to know which of the tables it has before it."""
    if not isinstance(value, dict):
        raise ValueError('must be a table such as { path = "times.txt" }')  # noqa: TRY004 - as above
    chosen = value.get("format", "numbers")
    if chosen not in READERS:
        raise WholeSentenceError(
            [f"format: must be {listed(READERS, 'or')}, was {shown(chosen)}{did_you_mean(chosen, READERS)}"]
        )
    return {"format": chosen, **value}


AnyOutputFile = (
    OutputFileSection
    | TableFileSection
    | CsvFileSection
    | JsonFileSection
    | RegexFileSection
    | NetcdfFileSection
    | InstructionFileSection
    | PythonFileSection
)
OutputFiles = Annotated[
    list[Annotated[Annotated[AnyOutputFile, Field(discriminator="format")], BeforeValidator(_known_format)]],
    Field(min_length=1),
    Kind("list of tables"),
]
FILES: Any = Field(default=[], description="files and directories copied or linked into each run's directory")
BOUNDS: Any = Field(
    default={},
    description="for some outputs, a table such as { min = 0, max = 10 }, in the simulator's unit; a run with a number "
    "outside has failed",
)
KEEP: Any = Field(default="failed", description="whose directories are kept after a run")
TIMEOUT = Field(
    default=None, gt=0, description="seconds after which a run is ended; none: it is waited for, however long it takes"
)


class ExecutableSection(Section):
    """A program, with files in and out."""

    adapter: Literal["executable"] = ADAPTER
    command: list[str] = COMMAND
    input_files: list[InputFileSection] = Field(default=[], description="files written from templates")
    output_files: OutputFiles = Field(
        default=[OutputFileSection()], description="files read; by default standard output"
    )
    files: list[LocalFileSection] = FILES
    target_file: str = Field(
        default="",
        description="a file in the run's directory whose presence is success, whatever the exit code; by default "
        "success is exit code 0",
    )
    fallback: list[str] = Field(
        default=[], description="the program and its arguments that are run where the command failed"
    )
    bounds: dict[str, BoundsSection] = BOUNDS
    keep: Literal["failed", "all", "none"] = KEEP
    timeout: float | None = TIMEOUT
    threads: int = THREADS
    environment: dict[str, str] = ENVIRONMENT
    inputs: Inputs = INPUTS
    outputs: Outputs = OUTPUTS


class PestSection(Section):
    """A model that PEST runs."""

    adapter: Literal["pest"] = ADAPTER
    control: str = Field(description="the path of the .pst file, relative to the config")
    files: list[LocalFileSection] = FILES
    bounds: dict[str, BoundsSection] = BOUNDS
    keep: Literal["failed", "all", "none"] = KEEP
    timeout: float | None = TIMEOUT
    threads: int = THREADS
    environment: dict[str, str] = ENVIRONMENT
    inputs: Inputs = INPUTS
    outputs: Outputs = OUTPUTS


class DakotaSection(Section):
    """A driver that Dakota runs."""

    adapter: Literal["dakota"] = ADAPTER
    driver: list[str] = Field(description="the driver and its arguments, each a string", min_length=1)
    format: Literal["json", "text"] = Field(default="json", description="of the parameters file and the results file")
    descriptor: str = Field(
        default="{name}_{label}", description="what Dakota calls a number of an input or output that has labels"
    )
    files: list[LocalFileSection] = FILES
    bounds: dict[str, BoundsSection] = BOUNDS
    keep: Literal["failed", "all", "none"] = KEEP
    timeout: float | None = TIMEOUT
    threads: int = THREADS
    environment: dict[str, str] = ENVIRONMENT
    inputs: Inputs = INPUTS
    outputs: Outputs = OUTPUTS


class PersistentSection(Section):
    """A program that stays, and is asked row after row."""

    adapter: Literal["persistent"] = ADAPTER
    command: list[str] = COMMAND
    timeout: float = Field(
        default=60.0,
        gt=0,
        description="seconds that the program has for one answer, its start included if it is the first; after them it "
        "is ended and a fresh one goes on",
    )
    threads: int = THREADS
    environment: dict[str, str] = ENVIRONMENT
    inputs: Inputs = INPUTS
    outputs: Outputs = OUTPUTS


class BatchedSection(Section):
    """A program that takes many rows at once, with a table in and a table out."""

    adapter: Literal["batched"] = ADAPTER
    command: list[str] = COMMAND
    input_file: str = Field(default="inputs.csv", description="the table that the program reads, in its directory")
    output_file: str = Field(default="outputs.csv", description="the table that it writes there")
    format: Literal["csv", "table"] = Field(
        default="csv", description="of the table that it reads: with commas, or with spaces and '#' before the names"
    )
    skip_lines: int = Field(default=0, ge=0, description="lines to pass over at the top of the table that it writes")
    rows: int = Field(default=500, ge=1, description="rows that it takes at once, at the most")
    timeout: float | None = Field(
        default=None,
        gt=0,
        description="seconds after which a batch is ended; none: it is waited for, however long it takes",
    )
    threads: int = THREADS
    environment: dict[str, str] = ENVIRONMENT
    inputs: Inputs = INPUTS
    outputs: Outputs = OUTPUTS


class UmbridgeSection(Section):
    """A model that UM-Bridge servers offer."""

    adapter: Literal["umbridge"] = ADAPTER
    urls: list[str] = Field(
        description="a list of the servers' addresses, such as ['http://localhost:4242']; they share the runs",
        min_length=1,
    )
    model: str = Field(description="the name under which the servers offer the model")
    config: Annotated[dict[str, Any], Kind("table")] = Field(
        default={}, description="passed on to the model with each run"
    )
    timeout: float = Field(default=600.0, gt=0, description="seconds that a run may take, with the way there and back")
    retries: int = Field(
        default=3,
        ge=0,
        description="how often a run that broke off, or a server that cannot be reached, is tried again",
    )
    connections: int = Field(
        default=1,
        ge=1,
        description="requests that each server gets at once; more than one where it runs them in parallel",
    )
    version: str = Field(
        default="", description="whatever tells one state of the model from another, since the servers cannot tell"
    )
    inputs: Inputs = INPUTS
    outputs: Outputs = OUTPUTS


def _known_adapter(value: object) -> object:
    """Before pydantic looks at `adapter` to know which of the tables it has before it."""
    if not isinstance(value, dict):
        raise ValueError("must be a table")  # noqa: TRY004 - pydantic reports ValueError, not TypeError
    if "adapter" not in value:
        raise WholeSentenceError([f"adapter: is missing; it must be {listed(ADAPTERS, 'or')}"])
    adapter = value["adapter"]
    if adapter not in ADAPTERS:
        raise WholeSentenceError(
            [f"adapter: must be {listed(ADAPTERS, 'or')}, was {shown(adapter)}{did_you_mean(adapter, ADAPTERS)}"]
        )
    return value


Forward = Annotated[
    Annotated[
        CallableSection
        | ExecutableSection
        | PersistentSection
        | BatchedSection
        | PestSection
        | DakotaSection
        | UmbridgeSection,
        Field(discriminator="adapter"),
    ],
    BeforeValidator(_known_adapter),
]


class NoiseSection(Section):
    """What separates the observations from the simulator's outputs."""

    kind: Literal["gaussian", "student-t", "laplace"] = Field(default="gaussian", description="the distribution")
    std: dict[str, NoiseSpreads] = Field(
        description="a table with the standard deviation of each observation: a positive number in its unit, a list "
        "with one for each label, a percentage of the observed value such as '5%', or the survey file's column, or "
        "list of columns, that holds it by site"
    )
    correlation: dict[str, Correlation] = Field(
        default={},
        description="for Gaussian noise, a table with the correlation matrix of the noise of an observation's numbers "
        "at one site; by default they are independent",
    )
    degrees: float = Field(default=4.0, gt=2, description="of freedom of Student-t noise")
    learn: dict[str, Factor] = Field(
        default={},
        description="for Gaussian noise and the coupled posterior, a table with the observations whose standard "
        "deviation is scaled by a number that is learnt, as in [latents.NAME.learn]",
    )


class InferenceSection(Section):
    """How the posterior is found."""

    posterior: Literal["coupled gaussian", "full gaussian"] = Field(
        default="coupled gaussian",
        description="the posterior family: with a covariance across all latents and sites, or the paper's, which "
        "takes the latents as independent",
    )
    estimator: Literal["auto", "linearisation", "hermite", "score"] = Field(
        default="auto",
        description="of the coupled posterior's steps: 'hermite' starts with 'linearisation'; both need Gaussian "
        "noise; 'score' needs log densities only; 'auto' is 'hermite' where the noise is Gaussian",
    )
    emulator: bool = Field(
        default=True, description="whether an emulator may stand in for the simulator, for the coupled posterior"
    )
    runs_per_site: int = Field(
        default=10,
        ge=1,
        description="runs that the emulator may use, on average over the sites, verification included; too few for "
        "an emulator, and the simulator itself is used throughout",
    )
    emulator_error: float = Field(
        default=0.2,
        gt=0,
        description="error of the emulator, in standard deviations of the noise, above which a site is left to the "
        "simulator itself",
    )
    max_runs: int | None = Field(
        default=None, ge=1, description="runs of the simulator in all, never exceeded; none: as many as it takes"
    )
    inducing: int | None = Field(
        default=None,
        ge=1,
        description="inducing points of the coupled posterior, placed by k-means; none: one at every site",
    )
    learn_inducing: bool = Field(default=False, description="whether the inducing points move to where they serve best")
    batch: int | None = Field(
        default=None,
        ge=1,
        description="sites in a mini-batch of the coupled posterior, shuffled anew for each pass over the survey; "
        "none: as many as fit in some 400 MB with their samples, of a small survey all",
    )
    samples: int | None = Field(
        default=None,
        ge=1,
        description="samples a site at each evaluation of the bound; none: as many as the estimator needs. With Q "
        "latent processes (a latent with L labels is L of them), the full Gaussian needs at least 2 (2 Q + 1), "
        "linearisation 3 (Q + 1) / 2, the others 3 (Q + 1) (Q + 2) / 4",
    )
    max_evaluations: int = Field(
        default=200, ge=1, description="evaluations of the bound at the most, with an emulator in each of its steps"
    )
    tolerance: float = Field(
        default=1e-7, gt=0, description="relative change of the bound at which the full Gaussian has settled"
    )
    max_failed_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share of a batch's runs that may fail; above it a step is taken back, or the inversion stops",
    )
    retries: int = Field(
        default=0, ge=0, description="how often a run that failed is tried again before it counts as failed"
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="of all random numbers")
    workers: int = Field(
        default=1,
        ge=1,
        description="runs at once; 1 is a plain loop; with 'dask' the scheduler's workers decide instead",
    )
    backend: Literal["loky", "threading", "dask"] = Field(
        default="loky",
        description="where runs are made: in processes of this machine, in threads of this process, by workers of a "
        "Dask scheduler",
    )
    scheduler: str | None = Field(
        default=None,
        min_length=1,
        description="of 'dask': an address such as \"tcp://10.0.0.1:8786\", or a scheduler file that ends in .json, "
        "relative to the config",
    )
    worker_timeout: float = Field(
        default=600.0, gt=0, description="of 'dask': seconds without any worker before the inversion stops"
    )
    device: Literal["cpu", "cuda", "auto"] = Field(default="cpu", description="where the arrays live")


class FileSection(Section):
    """What is written."""

    file: str = Field(default="posterior.nc", description="the netCDF file, relative to the config")
    quantiles: Quantiles = Field(default=[0.025, 0.25, 0.5, 0.75, 0.975], description="of each latent at each site")
    realizations: int = Field(default=20, ge=0, description="joint draws from the posterior")
    ledger: bool | None = Field(
        default=None,
        description="whether every run is kept in a ledger beside the netCDF file, so that `invgp run` can go on where "
        "it was stopped; none: unless the simulator is a vectorised function, quicker to call again than to look up",
    )


class Config(Section):
    """A whole config file."""

    version: Literal[1] = Field(default=VERSION, description="of this format")
    title: str = Field(default="", description="what the survey is")
    dimensions: dict[Name, LabelList] = Field(
        default={}, description="named dimensions such as layer = [1, 2, 3], with their labels"
    )
    survey: SurveySection = Field(description="the table [survey]")
    latents: dict[Name, LatentSection] = Field(description="at least one table such as [latents.depth]", min_length=1)
    forward: Forward = Field(description="the table [forward]")
    noise: NoiseSection = Field(description="the table [noise]")
    inference: InferenceSection = Field(default=InferenceSection(), description="the table [inference]")
    output: FileSection = Field(default=FileSection(), description="the table [output]")
