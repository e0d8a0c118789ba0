"""Failed runs and missing outputs: whether runs fail at random, and which outputs successful runs lack.

Runs that fail at random do not bias the posterior. If the failures depend on the latents where the posterior has its
mass, the result is the posterior of the latents for which the simulator works.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.formatting import count_noun
from invgp.problem import Floats, Problem

MOST_RUNS = 200_000  # the latest ones, which were made where the posterior has its mass
FEWEST_FAILURES = 5  # fewer do not form a pattern
BULK = 0.99  # probability mass of the Gaussian in which failures are counted
FALSE_ALARM = 0.001  # probability of a warning if failures are random


class _Batch(NamedTuple):
    latents: Floats
    sites: NDArray[np.intp]
    failed: NDArray[np.bool_]


@dataclass
class RunOutcomes:
    """The latents at which the simulator was run, and whether it failed there.

    Attributes
    ----------
    batches : deque
        The latest batches.
    runs, failures : int
        Number of runs and of failed runs in `batches`.
    """

    batches: deque[_Batch] = field(default_factory=deque)
    runs: int = 0
    failures: int = 0

    def add(self, latents: Floats, sites: NDArray[np.intp], valid: NDArray[np.bool_]) -> None:
        """Add a batch.

        Parameters
        ----------
        latents : array, shape (S, B, Q)
            On the scale of the processes.
        sites : array of int, shape (B,)
            Numbers of the sites.
        valid : array of bool, shape (S, B)
            Which runs succeeded.
        """
        flat = latents.reshape(-1, latents.shape[-1]), np.tile(sites, len(latents)), ~valid.reshape(-1)
        self.batches.append(_Batch(*flat))
        self.runs += valid.size
        self.failures += int(np.count_nonzero(~valid))
        while self.runs > MOST_RUNS and len(self.batches) > 1:
            dropped = self.batches.popleft().failed
            self.runs -= dropped.size
            self.failures -= int(np.count_nonzero(dropped))

    def find_pattern(self, problem: Problem, mean: Floats, covariance: Floats) -> list[str]:
        """Test whether failures depend on the latents where the posterior has its mass.

        Parameters
        ----------
        problem : Problem
        mean : array, shape (N, Q)
            Posterior mean at each site.
        covariance : array, shape (N, Q, Q)
            Posterior covariance at each site.

        Returns
        -------
        list of str
            One sentence if they do, otherwise empty.
        """
        if self.failures < FEWEST_FAILURES:
            return []
        from scipy.stats import chi2, mannwhitneyu  # noqa: PLC0415 - slow to import, and rarely needed

        latents, sites, failed = (np.concatenate(parts) for parts in zip(*self.batches, strict=True))
        away = latents - mean[sites]
        distance = np.einsum("ri,rij,rj->r", away, np.linalg.inv(covariance)[sites], away)
        near = distance <= chi2.ppf(BULK, mean.shape[1])
        bad = failed[near]
        if not FEWEST_FAILURES <= np.count_nonzero(bad) < bad.size:
            return []
        scaled = away[near] / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))[sites[near]]
        # Tests for high or low values of a latent, and for values far from or near to its mean.
        tests = [mannwhitneyu(side[bad], side[~bad], method="asymptotic") for side in (scaled, np.abs(scaled))]
        chances = np.stack([test.pvalue for test in tests])
        kind, latent = np.unravel_index(np.argmin(chances), chances.shape)
        if chances.min() * chances.size >= FALSE_ALARM:
            return []
        more = tests[kind].statistic[latent] > 0.5 * np.count_nonzero(bad) * np.count_nonzero(~bad)
        where = (("low", "high"), ("near its mean", "far from its mean"))[kind][int(more)]
        return [
            f"Failures are not random: {np.count_nonzero(bad)} of {bad.size} runs failed where the posterior is "
            f"({np.mean(bad):.0%}), most of all where {_latent_names(problem)[latent]} is {where}. The posterior "
            "leaves out what the simulator could not compute there, and may be too narrow or in the wrong place."
        ]


def _latent_names(problem: Problem) -> list[str]:
    """Return the name of each process, such as ``depth[1]``."""
    return [
        latent.name if latent.labels is None else f"{latent.name}[{label}]"
        for latent in problem.latents
        for label in (latent.labels or (None,))
    ]


class FailedRuns(NamedTuple):
    """The failed runs of a simulator, for users.

    Attributes
    ----------
    runs, failed : int
        Number of runs, and of those that failed.
    causes : str
        Number of failed runs by cause.
    messages : tuple of str
        Messages of the first ones, which name their directory.
    """

    runs: int = 0
    failed: int = 0
    causes: str = ""
    messages: tuple[str, ...] = ()

    def describe(self, runs: str, largest_share: float) -> str:
        """Describe them, and compare their share with `inference.max_failed_share`.

        Parameters
        ----------
        runs : str
            Which runs these are, such as ``"at draws from the prior"``.
        largest_share : float
            `inference.max_failed_share`.

        Returns
        -------
        str
            A sentence about number and causes, and a line with the first message.
        """
        share = self.failed / self.runs
        compared = "more" if share > largest_share else "not more"
        opening = (
            f"{self.failed:,} of {count_noun(self.runs, 'run')} {runs} failed: {share:.0%}, {compared} than "
            f"inference.max_failed_share = {largest_share:g}; causes: {self.causes}"
        )
        return "\n  ".join([opening, *self.messages[:1]])


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
        """Return a sentence about outputs that no run of a site has; empty if there are none.

        Parameters
        ----------
        problem : Problem

        Returns
        -------
        str
        """
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
