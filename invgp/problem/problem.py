"""The inverse problem, and the conversion of latents to simulator inputs and of outputs to observations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import ForwardModel
from invgp.errors import ArgumentError
from invgp.formatting import join_names, suggest
from invgp.problem import summary
from invgp.problem.prior_and_noise import Latent, Noise
from invgp.problem.simulator_variables import SimulatorVariable
from invgp.problem.sources import Integers, Source, join_noise, join_surveys, select_noise
from invgp.problem.survey import Floats, Grid, Survey
from invgp.settings import InferenceSettings, OutputSettings


@dataclass(frozen=True, repr=False)
class Problem:
    """An inverse problem: a survey, unknown fields with their priors, and a simulator.

    `invgp.load` creates a problem from a configuration file, `invgp.define` from Python objects.

    Parameters
    ----------
    title : str
    survey : Survey
        Sites and observations.
    latents : tuple of Latent
        Unknown fields with their priors.
    noise : Noise
        Distribution of the observations minus the simulator outputs.
    forward : ForwardModel
        The simulator, with its own units.
    inputs : tuple of SimulatorVariable
        One per input of `forward`: a latent, a covariate or a coordinate.
    outputs : tuple of SimulatorVariable
        One per output of `forward`: an observation.
    inference : InferenceSettings
    output : OutputSettings
    config_text : str
        The configuration file, for provenance; empty for a problem made in Python.
    grid : Grid or None
        Nodes of the latents of a field model; None for a site model, whose latents are at the sites.
    sources : tuple of Source
        Further data sets with their own sites and models: direct data, other simulators. `forward`, `inputs` and
        `outputs` refer to all other sites of the survey.
    first_source : str
        Name of the source of these other sites.
    """

    title: str
    survey: Survey
    latents: tuple[Latent, ...]
    noise: Noise
    forward: ForwardModel
    inputs: tuple[SimulatorVariable, ...]
    outputs: tuple[SimulatorVariable, ...]
    inference: InferenceSettings = field(default_factory=InferenceSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    config_text: str = ""
    grid: Grid | None = None
    sources: tuple[Source, ...] = ()
    first_source: str = "survey"

    @property
    def latent_count(self) -> int:
        """Number of latent processes, Q."""
        return sum(latent.size for latent in self.latents)

    @property
    def stored_draws(self) -> int:
        """Number of draws that the posterior stores: `output.realizations`, or the default for its size."""
        points = self.survey.size if self.grid is None else self.grid.size
        return self.output.stored_draws(points * self.latent_count)

    @cached_property
    def latent_slices(self) -> dict[str, slice]:
        """Columns of each latent among the Q processes."""
        return _slices((latent.name, latent.size) for latent in self.latents)

    @cached_property
    def observation_slices(self) -> dict[str, slice]:
        """Columns of each observation among the P outputs."""
        return _slices((o.name, o.values.shape[1]) for o in self.survey.observations)

    @cached_property
    def noise_std(self) -> Floats:
        """Standard deviation of the noise, (N, P)."""
        return np.concatenate([self.noise.std[o.name] for o in self.survey.observations], axis=-1)

    def with_scaled_noise(self, factor: Floats) -> Problem:
        """Return the same problem with scaled noise.

        Parameters
        ----------
        factor : array, shape (N, P)
            Factor for the standard deviation of each datum.

        Returns
        -------
        Problem
        """
        std = {name: factor[:, columns] * self.noise.std[name] for name, columns in self.observation_slices.items()}
        return replace(self, noise=replace(self.noise, std=std))

    def with_inference(self, **changes: Any) -> Problem:
        """Return the same problem with other settings of the inference.

        Parameters
        ----------
        **changes
            New values of keys of [inference], such as ``max_runs=200``.

        Returns
        -------
        Problem

        Raises
        ------
        ConfigError
            A key is unknown or a value is not valid.
        """
        return replace(self, inference=self.inference.replace(**changes))

    def with_output(self, **changes: Any) -> Problem:
        """Return the same problem with other settings of the output, as `with_inference`."""
        return replace(self, output=self.output.replace(**changes))

    def select_sites(self, sites: NDArray[np.intp]) -> Problem:
        """Return the problem of a subset of the sites.

        Parameters
        ----------
        sites : array of int, shape (B,)
            Indices of the sites.

        Returns
        -------
        Problem
        """
        std = {name: values[sites] for name, values in self.noise.std.items()}
        return replace(
            self,
            survey=self.survey.select(sites),
            noise=replace(self.noise, std=std),
            sources=tuple(source.select(sites) for source in self.sources),
        )

    def join(self, others: Mapping[str, Problem], *, direct: Collection[str] = ()) -> Problem:
        """Return the joint problem of this one and others with the same coordinates; latents are shared by name.

        Parameters
        ----------
        others : mapping of str to Problem
            Problems without further sources, by the names of their sources: site models, or field models on the same
            grid. Latents that this problem does not have are added; for the others its own priors hold.
        direct : collection of str
            Sources with direct data.

        Returns
        -------
        Problem
            Its settings are those of this problem.
        """
        if self.grid is not None and any(name in direct for name in others):
            # The places of direct data have the coordinates of the grid, not of the survey.
            own = tuple(
                Source(name, np.arange(0), p.forward, p.inputs, p.outputs, direct=True, survey=p.survey, noise=p.noise)
                for name, p in others.items()
                if name in direct
            )
            joined = self.join({name: p for name, p in others.items() if name not in direct})
            return replace(joined, sources=(*joined.sources, *own))
        if not others:
            return self
        for name, other in others.items():
            self._check_can_join(name, other)
        problems = [self, *others.values()]
        sizes = [problem.survey.size for problem in problems]
        starts = np.cumsum([0, *sizes])
        sources = tuple(
            Source(
                name,
                np.arange(start, start + p.survey.size),
                p.forward,
                p.inputs,
                p.outputs,
                name in direct,
                p.inference.runs_per_site if p.inference.runs_per_site != self.inference.runs_per_site else None,
            )
            for start, (name, p) in zip(starts[1:], others.items(), strict=False)
        )
        latents = {latent.name: latent for problem in reversed(problems) for latent in problem.latents}
        order = dict.fromkeys(latent.name for problem in problems for latent in problem.latents)
        return replace(
            self,
            latents=tuple(latents[name] for name in order),
            survey=join_surveys([problem.survey for problem in problems]),
            noise=join_noise([problem.noise for problem in problems], sizes),
            sources=(*self.sources, *sources),
        )

    def _check_can_join(self, name: str, other: Problem) -> None:
        """Raise `ConfigError` unless another problem has the same coordinates and a name of its own."""
        if name in [part.name for part in self.parts]:
            raise ArgumentError(f"others: must have names of their own, was {name!r}")
        if other.sources:
            raise ArgumentError(f"others: must have one source each, {name!r} had {len(other.parts)}")
        if (other.grid is None) != (self.grid is None):
            kinds = ["site" if one.grid is None else "field" for one in (self, other)]
            raise ArgumentError(f"others: must be {kinds[0]} models like this problem, {name!r} was a {kinds[1]} model")
        if self.grid is not None and other.grid is not None and not np.array_equal(self.grid.X, other.grid.X):
            raise ArgumentError(f"others: must have the grid of this problem, {name!r} had another one")
        if self.noise.covariance is not None or other.noise.covariance is not None:
            raise ArgumentError("others: must have noise without a covariance of all data")
        known = {latent.name: latent for latent in self.latents}
        for latent in other.latents:
            own = known.get(latent.name, latent)
            if (own.unit, own.dimension, own.labels) != (latent.unit, latent.dimension, latent.labels):
                raise ArgumentError(f"others: must have the same unit and labels of {latent.name!r}, {name!r} had not")
        here, there = ([f"{c.name} ({c.unit})" for c in p.survey.coordinates] for p in (self, other))
        if here != there:
            raise ArgumentError(
                f"others: must have the same coordinates, {name!r} had {join_names(there)}, not {join_names(here)}"
            )

    def without(self, *names: str) -> Problem:
        """Return the problem without some of its sources, to see what they contribute.

        Parameters
        ----------
        *names : str
            Names of sources; ``"survey"`` for the data of the first simulator.

        Returns
        -------
        Problem

        Raises
        ------
        ConfigError
            There is no such source, or no simulator would be left.
        """
        if not names:
            return self
        known = [part.name for part in self.parts]
        for name in names:
            if name not in known:
                raise ArgumentError(f"without: must be a source, was {name!r}{suggest(name, known)}")
        left = [part for part in self.parts if part.name not in names]
        first = next((part for part in left if not part.direct), None)
        if first is None:
            raise ArgumentError(f"without: must leave a source with a simulator, was {join_names(names)}")
        start = replace(first.problem, first_source=first.name, grid=self.grid)
        others = {part.name: part.problem for part in left if part is not first}
        return start.join(others, direct=[part.name for part in left if part.direct]) if others else start

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The sources of the data, each as a problem of its own; first that of `forward`."""
        if not self.sources:
            everything = np.arange(self.survey.size)
            return (Part(self.first_source, self, everything, np.arange(self.noise_std.shape[1]), everything),)
        elsewhere = np.concatenate([source.sites for source in self.sources])
        own = np.setdiff1d(np.arange(self.survey.size), elsewhere)
        first = Source(self.first_source, own, self.forward, self.inputs, self.outputs)
        return tuple(self._part(source) for source in (first, *self.sources))

    def _part(self, source: Source) -> Part:
        if source.survey is not None and source.noise is not None:
            problem = replace(
                self,
                survey=source.survey,
                noise=source.noise,
                forward=source.forward,
                inputs=source.inputs,
                outputs=source.outputs,
                grid=None,
                sources=(),
            )
            nowhere = np.full(self.survey.size, -1)
            return Part(source.name, problem, source.sites, source.sites, nowhere, direct=source.direct)
        names = {variable.name for variable in source.outputs}
        wanted = [o.name for o in self.survey.observations if o.name in names]
        survey = self.survey.select(source.sites)
        survey = replace(
            survey,
            observations=tuple(o for o in survey.observations if o.name in names),
            covariates=tuple(c for c in survey.covariates if np.isfinite(c.values).all()),
        )
        problem = replace(
            self,
            survey=survey,
            noise=select_noise(self.noise, wanted, source.sites),
            forward=source.forward,
            inputs=source.inputs,
            outputs=source.outputs,
            sources=(),
        )
        if source.runs_per_site is not None:
            problem = problem.with_inference(runs_per_site=source.runs_per_site)
        all_columns = np.arange(self.noise_std.shape[1])
        columns = np.concatenate([all_columns[self.observation_slices[name]] for name in wanted])
        numbers = np.full(self.survey.size, -1, dtype=np.intp)
        numbers[source.sites] = np.arange(len(source.sites))
        return Part(source.name, problem, source.sites, columns, numbers, direct=source.direct)

    @property
    def simulated(self) -> Integers:
        """Numbers of the sites whose data need simulator runs: all but those with direct data."""
        return np.concatenate([part.sites for part in self.parts if not part.direct])

    def __repr__(self) -> str:
        return summary.format_text(*self._summary())

    def _repr_html_(self) -> str:
        return summary.format_html(*self._summary())

    def _summary(self) -> tuple[str, summary.Tables]:
        line = summary.summary_line(self.title, self.survey, self.latents, self.forward.name)
        return line, summary.summary_tables(self.survey, self.noise, self.latents)

    def prior_moments(self) -> tuple[Floats, Floats]:
        """Return the prior mean and standard deviation, (Q,) each, of the latent processes; with maps, nominal ones."""
        pairs = [latent.link.prior_to_process(latent.mean, latent.std) for latent in self.latents]
        return np.concatenate([m for m, _ in pairs]), np.concatenate([s for _, s in pairs])

    @cached_property
    def points(self) -> Floats:
        """Points of the latents: the locations of the sites, (N, D) or (N, 2 D), or the nodes of the grid, (G, D)."""
        return self.survey.locations if self.grid is None else self.grid.X

    @cached_property
    def prior_mean(self) -> Floats:
        """Prior mean (N, Q) of the latent processes at the sites, or (G, Q) at the nodes of the grid."""
        return self.prior_mean_at(self.points)

    def prior_mean_at(self, X: Floats) -> Floats:
        """Return the prior mean (B, Q) of the latent processes at points X, (B, D) or (B, 2 D); NaN outside a map."""
        coordinates = len((self.survey if self.grid is None else self.grid).coordinates)
        return np.concatenate([latent.process_mean(X, coordinates) for latent in self.latents], axis=-1)

    @property
    def physical_prior_mean(self) -> Floats:
        """Prior mean (N, Q) of the latents at the sites, or (G, Q) at the nodes of the grid, in their units."""
        count = len((self.survey if self.grid is None else self.grid).coordinates)
        return np.concatenate([latent.mean_at(self.points, count) for latent in self.latents], axis=-1)

    def to_physical(self, f: Floats) -> Floats:
        """Convert latent processes (..., Q) to physical values (..., Q), in the units of the latents.

        Parameters
        ----------
        f : array, shape (..., Q)
            Values of the latent processes.

        Returns
        -------
        array, shape (..., Q)
        """
        return np.concatenate(
            [latent.link(f[..., self.latent_slices[latent.name]]) for latent in self.latents], axis=-1
        )

    def to_simulator(self, values: Floats, sites: NDArray[np.intp] | None = None) -> Floats:
        """Convert latents at sites to rows of simulator inputs.

        Parameters
        ----------
        values : array, shape (S, B, Q)
            Physical values of the latents, in their units.
        sites : array of int, shape (B,)
            Indices of the sites; by default all N sites.

        Returns
        -------
        array, shape (S B, I)
            Inputs, in the units of the simulator.
        """
        samples = values.shape[0]
        sites = np.arange(self.survey.size) if sites is None else sites
        site_columns = {c.name: c.values[sites] for c in (*self.survey.coordinates, *self.survey.covariates)}
        parts = []
        for variable in self.inputs:
            if variable.name in self.latent_slices:
                part = values[..., self.latent_slices[variable.name]]
            else:
                part = np.broadcast_to(site_columns[variable.name][:, None], (samples, len(sites), 1))
            parts.append(variable.convert(part))
        return np.concatenate(parts, axis=-1).reshape(samples * len(sites), -1)

    def field_to_simulator(self, values: Floats) -> Floats:
        """Convert latents on the grid to rows of inputs of a field model.

        Parameters
        ----------
        values : array, shape (S, G, Q)
            Physical values of the latents, in their units.

        Returns
        -------
        array, shape (S, I)
            Inputs, in the units of the simulator. A latent with labels is passed label by label, each with all nodes.
        """
        site_columns = {c.name: c.values for c in (*self.survey.coordinates, *self.survey.covariates)}
        parts = []
        for variable in self.inputs:
            if variable.name in self.latent_slices:
                part = values[..., self.latent_slices[variable.name]].swapaxes(1, 2).reshape(len(values), -1)
            else:
                part = np.broadcast_to(site_columns[variable.name], (len(values), self.survey.size))
            parts.append(variable.convert(part))
        return np.concatenate(parts, axis=-1)

    def field_from_simulator(self, rows: Floats) -> Floats:
        """Convert rows of outputs of a field model to observations.

        Parameters
        ----------
        rows : array, shape (S, N P)
            Outputs; an observation with labels is returned site by site, each with all labels.

        Returns
        -------
        array, shape (S, N, P)
            Outputs in the order and the units of the observations.
        """
        shape = (len(rows), self.survey.size, -1)
        return np.concatenate([part.reshape(shape) for part in self._split_outputs(rows)], axis=-1)

    def from_simulator_inputs(self, rows: Floats) -> tuple[Floats, dict[str, Floats]]:
        """Convert rows of simulator inputs back to latent processes: the inverse of `to_simulator`.

        Parameters
        ----------
        rows : array, shape (R, I)
            Inputs, in the units of the simulator.

        Returns
        -------
        f : array, shape (R, Q)
            Latent processes; one that is not an input has its prior mean.
        columns : dict of str to array, shape (R,)
            Coordinates and covariates among the inputs.
        """
        f = np.tile(self.prior_moments()[0], (len(rows), 1))
        processes, columns = self._split_inputs(rows)
        for name, values in processes.items():
            f[:, self.latent_slices[name]] = values
        return f, {name: values[:, 0] for name, values in columns.items()}

    def field_from_simulator_inputs(self, rows: Floats) -> tuple[Floats, dict[str, Floats]]:
        """Convert rows of inputs of a field model back to latent processes: the inverse of `field_to_simulator`.

        Parameters
        ----------
        rows : array, shape (S, I)
            Inputs, in the units of the simulator.

        Returns
        -------
        f : array, shape (S, G, Q)
            Latent processes; one that is not an input has its prior mean.
        columns : dict of str to array, shape (S, N)
            Coordinates and covariates among the inputs.
        """
        processes, columns = self._split_inputs(rows)
        nodes = 0 if self.grid is None else self.grid.size
        f = np.tile(self.prior_mean if nodes else np.zeros((0, self.latent_count)), (len(rows), 1, 1))
        for name, values in processes.items():
            part = self.latent_slices[name]
            f[..., part] = values.reshape(len(rows), part.stop - part.start, nodes).swapaxes(1, 2)
        return f, columns

    def _split_inputs(self, rows: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Split rows (R, I) of simulator inputs into latent processes and columns, by name."""
        processes: dict[str, Floats] = {}
        columns: dict[str, Floats] = {}
        links = {latent.name: latent.link for latent in self.latents}
        ends = np.cumsum([q.size for q in self.forward.inputs])[:-1]
        for variable, part in zip(self.inputs, np.split(rows, ends, axis=-1), strict=True):
            values = variable.convert_back(part)
            if variable.name in links:
                processes[variable.name] = links[variable.name].inverse(values)
            else:
                columns[variable.name] = values
        return processes, columns

    def from_simulator(self, rows: Floats, samples: int) -> Floats:
        """Convert rows of simulator outputs to observations.

        Parameters
        ----------
        rows : array, shape (S B, P)
            Outputs, in the units of the simulator.
        samples : int
            Number of samples per site, S.

        Returns
        -------
        array, shape (S, B, P)
            Outputs in the order and the units of the observations.
        """
        ordered = np.concatenate(self._split_outputs(rows), axis=-1)
        return ordered.reshape(samples, -1, ordered.shape[-1])

    def _split_outputs(self, rows: Floats) -> list[Floats]:
        """Split rows (R, ...) of simulator outputs by observation, in the order and units of the observations."""
        ends = np.cumsum([q.size for q in self.forward.outputs])[:-1]
        by_name = {
            variable.name: variable.convert(part)
            for variable, part in zip(self.outputs, np.split(rows, ends, axis=-1), strict=True)
        }
        return [by_name[o.name] for o in self.survey.observations]


@dataclass(frozen=True)
class Part:
    """One source of a problem as a problem of its own.

    Attributes
    ----------
    name : str
        Name of the source; ``"survey"`` for the first.
    problem : Problem
        Its sites, observations and model, with all latents.
    sites : array of int, shape (n,)
        Numbers of its sites in the survey of the joint problem.
    columns : array of int, shape (p,)
        Numbers of its outputs among the P outputs of the joint problem.
    numbers : array of int, shape (N,)
        Number of each site of the joint problem in this part; -1 for a site of another part.
    direct : bool
        Whether its data are direct.
    """

    name: str
    problem: Problem
    sites: Integers
    columns: Integers
    numbers: Integers
    direct: bool = False

    def locate(self, sites: Integers) -> tuple[Integers, Integers]:
        """Find the sites of this part among sites (B,) of the joint problem.

        Returns
        -------
        positions : array of int, shape (b,)
            Their positions among the given sites.
        numbers : array of int, shape (b,)
            Their numbers in this part.
        """
        numbers = self.numbers[sites]
        positions = np.flatnonzero(numbers >= 0)
        return positions, numbers[positions]


def _slices(sizes: Iterable[tuple[str, int]]) -> dict[str, slice]:
    slices: dict[str, slice] = {}
    start = 0
    for name, size in sizes:
        slices[name] = slice(start, start + size)
        start += size
    return slices
