"""A Gaussian process on top of a polynomial, for what the polynomial cannot say."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, orth, solve_triangular
from scipy.optimize import Bounds, minimize

from invgp.emulation.polynomial import Polynomial
from invgp.emulation.ridge import members
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

LEARNT_FROM = 250  # runs: the kernel's parameters cost the cube of it, some tens of times
STEPS = 40  # to find them
SMOOTHNESS = 1.5
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class PolynomialAndProcess:
    """A polynomial, with a Gaussian process on top for some of the outputs, fitted together.

    Parameters
    ----------
    polynomial : for all outputs.
    outputs : numbers of those that have a process.
    kernel : scikit-learn's, of inputs standardised as the polynomial's.
    x : (R, I), standardised inputs of the runs.
    weights : (R, outputs), of the kernel between an input and the runs.
    """

    polynomial: Polynomial
    outputs: Integers
    kernel: Any
    x: Floats
    weights: Floats

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.polynomial.name} + Gaussian process"

    def __call__(self, x: Floats, sites: Integers) -> Floats:
        """Outputs (B, P) at inputs (B, I) of the sites (B,)."""
        y = self.polynomial(x, sites)
        for i in range(0, len(x), ROWS_AT_ONCE):
            rows = slice(i, i + ROWS_AT_ONCE)
            y[rows, self.outputs] += self.kernel(self.polynomial.standardised(x[rows]), self.x) @ self.weights
        return y

    def outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Which inputs lie where there are no runs, (B,)."""
        return self.polynomial.outside(x, sites)


def add_process(
    polynomial: Polynomial,
    x: Floats,
    y: Floats,
    errors: Floats,
    folds: Integers,
    outputs: Integers,
    rng: np.random.Generator,
) -> tuple[PolynomialAndProcess, Floats]:
    """Fit the polynomial's coefficients and a process together, for some of the outputs.

    Parameters
    ----------
    x, y : (R, I) and (R, P), all of them finite.
    errors : (R, P), of the polynomial at runs that were left out: what the process has to explain.
    folds : (R,), runs with the same number are left out together.

    Returns
    -------
    The sum of the two, and its errors (R, P) at runs that were left out.
    """
    z = polynomial.standardised(x)
    some = rng.permutation(len(x))[:LEARNT_FROM]
    kernel, noise = _learn(z[some], errors[np.ix_(some, outputs)])
    factor = np.linalg.cholesky(kernel(z) + noise * np.eye(len(z)))
    features = polynomial.basis(z).T
    whitened = solve_triangular(factor, np.concatenate([features, y[:, outputs]], axis=1), lower=True)
    whitened_features, whitened_y = np.split(whitened, [features.shape[1]], axis=1)
    coefficients = polynomial.coefficients.copy()
    coefficients[:, outputs] = lstsq(whitened_features, whitened_y)[0]
    # What the outputs' inverse covariance becomes when the coefficients may be anything.
    orthonormal = orth(whitened_features)
    inverse = solve_triangular(factor, np.eye(len(z)), lower=True)
    precision = inverse.T @ inverse - (part := orthonormal.T @ inverse).T @ part
    weights = precision @ y[:, outputs]
    errors = errors.copy()
    precision[np.diag_indices_from(precision)] *= 1.0 + 1e-12  # a fold without which there is no fit gets a huge error
    for runs in members(folds):
        errors[np.ix_(runs, outputs)] = np.linalg.solve(precision[np.ix_(runs, runs)], weights[runs])
    return PolynomialAndProcess(replace(polynomial, coefficients=coefficients), outputs, kernel, z, weights), errors


def _learn(x: Floats, y: Floats) -> tuple[Any, float]:
    """The kernel of x (R, I) that makes y (R, P), each output scaled, most probable, and the noise beside it."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels  # noqa: PLC0415 - takes a second

    def search(objective: Any, start: Floats, bounds: Floats) -> tuple[Floats, float]:
        within = Bounds(bounds[:, 0], bounds[:, 1])
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=within, options={"maxiter": STEPS})
        return found.x, float(found.fun)

    smooth = kernels.ConstantKernel(1.0, (1e-2, 1e3)) * kernels.Matern(
        np.full(x.shape[1], 3.0), (0.05, 100.0), nu=SMOOTHNESS
    )
    process = GaussianProcessRegressor(smooth + kernels.WhiteKernel(0.1, (1e-6, 2.0)), optimizer=search)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=ConvergenceWarning)  # an input without effect, its scale at a bound
        process.fit(x, y / np.sqrt(np.mean(y**2, axis=0)))
    return process.kernel_.k1, float(process.kernel_.k2.noise_level)
