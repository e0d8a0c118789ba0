"""Everything the simulator was asked so far, and what it answered."""

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
    sites : (R,), number of the site of each run, from 0.
    latents : (R, Q), on the scale of the Gaussian process.
    outputs : (R, P), in the observations' order and units; NaN where the run, or that output of it, failed.
    stage : (R,), the outer step that made it.
    """

    sites: Integers
    latents: Floats
    outputs: Floats
    stage: Integers

    @staticmethod
    def none(latents: int, outputs: int) -> Runs:
        """No runs yet, of Q latents and P outputs."""
        nothing = np.zeros(0, dtype=np.intp)
        return Runs(nothing, np.zeros((0, latents)), np.zeros((0, outputs)), nothing)

    def plus(self, latents: Floats, outputs: Floats, valid: NDArray[np.bool_], sites: Integers, stage: int) -> Runs:
        """These runs and a batch of new ones, as `Simulator.run` takes and returns it.

        Parameters
        ----------
        latents, outputs, valid : (S, B, Q), (S, B, P) and (S, B).
        sites : (B,).
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
    def answered(self) -> NDArray[np.bool_]:
        """Which runs gave any output, (R,)."""
        return np.asarray(np.isfinite(self.outputs).any(axis=1))

    def since(self, stage: int) -> NDArray[np.bool_]:
        """Which runs were made at that stage or later, (R,)."""
        return self.stage >= stage

    def latest(self, at_least: int) -> NDArray[np.bool_]:
        """Which runs belong to the last stages that have so many runs with an answer, (R,); all if none have."""
        for stage in np.unique(self.stage)[::-1]:
            if np.count_nonzero(self.answered & self.since(stage)) >= at_least:
                return self.since(stage)
        return np.ones(len(self), dtype=bool)
