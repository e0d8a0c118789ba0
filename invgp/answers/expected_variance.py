"""The expected posterior variance after a measurement, from joint draws of targets and simulated data.

The expected variance of T given data y is the smallest mean squared error of any prediction of T from y. It is
estimated by regression of T on y over draws of both: a linear one, which is exact for a Gaussian posterior and a linear
model, and one with squares, products and kinks for curved posteriors. The one with the smaller cross-validation error
is used. See Strong, Oakley and Brennan (2014), Medical Decision Making 34.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from invgp.problem import Floats

MOST_COMPONENTS = 4  # combinations of the data of one measurement that enter with squares, products and kinks
KINKS = (-1.2, -0.5, 0.0, 0.5, 1.2)  # in standard deviations of the data
LEFT_OUT = 1e-6  # share of the variance of a target whose smallest principal components are not used
RIDGE = 1e-9  # relative to the largest eigenvalue
DRAWS_PER_FEATURE = 10  # fewer draws than this per feature are not enough for a curved regression


@dataclass(frozen=True)
class TargetDraws:
    """Draws of the targets, given the measurements that were chosen so far.

    Attributes
    ----------
    residual : array, shape (R, K)
        Values minus their prediction from the chosen measurements.
    predicted : array, shape (R, K)
        This prediction.
    weights : array, shape (K,)
        Weight of the variance of each column in its target; 0 for columns that only help to predict. The columns are
        places, or principal components over places.
    group : array of int, shape (K,)
        Number of the target of each column.
    thresholds : array, shape (K,)
        Threshold of a column of values, NaN if it has none; the next columns of its target are whether it is exceeded.
    features : int
        Coefficients of the regressions so far.
    """

    residual: Floats
    predicted: Floats
    weights: Floats
    group: NDArray[np.intp]
    thresholds: Floats
    features: int = 1

    @property
    def count(self) -> int:
        """Number of targets."""
        return int(self.group.max()) + 1

    @cached_property
    def total(self) -> Floats:
        """Sum of squared residuals (K,)."""
        return np.asarray(np.sum(self.residual**2, axis=0))


class Expected(NamedTuple):
    """Expected variance (T,) of each target after a measurement, and the standard error (T,) of its reduction."""

    variance: Floats
    error: Floats


def target_draws(values: list[Floats], thresholds: list[float | None]) -> TargetDraws:
    """Return the draws of targets before any measurement.

    Parameters
    ----------
    values : list of array, shape (R, K)
        Values of each target at its places.
    thresholds : list of float or None
        For targets that are exceedances.
    """
    columns, weights, group, limits = [], [], [], []
    for number, (own, threshold) in enumerate(zip(values, thresholds, strict=True)):
        K = own.shape[1]
        parts = [_principal_components(own)] if threshold is None else [own, (own > threshold).astype(np.float64)]
        own_weights = [1.0 / K] if threshold is None else [0.0, 1.0 / K]
        own_limits = [np.nan] if threshold is None else [threshold, np.nan]
        columns += parts
        for part, weight, limit in zip(parts, own_weights, own_limits, strict=True):
            weights.append(np.full(part.shape[1], weight))
            limits.append(np.full(part.shape[1], limit))
            group.append(np.full(part.shape[1], number))
    T = np.concatenate(columns, axis=1)
    mean = T.mean(axis=0)
    return TargetDraws(
        T - mean,
        np.broadcast_to(mean, T.shape),
        np.concatenate(weights),
        np.concatenate(group).astype(np.intp),
        np.concatenate(limits),
    )


def _principal_components(T: Floats) -> Floats:
    """Return combinations (R, k) of columns (R, K) with the same sum of variances, without those that hardly vary.

    A field at many places has few; the sum of the squared errors of regressions is the same for them.
    """
    centred = T - T.mean(axis=0)
    variance, axes = np.linalg.eigh(centred.T @ centred)
    return np.asarray(T @ axes[:, np.cumsum(variance) >= LEFT_OUT * variance.sum()])


def squared_errors(targets: TargetDraws) -> Floats:
    """Return squared errors (R, T) of the predictions of each target; their means are its variances."""
    return _group_sums(targets, _with_probabilities(targets, _squares(targets)))


def expected_variance(targets: TargetDraws, y: Floats, before: Floats) -> Expected:
    """Compute the expected variance of the targets after a measurement, and the error of its reduction.

    Parameters
    ----------
    targets : TargetDraws
    y : array, shape (R, P)
        Simulated data of the measurement, with noise, for each draw.
    before : array, shape (R, T)
        `squared_errors` of the targets.
    """
    squares = squared_errors(update_targets(targets, y, before))
    error = (before - squares).std(axis=0) / np.sqrt(len(y))
    return Expected(np.minimum(squares.mean(axis=0), before.mean(axis=0)), error)


def variance_after(targets: TargetDraws, y: Floats, before: Floats) -> Floats:
    """Return the variance (T,) of `expected_variance`, faster if no target is an exceedance."""
    if np.isfinite(targets.thresholds).any():
        return expected_variance(targets, y, before).variance
    variance = before.mean(axis=0)
    means = _regress(targets, y, variance).means
    return np.asarray(np.minimum(_group_sums(targets, means[None])[0], variance))


def update_targets(targets: TargetDraws, y: Floats, before: Floats) -> TargetDraws:
    """Return the targets given a measurement; arguments as in `expected_variance`."""
    found = _regress(targets, y, before.mean(axis=0))
    fitted = found.features @ found.coefficients
    return replace(
        targets,
        residual=targets.residual - fitted,
        predicted=targets.predicted + fitted,
        features=targets.features + found.features.shape[1] - 1,
    )


def condition(y: Floats, chosen: Floats) -> Floats:
    """Return data (R, P) without what a chosen measurement (R, p) predicts of them linearly."""
    Phi = np.concatenate([np.ones((len(chosen), 1)), _standardise(chosen)], axis=1)
    return np.asarray(y - Phi @ _solve(Phi.T @ Phi, Phi.T @ y))


class _Regression(NamedTuple):
    """Features (R, F) and coefficients (F, K) of a regression of the targets, and the mean squares (K,) that remain."""

    features: Floats
    coefficients: Floats
    means: Floats


def _regress(targets: TargetDraws, y: Floats, variance: Floats) -> _Regression:
    """Regress the targets on data (R, P): linearly, or curved if there are enough draws and this predicts better.

    Only products of features and targets are computed for the choice, because there may be thousands of candidates.
    """
    Phi, sizes = _features(y)
    R, gram, cross = len(y), Phi.T @ Phi, Phi.T @ targets.residual
    best, lowest = None, np.inf
    for size in sizes:
        G, C, used = gram[:size, :size], cross[:size], targets.features + size - 1
        B = _solve(G, C)
        left = np.maximum(targets.total - np.sum(B * (2.0 * C - G @ B), axis=0), 0.0)
        means = left / max(R - used, 1)
        # Generalised cross-validation, relative to the variances before.
        score = float(np.sum(_group_sums(targets, means[None])[0] / variance)) * R / max(R - used, 1)
        if best is None or score < lowest:
            best, lowest = _Regression(Phi[:, :size], B, means), score
    if best is None:
        raise ValueError("there are no features")
    return best


def _features(y: Floats) -> tuple[Floats, list[int]]:
    """Return features (R, F) of data (R, P), and how many of the first ones linear and curved regressions use."""
    z = _standardise(y)
    one = np.ones((len(z), 1))
    linear = np.concatenate([one, z], axis=1)
    few = z[:, :MOST_COMPONENTS]
    i, j = np.triu_indices(few.shape[1])
    count = linear.shape[1] + len(i) + len(KINKS) * few.shape[1]
    if len(z) < DRAWS_PER_FEATURE * count:
        return linear, [linear.shape[1]]
    kinks = [np.maximum(few - kink, 0.0) for kink in KINKS]
    return np.concatenate([linear, few[:, i] * few[:, j], *kinks], axis=1), [linear.shape[1], count]


def _standardise(y: Floats) -> Floats:
    """Return independent combinations (R, p) of data with unit variance, those with the largest variance first."""
    centred = y - y.mean(axis=0)
    scale = np.sqrt(np.mean(centred**2, axis=0))
    centred = centred / np.where(scale > 0.0, scale, 1.0)
    variance, axes = np.linalg.eigh(centred.T @ centred / len(y))
    kept = variance > 1e-10 * max(float(variance[-1]), 1e-300)
    return np.asarray((centred @ axes[:, kept] / np.sqrt(variance[kept]))[:, ::-1])


def _solve(gram: Floats, cross: Floats) -> Floats:
    """Solve normal equations, with a small ridge."""
    ridge = RIDGE * float(np.trace(gram)) * np.eye(len(gram))
    return np.asarray(np.linalg.solve(gram + ridge, cross))  # faster than a Cholesky factor for so few features


def _squares(targets: TargetDraws) -> Floats:
    """Return squared residuals (R, K), scaled so that their mean is an unbiased variance."""
    R = len(targets.residual)
    return np.asarray(targets.residual**2 * (R / max(R - targets.features, 1)))


def _with_probabilities(targets: TargetDraws, squares: Floats) -> Floats:
    """Return the squared errors (R, K) of exceedances with other predictions, where these are better.

    The error of an exceedance is that of its regression, or of the probability that a Gaussian with the predicted value
    and its variance has, whichever is smaller on average.
    """
    for group in range(targets.count):
        members = np.flatnonzero(targets.group == group)
        if np.isfinite(targets.thresholds[members[0]]):
            values, exceedances = np.split(members, 2)
            threshold, m = targets.thresholds[values], targets.predicted[:, values]
            spread = np.sqrt(squares[:, values].mean(axis=0))
            above = m + targets.residual[:, values] > threshold
            errors = (above - ndtr((m - threshold) / np.maximum(spread, 1e-300))) ** 2
            if errors.mean() < squares[:, exceedances].mean():
                squares[:, exceedances] = errors
    return squares


def _group_sums(targets: TargetDraws, squares: Floats) -> Floats:
    """Return the weighted squares (R, T) of each target."""
    weights = np.zeros((len(targets.weights), targets.count))
    weights[np.arange(len(targets.weights)), targets.group] = targets.weights
    return np.asarray(squares @ weights)
