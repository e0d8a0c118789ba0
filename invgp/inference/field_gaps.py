"""Runs of a field model that lack some of their outputs."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from invgp.problem import Floats


def filled(outputs: Floats, covariance: Floats) -> Floats:
    """Outputs (n, D) with what the runs that have an output expect of it where others lack it, NaN.

    Parameters
    ----------
    covariance : (n, n), between the runs, as the regression has it.
    """
    missing = np.isnan(outputs)
    if not missing.any():
        return outputs
    whole = outputs.copy()
    patterns, which = np.unique(missing, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        if pattern.any():
            columns = np.flatnonzero(which.ravel() == number)
            whole[np.ix_(pattern, columns)] = _expected(outputs[np.ix_(~pattern, columns)], covariance, pattern)
    return whole


def _expected(known: Floats, covariance: Floats, lacking: NDArray[np.bool_]) -> Floats:
    centre = known.mean(axis=0)
    has = ~lacking
    factor = scipy.linalg.cho_factor(covariance[np.ix_(has, has)])
    return np.asarray(centre + covariance[np.ix_(lacking, has)] @ scipy.linalg.cho_solve(factor, known - centre))
