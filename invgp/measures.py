"""Measures of the quality of predictions, as in the experiments of the paper.

| measure | of a fitted `SAVIGP` |
| --- | --- |
| SSE, RMSE | `standardised_squared_error(y, model.predict(X))` |
| NLPD, NLP | `negative_log_predictive_density(model.log_predictive_density(X, y))` |
| error rate | `error_rate(labels, model.predict_proba(X))`, with `Logistic` or `Softmax` |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgp.estimator.arguments import Floats, as_floats


def standardised_squared_error(y: ArrayLike, predicted: ArrayLike) -> float:
    """Compute the standardised squared error (SSE): mean squared error divided by the variance of the observations.

    It is 1 for a prediction that equals the mean of the observations everywhere.

    Parameters
    ----------
    y : array, shape (N,) or (N, P)
        Observations; NaN marks a missing one, which is ignored.
    predicted : array, same shape
        Predictions.

    Returns
    -------
    float
        Mean over the outputs.

    Raises
    ------
    ValueError
        The shapes differ, or y has no observation.

    Examples
    --------
    >>> standardised_squared_error([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    1.0
    """
    y, predicted = _check_pair(y, predicted)
    columns = zip(y.reshape(len(y), -1).T, predicted.reshape(len(y), -1).T, strict=True)
    return float(np.mean([np.nanmean((a - b) ** 2) / np.nanvar(a) for a, b in columns if not np.all(np.isnan(a))]))


def root_mean_squared_error(y: ArrayLike, predicted: ArrayLike) -> float:
    """Compute the root mean squared error (RMSE), in the unit of the observations.

    Parameters
    ----------
    y : array, shape (N,) or (N, P)
        Observations; NaN marks a missing one, which is ignored.
    predicted : array, same shape
        Predictions.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The shapes differ, or y has no observation.

    Examples
    --------
    >>> root_mean_squared_error([1.0, 2.0], [1.5, 2.5])
    0.5
    """
    y, predicted = _check_pair(y, predicted)
    return float(np.sqrt(np.nanmean((y - predicted) ** 2)))


def negative_log_predictive_density(log_density: ArrayLike) -> float:
    """Compute the mean negative log predictive density (NLPD), or NLP for discrete outputs.

    Parameters
    ----------
    log_density : array, shape (N,)
        Log predictive densities or log probabilities; NaN marks a site without observations, which is ignored.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The shape is wrong, or all values are NaN.

    Examples
    --------
    >>> negative_log_predictive_density([-1.0, -2.0])
    1.5
    """
    densities = as_floats("log_density", log_density, "numbers of shape (N,)")
    if densities.ndim != 1 or np.all(np.isnan(densities)):
        raise ValueError(f"log_density must be numbers of shape (N,), had shape {densities.shape}, or was all NaN")
    return -float(np.nanmean(densities))


def error_rate(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Compute the error rate (ER): the fraction of sites whose most probable class is not the observed one.

    Parameters
    ----------
    labels : array, shape (N,) or (N, C)
        Class numbers from 0, or one-hot rows; for two classes also -1 and 1, or False and True.
    probabilities : array, shape (N, C) or (N,)
        Probabilities of the C classes, as `Softmax` predicts them; or of the second of two classes, as `Logistic`
        predicts them.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The shapes do not match, or a label is not a class.

    Examples
    --------
    >>> error_rate([0, 1, 1], [0.2, 0.9, 0.4])
    0.3333333333333333
    """
    shares = as_floats("probabilities", probabilities, "numbers of shape (N,) or (N, C)")
    if shares.ndim == 1:
        shares = np.stack([1.0 - shares, shares], axis=1)
    if shares.ndim != 2 or shares.shape[1] < 2:
        raise ValueError(f"probabilities must have shape (N,) or (N, C), had {shares.shape}")
    classes = _classes(as_floats("labels", labels, "numbers of shape (N,) or (N, C)"), shares.shape[1])
    if len(classes) != len(shares):
        raise ValueError(
            f"labels and probabilities must have a row for each site, had {len(classes)} and {len(shares)}"
        )
    return float(np.mean(shares.argmax(axis=1) != classes))


def _classes(labels: Floats, count: int) -> NDArray[Any]:
    """Convert labels to class numbers (N,)."""
    if labels.ndim == 2 and labels.shape[1] == count:
        if not (np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1)):
            raise ValueError("labels of shape (N, C) must have one 1 in each row, and 0 elsewhere")
        return np.asarray(np.argmax(labels, axis=1))
    if labels.ndim != 1:
        raise ValueError(f"labels must have shape (N,) or (N, {count}), had {labels.shape}")
    if count == 2 and np.all(np.isin(labels, (-1.0, 1.0))):
        return np.where(labels > 0, 1, 0)
    if not np.all(np.isin(labels, np.arange(count))):
        other = labels[~np.isin(labels, np.arange(count))][0]
        raise ValueError(f"labels must be class numbers from 0 to {count - 1}, had {other:g}")
    return labels


def _check_pair(y: ArrayLike, predicted: ArrayLike) -> tuple[Floats, Floats]:
    observations, predictions = as_floats("y", y, "numbers"), as_floats("predicted", predicted, "numbers")
    if observations.shape != predictions.shape or not observations.size:
        raise ValueError(
            f"y and predicted must have one shape, (N,) or (N, P), had {observations.shape} and {predictions.shape}"
        )
    if np.all(np.isnan(observations)):
        raise ValueError("y must have at least one observation, was all NaN")
    return observations, predictions
