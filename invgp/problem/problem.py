"""The inverse problem, its sources of data, and joint problems."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
from invgp.problem.processes_and_rows import ProcessesAndRows, SimulatorVariable
from invgp.problem.sources import Integers, Source, check_can_join, join_noise, join_surveys, select_noise
from invgp.problem.survey import Floats, Grid, Survey
from invgp.settings import InferenceSettings, OutputSettings


@dataclass(frozen=True, repr=False)
class Problem(ProcessesAndRows):
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
    coarse : ForwardModel or None
        A cheaper model with the inputs and outputs of `forward`, which corrects it.
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
    coarse: ForwardModel | None = None

    @property
    def stored_draws(self) -> int:
        """Number of draws that the posterior stores: `output.realizations`, or the default for its size."""
        points = self.survey.size if self.grid is None else self.grid.size
        return self.output.stored_draws(points * self.latent_count)

    @cached_property
    def noise_std(self) -> Floats:
        """Standard deviation of the noise, (N, P)."""
        nothing = np.empty((self.survey.size, 0))
        return np.concatenate([nothing, *(self.noise.std[o.name] for o in self.survey.observations)], axis=-1)

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

    @property
    def with_coarse_model(self) -> Problem | None:
        """The problem with the coarse models of all simulators in their place; None if there are none."""
        if self.coarse is None:
            return None
        sources = tuple(
            source if source.coarse is None else replace(source, forward=source.coarse, coarse=None)
            for source in self.sources
        )
        own = self.with_inference(max_runs=self.inference.max_coarse_runs)
        return replace(own, forward=self.coarse, coarse=None, sources=sources)

    def join(self, others: Mapping[str, Problem], *, direct: Collection[str] = ()) -> Problem:
        """Return the joint problem of this one and others with the same coordinates; latents are shared by name.

        Parameters
        ----------
        others : mapping of str to Problem
            Problems without further sources, by the names of their sources: site models or, if this one is a field
            model, also field models on the same grid. Latents that this problem does not have are added; for the others
            its own priors hold.
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
            if name in [part.name for part in self.parts]:
                raise ArgumentError(f"others: must have names of their own, was {name!r}")
            if other.sources:
                raise ArgumentError(f"others: must have one source each, {name!r} had {len(other.parts)}")
            check_can_join(self, other, name)
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
                single_sites=self.grid is not None and p.grid is None,
                coarse=p.coarse,
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
        simulated = [part for part in left if not part.direct]
        if not simulated:
            raise ArgumentError(f"without: must leave a source with a simulator, was {join_names(names)}")
        # Site models are joined to field models; without any field model, all that is left is a site model.
        first = next((part for part in simulated if part.problem.grid is not None), simulated[0])
        start = replace(first.problem, first_source=first.name)
        others = {part.name: part.problem for part in left if part is not first}
        joined = start.join(others, direct=[part.name for part in left if part.direct]) if others else start
        observed = ("", *joined.observation_slices)  # a discrepancy is left out with its observation
        return replace(joined, latents=tuple(latent for latent in joined.latents if latent.discrepancy_of in observed))

    def source(self, name: str | None = None) -> Problem:
        """Return the problem of one source with a simulator, such as ``"survey"``, without the data of the others.

        Parameters
        ----------
        name : str, optional
            Name of the source; by default the first.

        Returns
        -------
        Problem

        Raises
        ------
        ConfigError
            There is no such source, or its data are direct and need no simulator.
        """
        simulated = {part.name: part.problem for part in self.parts if not part.direct}
        if name is not None and name not in simulated:
            raise ArgumentError(
                f"source: must be a source with a simulator, {join_names(simulated, 'or')}, was {name!r}"
            )
        return next(iter(simulated.values())) if name is None else simulated[name]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The sources of the data, each as a problem of its own; first that of `forward`."""
        if not self.sources:
            everything = np.arange(self.survey.size)
            return (Part(self.first_source, self, everything, np.arange(self.noise_std.shape[1]), everything),)
        elsewhere = np.concatenate([source.sites for source in self.sources])
        own = np.setdiff1d(np.arange(self.survey.size), elsewhere)
        first = Source(self.first_source, own, self.forward, self.inputs, self.outputs, coarse=self.coarse)
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
                coarse=None,
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
            grid=None if source.single_sites else self.grid,
            coarse=source.coarse,
        )
        if source.runs_per_site is not None:
            problem = problem.with_inference(runs_per_site=source.runs_per_site)
        all_columns = np.arange(self.noise_std.shape[1])
        columns = np.concatenate([all_columns[self.observation_slices[name]] for name in wanted])
        numbers = np.full(self.survey.size, -1, dtype=np.intp)
        numbers[source.sites] = np.arange(len(source.sites))
        return Part(source.name, problem, source.sites, columns, numbers, direct=source.direct)

    @cached_property
    def nodes(self) -> Floats:
        """Points (G + n, D) of the latents of a field model: nodes of the grid, then sites of all site models."""
        if self.grid is None:
            raise ValueError("the problem has no grid")
        if not self.has_fields:  # scalars are the same everywhere
            return np.repeat(self.grid.X, 1 + sum(len(part.sites) for part in self._site_models), axis=0)
        return np.concatenate([self.grid.X, *(part.problem.survey.X for part in self._site_models)])

    def nodes_of(self, part: Part) -> slice:
        """Return the positions among `nodes` of the points whose latents the simulator of a source takes.

        Parameters
        ----------
        part : Part
            The source.

        Returns
        -------
        slice

        Raises
        ------
        ValueError
            The problem has no grid.
        """
        if self.grid is None:
            raise ValueError("the problem has no grid")
        start = self.grid.size
        for one in self._site_models:
            if one.name == part.name:
                return slice(start, start + len(one.sites))
            start += len(one.sites)
        return slice(0, self.grid.size)

    @property
    def _site_models(self) -> list[Part]:
        """The site models among the sources of a field model."""
        return [part for part in self.parts if not part.direct and part.problem.grid is None]

    @property
    def runs_per_field(self) -> int:
        """Number of runs that evaluate all data of a field model once: one, or for a site model one per site."""
        return sum(len(p.sites) if p.problem.grid is None else 1 for p in self.parts if not p.direct)

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
