"""How often runs that went well lack an output, and how many runs make up for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats, Problem

TOO_FEW = 1e-3  # probability that an output of any site is there too seldom, if it is missing at random
MOST = 20  # times as many runs as would do if nothing were missing
NAMED = 3  # outputs of sites


@dataclass
class Gaps:
    """What is missing of runs that went well; an output that was not observed at a site is not missed.

    Attributes
    ----------
    runs : (N,), that went well, by site.
    given : (N, P), how many of them have each output.
    whole : how many have them all.
    """

    observed: NDArray[np.bool_]
    runs: NDArray[np.int64] = field(init=False)
    given: NDArray[np.int64] = field(init=False)
    whole: int = 0

    def __post_init__(self) -> None:
        self.runs = np.zeros(len(self.observed), dtype=np.int64)
        self.given = np.zeros(self.observed.shape, dtype=np.int64)

    def add(self, outputs: Floats, valid: NDArray[np.bool_], sites: NDArray[np.intp]) -> None:
        """A batch of outputs (S, B, P) at different sites (B,), of runs that are `valid` (S, B)."""
        there = valid[..., None] & (np.isfinite(outputs) | ~self.observed[sites])
        self.runs[sites] += np.count_nonzero(valid, axis=0)
        self.given[sites] += np.count_nonzero(there, axis=0)
        self.whole += int(np.count_nonzero(there.all(axis=-1)))

    @property
    def share_whole(self) -> float:
        """Of the runs that went well, those that have all outputs; 1 if there were none."""
        return float(self.whole / self.runs.sum()) if self.runs.any() else 1.0

    @property
    def share_given(self) -> float:
        """Of the runs that went well, those that have the output that is missing most often; 1 if there were none."""
        return float(self.given.sum(axis=0).min() / self.runs.sum()) if self.runs.any() else 1.0

    def never_given(self, problem: Problem) -> str:
        """The outputs that no run of a site has, in words; empty if there are none."""
        names = [
            observation.name if label is None else f"{observation.name}[{label}]"
            for observation in problem.survey.observations
            for label in observation.labels or (None,)
        ]
        never = [(n, k) for n, k in np.argwhere(self.given == 0) if self.runs[n]]
        if not never:
            return ""
        named = ", ".join(f"{names[k]} of site {n + 1}" for n, k in never[:NAMED])
        more = f" and {len(never) - NAMED} more" if len(never) > NAMED else ""
        return f"no run gave {named}{more}: leave the datum empty in the table of sites if the simulator cannot give it"


def runs_for(needed: int, share: float, places: int) -> int:
    """Runs a site, so that enough of them have each output at all places, if it is in this share of them."""
    if not 0.0 < share < 1.0:
        return needed
    from scipy.stats import binom  # noqa: PLC0415 - takes long, and most simulators give all their outputs

    counts = np.arange(needed, MOST * needed)
    return int(counts[np.count_nonzero(binom.cdf(needed - 1, counts[:-1], share) > TOO_FEW / places)])
