"""What is unknown, what was measured, and the simulator between the two.

Units: every array is in the unit that its owner names. Order: the Q latent processes are the latents in order,
each with its labels in order; the P outputs of a site are the observations in order, each with its labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from invgp import describing
from invgp.adapters.protocol import ForwardModel
from invgp.errors import ConfigError
from invgp.links import LINKS, Link
from invgp.units import IDENTITY, Conversion

SMALLEST_EIGENVALUE = 1e-12  # of a correlation matrix: below it, rounding may have made a singular one regular

Floats = NDArray[np.float64]
Labels = tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A quantity known at each site: a coordinate, or a covariate of the forward model.

    Parameters
    ----------
    values : (N,), in `unit`.
    positive : ``"down"`` or ``"up"`` for a vertical position.
    """

    name: str
    unit: str
    values: Floats
    long_name: str = ""
    standard_name: str = ""
    positive: str = ""


@dataclass(frozen=True)
class Observation:
    """What was measured at each site: one number, or one for each label of a dimension.

    Parameters
    ----------
    values : (N, p), in `unit`; NaN where nothing was measured.
    """

    name: str
    unit: str
    values: Floats
    dimension: str | None = None
    labels: Labels | None = None
    long_name: str = ""
    standard_name: str = ""


@dataclass(frozen=True)
class Survey:
    """Sites, where they are, and what was measured there.

    Parameters
    ----------
    coordinates : one to three.
    crs : anything that PROJ understands, such as ``"EPSG:28354"``; None if the coordinates have none.
    file, digest : where it was read from, and the SHA-256 of that file, for provenance; empty if it was made in code.
    """

    coordinates: tuple[Column, ...]
    observations: tuple[Observation, ...]
    covariates: tuple[Column, ...] = ()
    crs: str | None = None
    file: str = ""
    digest: str = ""

    @property
    def size(self) -> int:
        """Number of sites, N."""
        return len(self.coordinates[0].values)

    @property
    def X(self) -> Floats:  # noqa: N802 - the paper's name
        """Site coordinates, (N, D)."""
        return np.stack([c.values for c in self.coordinates], axis=-1)

    @property
    def Y(self) -> Floats:  # noqa: N802 - the paper's name
        """All observations, (N, P)."""
        return np.concatenate([o.values for o in self.observations], axis=-1)


@dataclass(frozen=True)
class Latent:
    """A field below the survey, with its Gaussian process prior: one process, or one for each label.

    Parameters
    ----------
    mean, std : (L,), prior mean and standard deviation of the physical quantity, in `unit`.
    kernel : a key of `invgp.core.kernels.CORRELATIONS`.
    length_scale : (D,), in the units of the coordinates.
    link : how the process and the physical quantity hang together.
    positive : ``"down"`` or ``"up"`` for a vertical position, for plots and CF.
    learn : of ``"std"`` and ``"length_scale"``, those that are learnt, with a factor: a log-normal prior has what is
        given here as its median, and a change by that factor as one standard deviation; infinite for no prior.
    """

    name: str
    unit: str
    mean: Floats
    std: Floats
    kernel: str
    length_scale: Floats
    link: Link = LINKS["identity"]
    dimension: str | None = None
    labels: Labels | None = None
    long_name: str = ""
    standard_name: str = ""
    positive: str = ""
    learn: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self.mean)


@dataclass(frozen=True)
class Grid:
    """Nodes of a model that takes whole fields; the latents live there.

    Parameters
    ----------
    coordinates : one to three, with a value a node.
    shape : nodes along each coordinate of a regular grid, whose last coordinate runs fastest; empty for any points.
    """

    coordinates: tuple[Column, ...]
    shape: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of nodes, G."""
        return len(self.coordinates[0].values)

    @property
    def X(self) -> Floats:  # noqa: N802 - the paper's name
        """Node coordinates, (G, D)."""
        return np.stack([c.values for c in self.coordinates], axis=-1)


@dataclass(frozen=True)
class Noise:
    """What separates an observation from the simulator's output.

    Parameters
    ----------
    kind : ``"gaussian"``, ``"student-t"`` or ``"laplace"``.
    std : for each observation (N, p), in its unit.
    correlation : for observations whose noise is correlated (Gaussian only), (p, p).
    degrees : of freedom of a Student-t.
    learn : for observations whose noise is scaled by a number that is learnt, a factor as in `Latent.learn`.
    correlation_length : for observations whose noise is correlated between sites (Gaussian only), (D,): correlations
        fall off as exp(-distance), with the coordinates divided by these.
    covariance : (N P, N P), of all data, site by site, instead of all else (Gaussian only); None for none.
    """

    kind: str
    std: Mapping[str, Floats]
    correlation: Mapping[str, Floats] = field(default_factory=dict)
    degrees: float = 4.0
    learn: Mapping[str, float] = field(default_factory=dict)
    correlation_length: Mapping[str, Floats] = field(default_factory=dict)
    covariance: Floats | None = None

    @property
    def joins_sites(self) -> bool:
        """Whether the noise of one site says something of that of another."""
        return bool(self.correlation_length) or self.covariance is not None

    def __post_init__(self) -> None:
        for name, matrix in self.correlation.items():
            if np.linalg.eigvalsh(matrix)[0] <= SMALLEST_EIGENVALUE:
                raise ConfigError(
                    f"noise.correlation.{name}: must be positive definite, was not: some of its correlations "
                    "contradict others"
                )


@dataclass(frozen=True)
class Wire:
    """One end of the wiring between the problem's names and units and the simulator's.

    Parameters
    ----------
    name : of the latent, covariate, coordinate or observation.
    conversion : into the unit of the destination: the simulator's for an input, the observation's for an output.
    """

    name: str
    conversion: Conversion = IDENTITY


@dataclass(frozen=True)
class InferenceSettings:
    """How the posterior is found; see the config reference for each."""

    posterior: str = "coupled gaussian"
    estimator: str = "auto"
    emulator: bool = True
    runs_per_site: int = 10
    max_runs: int | None = None
    emulator_error: float = 0.2
    kept_variance: float = 0.9999
    localisation: Floats | None = None
    inducing: int | None = None
    learn_inducing: bool = False
    batch: int | None = None
    samples: int | None = None
    max_evaluations: int = 200
    tolerance: float = 1e-7
    max_failed_share: float = 0.1
    retries: int = 0
    seed: int = 0
    workers: int = 1
    backend: str = "loky"
    scheduler: str | None = None
    worker_timeout: float = 600.0
    device: str = "cpu"


@dataclass(frozen=True)
class OutputSettings:
    """What is written, and where."""

    file: Path = Path("posterior.nc")
    quantiles: tuple[float, ...] = (0.025, 0.25, 0.5, 0.75, 0.975)
    realizations: int = 20
    ledger: bool | None = None


@dataclass(frozen=True, repr=False)
class Problem:
    """A survey, the unknown fields below it, and the simulator that ties them.

    `invgp.load` makes one of a config file, `invgp.define` of Python's own data.

    Parameters
    ----------
    latents, noise : the unknown fields with their priors, and what separates data from the simulator's outputs.
    forward : the simulator, in units of its own.
    inputs : one wire for each input of `forward`, from a latent, a covariate or a coordinate.
    outputs : one wire for each output of `forward`, to an observation.
    grid : where the latents live, if one run of `forward` takes them everywhere and returns all data (a field model);
        None for a model of one site, whose latents live at the sites.
    config_text : the config as read, kept for provenance; empty for a problem built in code.
    """

    title: str
    survey: Survey
    latents: tuple[Latent, ...]
    noise: Noise
    forward: ForwardModel
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]
    inference: InferenceSettings = field(default_factory=InferenceSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    config_text: str = ""
    grid: Grid | None = None

    @property
    def latent_count(self) -> int:
        """Number of latent processes, Q."""
        return sum(latent.size for latent in self.latents)

    @cached_property
    def latent_slices(self) -> dict[str, slice]:
        """Where each latent's processes stand among the Q."""
        return _slices((latent.name, latent.size) for latent in self.latents)

    @cached_property
    def observation_slices(self) -> dict[str, slice]:
        """Where each observation's numbers stand among the P."""
        return _slices((o.name, o.values.shape[1]) for o in self.survey.observations)

    @cached_property
    def noise_std(self) -> Floats:
        """Standard deviation of the noise, (N, P)."""
        return np.concatenate([self.noise.std[o.name] for o in self.survey.observations], axis=-1)

    def noisier(self, factor: Floats) -> Problem:
        """The same problem with the noise's standard deviations multiplied by a factor (N, P)."""
        std = {name: factor[:, columns] * self.noise.std[name] for name, columns in self.observation_slices.items()}
        return replace(self, noise=replace(self.noise, std=std))

    def at_sites(self, sites: NDArray[np.intp]) -> Problem:
        """The problem of some sites alone, by their numbers (B,)."""
        survey = self.survey
        coordinates, covariates = (
            tuple(replace(column, values=column.values[sites]) for column in columns)
            for columns in (survey.coordinates, survey.covariates)
        )
        observations = tuple(replace(o, values=o.values[sites]) for o in survey.observations)
        part = replace(survey, coordinates=coordinates, covariates=covariates, observations=observations)
        std = {name: values[sites] for name, values in self.noise.std.items()}
        return replace(self, survey=part, noise=replace(self.noise, std=std))

    def __repr__(self) -> str:
        return describing.text(self)

    def _repr_html_(self) -> str:
        return describing.html(self)

    def prior(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation, (Q,) each, of the latent processes, on the scale of the Gaussian process."""
        pairs = [latent.link.gaussian(latent.mean, latent.std) for latent in self.latents]
        return np.concatenate([m for m, _ in pairs]), np.concatenate([s for _, s in pairs])

    def physical(self, f: Floats) -> Floats:
        """Latent processes (..., Q) -> physical values (..., Q), in the latents' units."""
        return np.concatenate(
            [latent.link(f[..., self.latent_slices[latent.name]]) for latent in self.latents], axis=-1
        )

    def to_simulator(self, values: Floats, sites: NDArray[np.intp] | None = None) -> Floats:
        """Physical values (S, B, Q) of the latents at B sites -> rows (S B, I) for the simulator, in its units.

        Parameters
        ----------
        sites : numbers (B,) of the sites, from 0; by default all N.
        """
        samples = values.shape[0]
        sites = np.arange(self.survey.size) if sites is None else sites
        site_columns = {c.name: c.values[sites] for c in (*self.survey.coordinates, *self.survey.covariates)}
        parts = []
        for wire in self.inputs:
            if wire.name in self.latent_slices:
                part = values[..., self.latent_slices[wire.name]]
            else:
                part = np.broadcast_to(site_columns[wire.name][:, None], (samples, len(sites), 1))
            parts.append(part * wire.conversion.factor + wire.conversion.offset)
        return np.concatenate(parts, axis=-1).reshape(samples * len(sites), -1)

    def field_to_simulator(self, values: Floats) -> Floats:
        """Physical values (S, G, Q) of the latents on the grid -> rows (S, I) for a field model, in its units.

        A latent with labels goes in label by label, each with all its nodes.
        """
        site_columns = {c.name: c.values for c in (*self.survey.coordinates, *self.survey.covariates)}
        parts = []
        for wire in self.inputs:
            if wire.name in self.latent_slices:
                part = values[..., self.latent_slices[wire.name]].swapaxes(1, 2).reshape(len(values), -1)
            else:
                part = np.broadcast_to(site_columns[wire.name], (len(values), self.survey.size))
            parts.append(part * wire.conversion.factor + wire.conversion.offset)
        return np.concatenate(parts, axis=-1)

    def field_from_simulator(self, rows: Floats) -> Floats:
        """A field model's outputs, rows (S, N P) -> (S, N, P), in the observations' order and units.

        An observation with labels comes out site by site, each with all its labels.
        """
        ends = np.cumsum([q.size for q in self.forward.outputs])[:-1]
        by_name = {
            wire.name: (part * wire.conversion.factor + wire.conversion.offset).reshape(len(rows), self.survey.size, -1)
            for wire, part in zip(self.outputs, np.split(rows, ends, axis=-1), strict=True)
        }
        return np.concatenate([by_name[o.name] for o in self.survey.observations], axis=-1)

    def from_inputs(self, rows: Floats) -> tuple[Floats, dict[str, Floats]]:
        """The inverse of `to_simulator`: rows (R, I) -> latent processes (R, Q), and columns (R,) of the sites.

        A process that the simulator does not take is at its prior mean.
        """
        f = np.tile(self.prior()[0], (len(rows), 1))
        columns: dict[str, Floats] = {}
        links = {latent.name: latent.link for latent in self.latents}
        ends = np.cumsum([q.size for q in self.forward.inputs])[:-1]
        for wire, part in zip(self.inputs, np.split(rows, ends, axis=-1), strict=True):
            values = (part - wire.conversion.offset) / wire.conversion.factor
            if wire.name in self.latent_slices:
                f[:, self.latent_slices[wire.name]] = links[wire.name].inverse(values)
            else:
                columns[wire.name] = values[:, 0]
        return f, columns

    def from_simulator(self, rows: Floats, samples: int) -> Floats:
        """The simulator's outputs, rows (S B, P) -> (S, B, P), in the observations' order and units."""
        ends = np.cumsum([q.size for q in self.forward.outputs])[:-1]
        by_name = {
            wire.name: part * wire.conversion.factor + wire.conversion.offset
            for wire, part in zip(self.outputs, np.split(rows, ends, axis=-1), strict=True)
        }
        ordered = np.concatenate([by_name[o.name] for o in self.survey.observations], axis=-1)
        return ordered.reshape(samples, -1, ordered.shape[-1])


def fewest_samples(settings: InferenceSettings, processes: int) -> int:
    """Fewest samples a site with which the estimators are well posed, for that many latent processes."""
    Q = processes
    if settings.posterior == "full gaussian":
        return 2 * (2 * Q + 1)
    features = Q + 1 if settings.estimator == "linearisation" else (Q + 1) * (Q + 2) // 2
    return features + (features + 1) // 2


def _slices(sizes: Iterable[tuple[str, int]]) -> dict[str, slice]:
    slices: dict[str, slice] = {}
    start = 0
    for name, size in sizes:
        slices[name] = slice(start, start + size)
        start += size
    return slices
