"""Whether runs fail at random, or depending on the latents within the posterior: only the first is harmless.

The runs that an inversion lost at random cost it nothing but their number. If they were lost where the posterior is, by
what their latents were, what it found is the posterior of those latents at which the simulator works.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats, Problem

MOST_KEPT = 200_000  # runs: the latest are those that were made where the posterior is
FEWEST = 5  # failed runs: fewer form no pattern
BULK = 0.99  # of a Gaussian's mass: beyond it, a failure cannot sway the posterior
CHANCE = 0.001  # of a warning though failures are random


class _Batch(NamedTuple):
    latents: Floats
    sites: NDArray[np.intp]
    failed: NDArray[np.bool_]


@dataclass
class Outcomes:
    """Where the simulator was run, and where it failed."""

    batches: deque[_Batch] = field(default_factory=deque)
    runs: int = 0
    failures: int = 0

    def add(self, latents: Floats, sites: NDArray[np.intp], valid: NDArray[np.bool_]) -> None:
        """A batch of latent values (S, B, Q) at sites (B,), of which `valid` (S, B) went well."""
        flat = latents.reshape(-1, latents.shape[-1]), np.tile(sites, len(latents)), ~valid.reshape(-1)
        self.batches.append(_Batch(*flat))
        self.runs += valid.size
        self.failures += int(np.count_nonzero(~valid))
        while self.runs > MOST_KEPT and len(self.batches) > 1:
            dropped = self.batches.popleft().failed
            self.runs -= dropped.size
            self.failures -= int(np.count_nonzero(dropped))

    def pattern(self, problem: Problem, mean: Floats, covariance: Floats) -> list[str]:
        """A sentence, if failures depend on the latents where the posterior (N, Q), (N, Q, Q) is; otherwise none."""
        if self.failures < FEWEST:
            return []
        from scipy.stats import chi2, mannwhitneyu  # noqa: PLC0415 - takes long, and most simulators do not fail

        latents, sites, failed = (np.concatenate(parts) for parts in zip(*self.batches, strict=True))
        away = latents - mean[sites]
        distance = np.einsum("ri,rij,rj->r", away, np.linalg.inv(covariance)[sites], away)
        near = distance <= chi2.ppf(BULK, mean.shape[1])
        bad = failed[near]
        if not FEWEST <= np.count_nonzero(bad) < bad.size:
            return []
        scaled = away[near] / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))[sites[near]]
        # High or low values of a latent, or values that are far from its mean or near to it.
        tests = [mannwhitneyu(side[bad], side[~bad], method="asymptotic") for side in (scaled, np.abs(scaled))]
        chances = np.stack([test.pvalue for test in tests])
        kind, latent = np.unravel_index(np.argmin(chances), chances.shape)
        if chances.min() * chances.size >= CHANCE:
            return []
        more = tests[kind].statistic[latent] > 0.5 * np.count_nonzero(bad) * np.count_nonzero(~bad)
        where = (("low", "high"), ("near its mean", "far from its mean"))[kind][int(more)]
        return [
            f"Failures are not random: {np.count_nonzero(bad)} of {bad.size} runs failed where the posterior is "
            f"({np.mean(bad):.0%}), most of all where {_names(problem)[latent]} is {where}. The posterior leaves out "
            "what the simulator could not compute there, and may be too narrow or in the wrong place."
        ]


def _names(problem: Problem) -> list[str]:
    """The latent processes, as people write them."""
    return [
        latent.name if latent.labels is None else f"{latent.name}[{label}]"
        for latent in problem.latents
        for label in (latent.labels or (None,))
    ]
