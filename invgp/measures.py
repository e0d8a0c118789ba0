"""How good predictions are: the measures of the paper's experiments."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def standardised_squared_error(y: ArrayLike, predicted: ArrayLike) -> float:
    """SSE: mean squared error over the variance of the observations; 1 for predicting their mean everywhere."""
    y, predicted = np.asarray(y, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    return float(np.mean((y - predicted) ** 2) / np.var(y))


def root_mean_squared_error(y: ArrayLike, predicted: ArrayLike) -> float:
    """RMSE, in the unit of the observations."""
    return float(np.sqrt(np.mean((np.asarray(y, dtype=np.float64) - np.asarray(predicted, dtype=np.float64)) ** 2)))


def negative_log_predictive_density(log_density: ArrayLike) -> float:
    """NLPD, or NLP for discrete outputs: minus the mean of log predictive densities (or probabilities)."""
    return -float(np.mean(np.asarray(log_density, dtype=np.float64)))


def error_rate(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """ER: share of sites whose most probable class is not the observed one.

    Parameters
    ----------
    labels : (N,) class numbers, or one-hot (N, C).
    probabilities : (N, C).
    """
    labels, probabilities = np.asarray(labels), np.asarray(probabilities)
    classes = labels if labels.ndim == 1 else labels.argmax(axis=-1)
    return float(np.mean(probabilities.argmax(axis=-1) != classes))
