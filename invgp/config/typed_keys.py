"""Types of the arguments of `invgp.define`, for editors and type checkers; a test compares them with the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Required, TypedDict

if TYPE_CHECKING:  # the import takes a second, and help does not need it
    from invgp.core.kernels import Kernel

Unit = str  # as UDUNITS knows it: "m", "m s-1", "ohm m", "1"


class ColumnKeys(TypedDict, total=False):
    """A coordinate or a covariate, as [survey.coordinates.NAME]."""

    unit: Required[Unit]
    column: str
    long_name: str
    standard_name: str
    positive: Literal["", "up", "down"]


class AxisKeys(TypedDict, total=False):
    """A coordinate of the grid of a field model, as [grid.coordinates.NAME]; the last one varies fastest."""

    unit: Required[Unit]
    start: float
    stop: float
    step: float
    column: str
    long_name: str
    standard_name: str
    positive: Literal["", "up", "down"]


class ObservationKeys(TypedDict, total=False):
    """An observation, as [survey.observations.NAME]."""

    unit: Required[Unit]
    columns: Sequence[str]
    dimension: str
    long_name: str
    standard_name: str


class PlaceKeys(TypedDict, total=False):
    """A coordinate of direct data: a place, or an interval; numbers, one per place, or a column of the file."""

    at: float | Sequence[float] | str
    start: float | Sequence[float] | str
    stop: float | Sequence[float] | str


class DirectValueKeys(TypedDict, total=False):
    """A measured value of an expression of latents, as [direct.NAME.values.NAME]."""

    quantity: Required[str]
    std: Required[float | Sequence[float] | str | Sequence[str]]
    value: float | Sequence[float] | Sequence[Sequence[float]] | str | Sequence[str]
    unit: Unit
    long_name: str
    standard_name: str


class DirectKeys(TypedDict, total=False):
    """Direct data, as [direct.NAME]."""

    values: Required[Mapping[str, DirectValueKeys]]
    file: str
    coordinates: Mapping[str, float | Sequence[float] | str | PlaceKeys]


class KernelKeys(TypedDict, total=False):
    """A kernel; the length-scale is in the unit of the coordinates, one number or one per coordinate."""

    kind: Literal[
        "squared exponential",
        "exponential",
        "matern 3/2",
        "matern 5/2",
        "rational quadratic",
        "periodic",
        "linear",
        "constant",
        "white",
        "sum",
        "product",
    ]
    length_scale: float | Sequence[float]
    angle: float
    dip: float
    period: float | Sequence[float]
    shape: float
    centre: float | Sequence[float]
    coordinates: Sequence[str]
    zones: str | Sequence[float]
    share: float
    parts: Sequence[KernelKeys]


class LearnKeys(TypedDict, total=False):
    """Learnt parameters of a prior: True, or a factor above 1, one standard deviation of the log-normal prior."""

    length_scale: float | bool
    std: float | bool
    period: float | bool
    shape: float | bool
    share: float | bool


class MapKeys(TypedDict, total=False):
    """A map of a prior: a GeoTIFF, netCDF or CSV file with values on a grid."""

    file: Required[str]
    variable: str
    unit: Unit
    crs: str


class LatentKeys(TypedDict, total=False):
    """A latent, as [latents.NAME]; mean and std are in its unit, numbers or map files, one or one per label."""

    unit: Required[Unit]
    domain: Literal["field", "scalar"]
    mean: float | str | MapKeys | Sequence[float | str | MapKeys]
    std: float | str | MapKeys | Sequence[float | str | MapKeys]
    trend: Sequence[str | MapKeys]
    trend_std: float
    label_correlation: float | Sequence[Sequence[float]]
    correlated_with: Mapping[str, float]
    kernel: KernelKeys | Kernel
    length_scale_map: str | MapKeys
    dimension: str
    link: Literal["identity", "log", "increasing", "uniform", "truncated normal"]
    lower: float | Sequence[float]
    upper: float | Sequence[float]
    learn: LearnKeys
    positive: Literal["", "up", "down"]
    long_name: str
    standard_name: str


class DiscrepancyKeys(TypedDict, total=False):
    """What the simulator cannot explain of an observation, as [noise.discrepancy.NAME]."""

    std: Required[float | Sequence[float]]
    kernel: Required[KernelKeys | Kernel]
    label_correlation: float | Sequence[Sequence[float]]
    learn: LearnKeys


class NoiseKeys(TypedDict, total=False):
    """The noise, as [noise]."""

    std: Mapping[str, float | Sequence[float] | str | Sequence[str]]
    kind: Literal["gaussian", "student-t", "laplace"]
    correlation: Mapping[str, Sequence[Sequence[float]]]
    correlation_length: Mapping[str, float | Sequence[float]]
    covariance: str
    degrees: float
    learn: Mapping[str, float | bool]
    scale_degrees: float
    discrepancy: Mapping[str, DiscrepancyKeys]


class InferenceKeys(TypedDict, total=False):
    """The settings of the inference, as [inference]."""

    posterior: Literal["sampled", "coupled gaussian", "full gaussian"]
    estimator: Literal["auto", "linearisation", "hermite", "score"]
    emulator: bool
    runs_per_site: float
    emulator_error: float
    max_runs: int
    max_coarse_runs: int
    kept_variance: float
    localisation: float | Sequence[float]
    inducing: int
    learn_inducing: bool
    batch: int
    samples: int
    max_evaluations: int
    max_failed_share: float
    retries: int
    seed: int
    workers: int
    backend: Literal["loky", "threading", "dask"]
    scheduler: str
    worker_timeout: float
    device: Literal["cpu", "cuda", "auto"]


class OutputKeys(TypedDict, total=False):
    """The settings of the output, as [output]."""

    file: str
    quantiles: Sequence[float]
    realizations: int
    ledger: bool
