"""The whole problem, and its way to the simulator and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from invgp import describing
from invgp.adapters.protocol import ForwardModel
from invgp.problem.beliefs import Latent, Noise
from invgp.problem.settings import InferenceSettings, OutputSettings
from invgp.problem.survey import Floats, Grid, Survey
from invgp.problem.wiring import Wire


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
            parts.append(wire.converted(part))
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
            parts.append(wire.converted(part))
        return np.concatenate(parts, axis=-1)

    def field_from_simulator(self, rows: Floats) -> Floats:
        """A field model's outputs, rows (S, N P) -> (S, N, P), in the observations' order and units.

        An observation with labels comes out site by site, each with all its labels.
        """
        shape = (len(rows), self.survey.size, -1)
        return np.concatenate([part.reshape(shape) for part in self._in_order(rows)], axis=-1)

    def from_inputs(self, rows: Floats) -> tuple[Floats, dict[str, Floats]]:
        """The inverse of `to_simulator`: rows (R, I) -> latent processes (R, Q), and columns (R,) of the sites.

        A process that the simulator does not take is at its prior mean.
        """
        f = np.tile(self.prior()[0], (len(rows), 1))
        taken, columns = self._taken(rows)
        for name, values in taken.items():
            f[:, self.latent_slices[name]] = values
        return f, {name: values[:, 0] for name, values in columns.items()}

    def field_from_inputs(self, rows: Floats) -> tuple[Floats, dict[str, Floats]]:
        """The inverse of `field_to_simulator`: rows (S, I) -> latent processes (S, G, Q), and columns (S, N)."""
        taken, columns = self._taken(rows)
        labels = {name: part.stop - part.start for name, part in self.latent_slices.items()}
        parts = [
            taken[latent.name].reshape(len(rows), labels[latent.name], -1).swapaxes(1, 2) for latent in self.latents
        ]
        return np.concatenate(parts, axis=-1), columns

    def _taken(self, rows: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Of rows (R, I) for the simulator what it takes of each latent, as a process, and of each column."""
        taken: dict[str, Floats] = {}
        columns: dict[str, Floats] = {}
        links = {latent.name: latent.link for latent in self.latents}
        ends = np.cumsum([q.size for q in self.forward.inputs])[:-1]
        for wire, part in zip(self.inputs, np.split(rows, ends, axis=-1), strict=True):
            values = wire.back(part)
            if wire.name in links:
                taken[wire.name] = links[wire.name].inverse(values)
            else:
                columns[wire.name] = values
        return taken, columns

    def from_simulator(self, rows: Floats, samples: int) -> Floats:
        """The simulator's outputs, rows (S B, P) -> (S, B, P), in the observations' order and units."""
        ordered = np.concatenate(self._in_order(rows), axis=-1)
        return ordered.reshape(samples, -1, ordered.shape[-1])

    def _in_order(self, rows: Floats) -> list[Floats]:
        """The simulator's outputs, rows (R, ...), cut by observation, in the observations' order and units."""
        ends = np.cumsum([q.size for q in self.forward.outputs])[:-1]
        by_name = {
            wire.name: wire.converted(part)
            for wire, part in zip(self.outputs, np.split(rows, ends, axis=-1), strict=True)
        }
        return [by_name[o.name] for o in self.survey.observations]


def _slices(sizes: Iterable[tuple[str, int]]) -> dict[str, slice]:
    slices: dict[str, slice] = {}
    start = 0
    for name, size in sizes:
        slices[name] = slice(start, start + size)
        start += size
    return slices
