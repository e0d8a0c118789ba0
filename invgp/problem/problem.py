"""The inverse problem, and the conversion of latents to simulator inputs and of outputs to observations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import ForwardModel
from invgp.problem import summary
from invgp.problem.prior_and_noise import Latent, Noise
from invgp.problem.simulator_variables import SimulatorVariable
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
        return summary.format_text(*self._summary())

    def _repr_html_(self) -> str:
        return summary.format_html(*self._summary())

    def _summary(self) -> tuple[str, summary.Tables]:
        line = summary.summary_line(self.title, self.survey, self.latents, self.forward.name)
        return line, summary.summary_tables(self.survey, self.noise, self.latents)

    def prior_moments(self) -> tuple[Floats, Floats]:
        """Return the prior mean and standard deviation, (Q,) each, of the latent processes."""
        pairs = [latent.link.prior_to_process(latent.mean, latent.std) for latent in self.latents]
        return np.concatenate([m for m, _ in pairs]), np.concatenate([s for _, s in pairs])

    def to_physical(self, f: Floats) -> Floats:
        """Convert latent processes (..., Q) to physical values (..., Q), in the units of the latents."""
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
            Latent processes.
        columns : dict of str to array, shape (S, N)
            Coordinates and covariates among the inputs.
        """
        processes, columns = self._split_inputs(rows)
        labels = {name: part.stop - part.start for name, part in self.latent_slices.items()}
        parts = [
            processes[latent.name].reshape(len(rows), labels[latent.name], -1).swapaxes(1, 2) for latent in self.latents
        ]
        return np.concatenate(parts, axis=-1), columns

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


def _slices(sizes: Iterable[tuple[str, int]]) -> dict[str, slice]:
    slices: dict[str, slice] = {}
    start = 0
    for name, size in sizes:
        slices[name] = slice(start, start + size)
        start += size
    return slices
