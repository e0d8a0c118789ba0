"""Scores of predictions on the data after the training set, and tables of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from data import Floats, Split

OURS = "black box, stochastic"
PARTS = 5  # of the test set


class Score(NamedTuple):
    """Errors (N,) in the unit of y and log predictive densities (N,) of standardised y, after the training set."""

    errors: Floats
    densities: Floats
    seconds: float

    @property
    def rmse(self) -> float:
        """Root mean square error."""
        return float(np.sqrt(np.mean(self.errors**2)))

    @property
    def nlpd(self) -> float:
        """Negative log predictive density."""
        return float(-np.mean(self.densities))

    def parts(self, count: int) -> list[Score]:
        """Return the scores of consecutive parts of the test set."""
        pieces = (np.array_split(values, count) for values in (self.errors, self.densities))
        return [Score(*piece, self.seconds) for piece in zip(*pieces, strict=True)]


def score(split: Split, mean: Floats, variance: Floats, noise: float, seconds: float) -> Score:
    """Score Gaussian predictions with this latent mean and variance, and noise (standard deviation)."""
    total, error = variance + noise**2, split.y_test - mean
    return Score(split.scale * error, -0.5 * error**2 / total - 0.5 * np.log(2.0 * np.pi * total), seconds)


def average_scores(scores: Sequence[Score], measure: str) -> float:
    """Average a measure over data sets."""
    return float(np.mean([getattr(one, measure) for one in scores]))


def print_table(split: Split, ways: Mapping[str, Sequence[Score]]) -> None:
    """Print one row per method, with means over the data sets."""
    sets = len(ways[OURS])
    print(f"{len(split.y):,} for training, {len(split.y_test):,} that follow for the test, sets: {sets}")
    print(f"{'':34}{'RMSE, ' + split.unit:>12}{'NLPD':>9}{'CPU s':>9}")
    for way, scores in ways.items():
        rmse, nlpd, seconds = (average_scores(scores, measure) for measure in ("rmse", "nlpd", "seconds"))
        print(f"{way:34}{rmse:12.4f}{nlpd:9.4f}{seconds:9.1f}")
    if split.floor is not None:
        print(f"{'the function itself':34}{split.floor:12.4f}")


def rows(split: Split, ways: Mapping[str, Sequence[Score]]) -> list[dict[str, object]]:
    """Compare our scores with each other method; the spread is the standard error of the mean difference."""
    setting, listed = f"{len(split.y):,} for training", []
    for way in [way for way in ways if way != OURS]:
        for measure, name in (("rmse", f"RMSE, {split.unit}"), ("nlpd", "NLPD")):
            ours, theirs = (average_scores(ways[which], measure) for which in (OURS, way))
            pairs = zip(pieces(ways[OURS]), pieces(ways[way]), strict=True)
            apart = [getattr(a, measure) - getattr(b, measure) for a, b in pairs]
            row = {"measure": name, "setting": setting, "ours": ours, "spread": standard_error(apart)}
            listed.append(row | {"reference": theirs, "source": way})
    return [*listed, {"measure": "CPU seconds", "setting": setting, "ours": average_scores(ways[OURS], "seconds")}]


def standard_error(values: Sequence[float]) -> float:
    """Compute the standard error of the mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def pieces(scores: Sequence[Score]) -> Sequence[Score]:
    """Return the scores over which differences are averaged: the data sets, or parts of the only one."""
    return scores if len(scores) > 1 else scores[0].parts(PARTS)
