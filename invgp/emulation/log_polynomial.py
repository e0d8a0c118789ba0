"""Exponentials of polynomials: for outputs that are products and powers of the latents.

Such an output varies over orders of magnitude, which a polynomial follows only with many terms. Its logarithm is
smooth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, backend_of
from invgp.emulation.hermite_basis import Basis
from invgp.emulation.polynomial import Polynomial, PullBack, fit_polynomial
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

LARGEST = 40.0  # logarithm of an output in noise standard deviations, to avoid overflow
LOWEST = (1.0, 5.0, 20.0)  # noise standard deviations: smallest output after the shift of outputs that can be negative


@dataclass(frozen=True)
class LogPolynomials:
    """A polynomial of all outputs; some of them are exponentials of polynomials instead, minus a constant.

    Parameters
    ----------
    polynomial : Polynomial
    outputs : array of int, shape (K,)
        Numbers of these outputs.
    logs : Polynomial
        Logarithms of these K outputs plus the constants.
    shift : array, shape (K,)
        The constants; 0 for an output that is positive.
    """

    polynomial: Polynomial
    outputs: Integers
    logs: Polynomial
    shift: Floats

    @property
    def name(self) -> str:
        """Name of the regression, for users."""
        return f"{self.logs.name} of the logarithm"

    @property
    def width(self) -> int:
        """Numbers that one prediction takes."""
        return len(self.polynomial.basis) + len(self.logs.basis)

    def __call__(self, x: Floats, sites: Integers) -> Floats:
        """Predict outputs (B, P) at inputs (B, I)."""
        y = self.polynomial(x, sites)
        y[:, self.outputs] = np.exp(np.minimum(self.logs(x, sites), LARGEST)) - self.shift
        return y

    def linearise(self, x: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Predict outputs (B, P), and return the function that multiplies cotangents by the derivatives."""
        xp, backend = array_namespace(x), backend_of(x)
        y, pull_back_polynomial = self.polynomial.linearise(x, sites)
        logs, pull_back_logs = self.logs.linearise(x, sites)
        most = xp.full_like(logs, LARGEST)
        values = xp.exp(xp.minimum(logs, most))
        slopes = xp.where(logs < most, values, xp.zeros_like(values))
        place = np.zeros((len(self.outputs), y.shape[1]))
        place[np.arange(len(self.outputs)), self.outputs] = 1.0
        into, kept = backend.asarray(place), backend.asarray(1.0 - place.sum(axis=0))
        outputs = y * kept + (values - backend.asarray(self.shift)) @ into

        def pull_back(cotangents: Array) -> Array:
            own = (cotangents @ xp.matrix_transpose(into)) * slopes
            return pull_back_polynomial(cotangents * kept) + pull_back_logs(own)

        return outputs, pull_back

    def is_outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Return a mask (B,) of the inputs that lie outside the region of the runs."""
        outside = self.logs.is_outside(x, sites)
        if len(self.outputs) < self.polynomial.coefficients.shape[1]:
            outside |= self.polynomial.is_outside(x, sites)
        return outside


def fit_logs(
    polynomial: Polynomial,
    basis: Basis,
    x: Floats,
    y: Floats,
    errors: Floats,
    folds: Integers,
    largest: float,
    lowest: float,
) -> tuple[LogPolynomials, Floats] | None:
    """Fit exponentials of polynomials to the outputs for which they are better than a polynomial.

    Parameters
    ----------
    polynomial : Polynomial
        Polynomial of all outputs.
    basis : Basis
        Of the logarithms.
    x, y : arrays, shape (R, I) and (R, P)
        Inputs and outputs; all finite.
    errors : array, shape (R, P)
        Cross-validation errors of the polynomial.
    folds : array of int, shape (R,)
        Fold of each run.
    largest : float
        Errors are clipped to this value when they are compared.
    lowest : float
        Smallest value of an output that can be negative, after its shift.

    Returns
    -------
    (LogPolynomials, array of shape (R, P)) or None
        With its cross-validation errors; None if no output is better.
    """
    smallest = y.min(axis=0)
    shift = np.where(smallest > 0.0, 0.0, lowest - smallest)
    logs = np.log(y + shift)
    fitted, left_out = fit_polynomial(basis, x, logs, folds)
    found = y - (np.exp(np.minimum(logs - left_out, LARGEST)) - shift)
    before, after = (np.mean(np.clip(each, -largest, largest) ** 2, axis=0) for each in (errors, found))
    outputs = np.flatnonzero(after < before)
    if not len(outputs):
        return None
    chosen = replace(fitted, coefficients=fitted.coefficients[:, outputs])
    errors = errors.copy()
    errors[:, outputs] = found[:, outputs]
    return LogPolynomials(polynomial, outputs, chosen, shift[outputs]), errors
