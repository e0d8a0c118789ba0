"""What the answer of a simulator depends on: latents, and what differs from site to site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invgp.emulation.training_runs import Integers
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class Inputs:
    """The inputs of the regression, of order one.

    Parameters
    ----------
    latents : numbers of the latent processes that the simulator takes.
    mean, std : of their prior.
    columns : (N, C), coordinates and covariates that the simulator takes and that vary, standardised over the sites.
    """

    latents: Integers
    mean: Floats
    std: Floats
    columns: Floats

    @staticmethod
    def of(problem: Problem) -> Inputs:
        """The inputs that the problem wires to its simulator."""
        wired = {wire.name for wire in problem.inputs}
        processes = np.arange(problem.latent_count)
        latents = np.concatenate([processes[s] for name, s in problem.latent_slices.items() if name in wired])
        known = (*problem.survey.coordinates, *problem.survey.covariates)
        columns = [c.values for c in known if c.name in wired and np.ptp(c.values) > 0]
        mean, std = problem.prior()
        return Inputs(
            latents,
            mean[latents],
            std[latents],
            np.stack([(c - c.mean()) / c.std() for c in columns], axis=-1)
            if columns
            else np.zeros((problem.survey.size, 0)),
        )

    @property
    def size(self) -> int:
        """Number of inputs, I."""
        return len(self.latents) + int(self.columns.shape[1])

    def rows(self, latents: Floats, sites: Integers) -> Floats:
        """Inputs (B, I) of latent values (B, Q) at the sites (B,)."""
        return np.concatenate([(latents[:, self.latents] - self.mean) / self.std, self.columns[sites]], axis=-1)
