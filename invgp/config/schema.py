"""The keys of a config file: their names, kinds and defaults, and what can be checked without other files."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from invgp.config.section import Section
from invgp.config.simulators import Forward
from invgp.config.values import (
    LONGEST,
    MOST,
    Correlation,
    Factor,
    LabelList,
    Name,
    NoiseSpreads,
    Numbers,
    Positives,
    Quantiles,
    Spreads,
    UnitText,
)
from invgp.core.kernels import CORRELATIONS
from invgp.links import LINKS

VERSION: Final = 1

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


class AxisSection(Section):
    """A coordinate of the grid: start, stop and step of a regular one, or a column of the grid's file."""

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
    """Where the latents of a field model live: a regular grid, or the points of a file."""

    file: str | None = Field(default=None, description="a CSV or netCDF file with a row a node; none: a regular grid")
    coordinates: dict[Name, AxisSection] = Field(
        description=f"one to three coordinates, each {AxisSection.described}; of a regular grid, the last runs fastest",
        min_length=1,
        max_length=3,
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


class NoiseSection(Section):
    """What separates the observations from the simulator's outputs."""

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
        le=10**5,
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
        default=None,
        ge=1,
        le=10**12,
        description="runs of the simulator in all, never exceeded; none: as many as it takes, for field models up to "
        "1,000",
    )
    kept_variance: float = Field(
        default=0.9999,
        gt=0,
        lt=1,
        description="for field models, the share of the prior's variance that the modes of the grid keep; what they "
        "leave must be small against what the data can tell. There are never more than 1,000 modes a latent process",
    )
    localisation: Positives | None = Field(
        default=None,
        description="for field models, how far away from its site a datum feels the field, in the units of the grid's "
        "coordinates, one number or one for each; none: all data feel all of it. The sites must have the coordinates "
        "of the grid",
    )
    inducing: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="inducing points of the coupled posterior, placed by k-means; none: one at every site",
    )
    learn_inducing: bool = Field(default=False, description="whether the inducing points move to where they serve best")
    batch: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="sites in a mini-batch of the coupled posterior, shuffled anew for each pass over the survey; "
        "none: as many as fit in some 400 MB with their samples, of a small survey all",
    )
    samples: int | None = Field(
        default=None,
        ge=1,
        le=10**6,
        description="samples a site at each evaluation of the bound; none: as many as the estimator needs. With Q "
        "latent processes (a latent with L labels is L of them), the full Gaussian needs at least 2 (2 Q + 1), "
        "linearisation 3 (Q + 1) / 2, the others 3 (Q + 1) (Q + 2) / 4",
    )
    max_evaluations: int = Field(
        default=200,
        ge=1,
        le=MOST,
        description="evaluations of the bound at the most, with an emulator in each of its steps",
    )
    tolerance: float = Field(
        default=1e-7, gt=0, description="relative change of the bound at which the full Gaussian has converged"
    )
    max_failed_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share of a batch's runs that may fail; above it a step is taken back, or the inversion stops",
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="how often a run that failed is tried again before it counts as failed; for `max_runs` it is one "
        "run however often it was tried",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="of all random numbers")
    workers: int = Field(
        default=1,
        ge=1,
        le=10**4,
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
        default=600.0, gt=0, le=LONGEST, description="of 'dask': seconds without any worker before the inversion stops"
    )
    device: Literal["cpu", "cuda", "auto"] = Field(default="cpu", description="where the arrays live")


class FileSection(Section):
    """What is written."""

    file: str = Field(default="posterior.nc", description="the netCDF file, relative to the config")
    quantiles: Quantiles = Field(default=[0.025, 0.25, 0.5, 0.75, 0.975], description="of each latent at each site")
    realizations: int = Field(default=20, ge=0, le=10**6, description="joint draws from the posterior")
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
    grid: GridSection | None = Field(default=None, description="the table [grid]; for field models only")
    latents: dict[Name, LatentSection] = Field(description="at least one table such as [latents.depth]", min_length=1)
    forward: Forward = Field(description="the table [forward]")
    noise: NoiseSection = Field(description="the table [noise]")
    inference: InferenceSection = Field(default=InferenceSection(), description="the table [inference]")
    output: FileSection = Field(default=FileSection(), description="the table [output]")
