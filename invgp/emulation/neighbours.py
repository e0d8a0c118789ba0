"""Nearest runs in the space of the regression inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import Floats

MOST_RUNS = 10_000  # most runs in the search tree


@dataclass(frozen=True)
class Neighbours:
    """Runs with outputs, in the space of the regression inputs.

    Parameters
    ----------
    x : array, shape (R, I)
        Inputs of all runs.
    scale : array, shape (I,)
        Standard deviation of the inputs of the latest runs; distances are relative to it.
    numbers : array of int
        Numbers of the runs among which neighbours are searched: the latest.
    newest : array of bool, shape (R,)
        Whether a run is from the last stage with runs at its site.
    centres : array, shape (N, I)
        Mean inputs of the newest runs of each site.
    like : array of int, shape (N,)
        The site itself if it has runs, otherwise the nearest site with runs.
    """

    x: Floats
    scale: Floats
    numbers: Integers
    newest: NDArray[np.bool_]
    centres: Floats
    like: Integers

    @staticmethod
    def of(runs: Runs, x: Floats, latest: NDArray[np.bool_], X: Floats) -> Neighbours:
        """Build from runs with inputs x (R, I), a mask (R,) of the latest runs, and site coordinates X (N, D)."""
        answered = runs.has_output
        if np.any(answered & runs.since(0)):  # runs of earlier inversions came from other posteriors
            answered &= runs.since(0)
        last = np.full(len(X), -1)
        np.maximum.at(last, runs.sites[answered], runs.stage[answered])
        newest = answered & (runs.stage == last[runs.sites])
        count = np.bincount(runs.sites[newest], minlength=len(X))
        centres = np.zeros((len(X), x.shape[1]))
        np.add.at(centres, runs.sites[newest], x[newest])
        like = _nearest_site_with_runs(X, np.flatnonzero(count))
        numbers = np.flatnonzero(answered & latest)
        return Neighbours(
            x=x,
            scale=_positive(x[numbers].std(axis=0)),
            numbers=numbers[:: -(-len(numbers) // MOST_RUNS)],
            newest=newest,
            centres=(centres / np.maximum(count, 1)[:, None])[like],
            like=like,
        )

    def nearest(self, points: Floats, count: int) -> tuple[Integers, Floats]:
        """Find the runs nearest to points (B, I): their numbers and distances (B, count), the nearest first."""
        count = min(count, len(self.numbers))
        distances, found = self._tree.query(points / self.scale, k=np.arange(1, count + 1))
        return self.numbers[np.asarray(found)], np.asarray(distances)

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.x[self.numbers] / self.scale)


def _nearest_site_with_runs(X: Floats, seen: Integers) -> Integers:
    """Return the nearest (N,) of the sites `seen` to each site, by coordinates X (N, D)."""
    scaled = X / _positive(np.ptp(X, axis=0))
    like: Integers = seen[KDTree(scaled[seen]).query(scaled)[1]]
    like[seen] = seen
    return like


def _positive(spread: Floats) -> Floats:
    return np.where(spread > 0, spread, 1.0)
