"""Outputs that are missing in successful runs, and the number of runs that compensates for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats, Problem

TOO_FEW = 1e-3  # probability that an output of any site is available in too few runs, if it is missing at random
MOST = 20  # factor by which the number of runs is increased at most
OUTPUTS_NAMED = 3  # in a message


@dataclass
class MissingOutputs:
    """Counts the missing outputs of successful runs. An output without an observation is never missing.

    Parameters
    ----------
    observed : array of bool, shape (N, P)
        Which data were observed.

    Attributes
    ----------
    runs : array of int, shape (N,)
        Number of successful runs per site.
    available : array of int, shape (N, P)
        Number of successful runs that have each output.
    complete : int
        Number of runs that have all outputs.
    """

    observed: NDArray[np.bool_]
    runs: NDArray[np.int64] = field(init=False)
    available: NDArray[np.int64] = field(init=False)
    complete: int = 0

    def __post_init__(self) -> None:
        self.runs = np.zeros(len(self.observed), dtype=np.int64)
        self.available = np.zeros(self.observed.shape, dtype=np.int64)

    def add(self, outputs: Floats, valid: NDArray[np.bool_], sites: NDArray[np.intp]) -> None:
        """Add a batch.

        Parameters
        ----------
        outputs : array, shape (S, B, P)
            NaN where an output is missing.
        valid : array of bool, shape (S, B)
            Which runs succeeded.
        sites : array of int, shape (B,)
            Numbers of the sites, each at most once.
        """
        there = valid[..., None] & (np.isfinite(outputs) | ~self.observed[sites])
        self.runs[sites] += np.count_nonzero(valid, axis=0)
        self.available[sites] += np.count_nonzero(there, axis=0)
        self.complete += int(np.count_nonzero(there.all(axis=-1)))

    @property
    def complete_share(self) -> float:
        """Fraction of the successful runs that have all outputs; 1 if there were no runs."""
        return float(self.complete / self.runs.sum()) if self.runs.any() else 1.0

    @property
    def smallest_share(self) -> float:
        """Fraction of the successful runs that have the output that is missing most often; 1 without runs."""
        return float(self.available.sum(axis=0).min() / self.runs.sum()) if self.runs.any() else 1.0

    def describe_absent(self, problem: Problem) -> str:
        """Return a sentence about outputs that no run of a site has; empty if there are none."""
        names = [
            observation.name if label is None else f"{observation.name}[{label}]"
            for observation in problem.survey.observations
            for label in observation.labels or (None,)
        ]
        never = [(n, k) for n, k in np.argwhere(self.available == 0) if self.runs[n]]
        if not never:
            return ""
        named = ", ".join(f"{names[k]} of site {n + 1}" for n, k in never[:OUTPUTS_NAMED])
        more = f" and {len(never) - OUTPUTS_NAMED} more" if len(never) > OUTPUTS_NAMED else ""
        return f"no run gave {named}{more}: leave the datum empty in the table of sites if the simulator cannot give it"


def runs_needed(needed: int, share: float, places: int) -> int:
    """Compute how many runs per site are needed.

    Parameters
    ----------
    needed : int
        Number of runs per site that must have each output.
    share : float
        Probability that a run has an output.
    places : int
        Number of outputs of all sites.

    Returns
    -------
    int
        Number of runs per site.
    """
    if not 0.0 < share < 1.0:
        return needed
    from scipy.stats import binom  # noqa: PLC0415 - slow to import, and rarely needed

    counts = np.arange(needed, MOST * needed)
    return int(counts[np.count_nonzero(binom.cdf(needed - 1, counts[:-1], share) > TOO_FEW / places)])
