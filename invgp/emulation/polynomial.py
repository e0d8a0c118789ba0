"""A polynomial that holds everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.emulation.hermite_basis import Basis
from invgp.emulation.ridge import Ridge
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

ROWS_AT_ONCE = 1024  # their monomials stay in the cache


@dataclass(frozen=True)
class Polynomial:
    """A fitted polynomial.

    Parameters
    ----------
    centre, scale : (I,), of the inputs of the runs it was fitted to.
    coefficients : (F, P), of the monomials of the standardised inputs.
    whitening : (F, F), makes the monomials of those runs orthonormal.
    usual_leverage : what `leverage` stays below for nearly all runs, if each is left out in turn.
    """

    basis: Basis
    centre: Floats
    scale: Floats
    coefficients: Floats
    whitening: Floats
    usual_leverage: float

    @property
    def name(self) -> str:
        """In words."""
        return self.basis.name

    def standardised(self, x: Floats) -> Floats:
        """Inputs (B, I) -> inputs (B, I) of the basis."""
        return np.asarray((x - self.centre) / self.scale)

    def __call__(self, x: Floats, sites: Integers) -> Floats:  # noqa: ARG002 - it is the same at all sites
        """Outputs (B, P) at inputs (B, I) of the sites (B,)."""
        y = np.empty((len(x), self.coefficients.shape[1]))
        for i in range(0, len(x), ROWS_AT_ONCE):
            rows = slice(i, i + ROWS_AT_ONCE)
            np.matmul(self.basis(self.standardised(x[rows])).T, self.coefficients, out=y[rows])
        return y

    def leverage(self, x: Floats) -> Floats:
        """What new runs there would tell the fit, (B,): grows without end outside the runs."""
        leverage = np.empty(len(x))
        for i in range(0, len(x), ROWS_AT_ONCE):
            rows = slice(i, i + ROWS_AT_ONCE)
            leverage[rows] = np.sum((self.whitening.T @ self.basis(self.standardised(x[rows]))) ** 2, axis=0)
        return leverage

    def outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:  # noqa: ARG002
        """Which inputs lie where there are no runs, (B,)."""
        return self.leverage(x) > self.usual_leverage


def fit_polynomial(basis: Basis, x: Floats, y: Floats, folds: Integers) -> tuple[Polynomial, Floats]:
    """Fit each output to the runs that have it.

    Parameters
    ----------
    x : (R, I), inputs.
    y : (R, P), outputs; NaN where there is none, but no column without any.
    folds : (R,), runs with the same number are left out together.

    Returns
    -------
    The polynomial, and its errors (R, P) at runs that were left out; NaN where `y` is.
    """
    centre, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    features = basis((x - centre) / scale)
    coefficients, errors = np.zeros((len(basis), y.shape[1])), np.full(y.shape, np.nan)
    present = np.isfinite(y)
    fits = []
    for runs in np.unique(present, axis=1).T:
        outputs = np.flatnonzero((present == runs[:, None]).all(axis=0))
        fit = Ridge.fit(features[:, runs], y[np.ix_(runs, outputs)])
        coefficients[:, outputs] = fit.coefficients
        errors[np.ix_(runs, outputs)] = fit.left_out(folds[runs])
        fits.append(fit)
    fewest = min(fits, key=lambda fit: len(fit.residuals))
    return Polynomial(basis, centre, scale, coefficients, fewest.whitening, fewest.usual_leverage()), errors
