"""Training data of an emulator: inputs and outputs of all runs so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats

Integers = NDArray[np.intp]


@dataclass(frozen=True)
class Runs:
    """Runs of the simulator, oldest first.

    Parameters
    ----------
    sites : array of int, shape (R,)
        Number of the site of each run, from 0.
    latents : array, shape (R, Q), on the scale of the Gaussian processes
    outputs : array, shape (R, P), in the units of the observations
        NaN where the run failed or has no such output.
    stage : array of int, shape (R,)
        Outer step of each run; -1 for runs of earlier inversions.
    """

    sites: Integers
    latents: Floats
    outputs: Floats
    stage: Integers

    @staticmethod
    def empty(latents: int, outputs: int) -> Runs:
        """Return an empty set of runs with Q = `latents` and P = `outputs`."""
        nothing = np.zeros(0, dtype=np.intp)
        return Runs(nothing, np.zeros((0, latents)), np.zeros((0, outputs)), nothing)

    def append(self, latents: Floats, outputs: Floats, valid: NDArray[np.bool_], sites: Integers, stage: int) -> Runs:
        """Return these runs followed by a batch of new runs.

        Parameters
        ----------
        latents, outputs, valid : arrays, shape (S, B, Q), (S, B, P) and (S, B)
            As in `Simulator.run`.
        sites : array of int, shape (B,)
        stage : int
            Outer step of the new runs.
        """
        samples, outputs = len(latents), np.where(valid[..., None], outputs, np.nan)
        return Runs(
            np.concatenate([self.sites, np.tile(sites, samples)]),
            np.concatenate([self.latents, latents.reshape(-1, latents.shape[-1])]),
            np.concatenate([self.outputs, outputs.reshape(-1, outputs.shape[-1])]),
            np.concatenate([self.stage, np.full(samples * len(sites), stage, dtype=np.intp)]),
        )

    def __len__(self) -> int:
        return len(self.sites)

    @property
    def has_output(self) -> NDArray[np.bool_]:
        """Mask (R,) of the runs with at least one output."""
        return np.asarray(np.isfinite(self.outputs).any(axis=1))

    def since(self, stage: int) -> NDArray[np.bool_]:
        """Return a mask (R,) of the runs of this stage or later."""
        return self.stage >= stage

    def latest(self, at_least: int) -> NDArray[np.bool_]:
        """Return a mask (R,) of the runs of the last stages that together have at least `at_least` runs with output."""
        for stage in np.unique(self.stage)[::-1]:
            if np.count_nonzero(self.has_output & self.since(stage)) >= at_least:
                return self.since(stage)
        return np.ones(len(self), dtype=bool)
