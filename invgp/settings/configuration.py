"""The tables of a configuration file except [forward], [inference] and [output]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from invgp.core.kernels import Kernel
from invgp.links import BOUNDED_LINKS, LINKS
from invgp.settings.inference_settings import InferenceSettings, OutputSettings
from invgp.settings.section import Section, WholeSentenceError
from invgp.settings.simulators import Forward
from invgp.settings.values import (
    Correlation,
    CorrelationNumber,
    Factor,
    Kind,
    LabelCorrelation,
    LabelList,
    Measured,
    Name,
    NoiseSpreads,
    Numbers,
    Places,
    Positive,
    Positives,
    UnitText,
    Zones,
    check_numbers,
    check_spreads,
    is_map_file,
)

VERSION: Final = 1

UNIT = Field(description="a unit that UDUNITS knows, such as 'm' or 'm s-1'")
LONG_NAME = Field(default="", description="name for figures")
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
    """An observation."""

    columns: list[str] = Field(
        description="a list of the survey file's columns, one for each label of its dimension", min_length=1
    )
    unit: UnitText = UNIT
    dimension: str | None = DIMENSION
    long_name: str = LONG_NAME
    standard_name: str = STANDARD_NAME


class SurveySection(Section):
    """Sites and measurements."""

    file: str = Field(
        description="a netCDF file (.nc, .nc4, .cdf) or, with any other ending, a CSV file; with one row per site"
    )
    crs: str | None = Field(
        default=None,
        description="coordinate reference system in any form that PROJ accepts, such as 'EPSG:28354'; the first two "
        "coordinates must be in a unit that converts to metres if it is projected, to degrees if it is geographic",
    )
    coordinates: dict[Name, ColumnSection] = Field(
        default={},
        description="one to three tables such as [survey.coordinates.easting]; with forward.kind = 'field', or if all "
        "latents are scalars, they can be left out: sites then have numbers only",
        max_length=3,
    )
    observations: dict[Name, ObservationSection] = Field(
        description="at least one table such as [survey.observations.time]", min_length=1
    )
    covariates: dict[Name, ColumnSection] = Field(
        default={}, description="columns that the forward model needs in addition to the latents"
    )


class AxisSection(Section):
    """A coordinate of the grid: start, stop and step of a regular grid, or a column of the grid file."""

    described: ClassVar[str] = 'a table such as { unit = "m", start = 0, stop = 5000, step = 100 }'
    unit: UnitText = UNIT
    start: float | None = Field(default=None, description="the first node of a regular grid")
    stop: float | None = Field(default=None, description="the last node, or a number just beyond it")
    step: float | None = Field(default=None, gt=0, description="the distance between neighbours")
    column: str | None = Field(default=None, description="the grid file's column; by default the same name")
    long_name: str = LONG_NAME
    standard_name: str = STANDARD_NAME
    positive: Literal["", "up", "down"] = POSITIVE


class GridSection(Section):
    """The grid of a field model: a regular grid, or the nodes of a file."""

    file: str | None = Field(
        default=None,
        description="a CSV or netCDF file with one row per node, or a mesh (.vtu, .vtk, .msh, or UGRID netCDF) whose "
        "cells are the nodes; none: a regular grid",
    )
    active: str | None = Field(
        default=None, description="a column of the file; nodes where it is 0 or empty are left out"
    )
    coordinates: dict[Name, AxisSection] = Field(
        description=f"one to three coordinates, each {AxisSection.described}; the last one varies fastest",
        min_length=1,
        max_length=3,
    )


class KernelKind(NamedTuple):
    """The keys of a kind of kernel: those that it needs, and those that it may have."""

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


KERNEL_KINDS = {
    "squared exponential": KernelKind(("length_scale",), ("angle", "dip")),
    "exponential": KernelKind(("length_scale",), ("angle", "dip")),
    "matern 3/2": KernelKind(("length_scale",), ("angle", "dip")),
    "matern 5/2": KernelKind(("length_scale",), ("angle", "dip")),
    "rational quadratic": KernelKind(("length_scale",), ("shape", "angle", "dip")),
    "periodic": KernelKind(("period",), ("length_scale",)),
    "linear": KernelKind(("length_scale", "centre")),
    "constant": KernelKind(),
    "white": KernelKind(),
    "sum": KernelKind(("parts",)),
    "product": KernelKind(("parts",)),
}


class KernelSection(Section):
    """The kernel of a latent, or a part of a kernel."""

    described: ClassVar[str] = 'a table such as { kind = "matern 5/2", length_scale = 500 }'
    kind: Literal[tuple(KERNEL_KINDS)] = Field(  # type: ignore[valid-type]
        default="squared exponential", description="the covariance function"
    )
    length_scale: Positives | None = Field(
        default=None,
        description="a positive number in the coordinates' unit, or one for each coordinate, each in its unit; "
        "a list where the units differ",
    )
    angle: float | None = Field(
        default=None,
        description="the direction of the first length-scale, in degrees from the first coordinate towards the second; "
        "the second length-scale is at a right angle to it; none: along the coordinates",
    )
    dip: float | None = Field(
        default=None,
        description="of three coordinates, the angle of the first length-scale with the plane of the first two, in "
        "degrees towards the third coordinate",
    )
    period: Positives | None = Field(
        default=None, description="the period of a periodic kernel, with units as of the length-scale"
    )
    shape: Positive | None = Field(
        default=None,
        description="of a rational quadratic kernel: the smaller, the more different are the length-scales that it "
        "mixes; 1 by default",
    )
    centre: Numbers | None = Field(
        default=None,
        description="of a linear kernel: the point where the field is zero, one number for each coordinate",
    )
    coordinates: list[str] | None = Field(
        default=None,
        description="the coordinates that the kernel depends on; lists of numbers are in their order; by default all",
        min_length=1,
    )
    zones: Zones | None = Field(
        default=None,
        description="zones between which nothing is correlated, such as blocks between faults: a GeoJSON file with "
        "polygons in the first two coordinates, or a list of positions that separate zones along a single coordinate; "
        "none: one zone",
    )
    share: Positive | None = Field(
        default=None,
        description="of a part of a sum: its share of the variance; shares are scaled so that their sum is 1, and are "
        "equal by default",
    )
    parts: list[KernelSection] | None = Field(
        default=None, description="of a sum or a product: a list of kernels", min_length=2
    )

    @model_validator(mode="after")
    def _keys_of_kind(self) -> Self:
        fields, given = type(self).model_fields, self.model_fields_set
        kind = KERNEL_KINDS[self.kind]
        wrong = [
            f"{key}: is missing; it must be {fields[key].description}"
            for key in kind.needs
            if getattr(self, key) is None
        ]
        known = ("kind", "coordinates", "zones", "share", *kind.needs, *kind.takes)
        wrong += [
            f"{key}: must be left out for kind = {self.kind!r}" for key in fields if key in given and key not in known
        ]
        if wrong:
            raise WholeSentenceError(wrong)
        return self


def _kernel_object(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Accept a kernel object, which `invgp.define` may receive."""
    return value if isinstance(value, Kernel) else handler(value)


class LearnSection(Section):
    """Parameters of the prior of a latent that are learnt from the data; they start at the values of the latent.

    The prior of each is log-normal, and its median is the value of the latent. A number is a factor: a change by it is
    one standard deviation. With true the factor is 10, a weak prior. Parameters of a kernel with several parts are
    learnt in all parts that have them, each by itself.
    """

    described: ClassVar[str] = "a table such as { length_scale = true, std = 2 }"
    length_scale: Factor | None = Field(
        default=None, description="the length-scales, one for each coordinate, shared by all labels; none: not learnt"
    )
    std: Factor | None = Field(
        default=None, description="the standard deviation; all labels are scaled by the same number; none: not learnt"
    )
    period: Factor | None = Field(default=None, description="the periods of periodic kernels; none: not learnt")
    shape: Factor | None = Field(default=None, description="the shapes of rational quadratic kernels; none: not learnt")
    share: Factor | None = Field(
        default=None,
        description="the variance of each part of a sum of kernels, and thus the standard deviation; none: not learnt",
    )


class MapSection(Section):
    """A map of the prior: a file with values on a grid."""

    described: ClassVar[str] = 'a table such as { file = "top.tif", unit = "m" }'
    file: str = Field(
        description="a GeoTIFF (.tif), a netCDF file (.nc, .nc4, .cdf) or a CSV file (.csv) with one row per node of a "
        "grid and columns with the names of coordinates"
    )
    variable: str | None = Field(
        default=None, description="the variable, column or band; by default the only one of the file"
    )
    unit: UnitText | None = Field(
        default=None, description="the unit of the values; by default that in the file, or else that of the latent"
    )
    crs: str | None = Field(
        default=None,
        description="the map's coordinate reference system; by default that in the file, or else that of the survey",
    )


def _is_map(item: object) -> bool:
    """Return whether a value is a map, not a number or a percentage."""
    return isinstance(item, MapSection) or (isinstance(item, str) and is_map_file(item))


def _with_tables(check: Callable[[object], object], what: str) -> Callable[[object], object]:
    """Return a check of a value that may be a map, or a list of values and maps."""

    def convert(value: object) -> object:
        items = value if isinstance(value, list) else [value]
        found = [MapSection.model_validate(item) if isinstance(item, dict) else item for item in items]
        maps = [_is_map(item) for item in found]
        try:
            if not all(maps):
                numbers = [item for item, is_map in zip(found, maps, strict=True) if not is_map]
                check(numbers if isinstance(value, list) else numbers[0])
        except ValueError:
            raise ValueError(f"must be {what}") from None
        return found if isinstance(value, list) else found[0]

    return convert


PriorMeans = Annotated[
    Any,
    BeforeValidator(_with_tables(check_numbers, "a finite number, a map file, or a list of them")),
    Kind("number, file name, table or list of them"),
]
PriorSpreads = Annotated[
    Any,
    BeforeValidator(
        _with_tables(check_spreads, "a positive number, a map file, a list of them, or a percentage such as '15%'")
    ),
    Kind("number, percentage, file name, table or list of them"),
]
TrendTerms = Annotated[
    list[str | MapSection],
    BeforeValidator(
        lambda value: (
            [MapSection.model_validate(item) if isinstance(item, dict) else item for item in value]
            if isinstance(value, list)
            else value
        )
    ),
    Kind("list of coordinates, file names or tables"),
]


def _map_only(value: object) -> object:
    """Return a table or the name of a map file; raise `ValueError` for anything else."""
    if isinstance(value, dict):
        return MapSection.model_validate(value)
    if not _is_map(value):
        raise ValueError("must be a map file or its table")
    return value


MapFile = Annotated[Any, BeforeValidator(_map_only), Kind("file name or table")]


class LatentSection(Section):
    """An unknown field, or an unknown number."""

    unit: UnitText = UNIT
    domain: Literal["field", "scalar"] = Field(
        default="field",
        description="'scalar' for a number that is the same everywhere (with a dimension, one number for each label); "
        "it has no kernel",
    )
    dimension: str | None = DIMENSION
    mean: PriorMeans | None = Field(
        default=None,
        description="the prior mean: a number, a map file, or a list with one of them for each label of the dimension; "
        "left out with link = 'uniform'",
    )
    std: PriorSpreads | None = Field(
        default=None,
        description="the prior standard deviation: a positive number, a map file, a list with one of them for each "
        "label of the dimension, or a percentage of the mean such as '15%'; with link = 'increasing', of each label's "
        "increment; left out with link = 'uniform'",
    )
    trend: TrendTerms = Field(
        default=[],
        description="coordinates, and map files of other quantities, on which the mean depends linearly with unknown "
        "coefficients",
    )
    trend_std: Positive = Field(
        default=10.0,
        description="the prior standard deviation of the constant of the trend, and of the change from the middle of "
        "the points to the edge by each of its terms, as a multiple of std",
    )
    label_correlation: LabelCorrelation | None = Field(
        default=None,
        description="the prior correlation between labels: a number, whose powers hold for more distant labels, "
        "or a correlation matrix; none: independent",
    )
    correlated_with: dict[str, CorrelationNumber] = Field(
        default={},
        description="the prior correlation with other latents, such as { density = 0.7 }, at the same point and label; "
        "their kernels must be the same",
    )
    kernel: Annotated[KernelSection, WrapValidator(_kernel_object)] | None = Field(
        default=None, description=f"{KernelSection.described}; left out for a scalar"
    )
    length_scale_map: MapFile | None = Field(
        default=None,
        description="a map of positive factors by which the length-scales of squared exponential, exponential and "
        "Matern kernels are multiplied from place to place; none: they are the same everywhere",
    )
    link: Literal[(*LINKS, *BOUNDED_LINKS)] = Field(  # type: ignore[valid-type]
        default="identity",
        description="'log' for a positive quantity with a log-normal prior; 'increasing' for one that increases from "
        "label to label, such as the depths of layers: its increments are then positive; 'uniform' for a uniform prior "
        "between lower and upper; 'truncated normal' for a normal prior that is cut off at lower or upper or both",
    )
    lower: Numbers | None = Field(
        default=None,
        description="the lower bound with link = 'uniform' or 'truncated normal': a number or one for each label",
    )
    upper: Numbers | None = Field(default=None, description="the upper bound, in the same way")
    learn: LearnSection = Field(
        default=LearnSection(), description=f"{LearnSection.described}; not with posterior = 'full gaussian'"
    )
    positive: Literal["", "up", "down"] = POSITIVE
    long_name: str = LONG_NAME
    standard_name: str = STANDARD_NAME

    @model_validator(mode="after")
    def _keys_of_link(self) -> Self:
        fields = type(self).model_fields
        wrong = []
        for key, needed, why in (
            ("kernel", self.domain == "field", "for domain = 'scalar'"),
            ("mean", self.link != "uniform", "with link = 'uniform', whose bounds define the prior"),
            ("std", self.link != "uniform", "with link = 'uniform', whose bounds define the prior"),
        ):
            given = getattr(self, key) is not None
            if needed and not given:
                wrong.append(f"{key}: is missing; it must be {fields[key].description}")
            if given and not needed:
                wrong.append(f"{key}: must be left out {why}, was given")
        bounds = [key for key in ("lower", "upper") if getattr(self, key) is not None]
        if self.link == "uniform":
            missing = [key for key in ("lower", "upper") if key not in bounds]
            wrong += [f"{key}: is missing; with link = 'uniform' it must be a number" for key in missing]
        elif self.link == "truncated normal" and not bounds:
            wrong.append("lower: is missing; with link = 'truncated normal' lower or upper or both must be given")
        elif self.link not in BOUNDED_LINKS:
            wrong += [
                f"{key}: must be left out unless link = 'uniform' or 'truncated normal', was given" for key in bounds
            ]
        if self.domain == "scalar" or self.link in BOUNDED_LINKS:
            why = "for domain = 'scalar'" if self.domain == "scalar" else f"with link = {self.link!r}"
            maps = [
                key
                for key in ("mean", "std")
                for one in [getattr(self, key)]
                if any(_is_map(item) for item in (one if isinstance(one, list) else [one]))
            ]
            wrong += [f"{key}: must be numbers {why}, was a map" for key in dict.fromkeys(maps)]
            wrong += [f"trend: must be left out {why}, was given"] if self.trend else []
        if self.domain == "scalar" and self.length_scale_map is not None:
            wrong.append("length_scale_map: must be left out for domain = 'scalar', was given")
        if self.link in BOUNDED_LINKS and self.learn.std is not None:
            wrong.append(f"learn.std: must be left out with link = {self.link!r}, was given")
        if wrong:
            raise WholeSentenceError(wrong)
        return self


class DiscrepancySection(Section):
    """What the simulator cannot explain: a Gaussian process with mean 0 that is added to its outputs."""

    described: ClassVar[str] = 'a table such as { std = 2, kernel = { kind = "matern 5/2", length_scale = 500 } }'
    std: Positives = Field(
        description="its standard deviation in the unit of the observation: a positive number, or one for each label"
    )
    kernel: Annotated[KernelSection, WrapValidator(_kernel_object)] = Field(
        description=f"its kernel along the coordinates of the survey, {KernelSection.described}"
    )
    label_correlation: LabelCorrelation | None = Field(
        default=None, description="the correlation between the labels of the observation, as in [latents.NAME]"
    )
    learn: LearnSection = Field(
        default=LearnSection(), description=f"{LearnSection.described}, as in [latents.NAME]; only for site models"
    )


class NoiseSection(Section):
    """The noise: observations minus simulator outputs."""

    kind: Literal["gaussian", "student-t", "laplace"] = Field(default="gaussian", description="the distribution")
    std: dict[str, NoiseSpreads] = Field(
        default={},
        description="a table with the standard deviation of each observation: a positive number in its unit, a list "
        "with one for each label, a percentage of the observed value such as '5%', or the survey file's column, or "
        "list of columns, that holds it by site",
    )
    correlation: dict[str, Correlation] = Field(
        default={},
        description="for Gaussian noise, a table with the correlation matrix of the noise of an observation's numbers "
        "at one site; by default they are independent",
    )
    correlation_length: dict[str, Positives] = Field(
        default={},
        description="for Gaussian noise of field models, a table with the distance between sites over which the noise "
        "of an observation falls to 1/e of itself: a positive number in the survey coordinates' unit, or one for each "
        "coordinate; by default sites are independent",
    )
    covariance: str | None = Field(
        default=None,
        description="for Gaussian noise of field models, instead of all else: a CSV file without a header, or a NumPy "
        "file (.npy), with the covariance matrix of all data; its rows are the sites in order, each with its "
        "observations, each with its labels",
    )
    degrees: float = Field(default=4.0, gt=2, description="degrees of freedom of Student-t noise")
    learn: dict[str, Factor] = Field(
        default={},
        description="for Gaussian noise, a table with the observations whose standard deviation is scaled by a number "
        "that is learnt, as in [latents.NAME.learn]; not with posterior = 'full gaussian'",
    )
    scale_degrees: Positive | None = Field(
        default=None,
        description="for Gaussian noise, instead of learn: all standard deviations of this data set are scaled by one "
        "unknown number, whose square has an inverse-gamma prior; std is then as good as an estimate with this "
        "number of degrees of freedom, such as 9 for ten repeated measurements; none: std is right",
    )
    discrepancy: dict[str, DiscrepancySection] = Field(
        default={},
        description="what the simulator cannot explain, for each of some observations: "
        f"{DiscrepancySection.described}; by default the simulator is right",
    )


class PlaceSection(Section):
    """A coordinate of direct data: a place, or the interval over which the value is an average."""

    described: ClassVar[str] = "a table such as { at = 1200 } or { start = 100, stop = 150 }"
    at: Places | None = Field(
        default=None, description="the coordinate: a number, one for each place, or a column of the file"
    )
    start: Places | None = Field(default=None, description="the start of the interval, in the same way")
    stop: Places | None = Field(default=None, description="the end of the interval, in the same way")


def _place(value: object) -> object:
    """Convert a number, a list or the name of a column to a table."""
    return value if isinstance(value, dict | PlaceSection) else {"at": value}


class DirectValueSection(Section):
    """A measured value of a latent, or of an expression of latents."""

    quantity: str = Field(
        description="an expression of the latents as in `invgp predict --derive`, such as 'depth[2]' or "
        "'depth[2] - depth[1]'; without a label it has the labels of the latent"
    )
    value: Measured | None = Field(
        default=None,
        description="the measured value: a number, a list with one for each place (or for each label of the quantity), "
        "or the file's column or columns; by default the column with the value's name",
    )
    std: NoiseSpreads = Field(
        description="the standard deviation of its noise: a positive number, a list of them, a percentage of the value "
        "such as '5%', or the file's column or columns"
    )
    unit: UnitText | None = Field(default=None, description="its unit; by default that of the quantity")
    long_name: str = LONG_NAME
    standard_name: str = STANDARD_NAME


class DirectSection(Section):
    """Direct data at one or more places: values of the latents that need no simulator, such as those of a borehole."""

    file: str | None = Field(
        default=None,
        description="a CSV or netCDF file with one row per place; none: the numbers are in the configuration",
    )
    coordinates: dict[Name, Annotated[PlaceSection, BeforeValidator(_place)]] = Field(
        default={},
        description="the coordinates of the latents: for each a number, a list with one for each place, a column of "
        "the file, or a table such as { start = 100, stop = 150 } if the value is an average over an interval; by "
        "default the file's columns with the names of the survey's columns",
    )
    values: dict[Name, DirectValueSection] = Field(
        description="at least one table such as [direct.well.values.top]", min_length=1
    )


class SourceSection(Section):
    """A further data set with its own sites, simulator and noise; the latents are shared."""

    survey: SurveySection = Field(
        description="a table like [survey]; its coordinates must have the names and units of those of [survey]"
    )
    forward: Forward = Field(description="a table like [forward]; its inputs are the latents that this source uses")
    noise: NoiseSection = Field(description="a table like [noise]")
    runs_per_site: float | None = Field(
        default=None, gt=0, le=10**6, description="its share of runs, as inference.runs_per_site; none: the same"
    )


class Config(Section):
    """A configuration file."""

    version: Literal[1] = Field(default=VERSION, description="version of the file format")
    title: str = Field(default="", description="title of the survey, for the posterior file and figures")
    dimensions: dict[Name, LabelList] = Field(
        default={}, description="named dimensions such as layer = [1, 2, 3], with their labels"
    )
    survey: SurveySection = Field(description="the table [survey]")
    grid: GridSection | None = Field(default=None, description="the table [grid]; for field models only")
    latents: dict[Name, LatentSection] = Field(description="at least one table such as [latents.depth]", min_length=1)
    prior: str | None = Field(
        default=None,
        description="the posterior file of an earlier inversion of the same latents, whose data count as part of the "
        "prior; none: only the priors of the latents",
    )
    sources: dict[Name, SourceSection] = Field(
        default={},
        description="further data sets for a joint inversion, in tables such as [sources.mt]; if [forward] is a "
        "site model, they must be site models too",
    )
    direct: dict[Name, DirectSection] = Field(
        default={}, description="direct data such as boreholes, in tables such as [direct.well]"
    )
    forward: Forward = Field(description="the table [forward]")
    noise: NoiseSection = Field(description="the table [noise]")
    inference: InferenceSettings = Field(default=InferenceSettings(), description="the table [inference]")
    output: OutputSettings = Field(default=OutputSettings(), description="the table [output]")
