"""Where the runs of each site are, and which other runs are near."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import Floats

MOST_RUNS = 10_000  # among which neighbours are looked for


@dataclass(frozen=True)
class Neighbours:
    """Runs with an answer, in the space of the regression's inputs.

    Parameters
    ----------
    x : (R, I), inputs of all runs.
    scale : (I,), spread of the latest runs.
    numbers : those of the runs among which neighbours are looked for: the latest.
    newest : (R,), whether a run is of the last stage that its site has seen.
    centres : (N, I), mean inputs of each site's newest runs.
    like : (N,), the site itself if it has runs, or the nearest on the map that has.
    """

    x: Floats
    scale: Floats
    numbers: Integers
    newest: NDArray[np.bool_]
    centres: Floats
    like: Integers

    @staticmethod
    def of(runs: Runs, x: Floats, latest: NDArray[np.bool_], X: Floats) -> Neighbours:
        """Of runs with inputs x (R, I), some of them the latest (R,), and sites with coordinates X (N, D)."""
        answered = runs.answered
        if np.any(answered & runs.since(0)):  # runs of earlier inversions were for other posteriors
            answered &= runs.since(0)
        last = np.full(len(X), -1)
        np.maximum.at(last, runs.sites[answered], runs.stage[answered])
        newest = answered & (runs.stage == last[runs.sites])
        count = np.bincount(runs.sites[newest], minlength=len(X))
        centres = np.zeros((len(X), x.shape[1]))
        np.add.at(centres, runs.sites[newest], x[newest])
        like = _nearest_seen(X, np.flatnonzero(count))
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
        """Numbers of the runs nearest to the points (B, I), the nearest first, and their distances, (B, count) each."""
        count = min(count, len(self.numbers))
        distances, found = self._tree.query(points / self.scale, k=np.arange(1, count + 1))
        return self.numbers[np.asarray(found)], np.asarray(distances)

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.x[self.numbers] / self.scale)


def _nearest_seen(X: Floats, seen: Integers) -> Integers:
    scaled = X / _positive(np.ptp(X, axis=0))
    like: Integers = seen[KDTree(scaled[seen]).query(scaled)[1]]
    like[seen] = seen
    return like


def _positive(spread: Floats) -> Floats:
    return np.where(spread > 0, spread, 1.0)
