"""Coverage of intervals and ranks of truths, with their chance variations.

K simulated surveys are independent of each other; the sites of one survey are not, because they share a truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrik, ndtri, stdtrit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

INTERVALS = (0.5, 0.8, 0.95)  # probabilities of central intervals
CONFIDENCE = 0.95  # probability that a calibrated posterior is inside all bands of a table
BIN_CONFIDENCE = 0.99  # probability that it is inside the band of one bin of a histogram
DRAWS = 99  # per posterior, so that there are 100 ranks
BINS = (20, 10, 5, 4)  # each divides the 100 ranks evenly
SURVEYS_PER_BIN = 5


class Coverage(NamedTuple):
    """Fraction of truths inside central intervals of one probability.

    Attributes
    ----------
    share : array
        Fraction over all surveys and sites.
    standard_error : array
        Standard error of the fraction, estimated from the variation between surveys.
    lower, upper : array
        Band of the fraction for a calibrated posterior.
    """

    share: Floats
    standard_error: Floats
    lower: Floats
    upper: Floats

    @property
    def below(self) -> NDArray[np.bool_]:
        """Whether fewer truths are inside than chance explains: the posterior is overconfident."""
        return np.asarray(self.share < self.lower)

    @property
    def above(self) -> NDArray[np.bool_]:
        """Whether more truths are inside than chance explains: the posterior is too wide."""
        return np.asarray(self.share > self.upper)


def interval_coverage(pit: Floats, probability: float, tests: int = 1) -> Coverage:
    """Return the coverage of central intervals.

    Parameters
    ----------
    pit : array, shape (K, N, ...)
        Cumulative probability of each truth under its posterior marginal, for K surveys of N sites.
    probability : float
        Probability of the intervals.
    tests : int
        Number of bands that are assessed together. A calibrated posterior is inside all of them with the probability
        `CONFIDENCE` (Bonferroni).

    Returns
    -------
    Coverage
        With arrays of shape (...).
    """
    surveys, sites = pit.shape[:2]
    per_survey = _shares_inside(pit, probability)
    # Standard error for one truth, and the band of a calibrated posterior: its error is that of the nominal
    # coverage, not that of the observed one, which a wrong posterior changes.
    single = np.sqrt(probability * (1.0 - probability))
    expected = single * np.sqrt(dependence_of_sites(pit) / surveys)
    tail = 0.5 * (1.0 - CONFIDENCE) / tests
    if surveys > 1:
        error = np.std(per_survey, axis=0, ddof=1) / np.sqrt(surveys)
        error = np.maximum(error, single / np.sqrt(surveys * sites))  # that of independent sites
        reach = -float(stdtrit(surveys - 1, tail))
    else:
        error = np.full(pit.shape[2:], single)
        reach = -float(ndtri(tail))
    return Coverage(
        np.asarray(np.mean(per_survey, axis=0)),
        np.asarray(error),
        np.asarray(np.maximum(probability - reach * expected, 0.0)),
        np.asarray(np.minimum(probability + reach * expected, 1.0)),
    )


def dependence_of_sites(pit: Floats) -> Floats:
    """Return the variance of the coverage of one survey, divided by that of a single truth.

    It is 1 / N for independent sites, and 1 if all sites of a survey are inside the interval or none (the design effect
    of cluster samples, divided by N). The variance is divided by that of the *observed* coverage, so that the result
    describes the dependence of the sites whether the posterior is calibrated or not.

    Parameters
    ----------
    pit : array, shape (K, N, ...)
        Cumulative probability of each truth under its posterior marginal.

    Returns
    -------
    array, shape (...)
        Largest value over `INTERVALS`; 1 if it cannot be estimated, because there is one survey, or because each
        interval contains all truths or none.
    """
    surveys, sites = pit.shape[:2]
    largest = np.full(pit.shape[2:], -np.inf)
    if surveys > 1:
        for probability in INTERVALS:
            per_survey = _shares_inside(pit, probability)
            share, variance = np.mean(per_survey, axis=0), np.var(per_survey, axis=0, ddof=1)
            # share * (1 - share) is too small, on average by the variance of the share.
            single = share * (1.0 - share) + variance / surveys
            largest = np.maximum(
                largest, np.divide(variance, single, out=np.full_like(single, -np.inf), where=single > 0)
            )
    return np.asarray(np.where(np.isfinite(largest), np.clip(largest, 1.0 / sites, 1.0), 1.0))


def _shares_inside(pit: Floats, probability: float) -> Floats:
    """Return the share (K, ...) of the sites of each survey whose truth is inside the central interval."""
    return np.asarray(np.mean(np.abs(2.0 * pit - 1.0) <= probability, axis=1))


def bin_count(surveys: int) -> int:
    """Return the number of bins of a histogram with one rank per survey: at least five surveys per bin if possible."""
    return next((bins for bins in BINS if surveys >= SURVEYS_PER_BIN * bins), BINS[-1])


def rank_counts(ranks: Integers, bins: int) -> Integers:
    """Return the histogram (bins,) of ranks (K,) from 0 to `DRAWS`."""
    return np.bincount(np.asarray(ranks, dtype=np.int64) * bins // (DRAWS + 1), minlength=bins)


def count_band(surveys: int, bins: int) -> tuple[int, int]:
    """Return the central binomial interval of the number of uniform ranks in one bin."""
    tail = 0.5 * (1.0 - BIN_CONFIDENCE)
    lower, upper = np.ceil(np.maximum(bdtrik(np.asarray([tail, 1.0 - tail]), surveys, 1.0 / bins), 0.0))
    return int(lower), int(upper)
