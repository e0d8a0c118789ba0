"""Inputs of the regression: the latents and the site columns that the simulator uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class Inputs:
    """Standardised inputs of the regression.

    Parameters
    ----------
    latents : array of int
        Numbers of the latent processes that the simulator takes.
    mean, std : arrays
        Prior mean and standard deviation of these processes, over all sites.
    columns : array, shape (N, C)
        Coordinates and covariates that the simulator takes and that vary, standardised over the sites.
    mixing : array, shape (Q, Q), or None
        From independent processes to those that the simulator takes, as `Problem.mixing`.
    column_moments : dict of str to (float, float)
        Mean and standard deviation of each of these columns over the sites, in their order.
    """

    latents: Integers
    mean: Floats
    std: Floats
    columns: Floats
    mixing: Floats | None = None
    column_moments: dict[str, tuple[float, float]] = field(default_factory=dict)

    @staticmethod
    def of(problem: Problem) -> Inputs:
        """Select the inputs that the problem passes to its simulator."""
        wired = {wire.name for wire in problem.inputs}
        processes = np.arange(problem.latent_count)
        latents = np.concatenate([processes[s] for name, s in problem.latent_slices.items() if name in wired])
        known = (*problem.survey.coordinates, *problem.survey.covariates)
        varying = [c for c in known if c.name in wired and np.ptp(c.values) > 0]
        columns = [c.values for c in varying]
        # With a prior that varies, the inputs vary with its mean, too.
        (_, std), means = problem.prior_moments(), problem.mix(problem.prior_mean_at(problem.survey.locations))
        mean = means[0] + (means - means[0]).mean(axis=0)
        std = np.hypot(std, np.sqrt(((means - mean) ** 2).mean(axis=0)))
        return Inputs(
            latents,
            mean[latents],
            std[latents],
            np.stack([(c - c.mean()) / c.std() for c in columns], axis=-1)
            if columns
            else np.zeros((problem.survey.size, 0)),
            problem.mixing,
            {c.name: (float(c.values.mean()), float(c.values.std())) for c in varying},
        )

    def with_columns(self, values: Mapping[str, Floats]) -> Inputs:
        """Return the inputs of other sites, with values (B,) of the coordinates and covariates."""
        own = [(values[name] - mean) / std for name, (mean, std) in self.column_moments.items()]
        count = len(next(iter(values.values())))
        return replace(self, columns=np.stack(own, axis=-1) if own else np.zeros((count, 0)))

    @property
    def size(self) -> int:
        """Number of inputs, I."""
        return len(self.latents) + int(self.columns.shape[1])

    def rows(self, latents: Floats, sites: Integers) -> Floats:
        """Return the inputs (B, I) for latent values (B, Q) at sites (B,)."""
        latents = latents if self.mixing is None else latents @ self.mixing.T
        return np.concatenate([(latents[:, self.latents] - self.mean) / self.std, self.columns[sites]], axis=-1)

    def rows_of(self, latents: Array, sites: Integers) -> Array:
        """Return the inputs (B, I) as `rows` does, on any array library."""
        xp, backend = array_namespace(latents), backend_of(latents)
        numbers = xp.asarray(self.latents.astype(np.int32), device=backend.device)
        mean, std = backend.asarray(self.mean), backend.asarray(self.std)
        latents = latents if self.mixing is None else latents @ backend.asarray(self.mixing.T)
        standardised = (xp.take(latents, numbers, axis=1) - mean) / std
        return xp.concat([standardised, backend.asarray(self.columns[sites])], axis=1)

    def pull_back(self, gradient: Array, processes: int) -> Array:
        """Convert a gradient (B, I) with respect to the inputs to one (B, Q) with respect to the latents."""
        xp, backend = array_namespace(gradient), backend_of(gradient)
        scaled = gradient[:, : len(self.latents)] / backend.asarray(self.std)
        if len(self.latents) == processes and self.mixing is None:
            return scaled
        spread = np.zeros((len(self.latents), processes))
        spread[np.arange(len(self.latents)), self.latents] = 1.0
        spread = spread if self.mixing is None else spread @ self.mixing
        return scaled @ xp.asarray(spread, dtype=gradient.dtype, device=backend.device)
