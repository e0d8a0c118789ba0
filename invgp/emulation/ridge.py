"""Ridge regression, and its errors at runs that were left out.

These need no second fit: with the hat matrix H, the residuals e of the fit to all runs and a fold G, the fit without
the fold misses it by (I - H_GG)^-1 e_G, exactly. (scikit-learn's ridge leaves out single runs only.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

STRENGTHS = 10.0 ** np.arange(-12, 0, 2)  # of the penalty, for features of mean square 1


@dataclass(frozen=True)
class Ridge:
    """A linear function of features, fitted with weights.

    Parameters
    ----------
    coefficients : (F, P).
    residuals : (R, P), times the square roots of the weights.
    orthonormal : (R, F), V with hat matrix V V^T.
    whitening : (F, F), from features times the square roots of the weights to `orthonormal`.
    """

    coefficients: Floats
    residuals: Floats
    orthonormal: Floats
    whitening: Floats

    @staticmethod
    def fit(features: Floats, y: Floats, roots: Floats | None = None) -> Ridge:
        """Fit, with the strength of the penalty set by generalised cross-validation.

        Parameters
        ----------
        features : (F, R), of which the first is constant.
        y : (R, P).
        roots : (R,), square roots of the weights; by default all 1.
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

    def left_out(self, folds: Integers, wanted: NDArray[np.bool_] | None = None) -> Floats:
        """Errors (R, P), times the square roots of the weights, of fits without each fold (R,).

        Where `wanted` (R,) is given, folds without any wanted run are NaN.
        """
        errors = np.full(self.residuals.shape, np.nan)
        for runs in members(folds):
            if wanted is None or wanted[runs].any():
                V = self.orthonormal[runs]
                errors[runs] = np.linalg.solve((1.0 + 1e-12) * np.eye(len(runs)) - V @ V.T, self.residuals[runs])
        return errors

    def usual_leverage(self) -> float:
        """What the leverage of a run that is left out stays below for 99 of 100 runs."""
        own = np.minimum(np.sum(self.orthonormal**2, axis=1), 1.0 - 1e-9)
        return float(np.quantile(own / (1.0 - own), 0.99))


def members(groups: Integers) -> list[Integers]:
    """Positions of each distinct number."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
