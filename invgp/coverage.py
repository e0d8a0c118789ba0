"""How often intervals hold the truth, how ranks spread, and how far both stray by chance alone.

K simulated surveys are independent of each other; the sites of one survey share a truth, and are not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrik, ndtri, stdtrit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

INTERVALS = (0.5, 0.8, 0.95)  # probabilities of central intervals
CONFIDENCE = 0.95  # that a calibrated posterior stays inside all the bands of a table
BIN_CONFIDENCE = 0.99  # that it stays inside the band of one bin of a histogram
DRAWS = 99  # from a posterior, so that a truth has 100 ranks among them
BINS = (20, 10, 5, 4)  # each divides the 100 ranks evenly
SURVEYS_PER_BIN = 5


class Coverage(NamedTuple):
    """What share of the truths lies inside central intervals of one probability; arrays of one shape.

    Attributes
    ----------
    share : over all surveys and sites.
    standard_error : of the share, estimated from how surveys differ.
    lower, upper : band in which the share of a calibrated posterior lies.
    """

    share: Floats
    standard_error: Floats
    lower: Floats
    upper: Floats

    @property
    def below(self) -> NDArray[np.bool_]:
        """Where fewer truths lie inside than chance explains: the posterior is overconfident."""
        return np.asarray(self.share < self.lower)

    @property
    def above(self) -> NDArray[np.bool_]:
        """Where more truths lie inside than chance explains: the posterior is too wide."""
        return np.asarray(self.share > self.upper)


def interval_coverage(pit: Floats, probability: float, tests: int = 1) -> Coverage:
    """Coverage of the central intervals of a probability.

    Parameters
    ----------
    pit : (K, N, ...), probability of each truth under its posterior marginal, for K surveys of N sites.
    tests : how many bands are looked at together. They are so wide that a calibrated posterior stays inside all
        of them with probability `CONFIDENCE` (Bonferroni).

    Returns
    -------
    Coverage
        Of arrays (...).
    """
    surveys, sites = pit.shape[:2]
    per_survey = np.mean(np.abs(2.0 * pit - 1.0) <= probability, axis=1)
    # Of one truth alone. It is the error if all sites of a survey stand or fall together and there is one survey;
    # divided by the square root of all sites, it is what even independent sites would have.
    single = np.sqrt(probability * (1.0 - probability))
    tail = 0.5 * (1.0 - CONFIDENCE) / tests
    if surveys > 1:
        error = np.std(per_survey, axis=0, ddof=1) / np.sqrt(surveys)
        error = np.maximum(error, single / np.sqrt(surveys * sites))
        reach = -float(stdtrit(surveys - 1, tail))
    else:
        error = np.full(pit.shape[2:], single)
        reach = -float(ndtri(tail))
    return Coverage(
        np.asarray(np.mean(per_survey, axis=0)),
        np.asarray(error),
        np.asarray(np.maximum(probability - reach * error, 0.0)),
        np.asarray(np.minimum(probability + reach * error, 1.0)),
    )


def bin_count(surveys: int) -> int:
    """Bins of a histogram of one rank a survey: as many as leave five surveys for each."""
    return next((bins for bins in BINS if surveys >= SURVEYS_PER_BIN * bins), BINS[-1])


def rank_counts(ranks: Integers, bins: int) -> Integers:
    """Histogram (bins,) of ranks (K,) among `DRAWS` draws, from 0 to `DRAWS`."""
    return np.bincount(np.asarray(ranks, dtype=np.int64) * bins // (DRAWS + 1), minlength=bins)


def count_band(surveys: int, bins: int) -> tuple[int, int]:
    """Fewest and most of K independent, uniform ranks in one bin: the central binomial interval."""
    tail = 0.5 * (1.0 - BIN_CONFIDENCE)
    lower, upper = np.ceil(np.maximum(bdtrik(np.asarray([tail, 1.0 - tail]), surveys, 1.0 / bins), 0.0))
    return int(lower), int(upper)
