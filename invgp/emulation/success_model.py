"""Where a simulator works: the probability that a run succeeds, as a function of the inputs of the emulator.

Many simulators fail in a part of the prior. An emulator is fitted to the runs that succeed, and continues their outputs
into that part. The posterior is that of the values at which the simulator works, so that its density contains the
probability of success.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from invgp.core.backend import Array, array_namespace, backend_of
from invgp.problem import Floats

Bools = NDArray[np.bool_]

FEWEST = 3  # fewest failures, and successes, without which nothing can be learnt
FOLDS = 5  # of the cross-validation
# Prior standard deviation of the coefficients, whose inputs are standardised: a steep boundary is allowed.
SPREAD = 10.0
FEWEST_NATS = 3.0  # log likelihood of excluded runs that the inputs must add to that of a constant probability
RUNS_PER_FEATURE = 2  # fewest runs per coefficient
MOST_FEATURES = 300
MOST_RUNS = 4000  # the latest ones
MOST_STEPS = 50  # of Newton's method


@dataclass(frozen=True)
class SuccessModel:
    """Logistic regression of success on the inputs, with squares and products.

    Parameters
    ----------
    constant : float
    slopes : array, shape (I,)
    curvature : array, shape (I, I)
        Symmetric.
    """

    constant: float
    slopes: Floats
    curvature: Floats

    def log_probability(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Compute the log probability of success.

        Parameters
        ----------
        x : array, shape (B, I)
            Inputs, on any array library.

        Returns
        -------
        value : array, shape (B,)
        pull_back : callable
            Cotangents (B,) -> gradient (B, I) with respect to the inputs.
        """
        xp, backend = array_namespace(x), backend_of(x)
        slopes, curvature = backend.asarray(self.slopes), backend.asarray(self.curvature)
        bent = x @ curvature
        logit = self.constant + x @ slopes + xp.sum(bent * x, axis=1)
        small = xp.exp(-xp.abs(logit))
        value = xp.where(logit < 0.0, logit, xp.zeros_like(logit)) - xp.log1p(small)
        failure = xp.where(logit < 0.0, 1.0 / (1.0 + small), small / (1.0 + small))

        def pull_back(cotangents: Array) -> Array:
            return (cotangents * failure)[:, None] * (slopes + 2.0 * bent)

        return value, pull_back


def fit_success(x: Floats, succeeded: Bools) -> SuccessModel | None:
    """Fit the probability of success, if it depends on the inputs.

    Parameters
    ----------
    x : array, shape (R, I)
        Standardised inputs of all runs, oldest first.
    succeeded : array of bool, shape (R,)

    Returns
    -------
    SuccessModel or None
        None if there are too few failures, or if they are random.
    """
    x, succeeded = x[-MOST_RUNS:], succeeded[-MOST_RUNS:]
    if min(np.count_nonzero(succeeded), np.count_nonzero(~succeeded)) < FEWEST:
        return None
    constant = np.ones((len(x), 1))
    best, best_score = None, _score(constant, succeeded) + FEWEST_NATS
    rows, columns = np.triu_indices(x.shape[1])
    for features in (np.hstack([constant, x]), np.hstack([constant, x, x[:, rows] * x[:, columns]])):
        if features.shape[1] > MOST_FEATURES or len(x) < RUNS_PER_FEATURE * features.shape[1]:
            break
        score = _score(features, succeeded)
        if score > best_score:
            best, best_score = features, score
    if best is None:
        return None
    weights, size = _fit(best, succeeded), x.shape[1]
    upper = np.zeros((size, size))
    if len(weights) > 1 + size:
        upper[rows, columns] = weights[1 + size :]
    return SuccessModel(float(weights[0]), weights[1 : 1 + size], 0.5 * (upper + upper.T))


def _score(features: Floats, succeeded: Bools) -> float:
    """Return the log likelihood of runs that the fit excludes; every fifth run is excluded together."""
    fold, total = np.arange(len(features)) % FOLDS, 0.0
    for k in range(FOLDS):
        out = fold == k
        logit = features[out] @ _fit(features[~out], succeeded[~out])
        total += float(np.sum(log_expit(np.where(succeeded[out], logit, -logit))))
    return total


def _fit(features: Floats, succeeded: Bools) -> Floats:
    """Maximise the posterior of the coefficients by Newton's method; the constant comes first."""
    precision = np.full(features.shape[1], SPREAD**-2)
    weights = np.zeros(features.shape[1])

    def objective(weights: Floats) -> float:
        logit = features @ weights
        fit = log_expit(np.where(succeeded, logit, -logit)).sum()
        return float(fit - 0.5 * np.sum(precision * weights**2))

    value = objective(weights)
    for _ in range(MOST_STEPS):
        probability = expit(features @ weights)
        gradient = features.T @ (succeeded - probability) - precision * weights
        hessian = (features.T * (probability * (1.0 - probability))) @ features + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        while (new := objective(weights + step)) < value and np.abs(step).max() > 1e-9:
            step = 0.5 * step
        weights = weights + step
        if new - value < 1e-6:
            break
        value = new
    return weights
