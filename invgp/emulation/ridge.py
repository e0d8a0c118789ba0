"""Ridge regression with exact cross-validation errors.

The errors need no further fits: with the hat matrix H, the residuals e of the fit to all runs and a fold G, the errors
at the fold of a fit without it are (I - H_GG)^-1 e_G. (The ridge regression of scikit-learn supports only folds of
single runs.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

STRENGTHS = 10.0 ** np.arange(-12, 0, 2)  # candidate strengths of the penalty, for features of mean square 1


@dataclass(frozen=True)
class Ridge:
    """Fitted weighted ridge regression.

    Parameters
    ----------
    coefficients : array, shape (F, P)
    residuals : array, shape (R, P)
        Residuals times the square roots of the weights.
    orthonormal : array, shape (R, F)
        V, with hat matrix V V^T.
    whitening : array, shape (F, F)
        Transforms features times the square roots of the weights to `orthonormal`.
    """

    coefficients: Floats
    residuals: Floats
    orthonormal: Floats
    whitening: Floats

    @staticmethod
    def fit(features: Floats, y: Floats, roots: Floats | None = None) -> Ridge:
        """Fit the regression with the strength of the penalty from generalised cross-validation.

        Parameters
        ----------
        features : array, shape (F, R)
            The first feature is constant.
        y : array, shape (R, P)
        roots : array, shape (R,), optional
            Square roots of the weights; by default 1.
        """
        roots = np.ones(len(y)) if roots is None else roots
        middle, runs = y.mean(axis=0), len(y)
        features, z = features * roots, (y - middle) * roots[:, None]
        sizes = np.sqrt(np.mean(features**2, axis=1))
        sizes[sizes == 0] = 1.0
        features /= sizes[:, None]
        values, vectors = np.linalg.eigh(features @ features.T / runs)
        values = np.maximum(values, 0.0)
        rotated = features.T @ vectors
        moments = rotated.T @ z / runs

        def residuals(strength: float) -> Floats:
            return np.asarray(z - rotated @ (moments / (values + strength)[:, None]))

        def generalised_cross_validation(strength: float) -> float:
            freedom = 1.0 - np.sum(values / (values + strength)) / runs
            return float(np.sum(residuals(strength) ** 2) / freedom**2)

        strength = float(min(STRENGTHS, key=generalised_cross_validation))
        coefficients = vectors @ (moments / (values + strength)[:, None]) / sizes[:, None]
        coefficients[0] += middle
        norms = np.sqrt(runs * (values + strength))
        return Ridge(coefficients, residuals(strength), rotated / norms, vectors / norms / sizes[:, None])

    def left_out_errors(self, folds: Integers, wanted: NDArray[np.bool_] | None = None) -> Floats:
        """Return cross-validation errors (R, P) times the square roots of the weights, for folds (R,).

        If `wanted` (R,) is given, the errors of folds without any wanted run are NaN.
        """
        errors = np.full(self.residuals.shape, np.nan)
        for runs in group_positions(folds):
            if wanted is None or wanted[runs].any():
                V = self.orthonormal[runs]
                errors[runs] = np.linalg.solve((1.0 + 1e-12) * np.eye(len(runs)) - V @ V.T, self.residuals[runs])
        return errors

    def usual_leverage(self) -> float:
        """Return the 99% quantile of the leverages of the runs, each computed without the run."""
        own = np.minimum(np.sum(self.orthonormal**2, axis=1), 1.0 - 1e-9)
        return float(np.quantile(own / (1.0 - own), 0.99))


def group_positions(groups: Integers) -> list[Integers]:
    """Return the positions of each distinct number in `groups`, in increasing order of the number."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
