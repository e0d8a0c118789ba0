"""Conversion between latent processes, rows of simulator inputs and outputs, and observations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import ForwardModel
from invgp.problem.prior_and_noise import Latent, Noise
from invgp.problem.survey import Floats, Grid, Survey
from invgp.settings import InferenceSettings
from invgp.units import IDENTITY, Conversion


@dataclass(frozen=True)
class SimulatorVariable:
    """An input or an output of the simulator.

    Parameters
    ----------
    name : str
        Name of the latent, covariate or coordinate (for an input) or of the observation (for an output).
    conversion : Conversion
        For an input, from the unit of the problem to that of the simulator; for an output, the other way round.
    """

    name: str
    conversion: Conversion = IDENTITY

    def convert(self, values: Floats) -> Floats:
        """Return values in the target unit of the conversion.

        Parameters
        ----------
        values : array
            Values in the source unit of the conversion.

        Returns
        -------
        array, same shape
        """
        return values * self.conversion.factor + self.conversion.offset

    def convert_back(self, values: Floats) -> Floats:
        """Return values in the source unit of the conversion: the inverse of `convert`.

        Parameters
        ----------
        values : array
            Values in the target unit of the conversion.

        Returns
        -------
        array, same shape
        """
        return (values - self.conversion.offset) / self.conversion.factor


class ProcessesAndRows:
    """What a problem knows about the order, the links and the units of its variables; see `Problem`."""

    survey: Survey
    latents: tuple[Latent, ...]
    noise: Noise
    inference: InferenceSettings
    forward: ForwardModel
    inputs: tuple[SimulatorVariable, ...]
    outputs: tuple[SimulatorVariable, ...]
    grid: Grid | None
    coarse: ForwardModel | None

    @property
    def latent_count(self) -> int:
        """Number of latent processes, Q."""
        return sum(latent.size for latent in self.latents)

    @cached_property
    def latent_slices(self) -> dict[str, slice]:
        """Columns of each latent among the Q processes."""
        return _slices((latent.name, latent.size) for latent in self.latents)

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """Names of the latents that are scalars."""
        return tuple(latent.name for latent in self.latents if latent.is_scalar)

    @property
    def has_fields(self) -> bool:
        """Whether a latent depends on the position: not all are scalars."""
        return len(self.scalars) < len(self.latents)

    @cached_property
    def observation_slices(self) -> dict[str, slice]:
        """Columns of each observation among the P outputs."""
        return _slices((o.name, o.values.shape[1]) for o in self.survey.observations)

    @cached_property
    def prior_correlation(self) -> Floats | None:
        """Prior correlation (Q, Q) between the latents at a point, on the scale of links; None if independent."""
        names = [latent.name for latent in self.latents]
        if not any(latent.correlated_with or latent.label_correlation is not None for latent in self.latents):
            return None
        pairs = np.eye(len(names))
        for i, latent in enumerate(self.latents):
            for other, value in latent.correlated_with.items():
                if other in names:  # not all sources of a joint problem have all latents
                    pairs[i, names.index(other)] = pairs[names.index(other), i] = value
        found = np.zeros((self.latent_count, self.latent_count))
        for i, a in enumerate(self.latents):
            for j, b in enumerate(self.latents):
                if pairs[i, j]:
                    labels = np.eye(a.size) if a.label_correlation is None else a.label_correlation
                    found[self.latent_slices[a.name], self.latent_slices[b.name]] = pairs[i, j] * labels
        return found

    @cached_property
    def mixing(self) -> Floats | None:
        """M (Q, Q): with independent processes h, the arguments of the links are M h; None if these are independent.

        Inference sees only the independent processes. They have the standard deviations of the arguments of the links.
        """
        if self.prior_correlation is None:
            return None
        std = np.concatenate([latent.link.prior_to_process(latent.mean, latent.std)[1] for latent in self.latents])
        return np.asarray(std[:, None] * np.linalg.cholesky(self.prior_correlation) / std)

    def mix(self, h: Floats) -> Floats:
        """Convert independent processes (..., Q) to the arguments (..., Q) of the links.

        Parameters
        ----------
        h : array, shape (..., Q)
            Independent processes.

        Returns
        -------
        array, shape (..., Q)
        """
        return h if self.mixing is None else h @ self.mixing.T

    def unmix(self, f: Floats) -> Floats:
        """Convert arguments (..., Q) of the links to independent processes (..., Q).

        Parameters
        ----------
        f : array, shape (..., Q)
            Arguments of the links.

        Returns
        -------
        array, shape (..., Q)
        """
        return f if self.mixing is None else np.asarray(np.linalg.solve(self.mixing, f[..., None])[..., 0])

    @cached_property
    def discrepancy_map(self) -> Floats | None:
        """D (Q, P): processes f (..., Q) add f D to the outputs of the simulators; None without discrepancies."""
        found = np.zeros((self.latent_count, sum(o.values.shape[1] for o in self.survey.observations)))
        mixing = np.eye(self.latent_count) if self.mixing is None else self.mixing
        for latent in self.latents:
            if latent.discrepancy_of in self.observation_slices:
                found[:, self.observation_slices[latent.discrepancy_of]] += mixing[self.latent_slices[latent.name]].T
        return found if found.any() else None

    def add_discrepancy(self, outputs: Floats, f: Floats) -> Floats:
        """Return the outputs (..., P) of the simulator plus the discrepancies among latent processes f (..., Q).

        Parameters
        ----------
        outputs : array, shape (..., P), in the units of the observations
            Outputs of the simulator.
        f : array, shape (..., Q)
            Latent processes.

        Returns
        -------
        array, shape (..., P), in the units of the observations
        """
        return outputs if self.discrepancy_map is None else outputs + f @ self.discrepancy_map

    def prior_moments(self) -> tuple[Floats, Floats]:
        """Return the prior mean and standard deviation, (Q,) each, of the latent processes; with maps, nominal ones."""
        pairs = [latent.link.prior_to_process(latent.mean, latent.std) for latent in self.latents]
        return self.unmix(np.concatenate([m for m, _ in pairs])), np.concatenate([s for _, s in pairs])

    @cached_property
    def points(self) -> Floats:
        """Points of the latents: the locations of the sites, (N, D) or (N, 2 D), or the nodes of the grid, (G, D)."""
        return self.survey.locations if self.grid is None else self.grid.X

    @cached_property
    def prior_mean(self) -> Floats:
        """Prior mean (N, Q) of the latent processes at the sites, or (G, Q) at the nodes of the grid."""
        return self.prior_mean_at(self.points)

    def prior_mean_at(self, X: Floats) -> Floats:
        """Return the prior mean (B, Q) of the latent processes at points X, (B, D) or (B, 2 D); NaN outside a map.

        Parameters
        ----------
        X : array, shape (B, D), or (B, 2 D)
            Points, or centres and half-widths of intervals, in the units of the coordinates.

        Returns
        -------
        array, shape (B, Q)
        """
        coordinates = len((self.survey if self.grid is None else self.grid).coordinates)
        return self.unmix(np.concatenate([latent.process_mean(X, coordinates) for latent in self.latents], axis=-1))

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
        f = self.mix(f)
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
            Inputs, in the units of the simulator. A latent with labels is passed label by label, each with all nodes;
            a scalar is one number, or one per label.
        """
        site_columns = {c.name: c.values for c in (*self.survey.coordinates, *self.survey.covariates)}
        parts = []
        for variable in self.inputs:
            if variable.name in self.latent_slices:
                of_latent = values[..., self.latent_slices[variable.name]]
                if variable.name in self.scalars:
                    of_latent = of_latent[:, :1]  # the same at all nodes
                part = of_latent.swapaxes(1, 2).reshape(len(values), -1)
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
        f = np.tile(self.mix(self.prior_moments()[0]), (len(rows), 1))
        links = {latent.name: latent.link for latent in self.latents}
        latents, columns = self._split_inputs(rows)
        for name, values in latents.items():
            f[:, self.latent_slices[name]] = links[name].inverse(values)
        return self.unmix(f), {name: values[:, 0] for name, values in columns.items()}

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
        links = {latent.name: latent.link for latent in self.latents}
        latents, columns = self._split_inputs(rows)
        nodes = 0 if self.grid is None else self.grid.size
        f = np.tile(self.mix(self.prior_mean) if nodes else np.zeros((0, self.latent_count)), (len(rows), 1, 1))
        for name, values in latents.items():
            part = self.latent_slices[name]
            by_node = values.reshape(len(rows), part.stop - part.start, -1).swapaxes(1, 2)
            f[..., part] = links[name].inverse(by_node)  # a scalar has one number for all nodes
        return self.unmix(f), columns

    def _split_inputs(self, rows: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Split rows (R, I) of simulator inputs into values of latents and columns, by name, in their units."""
        latents: dict[str, Floats] = {}
        columns: dict[str, Floats] = {}
        ends = np.cumsum([q.size for q in self.forward.inputs])[:-1]
        for variable, part in zip(self.inputs, np.split(rows, ends, axis=-1), strict=True):
            values = variable.convert_back(part)
            (latents if variable.name in self.latent_slices else columns)[variable.name] = values
        return latents, columns

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
