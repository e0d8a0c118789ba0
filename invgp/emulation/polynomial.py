"""Global polynomial: one regression for all sites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, backend_of, sum_of_products
from invgp.emulation.hermite_basis import Basis
from invgp.emulation.ridge import Ridge
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

PullBack = Callable[[Array], Array]  # cotangents (B, P) of the outputs -> gradient (B, I) with respect to the inputs
ROWS_AT_ONCE = 1024  # rows per block, so that their features fit into the cache


@dataclass(frozen=True)
class Polynomial:
    """A fitted polynomial.

    Parameters
    ----------
    basis : Basis
    centre, scale : arrays, shape (I,)
        Mean and standard deviation of the inputs of the runs in the fit.
    coefficients : array, shape (F, P)
        Coefficients of the products of Hermite polynomials of the standardised inputs.
    whitening : array, shape (F, F)
        Transforms the features of these runs to orthonormal ones.
    usual_leverage : float
        Upper limit of the leverage of 99% of the runs, each computed without the run.
    """

    basis: Basis
    centre: Floats
    scale: Floats
    coefficients: Floats
    whitening: Floats
    usual_leverage: float

    @cached_property
    def derivatives(self) -> Floats:
        """Coefficients (I, G, P) of the derivatives with respect to the standardised inputs; see `Basis`."""
        return self.basis.differentiate(self.coefficients)

    @property
    def name(self) -> str:
        """Name of the regression, for users."""
        return self.basis.name

    def standardise(self, x: Floats) -> Floats:
        """Standardise inputs (B, I) for the basis."""
        return np.asarray((x - self.centre) / self.scale)

    @property
    def width(self) -> int:
        """Numbers that one prediction takes."""
        return len(self.basis)

    def __call__(self, x: Floats, sites: Integers) -> Floats:  # noqa: ARG002 - the same function at all sites
        """Predict outputs (B, P) at inputs (B, I)."""
        y = np.empty((len(x), self.coefficients.shape[1]))
        for i in range(0, len(x), ROWS_AT_ONCE):
            rows = slice(i, i + ROWS_AT_ONCE)
            np.matmul(self.basis(self.standardise(x[rows])).T, self.coefficients, out=y[rows])
        return y

    def linearise(self, x: Array, sites: Integers) -> tuple[Array, PullBack]:  # noqa: ARG002 - the same at all sites
        """Predict outputs (B, P), and return the function that multiplies cotangents by the derivatives."""
        xp, backend = array_namespace(x), backend_of(x)
        centre, scale, coefficients = (backend.asarray(part) for part in (self.centre, self.scale, self.coefficients))
        derivatives = backend.asarray(self.derivatives)
        features = self.basis((x - centre) / scale)
        lower = features[: derivatives.shape[1], :]

        def pull_back(cotangents: Array) -> Array:
            weights = derivatives @ xp.matrix_transpose(cotangents)
            return xp.matrix_transpose(sum_of_products(weights, xp.broadcast_to(lower, weights.shape))) / scale

        return xp.matrix_transpose(features) @ coefficients, pull_back

    def leverage(self, x: Floats) -> Floats:
        """Leverage (B,) of inputs (B, I) in the fit; it grows without limit outside the region of the runs."""
        leverage = np.empty(len(x))
        for i in range(0, len(x), ROWS_AT_ONCE):
            rows = slice(i, i + ROWS_AT_ONCE)
            leverage[rows] = np.sum((self.whitening.T @ self.basis(self.standardise(x[rows]))) ** 2, axis=0)
        return leverage

    def is_outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:  # noqa: ARG002
        """Return a mask (B,) of the inputs that lie outside the region of the runs."""
        return self.leverage(x) > self.usual_leverage


def fit_polynomial(basis: Basis, x: Floats, y: Floats, folds: Integers) -> tuple[Polynomial, Floats]:
    """Fit each output to the runs that have it, by ridge regression.

    Parameters
    ----------
    basis : Basis
    x : array, shape (R, I)
        Inputs.
    y : array, shape (R, P)
        Outputs; NaN if a run has no such output. Each column has at least one value.
    folds : array of int, shape (R,)
        Fold of each run.

    Returns
    -------
    surface : Polynomial
    errors : array, shape (R, P)
        Cross-validation errors; NaN where `y` is NaN.
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
        errors[np.ix_(runs, outputs)] = fit.left_out_errors(folds[runs])
        fits.append(fit)
    fewest = min(fits, key=lambda fit: len(fit.residuals))
    return Polynomial(basis, centre, scale, coefficients, fewest.whitening, fewest.usual_leverage()), errors
