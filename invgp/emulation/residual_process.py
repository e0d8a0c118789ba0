"""Polynomial plus a Gaussian process of its residuals."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, orth, solve_triangular
from scipy.optimize import Bounds, minimize

from invgp.core.backend import Array, backend_of, clip_negative, exp_in_place, sqrt_in_place
from invgp.core.kernels import squared_distances
from invgp.emulation.polynomial import Polynomial, PullBack
from invgp.emulation.ridge import group_positions
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

MOST_LEARNING_RUNS = 250  # runs from which the kernel is learnt; each step costs their cube
ROUGH, SMOOTH = 1.5, 2.5  # nu of the Matérn kernels
STEPS = 40  # most iterations of L-BFGS-B on the kernel parameters
ROWS_AT_ONCE = 1024  # rows per block of a prediction, to limit memory


@dataclass(frozen=True)
class PolynomialAndProcess:
    """Sum of a polynomial and, for some of the outputs, a Gaussian process; both are fitted together.

    Parameters
    ----------
    polynomial : Polynomial
        Polynomial of all outputs.
    outputs : array of int
        Numbers of the outputs with a process.
    kernel : sklearn.gaussian_process.kernels.Kernel
        Kernel of the standardised inputs.
    x : array, shape (R, I)
        Standardised inputs of the runs.
    weights : array, shape (R, len(outputs))
        Weights of the kernel between an input and the runs.
    inverse : array, shape (R, R)
        Inverse of the lower Cholesky factor of the covariance of the runs.
    amplitude : array, shape (len(outputs),)
        Factor on the standard deviation of the kernel for each of the outputs.
    """

    polynomial: Polynomial
    outputs: Integers
    kernel: Any
    x: Floats
    weights: Floats
    inverse: Floats
    amplitude: Floats

    @property
    def name(self) -> str:
        """Name of the regression, for users."""
        return f"{self.polynomial.name} + Gaussian process"

    @property
    def width(self) -> int:
        """Numbers that one prediction takes."""
        return len(self.x) + len(self.polynomial.basis)

    def __call__(self, x: Floats, sites: Integers) -> Floats:
        """Predict outputs (B, P) at inputs (B, I)."""
        y = self.polynomial(x, sites)
        for i in range(0, len(x), ROWS_AT_ONCE):
            rows = slice(i, i + ROWS_AT_ONCE)
            y[rows, self.outputs] += self.kernel(self.polynomial.standardise(x[rows]), self.x) @ self.weights
        return y

    def linearise(self, x: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Predict outputs (B, P), and return the function that multiplies cotangents by the derivatives."""
        backend = backend_of(x)
        y, pull_back_polynomial = self.polynomial.linearise(x, sites)
        # Matérn kernel: (1 + s) exp(-s) with s = sqrt(3) distance, or (1 + s + s^2 / 3) exp(-s) with s = sqrt(5)
        # distance. The derivative with respect to scaled inputs is (scaled - run) times -exp(-s) or -(1 + s) exp(-s) /
        # 3. Most of the time of a sampler is spent here, so operations are in place.
        smooth = self.kernel.k2.nu == SMOOTH
        variance, length_scale = self.kernel.k1.constant_value, self.kernel.k2.length_scale
        unit = self.polynomial.scale * length_scale / math.sqrt(5.0 if smooth else 3.0)
        runs = self.x * (self.polynomial.scale / unit)
        scaled = (x - backend.asarray(self.polynomial.centre)) / backend.asarray(unit)
        weights = np.zeros((len(runs), y.shape[1]))
        weights[:, self.outputs] = variance * self.weights
        squares = squared_distances(scaled, backend.asarray(runs))
        distance = sqrt_in_place(clip_negative(squares + 0.0) if smooth else clip_negative(squares))
        decay = exp_in_place(-distance)
        distance += 1.0
        distance *= decay
        y += distance @ backend.asarray(weights)
        slopes = decay
        if smooth:
            squares *= decay
            y += squares @ backend.asarray(weights / 3.0)
            slopes = distance
        by_run = backend.asarray(weights.T / (-3.0 if smooth else -1.0))
        ones_and_runs = backend.asarray(np.concatenate([np.ones((len(runs), 1)), runs], axis=1))

        def pull_back(cotangents: Array) -> Array:
            change = cotangents @ by_run
            change *= slopes
            sums = change @ ones_and_runs
            gradient = scaled * sums[:, :1] - sums[:, 1:]
            return pull_back_polynomial(cotangents) + gradient / backend.asarray(unit)

        return y, pull_back

    def spread(self, x: Floats) -> Floats:
        """Compute the standard deviation (B, P) of the process at inputs (B, I); 0 for outputs without a process."""
        variance = np.empty(len(x))
        for i in range(0, len(x), ROWS_AT_ONCE):
            z = self.polynomial.standardise(x[i : i + ROWS_AT_ONCE])
            explained = np.sum((self.inverse @ self.kernel(self.x, z)) ** 2, axis=0)
            variance[i : i + ROWS_AT_ONCE] = np.maximum(self.kernel.diag(z) - explained, 0.0)
        spread = np.zeros((len(x), self.polynomial.coefficients.shape[1]))
        spread[:, self.outputs] = np.sqrt(variance)[:, None] * self.amplitude
        return spread

    def is_outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Return a mask (B,) of the inputs that lie outside the region of the runs."""
        return self.polynomial.is_outside(x, sites)


def add_process(
    polynomial: Polynomial,
    x: Floats,
    y: Floats,
    errors: Floats,
    folds: Integers,
    outputs: Integers,
    rng: np.random.Generator,
    smoothness: float = ROUGH,
) -> tuple[PolynomialAndProcess, Floats]:
    """Fit the coefficients of the polynomial and a process together, for some of the outputs.

    Parameters
    ----------
    polynomial : Polynomial
    x, y : arrays, shape (R, I) and (R, P)
        Inputs and outputs; all finite.
    errors : array, shape (R, P)
        Cross-validation errors of the polynomial. The kernel is learnt from them.
    folds : array of int, shape (R,)
        Fold of each run.
    outputs : array of int
        Numbers of the outputs that get a process.
    rng : numpy.random.Generator
        Selects the runs from which the kernel is learnt.
    smoothness : float
        nu of the Matérn kernel: `ROUGH` or `SMOOTH`.

    Returns
    -------
    surface : PolynomialAndProcess
    errors : array, shape (R, P)
        Cross-validation errors of the sum.
    """
    z = polynomial.standardise(x)
    some = rng.permutation(len(x))[:MOST_LEARNING_RUNS]
    kernel, noise = _learn(z[some], errors[np.ix_(some, outputs)], smoothness)
    amplitude = np.sqrt(np.mean(errors[np.ix_(some, outputs)] ** 2, axis=0))
    factor = np.linalg.cholesky(kernel(z) + noise * np.eye(len(z)))
    features = polynomial.basis(z).T
    whitened = solve_triangular(factor, np.concatenate([features, y[:, outputs]], axis=1), lower=True)
    whitened_features, whitened_y = np.split(whitened, [features.shape[1]], axis=1)
    coefficients = polynomial.coefficients.copy()
    coefficients[:, outputs] = lstsq(whitened_features, whitened_y)[0]
    # Inverse covariance of the outputs with a flat prior on the coefficients.
    orthonormal = orth(whitened_features)
    inverse = solve_triangular(factor, np.eye(len(z)), lower=True)
    precision = inverse.T @ inverse - (part := orthonormal.T @ inverse).T @ part
    weights = precision @ y[:, outputs]
    errors = errors.copy()
    precision[np.diag_indices_from(precision)] *= 1.0 + 1e-12  # if no fit is possible without a fold, its error is huge
    for runs in group_positions(folds):
        errors[np.ix_(runs, outputs)] = np.linalg.solve(precision[np.ix_(runs, runs)], weights[runs])
    surface = PolynomialAndProcess(
        replace(polynomial, coefficients=coefficients), outputs, kernel, z, weights, inverse, amplitude
    )
    return surface, errors


def _learn(x: Floats, y: Floats, smoothness: float) -> tuple[Any, float]:
    """Learn kernel and noise variance from inputs x (R, I) and scaled outputs y (R, P), by marginal likelihood."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels  # noqa: PLC0415 - takes a second

    def search(objective: Any, start: Floats, bounds: Floats) -> tuple[Floats, float]:
        within = Bounds(bounds[:, 0], bounds[:, 1])
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=within, options={"maxiter": STEPS})
        return found.x, float(found.fun)

    smooth = kernels.ConstantKernel(1.0, (1e-2, 1e3)) * kernels.Matern(
        np.full(x.shape[1], 3.0), (0.05, 100.0), nu=smoothness
    )
    process = GaussianProcessRegressor(smooth + kernels.WhiteKernel(0.1, (1e-6, 2.0)), optimizer=search)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", category=ConvergenceWarning
        )  # the length-scale of an input without effect is at its bound
        process.fit(x, y / np.sqrt(np.mean(y**2, axis=0)))
    return process.kernel_.k1, float(process.kernel_.k2.noise_level)
