"""What stands in for the simulator, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from invgp.emulation.emulator_inputs import Inputs
from invgp.emulation.error_estimate import weighted_mean, weights_of_runs
from invgp.emulation.neighbours import Neighbours
from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import Floats

ROWS_AT_ONCE = 16_384
SAMPLES_LOOKED_AT = 32  # of a site, to see whether they lie among the runs
SHARE_AMONG_RUNS = 0.9  # of those, at least


class Surface(Protocol):
    """A fitted function of the inputs (B, I) at sites (B,)."""

    @property
    def name(self) -> str:
        """In words."""

    def __call__(self, x: Floats, sites: Integers) -> Floats:
        """Outputs (B, P), in typical noise standard deviations."""

    def outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Which inputs lie where there are no runs, (B,)."""


@dataclass(frozen=True)
class Emulator:
    """A regression that was fitted to runs of the simulator.

    Parameters
    ----------
    runs : all runs so far; those without an answer too.
    errors : (R, P), the simulator's answer less that of a fit without the run, in `unit`; NaN where it has none.
    unit : (P,), the typical standard deviation of each output's noise, in the observations' units.
    noise : (N, P), standard deviations of the noise of each site, in `unit`; infinite where nothing was observed.
    name : the regression and the runs it was fitted to, in words.
    error : root mean square of `errors` over the latest runs and all outputs.
    neighbours : where the runs of each site are.
    """

    surface: Surface
    inputs: Inputs
    runs: Runs
    errors: Floats
    unit: Floats
    noise: Floats
    name: str
    error: float
    neighbours: Neighbours

    @property
    def held_out_error(self) -> Floats:
        """Error (R, P) at each run of a fit without it, in noise standard deviations of its site.

        NaN where the run has no answer, 0 where the site has no observation.
        """
        return self.errors / self.noise[self.runs.sites]

    def predict(self, latents: Floats, sites: Integers) -> Floats:
        """Outputs (S, B, P), in the observations' units, at latent values (S, B, Q) of the sites (B,)."""
        samples, batch, _ = latents.shape
        outputs = np.empty((samples, batch, len(self.unit)))
        step = max(ROWS_AT_ONCE // max(samples, 1), 1)
        for i in range(0, batch, step):
            part = slice(i, i + step)
            answers = self.surface(*self._rows(latents[:, part], sites[part]))
            np.multiply(answers.reshape(samples, -1, len(self.unit)), self.unit, out=outputs[:, part])
        return outputs

    def site_error(self, sites: Integers) -> Floats:
        """Error (B,) to expect at each site, in its noise standard deviations; of the output where it is largest.

        Root mean square over the site's own newest runs and those nearest to them; a site without runs is taken to
        be like the nearest site on the map that has some.
        """
        return np.asarray(self.output_error(sites).max(axis=-1))

    def output_error(self, sites: Integers) -> Floats:
        """The same of each output, (B, P); 0 where nothing was observed."""
        squares = weighted_mean(self._weights[sites], self.errors**2)
        return np.sqrt(np.where(np.isinf(self.noise[sites]), 0.0, squares / self.noise[sites] ** 2))

    def among_runs(self, latents: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Whether the values (S, B, Q) of each site lie where there were runs, (B,); elsewhere the error is unknown."""
        few = latents[: min(SAMPLES_LOOKED_AT, len(latents))]
        among = ~self.surface.outside(*self._rows(few, sites))
        return np.asarray(np.mean(among.reshape(len(few), -1), axis=0) >= SHARE_AMONG_RUNS)

    def trusted(self, latents: Floats, sites: Integers, largest_error: float) -> NDArray[np.bool_]:
        """Where (B,) the values (S, B, Q) lie among the runs and the error is at most so many noise stds."""
        return (self.site_error(sites) <= largest_error) & self.among_runs(latents, sites)

    @cached_property
    def _weights(self) -> csr_array:
        return weights_of_runs(self.runs, self.neighbours)

    def _rows(self, latents: Floats, sites: Integers) -> tuple[Floats, Integers]:
        samples, _, processes = latents.shape
        tiled = np.tile(sites, samples)
        return self.inputs.rows(latents.reshape(-1, processes), tiled), tiled
